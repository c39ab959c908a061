"""Generated tokens per second, compared with transformers' `generate`.

    make test-peers   # once, for an environment with torch
    .venv-peers/bin/python tests/benchmarks/generate.py

Random weights of a published family in transformers are imported by `from_hf`; both
continue the same prompts greedily, and the tokens are compared before timing. Rounds
alternate; compilation and the first call of each are excluded.
The peer runs as a user would: KV cache, eager attention or SDPA as it chooses, no
`torch.compile`.
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

from jaxpt.evaluation.sampling import generate
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.hub.configs import read_config
from jaxpt.hub.convert import from_hf
from jaxpt.nn.decoding import make_decoder
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks as attention_masks

V, SPECIALS = 8000, {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CASES = {
    "gpt2": (
        "causal",
        {"n_layer": 4, "n_embd": 256, "n_head": 4, "n_positions": 512},
    ),
    "llama": (
        "causal",
        {
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
        },
    ),
    "t5": (
        "seq2seq",
        {
            "d_model": 256,
            "d_kv": 64,
            "d_ff": 1024,
            "num_layers": 4,
            "num_decoder_layers": 4,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
    ),
}


def make_pair(kind: str):
    """Their model, our decoder and parameters."""
    head, settings = CASES[kind]
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=V, **SPECIALS, **settings
    )
    family, spec = read_config(config.to_dict() | {"model_type": kind})
    torch.manual_seed(0)
    reference = getattr(transformers, family.heads[head])(config).eval()
    with torch.no_grad():  # at their start all models say the same again and again
        for parameter in reference.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    model = Transformer(spec)
    ids = jnp.zeros((1, 8), jnp.int32)
    masks = dict.fromkeys(("self", "dec_self", "cross"), attention_masks.full())
    second = ids if head == "seq2seq" else None
    shapes = jax.eval_shape(
        lambda rng: model.init(rng, ids, masks, second, deterministic=True)["params"],
        jax.random.key(0),
    )
    tensors = {name: value.numpy() for name, value in reference.state_dict().items()}
    params = from_hf(tensors, family, spec, head, shapes)
    ends = {"start_id": 0} if head == "seq2seq" else {}
    return reference, make_decoder(model, **ends), jax.tree.map(jnp.asarray, params)


def main() -> None:
    """Prints a line for each family and batch size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--prompt", type=int, default=32, help="tokens")
    parser.add_argument("--new", type=int, default=128, help="tokens")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(
        f"{jax.devices()[0].device_kind}; torch {torch.__version__} on {device}, "
        f"{torch.get_num_threads()} threads; transformers {transformers.__version__}"
    )
    print("family batch   jaxpt tokens/s   transformers tokens/s   median ratio")
    for kind in args.families:
        reference, decoder, params = make_pair(kind)
        reference.to(device)
        for size in args.batch_sizes:
            prompts = np.random.default_rng(0).integers(6, V, (size, args.prompt))
            run = jax.jit(
                functools.partial(
                    generate,
                    decoder,
                    num_tokens=args.new,
                    spec=SampleSpec(temperature=0.0),
                    stop=(),
                )
            )
            lengths = np.full(size, args.prompt, np.int32)
            prompts_jax = jnp.asarray(prompts, jnp.int32)
            prompts_torch = torch.tensor(prompts, device=device)

            def ours(run=run, prompts=prompts_jax, lengths=lengths, params=params):
                tokens, _ = run(params, prompts, lengths, rng=jax.random.key(0))
                return np.asarray(tokens)

            def peers(reference=reference, prompts=prompts_torch):
                with torch.no_grad():
                    tokens = reference.generate(
                        prompts,
                        attention_mask=torch.ones_like(prompts),
                        max_new_tokens=args.new,
                        do_sample=False,
                        eos_token_id=None,
                    )
                return tokens[:, -args.new :].cpu().numpy()

            same = float((ours() == peers()).mean())
            if same < 0.99:
                raise SystemExit(f"{kind}: {same:.1%} of the tokens are the same")
            speeds = {ours: [], peers: []}
            for _ in range(args.rounds):
                for side, result in speeds.items():
                    start = time.perf_counter()
                    side()
                    result.append(size * args.new / (time.perf_counter() - start))
            pairs = zip(*speeds.values(), strict=True)
            ratio = statistics.median(a / b for a, b in pairs)
            jaxpt_speed, other = (
                statistics.median(results) for results in speeds.values()
            )
            print(
                f"{kind:6s} {size:5d} {jaxpt_speed:16,.0f} {other:23,.0f} {ratio:14.2f}"
            )


if __name__ == "__main__":
    main()

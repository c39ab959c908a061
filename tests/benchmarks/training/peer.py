"""The peer: the same model of transformers in PyTorch, in a step as a user writes it.

Started by `__main__`, it speaks as `ours.py` does. Corruption is left out of its steps:
batches are made beforehand. ELECTRA, for which transformers has the two networks and no
training step, is put together as its paper says: one table of embeddings, samples drawn
from the generator at the hidden places, losses 1 : 50.
"""

import contextlib
import dataclasses
import json
import resource
import sys
import time

import torch
import transformers
from sizes import CASES, ELECTRA_SHARE

from jaxpt.hub.configs import write_config
from jaxpt.nn.presets import get_preset

HEADS = {"clm": "causal", "mlm": "masked", "span_corruption": "seq2seq"}
RATE = 0.15  # of hidden tokens


def make_model(spec, head: str, attention: str):
    """A model of transformers of the size of a spec."""
    family, values = write_config(spec, head)
    config = transformers.AutoConfig.for_model(**values)
    config._attn_implementation = attention
    if head == "seq2seq":
        config.decoder_start_token_id = config.pad_token_id = 0
    model = getattr(transformers, family.heads[head])(config)
    if head == "seq2seq" and not spec.tie_embeddings:
        # Made anew it is tied all the same (5.23).
        table = torch.randn_like(model.shared.weight) * spec.d_model**-0.5
        model.lm_head.weight = torch.nn.Parameter(table)
    return model


class Electra(torch.nn.Module):
    """Generator and discriminator on one table of embeddings."""

    def __init__(self, spec, attention: str):
        super().__init__()
        small = dataclasses.replace(
            spec,
            d_model=int(spec.d_model * ELECTRA_SHARE),
            num_heads=max(1, int(spec.num_heads * ELECTRA_SHARE)),
            d_ff=int(spec.d_ff * ELECTRA_SHARE),
            embedding_size=spec.embedding_dim,
        )
        self.generator = make_model(small, "generator", attention)
        self.discriminator = make_model(spec, "discriminator", attention)
        self.discriminator.electra.embeddings = self.generator.electra.embeddings
        self.generator.tie_weights()

    def forward(self, input_ids, original, hidden):
        """The weighted sum of both losses."""
        logits = self.generator(input_ids).logits[hidden].float()
        targets = original[hidden]
        loss = torch.nn.functional.cross_entropy(logits, targets)
        with torch.no_grad():
            noise = -torch.log(-torch.log(torch.rand_like(logits)))
            ids = original.clone()
            ids[hidden] = (logits + noise).argmax(-1)
        labels = (ids != original).float()
        scores = self.discriminator(ids).logits.float()
        bce = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)
        return loss + 50 * bce


def make_batch(case, settings: dict, device: str) -> dict:
    """Ids of the lengths that ours works on."""
    vocab = settings["vocab_size"]
    lengths = settings["lengths"]

    def draw(length):
        return torch.randint(5, vocab - 100, (case.batch, length), device=device)

    if case.objective == "clm":
        (length,) = lengths.values()
        ids = draw(length)
        return {"input_ids": ids, "labels": ids}
    if case.objective == "span_corruption":
        ids, targets = draw(lengths["encoder"]), draw(lengths["decoder"])
        return {"input_ids": ids, "labels": targets}
    ids = draw(next(iter(lengths.values())))
    hidden = torch.rand(ids.shape, device=device) < RATE
    masked = torch.where(hidden, 2, ids)
    if case.objective == "electra":
        return {"input_ids": masked, "original": ids, "hidden": hidden}
    return {"input_ids": masked, "labels": torch.where(hidden, ids, -100)}


def main() -> None:
    """Argument: JSON with case, dtype, dropout, attention, compile and lengths."""
    settings = json.loads(sys.argv[1])
    case = CASES[settings["case"]]
    spec = get_preset(
        case.preset,
        **case.changes,
        **dict.fromkeys(
            ("dropout", "embed_dropout", "attention_dropout"), settings["dropout"]
        ),
    )
    settings["vocab_size"] = spec.vocab_size
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(settings["precision"])
    is_electra = case.objective == "electra"
    model = (
        Electra(spec, settings["attention"])
        if is_electra
        else make_model(spec, HEADS[case.objective], settings["attention"])
    )
    model = model.to(device).train()
    if case.settings.get("model.remat", "none") != "none":
        model.gradient_checkpointing_enable()
    batch = make_batch(case, settings, device)
    is_cuda = device == "cuda"
    kinds = {"fused": True} if is_cuda else {"foreach": True}
    optimizer = torch.optim.AdamW(
        model.parameters(), 1e-4, weight_decay=0.01, betas=(0.9, 0.999), **kinds
    )
    run = torch.compile(model) if settings["compile"] else model

    def cast():
        if settings["dtype"] == "float32":
            return contextlib.nullcontext()
        return torch.autocast(device, torch.bfloat16)

    def step():
        with cast():
            out = run(**batch)
        loss = out if is_electra else out.loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def wait():
        if is_cuda:
            torch.cuda.synchronize()

    start = time.perf_counter()
    for _ in range(2):
        step()
    wait()
    about = {
        "params": sum(p.numel() for p in model.parameters()),
        "compile_seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if is_cuda else "cpu",
        "versions": [torch.__version__, transformers.__version__],
    }
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        num = int(line)
        start = time.perf_counter()
        for _ in range(num):
            step()
        wait()
        seconds = (time.perf_counter() - start) / num
        if is_cuda:
            torch.cuda.empty_cache()  # room for the other sides
        peak = (
            torch.cuda.max_memory_allocated()
            if is_cuda
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        print(json.dumps({"seconds": seconds, "memory": peak}), flush=True)


if __name__ == "__main__":
    main()

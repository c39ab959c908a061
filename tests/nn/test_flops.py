"""The compute counter against the products of a traced model, and published totals."""

import jax
import jax.numpy as jnp
import pytest
from products import count_products

from jaxpt.nn import flops
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.presets import PRESETS, get_preset
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives import clm
from jaxpt.ops import masks
from jaxpt.text.tokens.vocab import Vocab

WIDE = {"vocab_size": 1000, "d_model": 256, "num_heads": 4, "d_ff": 1024}
ROWS, S, T = 2, 96, 64


def forward_products(spec: ModelSpec) -> float:
    """Operations of the products in a forward pass on one row."""
    model = Transformer(spec)
    seen = {"self": masks.full(), "dec_self": masks.causal(), "cross": masks.full()}
    ids = jax.ShapeDtypeStruct((ROWS, S), jnp.int32)
    dec_ids = jax.ShapeDtypeStruct((ROWS, T), jnp.int32)
    args = (ids, dec_ids) if spec.num_decoder_layers else (ids,)

    def run(params, ids, dec_ids=None):
        return model.apply(params, ids, seen, dec_ids, deterministic=True)

    def init(key, *args):
        first, *rest = (jnp.zeros(a.shape, a.dtype) for a in args)
        return model.init(key, first, seen, *rest, deterministic=True)

    params = jax.eval_shape(lambda key: init(key, *args), jax.random.key(0))
    return count_products(run, params, *args) / ROWS


@pytest.mark.slow_cases(
    "gated_mlp*", "num_decoder_layers*", "plain", "num_kv_heads num_decoder_layers"
)
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"embedding_size": 64},
        {"tie_embeddings": False},
        {"tie_embeddings": False, "embedding_size": 64},
        {"head_transform": True},
        {"head_transform": True, "embedding_size": 64},
        {"tie_embeddings": False, "head_transform": True, "embedding_size": 64},
        {"tie_embeddings": False, "head_transform": True, "transform_size": 48},
        {"num_decoder_layers": 2, "positions": "relative"},
        {"num_decoder_layers": 1, "embedding_size": 128},
        {"num_kv_heads": 2},
        {"num_kv_heads": 1, "num_decoder_layers": 2},
        {"head_dim": 48},
        {"value_embeddings": True, "num_layers": 3, "num_kv_heads": 2, "smear": True},
        {"value_embeddings": True, "num_decoder_layers": 1},
        {"gated_mlp": True, "positions": "rotary", "norm": "rmsnorm"},
        {"attention_gate": True, "depth_sums": True, "num_layers": 3, "head_dim": 48},
        {"attention_gate": True, "num_decoder_layers": 1},
        {"disentangled": "both", "disentangled_norm": True, "num_kv_heads": 2},
        {"disentangled": "c2p", "num_kv_heads": 1, "disentangled_projections": True},
        {"disentangled": "p2c", "num_decoder_layers": 1, "head_dim": 48},
        {"gated_mlp": True, "num_decoder_layers": 1, "tie_embeddings": False},
    ],
    ids=lambda values: " ".join(values) or "plain",
)
def test_the_products_of_a_forward_pass(values):
    spec = ModelSpec(**(WIDE | values))
    counted = flops.stack_flops(spec, spec.num_layers, S) + flops.project_flops(spec, S)
    if spec.num_decoder_layers:
        counted += flops.stack_flops(spec, spec.num_decoder_layers, T, S)
        counted += flops.project_flops(spec, T) + flops.head_flops(spec, T)
    else:
        counted += flops.head_flops(spec, S)
    counted += flops.batch_flops(spec) / ROWS
    assert counted == forward_products(spec)


def test_a_local_layer_costs_what_its_window_holds():
    """Of four layers two see 96 keys, the others 8 on each side and their own."""
    spec = ModelSpec(**WIDE, num_layers=4)
    local = ModelSpec(**WIDE, num_layers=4, window=8, global_every=2)
    less = flops.stack_flops(spec, 4, S) - flops.stack_flops(local, 4, S)
    assert less == 2 * 4 * S * (S - 17) * 256
    wide = ModelSpec(**WIDE, num_layers=4, window=S)
    assert flops.stack_flops(wide, 4, S) == flops.stack_flops(spec, 4, S)


def test_counts_by_hand():
    spec = ModelSpec(vocab_size=10, d_model=8, num_heads=2, d_ff=16, embedding_size=4)
    # Four projections 2*T*D*D each; scores and their sum 2*T*T*D each; two of 2*T*D*F.
    layer = 4 * 2 * 5 * 8 * 8 + 2 * 2 * 5 * 5 * 8 + 2 * 2 * 5 * 8 * 16
    assert flops.stack_flops(spec, 3, 5) == 3 * layer
    # Reading 7 places: query and out at 5 places, key and value at 7.
    cross = 2 * 2 * 5 * 8 * 8 + 2 * 2 * 7 * 8 * 8 + 2 * 2 * 5 * 7 * 8
    assert flops.stack_flops(spec, 3, 5, 7) == 3 * (layer + cross)
    assert flops.project_flops(spec, 5) == 2 * 5 * 4 * 8
    assert flops.head_flops(spec, 3) == 2 * 3 * 8 * 4 + 2 * 3 * 4 * 10


def test_a_causal_model_costs_6n_and_12ldt_a_token():
    spec, length = get_preset("gpt2"), 1024
    row = clm.Spec.for_seq_len(length)
    model = row.make_network(spec, Vocab(size=spec.vocab_size))
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    # Without the positions, as nanoGPT's estimate.
    size = sum(x.size for x in jax.tree.leaves(params)) - 1024 * 768
    expected = length * (6 * size + 12 * 12 * 768 * length)
    counted = model.count_flops(row.lengths, row.predictions.most)
    assert counted == pytest.approx(expected, rel=2e-3)
    assert counted < expected  # biases and norms


def clark(spec, length, **more):
    """Of a row, by a preset's name or a spec's values."""
    spec = ModelSpec(**spec) if isinstance(spec, dict) else get_preset(spec)
    return flops.clark_flops(spec, length, **more)


def both(name, length):
    """Of a row, in ELECTRA's two networks."""
    generator = clark(f"{name}-generator", length)
    return generator + clark(name, length, is_discriminator=True)


GPT = PRESETS["gpt2"] | {"vocab_size": 40000}
SMALL = PRESETS["electra-small"]
ALBERT = {"num_layers": 12, "d_model": 4096, "num_heads": 64, "d_ff": 16384}
ALBERT |= {"vocab_size": 30000, "embedding_size": 128}
T5_11B = {"num_layers": 24, "num_decoder_layers": 24, "d_model": 1024, "head_dim": 128}
T5_11B |= {"num_heads": 128, "d_ff": 65536, "vocab_size": 32000}


@pytest.mark.parametrize(
    "expected, result",
    [
        (3.968752230785352e19, 128 * 960800 * clark(GPT, 512, output_share=1.0)),
        (1.4187399146496e18, 128 * 1.45e6 * clark(SMALL, 128)),
        (6.428335104e19, 256 * 1e6 * clark("bert-base", 512)),
        (1.91720905883648e20, 256 * 1e6 * clark("bert-large", 512)),
        (1.293743798272e18, 128 * 1e6 * both("electra-small", 128)),
        (6.424541834277683e19, 256 * 766000 * both("electra-base", 512)),
        (7.117606040895488e20, 2048 * 400000 * both("electra-large", 512)),
        (3.113952642891776e21, 2048 * 1.75e6 * both("electra-large", 512)),
        (3.187221435776e21, 8000 * 500000 * clark("roberta-large", 512)),
        (3.113923955392512e22, 4096 * 1.5e6 * clark(ALBERT, 512)),
        (4.581900124212429e22, 2048 * 1e6 * clark(T5_11B, 512, output_share=1.0)),
    ],
)
def test_electras_published_totals(expected, result):
    # What flops_computation.py prints, to its last digit; BERT-small's sizes are those
    # of ELECTRA's discriminator.
    assert result == pytest.approx(expected, rel=1e-15)

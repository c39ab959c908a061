"""The compute counter against what XLA counts in the compiled forward pass."""

import jax
import jax.numpy as jnp
import pytest

from jaxpt.nn import flops
from jaxpt.nn.spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

WIDE = {"vocab_size": 1000, "width": 256, "num_heads": 4, "mlp_width": 1024}
ROWS, S, T = 2, 96, 64


def xla_flops(spec: ModelSpec) -> float:
    """Operations of a forward pass on one row, as XLA counts them."""
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
    compiled = jax.jit(run).lower(params, *args).compile()
    return compiled.cost_analysis()["flops"] / ROWS


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"embed_width": 64},
        {"tie_embeddings": False},
        {"tie_embeddings": False, "embed_width": 64},
        {"head_transform": True},
        {"head_transform": True, "embed_width": 64},
        {"tie_embeddings": False, "head_transform": True, "embed_width": 64},
        {"num_decoder_layers": 2, "positions": "relative"},
        {"num_decoder_layers": 1, "embed_width": 128},
    ],
    ids=lambda values: " ".join(values) or "plain",
)
def test_forward_flops_are_xlas(values):
    spec = ModelSpec(**(WIDE | values))
    counted = flops.stack_flops(spec, spec.num_layers, S) + flops.project_flops(spec, S)
    if spec.num_decoder_layers:
        counted += flops.stack_flops(spec, spec.num_decoder_layers, T, S)
        counted += flops.project_flops(spec, T) + flops.head_flops(spec, T)
    else:
        counted += flops.head_flops(spec, S)
    assert counted == pytest.approx(xla_flops(spec), rel=0.1)


def test_counts_by_hand():
    spec = ModelSpec(vocab_size=10, width=8, num_heads=2, mlp_width=16, embed_width=4)
    # Four projections 2*T*D*D each; scores and their sum 2*T*T*D each; two of 2*T*D*F.
    layer = 4 * 2 * 5 * 8 * 8 + 2 * 2 * 5 * 5 * 8 + 2 * 2 * 5 * 8 * 16
    assert flops.stack_flops(spec, 3, 5) == 3 * layer
    # Reading 7 places: query and out at 5 places, key and value at 7.
    cross = 2 * 2 * 5 * 8 * 8 + 2 * 2 * 7 * 8 * 8 + 2 * 2 * 5 * 7 * 8
    assert flops.stack_flops(spec, 3, 5, 7) == 3 * (layer + cross)
    assert flops.project_flops(spec, 5) == 2 * 5 * 4 * 8
    assert flops.head_flops(spec, 3) == 2 * 3 * 8 * 4 + 2 * 3 * 4 * 10

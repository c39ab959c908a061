"""What the tests of the Transformer share."""

import jax
import jax.numpy as jnp
import pytest
from numpy.random import default_rng

from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

SMALL = {
    "vocab_size": 11,
    "num_layers": 2,
    "d_model": 16,
    "num_heads": 2,
    "d_ff": 24,
    "max_len": 16,
}


@pytest.fixture
def make_spec():
    """`make_spec(positions="none")`: a small ModelSpec with some values changed."""

    def make(**values):
        return ModelSpec(**(SMALL | values))

    return make


@pytest.fixture
def make_params():
    """`make_params(spec)`: the model, and parameters of the spread `init_std`.

    NumPy draws them, for compiling `model.init` takes longer than most tests.
    """

    def make(spec, is_bidirectional=True):
        draw = default_rng(0)
        model = Transformer(spec.direct(is_bidirectional))
        ids = jnp.zeros((1, 3), jnp.int32)
        seen = {name: masks.full() for name in ("self", "dec_self", "cross")}
        dec_ids = ids if spec.num_decoder_layers else None
        shapes = jax.eval_shape(
            lambda key: model.init(key, ids, seen, dec_ids, deterministic=True),
            jax.random.key(0),
        )

        def fill(path, leaf):
            if leaf.ndim == 1:
                return jnp.full(leaf.shape, float(path[-1].key == "scale"), leaf.dtype)
            return jnp.asarray(draw.normal(0, spec.init_std, leaf.shape), leaf.dtype)

        return model, jax.tree_util.tree_map_with_path(fill, shapes)["params"]

    return make

"""Layers in a loop, and computed again for the gradient: the same numbers."""

import dataclasses
import functools
import itertools

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import slow_but

from jaxpt.nn import scan
from jaxpt.nn.decoding import make_cache
from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.nn.scan import init_params, is_stacked, stack_layers, unstack_layers
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

KEY = jax.random.key(3)
IDS = jax.random.randint(jax.random.key(7), (2, 8), 0, 11)
DEC_IDS = IDS[:, :5]
SEEN = {
    "self": masks.key_padding(jnp.array([8, 6])),
    "dec_self": masks.causal(),
    "cross": masks.key_padding(jnp.array([8, 6])),
}
T5 = {"norm": "rmsnorm", "positions": "relative", "use_bias": False, "init": "t5"}
SHAPES = {
    "gpt2": {"activation": "gelu_tanh", "init": "gpt2"},
    "bert": {"norm_position": "post", "head_transform": True, "init": "truncated"},
    "electra": {"norm_position": "post", "embedding_size": 8},
    "t5": T5 | {"num_decoder_layers": 2},
    "bart": {"norm_position": "post", "num_decoder_layers": 3},
    "umt5": T5 | {"num_decoder_layers": 2, "relative_every_layer": True},
    "llama": {"positions": "rotary", "num_kv_heads": 1, "gated_mlp": True},
    "gpt-neox": {"positions": "rotary", "parallel_residual": True},
    "phi": {"parallel_residual": True, "shared_norm": True},
    "olmo2": {"norm_position": "output", "qk_norm": "width", "norm": "rmsnorm"},
    "gemma": {"norm_position": "both", "norm_offset": True, "scale_embeddings": True},
    "granite": {"positions": "rotary", "multipliers": (12.0, 0.2, 8.0)},
    "qwen2": {"positions": "rotary", "use_bias": False, "qkv_bias": "yes"},
    "gpt-j": {"positions": "rotary", "qkv_bias": "no", "out_bias": "no"},
    "gte": {"norm_position": "post", "gated_mlp": True, "up_bias": "no"},
    "local": {"positions": "rotary", "window": 1, "qk_norm": "scaled"},
    "modernbert": {
        "positions": "rotary",
        "embed_norm": True,
        "norm_bias": False,
        "num_layers": 3,
    },
    "first norm": {"embed_norm": True, "first_norm": True},
    "ltg-bert": {
        "embed_norm": True,
        "first_norm": True,
        "norm_scale": False,
        "inner_norm": True,
        "attention_out_norm": "after",
        "down_bias": "no",
        "positions": "none",
        "disentangled": "both",
        "disentangled_norm": True,
        "relative_buckets": 7,
        "relative_max_distance": 5,
        "gated_mlp": True,
        "head_transform": True,
        "head_activation": "gelu",
        "up_bias": "no",
    },
    "one layer": {"embed_norm": True, "num_layers": 1},
}
every = pytest.mark.parametrize("shape", SHAPES)


def scanned(spec, **changes):
    return dataclasses.replace(spec, scan_layers=True, **changes)


def names(params):
    pairs = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): x for p, x in pairs}


@pytest.fixture
def make_shape(make_spec, make_params):
    """`make_shape("t5")`: a small spec and its unrolled parameters."""

    def make(shape, **changes):
        values = {"num_layers": 2, "init_std": 0.2} | SHAPES[shape] | changes
        spec = make_spec(**values)
        return spec, make_params(spec)[1]

    return make


def abstract_init(spec, key):
    """What Flax itself gives the model."""
    return Transformer(spec).init(key, *inputs(spec), deterministic=True)["params"]


def inputs(spec):
    return IDS, SEEN, DEC_IDS if spec.num_decoder_layers else None


@functools.cache
def run(spec):
    """(params, key) -> loss and gradients, with dropout where the spec has it."""

    def loss(params, key):
        rest = {"deterministic": spec.dropout == 0, "rngs": {"dropout": key}}
        logits = Transformer(spec).apply({"params": params}, *inputs(spec), **rest)
        return jnp.mean(jnp.sin(3 * logits) * jnp.arange(spec.vocab_size))

    return jax.jit(jax.value_and_grad(loss))


def check_same(result, expected, rtol=1e-6):
    """Values and gradients; these as the norm of all differences over their norm."""
    np.testing.assert_allclose(result[0], expected[0], rtol=rtol)
    apart = jax.tree.map(jnp.subtract, result[1], expected[1])
    assert optax.tree.norm(apart) < rtol * optax.tree.norm(expected[1])


@pytest.mark.slow_cases("bert", "bart")
@every
def test_stacking_and_unstacking_are_inverses(shape, make_shape):
    spec, params = make_shape(shape)
    stacked = stack_layers(params)
    for there, back in ((params, unstack_layers(stacked)), (stacked, stacked)):
        assert jax.tree.structure(there) == jax.tree.structure(back)
        jax.tree.map(np.testing.assert_array_equal, there, back)
    again = stack_layers(unstack_layers(stacked))
    jax.tree.map(np.testing.assert_array_equal, again, stacked)
    jax.tree.map(np.testing.assert_array_equal, unstack_layers(params), params)
    flat, plain = names(stacked), names(params)
    assert sum(x.size for x in flat.values()) == sum(x.size for x in plain.values())
    kernel = "mlp/up/kernel"
    first = int(shape == "modernbert")
    assert ("encoder/layer_0/" + kernel in flat) == bool(first)
    for i in range(first, spec.num_layers):
        result = flat["encoder/layers/" + kernel][i - first]
        np.testing.assert_array_equal(result, plain[f"encoder/layer_{i}/{kernel}"])


@pytest.mark.slow_except("one layer")
@pytest.mark.parametrize("shape", ["bert", "modernbert", "one layer"])
def test_every_layers_states_are_those_of_the_layers_unrolled(shape, make_shape):
    """Also of a first layer before the loop."""
    spec, params = make_shape(shape)
    expected = jax.jit(MaskedLM(spec).layer_features)(params, IDS)
    assert expected.shape == (spec.num_layers + 1, 2, 8, 16)
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.pairwise(expected))
    loop = MaskedLM(scanned(spec, remat="full"))
    result = jax.jit(loop.layer_features)(stack_layers(params), IDS)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow_cases("bart")
@every
def test_stacked_leaves_are_known_by_their_path(shape, make_shape):
    _, params = make_shape(shape)
    assert not any(
        is_stacked(p) for p, _ in jax.tree_util.tree_leaves_with_path(params)
    )
    lookalike = {"encoder": {"num_layers": 1, "layers_norm": 2}}
    assert not any(
        is_stacked(p) for p, _ in jax.tree_util.tree_leaves_with_path(lookalike)
    )
    # Also within an optimizer's state, whose paths hold more than names.
    state = optax.adam(1.0).init(stack_layers(params))
    for path, _ in jax.tree_util.tree_leaves_with_path(state):
        named = jax.tree_util.keystr(path)
        assert is_stacked(path) == ("'layers'" in named)


@pytest.mark.slow
def test_the_model_is_the_same_scanned(make_shape):
    # Other shapes, and initialization: tests/objectives/test_scan.py.
    spec, params = make_shape("modernbert", num_kv_heads=1)
    value, grads = run(spec)(params, KEY)
    result = run(scanned(spec))(stack_layers(params), KEY)
    check_same(result, (value, stack_layers(grads)))


@pytest.mark.slow_except("*-local", "float32-one layer")
@every
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_shape_can_be_scanned(shape, dtype, make_shape):
    spec, params = make_shape(shape, dtype=dtype)
    stacked = stack_layers(params)
    shapes = jax.eval_shape(functools.partial(abstract_init, scanned(spec)), KEY)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, stacked)
    _, grads = jax.eval_shape(run(scanned(spec)), stacked, KEY)
    assert jax.tree.map(jnp.shape, grads) == jax.tree.map(jnp.shape, stacked)


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("is_scanned", slow_but((False,), (False, True)))
def test_remat_changes_no_number_with_dropout(is_scanned, make_shape):
    values = {"dropout": 0.3, "attention_dropout": 0.2, "smear": True}
    values |= {"num_layers": 1 + is_scanned, "value_embeddings": not is_scanned}
    spec, params = make_shape("gpt2", **values)
    if is_scanned:
        spec, params = scanned(spec), stack_layers(params)
    expected = run(spec)(params, KEY)
    assert expected[0] != run(spec)(params, jax.random.key(4))[0]
    for remat in ("dots", "full"):
        check_same(run(dataclasses.replace(spec, remat=remat))(params, KEY), expected)


def kept_bytes(spec, params):
    """The arrays that a forward pass saves for its gradient, except parameters."""

    def apply(params):
        rest = {"deterministic": True}
        return Transformer(spec).apply({"params": params}, *inputs(spec), **rest)

    kept = jax.eval_shape(lambda p: jax.vjp(apply, p)[1], params)
    sizes = [x.size * x.dtype.itemsize for x in jax.tree.leaves(kept)]
    return sum(sizes) - sum(x.size * 4 for x in jax.tree.leaves(params))


@pytest.mark.slow_except(
    "False-gpt2-float32", "False-t5-bfloat16", "True-gpt2-bfloat16", "True-t5-float32"
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", ["gpt2", "t5"])
@pytest.mark.parametrize("is_scanned", [False, True])
def test_remat_keeps_less(shape, is_scanned, dtype, make_shape):
    spec, params = make_shape(shape)
    spec = dataclasses.replace(spec, dtype=dtype)
    if is_scanned:
        spec, params = scanned(spec), stack_layers(params)
    none, dots, full = (
        kept_bytes(dataclasses.replace(spec, remat=remat), params)
        for remat in ("none", "dots", "full")
    )
    assert none > 1.5 * dots > 1.5 * 1.5 * full


def test_each_scanned_layer_drops_apart(make_shape):
    spec, params = make_shape("gpt2", num_layers=2, dropout=0.5)

    def fill(path, leaf):  # what is added to the stream is 1, and dropped to 0 or 2
        names = {key.key for key in path}
        is_one = "scale" in names or {"bias"} < names and names & {"out", "down"}
        return jnp.full_like(leaf, float(bool(is_one)))

    params = stack_layers(jax.tree_util.tree_map_with_path(fill, params))

    @jax.jit
    def encode(params):
        args, rest = (IDS, SEEN["self"]), {"rngs": {"dropout": KEY}}
        model = Transformer(scanned(spec))
        rest |= {"deterministic": False, "method": "encode"}
        return model.apply({"params": params}, *args, **rest)

    # The sums are 0, 2, 4, 6 or 8, then normed; they would be 0, 4 or 8 if both layers
    # dropped the same.
    rows = np.asarray(encode(params)).reshape(16, -1).round(4)
    assert max(len(np.unique(row)) for row in rows) > 3


@pytest.mark.slow
def test_fresh_layers_behind_another_are_the_same_numbers(make_shape):
    result = {}
    for is_scanned in (False, True):
        values = {"init": "torch", "scan_layers": is_scanned}
        spec, _ = make_shape("modernbert", **values, remat="full")
        init = functools.partial(init_params, Transformer(spec), deterministic=True)
        result[is_scanned] = jax.jit(lambda key, init=init: init(key, *inputs(spec)))(
            KEY
        )
    assert jax.tree.structure(result[True]) != jax.tree.structure(result[False])
    expected = stack_layers(result[False])
    jax.tree.map(np.testing.assert_array_equal, result[True], expected)


@pytest.mark.slow_cases("gpt2")
@pytest.mark.parametrize("shape", ["gpt2", "modernbert"])
def test_fresh_layers_are_those_that_flax_draws_one_by_one(shape, make_shape):
    spec, _ = make_shape(shape, init="torch", num_layers=3)
    model, args = Transformer(spec), inputs(spec)
    rest = {"deterministic": True}
    result = jax.jit(lambda key: init_params(model, key, *args, **rest))(KEY)
    expected = jax.jit(lambda key: model.init(key, *args, **rest)["params"])(KEY)
    assert not spec.scan_layers and "layer_2" in result["encoder"]
    jax.tree.map(np.testing.assert_array_equal, result, expected)


class Keys(nn.Module):
    """Modules with the names of a tree, whose parameters are the keys of their draws.

    Attributes:
      names: of modules, with theirs; and of parameters, with None, as they are drawn.
    """

    names: dict

    @nn.compact
    def __call__(self):
        for name, inner in self.names.items():
            if inner is None:
                self.param(name, lambda key: jax.random.key_data(key))
            else:
                Keys(inner, name=name)()


def test_layer_keys_are_those_of_flax():
    """Alone, without a network: what `jaxpt.nn.scan._fold_paths` mirrors."""
    layer = {"attention": {"query": {"kernel": None, "bias": None}}}
    layer |= {"norm": {"scale": None, "bias": None}}
    names = {"encoder": {"layer_0": layer, "layer_1": layer}, "outer": {"deep": layer}}
    flax_keys = Keys(names).init(KEY)["params"]
    shapes = jax.tree.map(lambda key: jnp.zeros(()), flax_keys)
    result = scan._layer_keys(KEY, scan.stack_layers(shapes))["encoder"]["layers"]
    expected = scan.stack_layers(flax_keys)["encoder"]["layers"]
    same = jax.tree.map(
        lambda a, b: np.array_equal(jax.random.key_data(a), b), result, expected
    )
    assert jax.tree.all(same), (
        f"flax {flax.__version__} derives the key of a parameter otherwise than "
        "jaxpt.nn.scan._fold_paths, which mirrors flax.core.scope.LazyRng.as_jax_rng: "
        "mirror the new way there, or scanned layers begin at other numbers than "
        f"unrolled ones of the same seed ({same})"
    )


def test_a_past_needs_the_unrolled_model(make_shape):
    spec, params = make_shape("gpt2")
    model = Transformer(scanned(spec))
    cache = make_cache(spec, jnp.zeros(2, int), 8)
    seen = masks.cached(cache.prompt_start, cache.cache_index, 8, 8)
    places = jnp.arange(8)[None]
    args = (IDS, cache.kv_cache, cache.cache_index, seen, places, cache.last_ids)
    with pytest.raises(ValueError, match="unroll"):
        model.apply({"params": stack_layers(params)}, *args, method="extend")

"""Norms inside attention and MLPs, gates, and sums over depth, against formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.nn.attention import Attention
from jaxpt.nn.layers import Mlp
from jaxpt.nn.stacks import Stack
from jaxpt.ops import masks

DRAW = np.random.default_rng(0)
X = jnp.asarray(DRAW.normal(size=(2, 5, 16)), jnp.float32)
IDS = jnp.zeros((2, 5), int)


def norm(x, part=None, epsilon=1e-5):
    """A LayerNorm, with the factors and biases of `part`."""
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return x if part is None else x * part["scale"] + part["bias"]


def dense(x, part):
    return x @ np.asarray(part["kernel"], float) + np.asarray(part.get("bias", 0.0))


def shift(params):
    """Parameters none of which is 0 or 1."""
    draw = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: jnp.asarray(x + draw.normal(0, 0.3, x.shape), jnp.float32), params
    )


def gelu(x):
    return np.asarray(jax.nn.gelu(jnp.asarray(x, jnp.float32), approximate=False))


@pytest.mark.parametrize("has_gate", [False, True])
@pytest.mark.parametrize("place", ["none", "before", "after"])
@pytest.mark.parametrize("norm_scale", [False, True])
def test_attention_is_gated_and_normed(norm_scale, place, has_gate, make_spec):
    changes = {"attention_out_norm": place, "attention_gate": has_gate}
    spec = make_spec(d_model=16, num_heads=1, norm_scale=norm_scale, **changes)
    module, rest = Attention(spec), {"deterministic": True}
    params = shift(module.init(jax.random.key(0), X, X, masks.full(), **rest)["params"])
    out, _ = module.apply({"params": params}, X, X, masks.full(), **rest)
    x = np.asarray(X, float)
    q, k, v = (dense(x, params[name]) for name in ("query", "key", "value"))
    weights = np.exp(np.einsum("btd,bsd->bts", q, k) / 4)
    y = weights / weights.sum(-1, keepdims=True) @ v
    if has_gate:
        y *= gelu(dense(x, params["out_gate"]))
    if place == "before":
        y = norm(y, params["out_norm"] if norm_scale else None)
    y = dense(y, params["out"])
    if place == "after":  # always with factors
        y = norm(y, params["out_norm"])
    has_norm = place == "after" or (place == "before" and norm_scale)
    assert ("out_norm" in params) == has_norm
    np.testing.assert_allclose(out, y, atol=2e-5)


def test_an_mlp_is_normed_inside_and_has_no_bias(make_spec):
    spec = make_spec(d_model=16, inner_norm=True, up_bias="no", down_bias="no")
    params = shift(Mlp(spec).init(jax.random.key(0), X)["params"])
    out = Mlp(spec).apply({"params": params}, X)
    assert all("bias" not in params[name] for name in ("up", "down"))
    hidden = norm(gelu(dense(np.asarray(X), params["up"])), params["inner_norm"])
    np.testing.assert_allclose(out, dense(hidden, params["down"]), atol=2e-5)


@pytest.mark.parametrize("remat", ["none", "full"])
def test_sums_over_depth(remat, make_spec):
    """Each result is replaced by the sum, which the next branch reads and adds to."""
    sizes = {"d_model": 16, "num_layers": 2, "norm_scale": False, "remat": remat}
    spec = make_spec(depth_sums=True, **sizes)
    stack, args = Stack(spec, 2), (X, IDS, masks.full())
    init = stack.init(jax.random.key(0), *args, deterministic=True)["params"]
    names = [(i, part) for i in (0, 1) for part in ("attention", "mlp")]
    first = [init[f"layer_{i}"][f"{part}_sum"]["weights"] for i, part in names]
    assert [w.tolist() for w in first] == [
        [0] * n + [1] for n in range(1, 5)
    ]  # as without sums
    plain = Stack(make_spec(**sizes), 2)
    bare = {
        layer: {n: x for n, x in parts.items() if not n.endswith("_sum")}
        for layer, parts in init.items()
    }
    expected, _ = plain.apply({"params": bare}, *args, deterministic=True)
    out, _ = stack.apply({"params": init}, *args, deterministic=True)
    np.testing.assert_array_equal(out, expected)

    params, results, x = shift(init), [np.asarray(X)], X
    for i, part in names:
        layer = params[f"layer_{i}"]
        read = jnp.asarray(norm(np.asarray(x)), jnp.float32)
        if part == "mlp":
            y = Mlp(spec).apply({"params": layer["mlp"]}, read)
        else:
            module = Attention(spec), {"params": layer["attention"]}
            rest = read, read, masks.full()
            y, _ = module[0].apply(module[1], *rest, deterministic=True)
        results.append(np.asarray(x + y))
        weights = np.asarray(layer[f"{part}_sum"]["weights"])
        x = sum(w * r for w, r in zip(weights, results, strict=True))
    out, _ = stack.apply({"params": params}, *args, deterministic=True)
    np.testing.assert_allclose(out, norm(np.asarray(x)), atol=2e-5)


def test_a_stacks_sums_have_gradients(make_spec):
    spec = make_spec(d_model=16, num_layers=2, depth_sums=True)
    stack, args = Stack(spec, 2), (X, IDS, masks.full())
    params = shift(stack.init(jax.random.key(0), *args, deterministic=True)["params"])

    def loss(params):
        out, _ = stack.apply({"params": params}, *args, deterministic=True)
        return jnp.sum(jnp.sin(3 * out))

    grads = jax.grad(loss)(params)
    for i, part in ((0, "attention"), (1, "mlp")):
        weights = params[f"layer_{i}"][f"{part}_sum"]["weights"]
        grad = grads[f"layer_{i}"][f"{part}_sum"]["weights"]
        assert grad.shape == weights.shape and (grad != 0).all()


@pytest.mark.parametrize("remat", ["none", "full"])
def test_layers_read_sums_of_those_before(remat, make_spec):
    """And attention's output is not added to what it reads."""
    sizes = {"d_model": 16, "num_layers": 3, "norm_scale": False, "remat": remat}
    spec = make_spec(layer_sums=True, **sizes)
    stack, args = Stack(spec, 3), (X, IDS, masks.full())
    init = stack.init(jax.random.key(0), *args, deterministic=True)["params"]
    first = [init[f"layer_{i}"]["input_sum"]["weights"].tolist() for i in range(3)]
    assert first == [[1], [0, 1], [0, 0, 1]]
    params, results = shift(init), [np.asarray(X)]
    for i in range(3):
        layer = params[f"layer_{i}"]
        weights = np.exp(np.asarray(layer["input_sum"]["weights"]))
        weights /= weights.sum()
        x = sum(w * r for w, r in zip(weights, results, strict=True))
        read = jnp.asarray(norm(x), jnp.float32)
        module = Attention(spec), {"params": layer["attention"]}
        rest = read, read, masks.full()
        y, _ = module[0].apply(module[1], *rest, deterministic=True)
        read = jnp.asarray(norm(np.asarray(y)), jnp.float32)
        results.append(np.asarray(y + Mlp(spec).apply({"params": layer["mlp"]}, read)))

    def run(params):
        return stack.apply({"params": params}, *args, deterministic=True)[0]

    np.testing.assert_allclose(run(params), norm(results[-1]), atol=2e-5)
    grads = jax.grad(lambda params: jnp.sum(jnp.sin(3 * run(params))))(params)
    for i in (1, 2):  # the softmax of one number is 1
        assert (grads[f"layer_{i}"]["input_sum"]["weights"] != 0).all()

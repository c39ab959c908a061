"""Disentangled attention against the formula, distance by distance in NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.nn.attention import Attention
from jaxpt.nn.positions import Disentangled, Distances, disentangled_rows
from jaxpt.nn.stacks import Stack
from jaxpt.ops import masks

BOTH = {"disentangled": "both", "positions": "none"}
SMALL = BOTH | {"relative_buckets": 8, "relative_max_distance": 7, "init_std": 0.5}


def row_of(distance, num_buckets, most):
    """The bucket of a distance, in whole numbers, hence exactly."""
    side = num_buckets // 2
    middle, far = side // 2, min(abs(distance), most)
    bucket = far
    if most > side and far > middle:
        # The fewest steps s with ((n - 1) / m)^(s / (m - 1)) >= far / m.
        steps = middle - 1
        bucket = middle + next(
            s
            for s in range(steps + 2)
            if (most - 1) ** s * middle**steps >= far**steps * middle**s
        )
    sign = 1 if distance > 0 else -1
    return min(max(side + sign * bucket, 0), num_buckets - 1)


@pytest.mark.parametrize("sizes", [(512, 512), (64, 512), (16, 9), (8, 4), (8, 100)])
def test_buckets_are_debertas(sizes):
    num_buckets, most = sizes
    rows = disentangled_rows(num_buckets, most)
    expected = [row_of(x, num_buckets, most) for x in range(-most, most + 1)]
    assert rows.tolist() == expected


def ltg_row_of(distance, num_buckets, most):
    """The same for 2 k - 1 buckets (LTG-BERT)."""
    side = num_buckets // 2 + 1
    middle, far = side // 2, min(abs(distance), most - 1)
    bucket = far
    if far > middle:
        bucket = middle + next(
            s
            for s in range(middle)
            if (most - 1) ** s * middle ** (middle - 1)
            >= far ** (middle - 1) * middle**s
        )
    return side - 1 + (bucket if distance > 0 else -bucket)


@pytest.mark.parametrize("sizes", [(63, 512), (63, 128), (11, 20), (15, 300), (9, 7)])
def test_buckets_are_ltg_berts(sizes):
    num_buckets, most = sizes
    rows = disentangled_rows(num_buckets, most)
    expected = [ltg_row_of(x, num_buckets, most) for x in range(-most, most + 1)]
    assert rows.tolist() == expected
    assert rows[most] == num_buckets // 2
    assert (rows + rows[::-1] == num_buckets - 1).all()


def test_the_published_distances():
    """Computed by transformers 5.23 for k = 256 and n = 512."""
    distances = 0, 1, 127, 128, 129, 130, 200, 256, 300, 400, 511, -511
    buckets = 0, 1, 127, 128, 129, 130, 169, 192, 207, 233, 255, -255
    rows = disentangled_rows(512, 512)
    assert [int(rows[512 + x]) - 256 for x in distances] == list(buckets)


def test_a_vector_by_hand():
    """Both products read the bucket of the query's position minus the key's."""
    q, k = jnp.array([[1.0, 0], [0, 1]]), jnp.array([[1.0, 1], [0, 1]])
    keys = jnp.array([[1.0, 0], [0, 1], [1, 1], [0, 0]])
    queries = jnp.array([[0.0, 1], [1, 0], [1, 1], [0, 2]])
    distances = Distances(jnp.zeros((4, 2)), jnp.array([1, 2, 3]))
    bias = distances.find_bias(
        q[None, :, None], k[None, :, None], keys[:, None], queries[:, None]
    )
    logits = (bias[0, 0] + q @ k.T / math.sqrt(2)) / math.sqrt(3)
    expected = [[1.632993, 0], [1.224745, 1.224745]]
    np.testing.assert_allclose(logits, expected, atol=1e-6)


def attend(spec, params, x, seen, num_copies=1):
    """The output and the definition: one query, key and head at a time."""

    def project(name, inputs):
        part = params[name]
        out = inputs @ np.asarray(part["kernel"], float) + np.asarray(part["bias"])
        return out.reshape(*inputs.shape[:-1], -1, spec.head_width)

    table, own = np.asarray(params["table"], float), spec.disentangled_projections
    heads = {name: project(name, x) for name in ("query", "key", "value")}
    types, length = spec.disentangled, x.shape[1] // num_copies
    key_table = (
        project("position_key" if own else "key", table) if types != "p2c" else 0
    )
    query_table = (
        project("position_query" if own else "query", table) if types != "c2p" else 0
    )
    num_types = 1 + (types != "p2c") + (types != "c2p")
    out = np.zeros((*x.shape[:2], spec.num_heads, spec.head_width))
    group = spec.num_heads // spec.kv_heads
    for b, i, n in np.ndindex(*x.shape[:2], spec.num_heads):
        q, logits = heads["query"][b, i, n], np.full(x.shape[1], -np.inf)
        for j in np.flatnonzero(seen[b, i]):
            k = heads["key"][b, j, n // group]
            distance = i % length - j % length
            row = row_of(distance, spec.relative_buckets, spec.relative_max_distance)
            logit = q @ k
            if types != "p2c":
                logit += q @ key_table[row, n // group]
            if types != "c2p":
                logit += k @ query_table[row, n]
            logits[j] = logit / math.sqrt(num_types * spec.head_width)
        weights = np.exp(logits - logits.max())
        values = heads["value"][b, :, n // group]
        out[b, i, n] = weights / weights.sum() @ values
    flat = out.reshape(*x.shape[:2], -1)
    return flat @ np.asarray(params["out"]["kernel"]) + np.asarray(
        params["out"]["bias"]
    )


@pytest.mark.parametrize("num_copies", [1, 2])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"disentangled": "c2p"},
        {"disentangled": "p2c", "relative_max_distance": 4},
        {"disentangled_projections": True, "head_dim": 6},
        {"num_kv_heads": 2, "num_heads": 4},
        {"disentangled": "p2c", "num_kv_heads": 1, "disentangled_projections": True},
    ],
    ids=lambda values: " ".join(values) or "plain",
)
def test_attention_is_the_formula(values, num_copies, make_spec):
    spec = make_spec(**(SMALL | values))
    draw = np.random.default_rng(0)
    x = draw.normal(size=(2, 12 * num_copies, spec.d_model))
    table = draw.normal(size=(spec.relative_buckets, spec.d_model))
    seen = draw.random((2, 12 * num_copies, 12 * num_copies)) < 0.7
    seen |= np.eye(12 * num_copies, dtype=bool)
    module = Disentangled(spec)
    distances = module.apply(
        {"params": {"table": jnp.asarray(table)}}, 12, 12, num_copies=num_copies
    )
    attention = Attention(spec)
    mask = jnp.asarray(seen[:, None])
    args = jnp.asarray(x, jnp.float32), jnp.asarray(x, jnp.float32), mask, distances
    init = attention.init(jax.random.key(0), *args, deterministic=True)["params"]
    params = jax.tree.map(lambda p: p + 0.1, init)  # biases, too, reach the table
    out, _ = attention.apply({"params": params}, *args, deterministic=True)
    expected = attend(spec, params | {"table": table}, x, seen, num_copies)
    np.testing.assert_allclose(out, expected, atol=2e-5)


def test_one_table_for_all_layers_normed_once(make_spec):
    spec = make_spec(num_layers=3, disentangled_norm=True, **SMALL)
    stack = Stack(spec, 3)
    args = jnp.ones((1, 4, spec.d_model)), jnp.zeros((1, 4), int), masks.full()
    params = stack.init(jax.random.key(0), *args, deterministic=True)["params"]
    assert jax.tree.map(jnp.shape, params["disentangled"]) == {
        "table": (8, spec.d_model),
        "norm": {"scale": (spec.d_model,), "bias": (spec.d_model,)},
    }
    assert not any("position" in name for name in params["layer_0"]["attention"])


def test_dropout_reaches_the_embeddings_of_distances(make_spec):
    """With the rate of hidden states, as in transformers, not that of weights."""
    x = jnp.ones((1, 5, 32))

    def spread(**rates):
        spec = make_spec(d_model=32, **SMALL, **rates)
        distances = Distances(jnp.ones((8, 32)), jnp.arange(9) % 8)
        attention = Attention(spec)
        key = jax.random.key(1)
        args = x, x, masks.full(), distances
        params = attention.init(key, *args, deterministic=True)
        weights = [
            attention.apply(
                params,
                *args,
                deterministic=False,
                rngs={"dropout": jax.random.key(i)},
                mutable=["attention_weights"],
            )[1]["attention_weights"]["weights"][0]
            for i in (0, 1)
        ]
        return float(np.abs(weights[0] - weights[1]).max())

    # The weights are captured before their own dropout.
    assert spread(dropout=0.5) > 1e-3
    assert spread(attention_dropout=0.5) == 0


@pytest.mark.parametrize("scan_layers", [False, True])
def test_gradients_of_scanned_and_recomputed_layers(scan_layers, make_spec):
    def grads(**more):
        spec = make_spec(num_layers=2, disentangled_norm=True, **SMALL, **more)
        stack = Stack(spec, 2)
        x = jax.random.normal(jax.random.key(1), (1, 6, spec.d_model))
        args = x, jnp.zeros((1, 6), int), masks.causal()
        params = stack.init(jax.random.key(0), *args, deterministic=True)

        def loss(params):
            return jnp.sum(stack.apply(params, *args, deterministic=True)[0] ** 3)

        return jax.grad(loss)(params)["params"]["disentangled"]

    own = grads(scan_layers=scan_layers)
    again = grads(scan_layers=scan_layers, remat="full")
    assert np.abs(own["table"]).max() > 0
    for name, part in own.items():
        for one, two in zip(*map(jax.tree.leaves, (part, again[name])), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)

"""Kernels against the plainest jnp: values, and the gradient of every input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.ops import cpu, kernels, masks

B, T, S, N, H = 2, 6, 6, 3, 4
SEGMENTS = jnp.array([[1, 1, 2, 2, 2, 0], [1, 2, 2, 3, 3, 3]])


def normal(seed, *shape, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def assert_alike(functions, naive, *inputs, rtol=2e-5, atol=2e-5):
    """Values and gradients of all inputs agree, under one random cotangent."""
    shape = jax.eval_shape(naive, *inputs)
    cotangent = normal(99, *shape.shape, dtype=shape.dtype)

    def run(function, inputs):
        out, pull = jax.vjp(function, *inputs)
        return out, pull(cotangent)

    # One program for all, since most of a test's time is compiling.
    run_all = jax.jit(lambda *inputs: [run(f, inputs) for f in (naive, *functions)])
    (wanted, naive_grads), *others = run_all(*inputs)
    for out, grads in others:
        assert out.shape == wanted.shape and out.dtype == wanted.dtype
        np.testing.assert_allclose(out, wanted, rtol=rtol, atol=atol)
        for grad, naive_grad, x in zip(grads, naive_grads, inputs, strict=True):
            assert grad.shape == x.shape and grad.dtype == x.dtype
            np.testing.assert_allclose(grad, naive_grad, rtol=rtol, atol=atol)


@pytest.mark.parametrize("shape", [(5, 3), (2, 2, 5, 3), (3,)])
def test_dense(shape):
    for num_out in (7, 2):  # wide and tall kernels
        x, kernel, bias = normal(0, *shape), normal(1, 3, num_out), normal(2, num_out)
        assert_alike([kernels.dense], lambda x, k, b: x @ k + b, x, kernel, bias)
    assert_alike([kernels.dense], lambda x, k: x @ k, x, kernel)


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
def test_layer_norm(shape):
    def naive(x, scale, bias):
        mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-3) * scale + bias

    inputs = normal(0, *shape) * 2 + 3, normal(1, 8), normal(2, 8)
    assert_alike([lambda *a: kernels.layer_norm(*a, 1e-3)], naive, *inputs)


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
def test_rms_norm(shape):
    def naive(x, scale):
        return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-3) * scale

    inputs = normal(0, *shape) * 2 + 3, normal(1, 8)
    assert_alike([lambda *a: kernels.rms_norm(*a, 1e-3)], naive, *inputs)


def test_norms_of_a_constant_are_finite():
    x, one = jnp.full((2, 8), 5.0), jnp.ones(8)

    def total(x):
        return kernels.layer_norm(x, one, one, 1e-5).sum()

    assert total(x) == 16  # the bias alone
    assert np.isfinite(jax.grad(total)(x)).all()
    zeros = jax.grad(lambda x: kernels.rms_norm(x, one, 1e-5).sum())(0 * x)
    assert np.isfinite(zeros).all()


def test_norms_of_large_values_keep_their_precision():
    # E[x^2] - E[x]^2 would cancel here.
    x, one = normal(0, 4, 64) + 1000, jnp.ones(64)
    wide = np.asarray(x, np.float64)
    wanted = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    found = kernels.layer_norm(x, one, 0 * one, 1e-6)
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_norms_compute_in_float32():
    x, one = normal(0, 4, 64, dtype=jnp.bfloat16) + 8, jnp.ones(64)
    for found, wide in (
        (kernels.layer_norm(x, one, one, 1e-5), kernels.layer_norm),
        (kernels.rms_norm(x, one, 1e-5), kernels.rms_norm),
    ):
        assert found.dtype == jnp.bfloat16
        args = (one, one, 1e-5) if wide is kernels.layer_norm else (one, 1e-5)
        wanted = wide(x.astype(jnp.float32), *args).astype(jnp.bfloat16)
        np.testing.assert_array_equal(found, wanted)


def naive_attend(q, k, v, visible, bias=0.0):
    logits = jnp.einsum("BTNH,BSNH->BNTS", q, k) / np.sqrt(q.shape[-1]) + bias
    logits = jnp.where(visible, logits, -1e30)
    return jnp.einsum("BNTS,BSNH->BTNH", jax.nn.softmax(logits, -1), v)


SQUARE = {
    "full": masks.full(),
    "causal": masks.causal(),
    "padded": masks.key_padding(jnp.array([4, 6])),
    "segments": masks.segments(SEGMENTS),
    "causal segments": masks.causal(SEGMENTS),
    "prefix": masks.prefix(jnp.array([3, 1])),
    "nothing seen": masks.key_padding(jnp.array([0, 2])),
}


def attend_both(mask, num_queries=T):
    """Attention under the structured mask, and under the array it stands for."""
    visible = masks.materialise(mask, num_queries, S)
    return [
        lambda q, k, v, *bias, stated=stated: kernels.attend(q, k, v, stated, *bias)
        for stated in (mask, visible)
    ], lambda *inputs: naive_attend(*inputs[:3], visible, *inputs[3:])


@pytest.mark.parametrize("kind", SQUARE)
def test_attention(kind):
    inputs = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    assert_alike(*attend_both(SQUARE[kind]), *inputs, normal(3, 1, N, T, S))


@pytest.mark.parametrize("kind", ["full", "causal", "segments"])
def test_attention_without_a_bias(kind):
    inputs = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    assert_alike(*attend_both(SQUARE[kind]), *inputs)


@pytest.mark.parametrize("shape", [(B, N, T, S), (B, 1, T, S), (1, 1, 1, S)])
def test_a_bias_gets_its_gradient_in_its_own_shape(shape):
    inputs = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    assert_alike(*attend_both(SQUARE["causal"]), *inputs, normal(3, *shape))


CROSS = {
    "full": masks.full(),
    "padded": masks.key_padding(jnp.array([4, 6])),
    "segments": masks.segments(jnp.array([[1, 2, 0], [3, 3, 2]]), SEGMENTS),
}


@pytest.mark.parametrize("kind", CROSS)
def test_cross_attention(kind):
    inputs = normal(0, B, 3, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    assert_alike(*attend_both(CROSS[kind], num_queries=3), *inputs)


@pytest.mark.parametrize("rows", [1, B])
def test_any_array_is_a_mask(rows):
    inputs = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    visible = jax.random.bernoulli(jax.random.key(4), 0.6, (rows, 1, T, S))
    assert_alike(*attend_both(visible), *inputs)


def test_attention_under_vmap_and_scan():
    mask = masks.causal()
    q, k, v = (normal(i, 2, B, T, N, H) for i in range(3))

    def total(q, k, v):
        return (kernels.attend(q, k, v, mask) ** 2).sum()

    grads = jax.jit(jax.grad(total, (0, 1, 2)))

    wanted = [grads(*(x[i] for x in (q, k, v))) for i in range(2)]
    _, scanned = jax.lax.scan(lambda c, x: (c, grads(*x)), 0, (q, k, v))
    for found in (jax.vmap(grads)(q, k, v), scanned):
        for i in range(2):
            for a, b in zip(found, wanted[i], strict=True):
                np.testing.assert_allclose(a[i], b, rtol=2e-5, atol=2e-5)


def test_a_query_that_sees_nothing_gives_the_mean_value_and_finite_gradients():
    q, k, v = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    bias, mask = normal(3, 1, N, T, S) * 5, masks.key_padding(jnp.array([0, S]))

    def total(q, k, v, bias):
        return (kernels.attend(q, k, v, mask, bias) ** 2).sum()

    out = kernels.attend(q, k, v, mask, bias)
    mean = jnp.broadcast_to(v[0].mean(0), out[0].shape)
    np.testing.assert_allclose(out[0], mean, rtol=1e-5, atol=1e-6)
    for grad in jax.jit(jax.grad(total, (0, 1, 2, 3)))(q, k, v, bias):
        assert np.isfinite(grad).all()


def test_segments_are_isolated():
    q, k, v = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    mask = masks.segments(SEGMENTS)
    first = (SEGMENTS == 1)[:, :, None, None]

    def of_first(q, k, v):
        return jnp.where(first, kernels.attend(q, k, v, mask), 0)

    noisy = [jnp.where(first, x, 50 * x + 7) for x in (q, k, v)]
    np.testing.assert_array_equal(of_first(q, k, v), of_first(*noisy))
    total = lambda *a: (of_first(*a) ** 2).sum()  # noqa: E731
    grad_fn = jax.jit(jax.grad(total, (0, 1, 2)))
    grads, noisy_grads = grad_fn(q, k, v), grad_fn(*noisy)
    for grad, noisy_grad in zip(grads, noisy_grads, strict=True):
        np.testing.assert_array_equal(grad, noisy_grad)
        assert not np.where(first, 0, grad).any() and np.where(first, grad, 0).any()


def test_large_logits_do_not_overflow():
    q, k, v = (normal(i, B, T, N, H) * 100 for i in range(3))
    visible = masks.materialise(masks.causal(), T, S)
    found = kernels.attend(q, k, v, masks.causal())
    wanted = naive_attend(q, k, v, visible)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)


def test_attention_in_bfloat16_is_near():
    low = [normal(i, B, T, N, H, dtype=jnp.bfloat16) for i in range(3)]
    wide = [x.astype(jnp.float32) for x in low]
    found = kernels.attend(*low, masks.causal())
    assert found.dtype == jnp.bfloat16
    visible = masks.materialise(masks.causal(), T, T)
    np.testing.assert_allclose(
        found.astype(jnp.float32), naive_attend(*wide, visible), rtol=0.05, atol=0.05
    )
    total = lambda *a: kernels.attend(*a, masks.causal()).sum()  # noqa: E731
    grads = jax.eval_shape(jax.grad(total, (0, 1, 2)), *low)
    assert all(grad.dtype == jnp.bfloat16 for grad in grads)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4, 5)])
def test_random_bits_are_jaxs(shape):
    key = jax.random.key(3)
    found = jax.jit(lambda key: cpu.random_bits(key, shape))(key)
    np.testing.assert_array_equal(found, jax.random.bits(key, shape))


def test_random_bits_under_vmap_and_of_other_kinds_of_keys():
    keys = jax.random.split(jax.random.key(0), 3)
    found = jax.vmap(lambda key: cpu.random_bits(key, (4,)))(keys)
    np.testing.assert_array_equal(found, [jax.random.bits(key, (4,)) for key in keys])
    other = jax.random.key(0, impl="rbg")
    found, wanted = (draw(other, (4,)) for draw in (cpu.random_bits, jax.random.bits))
    np.testing.assert_array_equal(found, wanted)


RATE = 0.3


def test_dropout_zeroes_its_share_and_scales_the_rest():
    x = normal(0, 400, 500)
    found = kernels.dropout(jax.random.key(1), x, RATE)
    is_kept = found != 0
    assert abs(float(is_kept.mean()) - (1 - RATE)) < 0.005
    np.testing.assert_allclose(found, jnp.where(is_kept, x / (1 - RATE), 0), rtol=1e-6)
    # No row or column is dropped as one.
    assert abs(np.asarray(is_kept.mean(0)) - (1 - RATE)).max() < 0.15
    assert abs(np.asarray(is_kept.mean(1)) - (1 - RATE)).max() < 0.15


def test_dropout_is_its_keys_and_has_its_own_gradient():
    x, cotangent = normal(0, 40, 50), normal(1, 40, 50)
    drop = lambda seed, x: kernels.dropout(jax.random.key(seed), x, RATE)  # noqa: E731
    np.testing.assert_array_equal(drop(1, x), drop(1, x))
    assert (drop(1, x) != drop(2, x)).any()
    grad = jax.grad(lambda x: (drop(1, x) * cotangent).sum())(x)
    np.testing.assert_allclose(grad, drop(1, cotangent), rtol=1e-6)
    assert drop(1, x.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@jax.jit
def attend_dropped(q, k, v, bias, seed=5):
    key = jax.random.key(seed)
    return kernels.attend(q, k, v, masks.causal(), bias, dropout_rate=RATE, rng=key)


def test_attention_drops_weights_and_scales_the_rest():
    size, rows = 16, 8
    q, k = normal(0, rows, size, N, size), normal(1, rows, size, N, size)
    bias = normal(2, 1, N, size, size)
    # With the identity for values the output is the weights themselves.
    v = jnp.broadcast_to(jnp.eye(size)[None, :, None], (rows, size, N, size))
    weights = kernels.attend(q, k, v, masks.causal(), bias)
    dropped = attend_dropped(q, k, v, bias)
    is_kept = dropped != 0
    np.testing.assert_allclose(
        dropped, jnp.where(is_kept, weights / (1 - RATE), 0), rtol=1e-5
    )
    visible = np.broadcast_to(np.tri(size, dtype=bool)[:, None], weights.shape)
    assert abs(np.asarray(is_kept)[visible].mean() - (1 - RATE)) < 0.03
    assert (attend_dropped(q, k, v, bias, seed=6) != dropped).any()
    # Heads and rows draw apart.
    assert (is_kept[0] != is_kept[1]).any()
    assert (is_kept[:, :, 0] != is_kept[:, :, 1]).any()


def test_gradient_of_attention_with_dropout_is_that_of_the_same_draw():
    q, k, v = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    inputs, cotangent = (q, k, v, normal(3, 1, N, T, S)), normal(4, B, T, N, H)
    eye = jnp.broadcast_to(jnp.eye(S)[None, :, None], (B, S, N, S))
    weights = attend_dropped(q, k, eye, inputs[3])
    kept = jnp.transpose(weights != 0, (0, 2, 1, 3))
    visible = masks.materialise(masks.causal(), T, S)

    def naive(q, k, v, bias):
        logits = jnp.einsum("BTNH,BSNH->BNTS", q, k) / np.sqrt(H) + bias
        weights = jax.nn.softmax(jnp.where(visible, logits, -1e30), -1)
        return jnp.einsum("BNTS,BSNH->BTNH", weights * kept / (1 - RATE), v)

    np.testing.assert_allclose(
        attend_dropped(*inputs), naive(*inputs), rtol=2e-5, atol=2e-5
    )
    found, wanted = (
        jax.jit(jax.grad(lambda *a: (f(*a) * cotangent).sum(), (0, 1, 2, 3)))(*inputs)
        for f in (attend_dropped, naive)
    )
    for grad, naive_grad in zip(found, wanted, strict=True):
        np.testing.assert_allclose(grad, naive_grad, rtol=2e-5, atol=2e-5)

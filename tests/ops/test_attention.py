"""Attention against the plainest jnp, and which kernel is taken for what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.alike import assert_alike, naive_attend, normal

from jaxpt.ops import attention, masks

B, T, S, N, H = 2, 6, 6, 3, 4
SEGMENTS = jnp.array([[1, 1, 2, 2, 2, 0], [1, 2, 2, 3, 3, 3]])
RATE = 0.3


SQUARE = {
    "full": masks.full(),
    "causal": masks.causal(),
    "padded": masks.key_padding(jnp.array([4, 6])),
    "segments": masks.segments(SEGMENTS),
    "causal segments": masks.causal(SEGMENTS),
    "prefix": masks.prefix(jnp.array([3, 1])),
    "prefixes": masks.prefix_keys(jnp.arange(12).reshape(2, 6) % 5 < 2, SEGMENTS),
    "nothing seen": masks.key_padding(jnp.array([0, 2])),
}


def attend_both(mask, num_queries=T):
    """Attention under the structured mask, and under the equivalent array."""
    visible = masks.materialise(mask, num_queries, S)
    return [
        lambda q, k, v, *bias, stated=stated: attention.attend(q, k, v, stated, *bias)
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
        return (attention.attend(q, k, v, mask) ** 2).sum()

    grads = jax.jit(jax.grad(total, (0, 1, 2)))

    expected = [grads(*(x[i] for x in (q, k, v))) for i in range(2)]
    _, scanned = jax.lax.scan(lambda c, x: (c, grads(*x)), 0, (q, k, v))
    for result in (jax.vmap(grads)(q, k, v), scanned):
        for i in range(2):
            for a, b in zip(result, expected[i], strict=True):
                np.testing.assert_allclose(a[i], b, rtol=2e-5, atol=2e-5)


def test_a_query_that_sees_nothing_gives_the_mean_value_and_finite_gradients():
    q, k, v = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    bias, mask = normal(3, 1, N, T, S) * 5, masks.key_padding(jnp.array([0, S]))

    def total(q, k, v, bias):
        return (attention.attend(q, k, v, mask, bias) ** 2).sum()

    out = attention.attend(q, k, v, mask, bias)
    mean = jnp.broadcast_to(v[0].mean(0), out[0].shape)
    np.testing.assert_allclose(out[0], mean, rtol=1e-5, atol=1e-6)
    for grad in jax.jit(jax.grad(total, (0, 1, 2, 3)))(q, k, v, bias):
        assert np.isfinite(grad).all()


def test_segments_are_isolated():
    q, k, v = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    mask = masks.segments(SEGMENTS)
    first = (SEGMENTS == 1)[:, :, None, None]

    def of_first(q, k, v):
        return jnp.where(first, attention.attend(q, k, v, mask), 0)

    noisy = [jnp.where(first, x, 50 * x + 7) for x in (q, k, v)]
    np.testing.assert_array_equal(of_first(q, k, v), of_first(*noisy))
    total = lambda *a: (of_first(*a) ** 2).sum()  # noqa: E731
    grad_fn = jax.jit(jax.grad(total, (0, 1, 2)))
    grads, noisy_grads = grad_fn(q, k, v), grad_fn(*noisy)
    for grad, noisy_grad in zip(grads, noisy_grads, strict=True):
        np.testing.assert_array_equal(grad, noisy_grad)
        assert not np.where(first, 0, grad).any() and np.where(first, grad, 0).any()


@pytest.mark.slow_except("*-xla")
@pytest.mark.parametrize("kernel", ["auto", "xla"])
@pytest.mark.parametrize("bias_heads", [0, 1, 4])
def test_a_head_of_keys_serves_a_group_of_queries(kernel, bias_heads):
    inputs = normal(0, B, T, 4, H), normal(1, B, S, 2, H), normal(2, B, S, 2, H)
    if bias_heads:
        inputs += (normal(3, 1, bias_heads, T, S),)
    mask = SQUARE["causal segments"]

    def grouped(q, k, v, *bias):
        return attention.attend(q, k, v, mask, *bias, kernel=kernel)

    def naive(q, k, v, *bias):
        visible = masks.materialise(mask, T, S)
        return naive_attend(q, *(jnp.repeat(x, 2, 2) for x in (k, v)), visible, *bias)

    assert_alike([grouped], naive, *inputs)


def test_members_of_a_group_drop_apart():
    q = jnp.broadcast_to(normal(0, B, T, 1, H), (B, T, 4, H))
    k, v = normal(1, B, S, 2, H), normal(2, B, S, 2, H)
    k, v = (jnp.broadcast_to(x[:, :, :1], x.shape) for x in (k, v))
    key = jax.random.key(0)
    out = attention.attend(q, k, v, masks.full(), dropout_rate=RATE, rng=key)
    for i in range(4):
        for j in range(i):
            assert (out[:, :, i] != out[:, :, j]).any()


def test_large_logits_do_not_overflow():
    q, k, v = (normal(i, B, T, N, H) * 100 for i in range(3))
    visible = masks.materialise(masks.causal(), T, S)
    result = attention.attend(q, k, v, masks.causal())
    expected = naive_attend(q, k, v, visible)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-2)


def test_attention_in_bfloat16_is_near():
    low = [normal(i, B, T, N, H, dtype=jnp.bfloat16) for i in range(3)]
    wide = [x.astype(jnp.float32) for x in low]
    result = attention.attend(*low, masks.causal())
    assert result.dtype == jnp.bfloat16
    visible = masks.materialise(masks.causal(), T, T)
    np.testing.assert_allclose(
        result.astype(jnp.float32), naive_attend(*wide, visible), rtol=0.05, atol=0.05
    )
    total = lambda *a: attention.attend(*a, masks.causal()).sum()  # noqa: E731
    grads = jax.eval_shape(jax.grad(total, (0, 1, 2)), *low)
    assert all(grad.dtype == jnp.bfloat16 for grad in grads)


@jax.jit
def attend_dropped(q, k, v, bias, seed=5):
    key = jax.random.key(seed)
    return attention.attend(q, k, v, masks.causal(), bias, dropout_rate=RATE, rng=key)


def test_attention_drops_weights_and_scales_the_rest():
    size, rows = 16, 8
    q, k = normal(0, rows, size, N, size), normal(1, rows, size, N, size)
    bias = normal(2, 1, N, size, size)
    # With the identity for values the output is the weights themselves.
    v = jnp.broadcast_to(jnp.eye(size)[None, :, None], (rows, size, N, size))
    weights = attention.attend(q, k, v, masks.causal(), bias)
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
    result, expected = (
        jax.jit(jax.grad(lambda *a: (f(*a) * cotangent).sum(), (0, 1, 2, 3)))(*inputs)
        for f in (attend_dropped, naive)
    )
    for grad, naive_grad in zip(result, expected, strict=True):
        np.testing.assert_allclose(grad, naive_grad, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_weights_are_kept_once(dtype):
    """As they are multiplied; in float32 the gradient is that of autodiff."""
    q, k, v = (normal(seed, 2, 8, 2, 4, dtype=dtype) for seed in range(3))

    def plain(q, k, v):
        logits = jnp.einsum("BTNH,BSNH->BNTS", q, k).astype(jnp.float32) / 2
        weights = jax.nn.softmax(logits, axis=-1).astype(v.dtype)
        return jnp.einsum("BNTS,BSNH->BTNH", weights, v)

    def attend(q, k, v):
        return attention.attend_plain(q, k, v, None)

    _, pull = jax.vjp(attend, q, k, v)
    assert sum(x.size == 2 * 2 * 8 * 8 for x in jax.tree.leaves(pull)) == 1
    if dtype == jnp.float32:
        assert_alike([attend], plain, q, k, v, rtol=1e-6, atol=1e-6)


LONG = 30
IDS = jnp.sort(jax.random.randint(jax.random.key(0), (2, LONG), 1, 4), axis=1)
WINDOWED = {
    "both sides": masks.full(),
    "causal": masks.causal(),
    "padded": masks.key_padding(jnp.array([22, LONG])),
    "segments": masks.segments(IDS),
    "causal segments": masks.causal(IDS),
}


@pytest.mark.slow_except("*-3", "causal segments-*")
@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("kind", WINDOWED)
def test_blocks_equal_the_whole_array(kind, size):
    """Values and gradients, of grouped queries too; rows that see nothing aside."""
    mask = masks.local(WINDOWED[kind], size, LONG)
    visible = masks.materialise(mask, LONG, LONG)
    sees = visible.any(-1)[:, 0, :, None, None]
    q, k, v = (normal(i, 2, LONG, n, H) for i, n in enumerate((4, 2, 2)))

    def run(stated):
        def attend(q, k, v):
            return jnp.where(sees, attention.attend(q, k, v, stated), 0)

        return attend

    assert attention._fits_blocks(mask, None, LONG, LONG)
    assert_alike([run(mask)], run(visible), q, k, v)
    low = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    result, expected = (jax.jit(run(each))(*low) for each in (mask, visible))
    np.testing.assert_allclose(
        result.astype(jnp.float32), expected.astype(jnp.float32), atol=0.03
    )


def test_memory_is_linear_in_the_length():
    """No array of a window's attention is as large as the square of the length."""
    length, mask = 512, masks.local(masks.causal(), 8, 512)

    def total(q, k, v):
        return attention.attend(q, k, v, mask).sum()

    args = [jax.ShapeDtypeStruct((1, length, 2, H), jnp.float32)] * 3
    program = jax.make_jaxpr(jax.grad(total, (0, 1, 2)))(*args)
    sizes = [v.aval.size for eqn in program.eqns for v in eqn.outvars]
    assert max(sizes) <= 2 * length * 16 * 2


def test_what_blocks_cannot_do_takes_the_array():
    local = masks.local(masks.causal(), 2, LONG)
    prefix = masks.local(masks.prefix(jnp.array([3, 1])), 2, LONG)
    assert attention._fits_blocks(local, None, LONG, LONG)
    assert not attention._fits_blocks(local, None, 7, 7)  # most of it is visible
    assert not attention._fits_blocks(local, jnp.zeros((1, 1, LONG, LONG)), LONG, LONG)
    assert not attention._fits_blocks(prefix, None, LONG, LONG)
    q, k, v = (normal(i, 2, LONG, 2, H) for i in range(3))
    visible = masks.materialise(prefix, LONG, LONG)
    result, expected = (attention.attend(q, k, v, m) for m in (prefix, visible))
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("num_heads", [1, N])
@pytest.mark.parametrize(
    "mask", [masks.causal(), masks.local(masks.causal(), 2, 12)], ids=["all", "window"]
)
def test_logits_are_limited_by_a_soft_cap(mask, num_heads):
    """In one piece, in blocks, with groups, from a cache, and for inspection."""
    cap, length = 0.7, 12
    q = 3 * normal(0, B, length, N, H)
    k, v = normal(1, B, length, num_heads, H), normal(2, B, length, num_heads, H)
    visible = masks.materialise(mask, length, length)
    all_keys, values = (jnp.repeat(x, N // num_heads, 2) for x in (k, v))
    logits = jnp.einsum("BTNH,BSNH->BNTS", q, all_keys) / H**0.5
    logits = jnp.where(visible, cap * jnp.tanh(logits / cap), -1e30)
    weights = jax.nn.softmax(logits)
    expected = jnp.einsum("BNTS,BSNH->BTNH", weights, values)
    result = attention.attend(q, k, v, mask, softcap=cap)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_allclose(
        attention.weigh(q, k, mask, softcap=cap), weights, atol=1e-5
    )
    cached = attention.attend_cached(
        q, k.swapaxes(1, 2), v.swapaxes(1, 2), mask, softcap=cap
    )
    np.testing.assert_allclose(cached, expected, atol=1e-5)
    assert np.abs(attention.attend(q, k, v, mask) - expected).max() > 0.05

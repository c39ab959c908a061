"""Dropout: what it keeps, and that its bits are threefry's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from ops.alike import normal
from scipy import stats

from jaxpt.ops import dropout as module
from jaxpt.ops.dropout import dropout, keep_mask

RATE = 0.3


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 8), (2, 3, 4, 6)])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_the_bits_are_threefrys(shape, platform, monkeypatch):
    """Sixteen of each half of the two words of JAX's own function."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    key = jax.random.key(3)
    result = keep_mask(key, shape, RATE)
    *rows, width = shape or (1,)
    blocks = (*rows, -(-width // 4))
    size = int(np.prod(blocks))
    counters = jnp.arange(size, dtype=jnp.uint32)
    counts = jnp.concatenate([jnp.zeros_like(counters), counters])
    words = threefry_2x32(jax.random.key_data(key), counts)
    left, right = np.asarray(words).reshape(2, *blocks)
    lanes = left & 0xFFFF, left >> 16, right & 0xFFFF, right >> 16
    bits = np.concatenate(lanes, axis=-1)[..., :width].reshape(shape)
    np.testing.assert_array_equal(result, bits >= round(RATE * 2**16))


def test_other_kinds_of_keys_make_their_own_bits():
    key = jax.random.key(0, impl="rbg")
    result = keep_mask(key, (400, 500), RATE)
    assert abs(float(result.mean()) - (1 - RATE)) < 0.005


def test_keys_are_mapped_over():
    keys = jax.random.split(jax.random.key(0), 3)
    result = jax.vmap(lambda key: keep_mask(key, (5, 6), RATE))(keys)
    expected = [keep_mask(key, (5, 6), RATE) for key in keys]
    np.testing.assert_array_equal(result, expected)


def test_it_zeroes_its_share_and_scales_the_rest():
    x = normal(0, 400, 500)
    result = dropout(jax.random.key(1), x, RATE)
    is_kept = result != 0
    assert abs(float(is_kept.mean()) - (1 - RATE)) < 0.005
    np.testing.assert_allclose(result, jnp.where(is_kept, x / (1 - RATE), 0), rtol=1e-6)
    # No row or column is dropped as one.
    assert abs(np.asarray(is_kept.mean(0)) - (1 - RATE)).max() < 0.15
    assert abs(np.asarray(is_kept.mean(1)) - (1 - RATE)).max() < 0.15


@pytest.mark.parametrize("rate", [0.1, 0.5, 1 / 65536])
def test_elements_of_a_block_and_of_a_row_are_independent(rate):
    """How many of four are kept is binomial, of a block as of neighbours."""
    keep = np.asarray(keep_mask(jax.random.key(5), (4096, 64), rate))
    for counts in (
        keep.reshape(4096, 4, 16).sum(1),
        keep.reshape(4096, 16, 4).sum(2),
        keep.reshape(1024, 4, 64).sum(1),
    ):
        result = np.bincount(counts.ravel(), minlength=5)
        expected = stats.binom.pmf(np.arange(5), 4, 1 - rate) * counts.size
        likely = expected > 5
        result, expected = (
            np.append(x[likely], x[~likely].sum()) for x in (result, expected)
        )
        expected = np.maximum(expected, 1e-9)
        assert ((result - expected) ** 2 / np.maximum(expected, 1)).sum() < 40


def test_it_is_its_keys_and_has_its_own_gradient():
    x, cotangent = normal(0, 40, 50), normal(1, 40, 50)
    drop = lambda seed, x: dropout(jax.random.key(seed), x, RATE)  # noqa: E731
    np.testing.assert_array_equal(drop(1, x), drop(1, x))
    assert (drop(1, x) != drop(2, x)).any()
    grad = jax.grad(lambda x: (drop(1, x) * cotangent).sum())(x)
    np.testing.assert_allclose(grad, drop(1, cotangent), rtol=1e-6)
    assert drop(1, x.astype(jnp.bfloat16)).dtype == jnp.bfloat16


def test_a_block_is_hashed_once_for_its_four_elements(monkeypatch):
    shapes = []
    hash_blocks = module._hash_blocks

    def watch(key, shape):
        shapes.append(shape)
        return hash_blocks(key, shape)

    monkeypatch.setattr(module, "_hash_blocks", watch)
    keep_mask(jax.random.key(0), (8, 64), RATE)
    assert set(shapes) == {(8, 16)}

"""Dropout with few random bits and few hashes per element.

Threefry (Salmon et al. 2011) generates blocks of 64 bits. An element uses 16, so its
rate is rounded to a multiple of 1 / 65536. JAX hashes once per element; here four
elements share a block. The bits do not depend on the platform or on the sharding of the
array.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import optimization_barrier as barrier
from jaxtyping import Array, Bool, Float, Key, UInt

LANES = 4  # elements of a block


def dropout(rng: Key[Array, ""], x: Float[Array, "..."], rate: float) -> Array:
    """Zeroes x with probability `rate` in (0, 1), scales the rest by 1 / (1 - rate)."""
    keep = keep_mask(rng, x.shape, rate)
    return jnp.where(keep, x * (1 / (1 - rate)), 0).astype(x.dtype)


def keep_mask(
    rng: Key[Array, ""], shape: tuple[int, ...], rate: float
) -> Bool[Array, "..."]:
    """The elements that dropout keeps, each with probability 1 - `rate`.

    The four elements of a block are in the same row, a quarter of its length apart, so
    that rows can be on different devices. For keys of other generators than threefry,
    `jax.random.bits` is used.
    """
    least = round(rate * 2**16)
    if not shape:
        return keep_mask(rng, (1,), rate)[0]
    *rows, width = shape
    blocks = (*rows, -(-width // LANES))
    if not _is_threefry(rng) or math.prod(blocks) >= 2**32:
        return jax.random.bits(rng, shape, jnp.uint16) >= least

    def cut(words: tuple[UInt[Array, "..."], ...]) -> Bool[Array, "..."]:
        lanes = [half for word in words for half in (word & 0xFFFF, word >> 16)]
        keep = [lane >= least for lane in lanes]
        return jnp.concatenate(keep, axis=-1)[..., :width]

    if jax.default_backend() != "cpu":
        # Without the barrier every element would recompute its whole block.
        return cut(barrier(_hash_blocks(rng, blocks)))

    # XLA's CPU back end would recompute the bits in every kernel that reads them. It
    # cannot inline the body of a loop, so they are computed in a loop of one iteration.
    def make(_: Array, unused: Array) -> Bool[Array, "..."]:
        return cut(_hash_blocks(rng, blocks))

    # Derived from the key, so that under shard_map it varies over devices as the key
    # does.
    start = jnp.broadcast_to(jax.random.key_data(rng)[0] == 0, shape)
    return jax.lax.fori_loop(0, barrier(jnp.int32(1)), make, start)


def _is_threefry(key: Key[Array, ""]) -> bool:
    is_typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    plain = jax.random.key_impl(jax.random.key(0, impl="threefry2x32"))
    return is_typed and jax.random.key_impl(key) == plain


def _hash_blocks(
    key: Key[Array, ""], shape: tuple[int, ...]
) -> tuple[UInt[Array, "..."], UInt[Array, "..."]]:
    """The two words of the blocks 0, 1, 2, ... as arrays of this shape."""
    high, low = jax.random.key_data(key)
    counter, stride = jnp.zeros(shape, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        index = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        counter += index * np.uint32(stride)
        stride = stride * shape[axis] % 2**32
    return _threefry(high, low, jnp.zeros_like(counter), counter)


def _threefry(
    key_0: UInt[Array, ""],
    key_1: UInt[Array, ""],
    x_0: UInt[Array, "..."],
    x_1: UInt[Array, "..."],
) -> tuple[UInt[Array, "..."], UInt[Array, "..."]]:
    """Threefry-2x32 with 20 rounds."""
    keys = (key_0, key_1, key_0 ^ key_1 ^ np.uint32(0x1BD11BDA))
    turns = ((13, 15, 26, 6), (17, 29, 16, 24))
    x_0, x_1 = x_0 + keys[0], x_1 + keys[1]
    for i in range(5):
        for turn in turns[i % 2]:
            x_0 = x_0 + x_1
            x_1 = (x_1 << np.uint32(turn)) | (x_1 >> np.uint32(32 - turn))
            x_1 = x_0 ^ x_1
        x_0 = x_0 + keys[(i + 1) % 3]
        x_1 = x_1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x_0, x_1

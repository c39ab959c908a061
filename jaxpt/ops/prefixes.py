"""Prefix language modelling: the split of documents into prefix and continuation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxpt.ops.segments import segment_starts


def prefix_lengths(
    rng: Array, segment_ids: Int[Array, "R"], sizes: Int[Array, "R"]
) -> Int[Array, "R"]:
    """The prefix length of each token's document: uniform in [1, size - 1].

    T5's `random_prefix_noise_mask` (t5/data/preprocessors.py), for each document of a
    row. Departure: a document of one token is all prefix; in T5 it is all continuation.

    Args:
      sizes: the `segments.segment_lengths` of the ids.

    >>> ids, sizes = jnp.array([1, 1, 2, 0]), jnp.array([2, 2, 1, 0])
    >>> prefix_lengths(jax.random.key(0), ids, sizes).tolist()
    [1, 1, 1, 0]
    """
    # One sample per token; a document uses that of its first token.
    sampled = jax.random.randint(rng, sizes.shape, 1, jnp.maximum(sizes, 2))
    return jnp.where(segment_ids > 0, sampled[segment_starts(segment_ids)], 0)


def lengths_before(
    segment_ids: Int[Array, "R"], answers: Int[Array, "R"]
) -> Int[Array, "R"]:
    """The number of tokens before the first answer of each token's document.

    Args:
      answers: above 0 at answers; a document without one is all prefix.

    >>> ids, answers = jnp.array([1, 1, 1, 2, 0]), jnp.array([0, 0, 1, 0, 0])
    >>> lengths_before(ids, answers).tolist()
    [2, 2, 2, 1, 0]
    """
    begins, is_answer = segment_starts(segment_ids), answers > 0
    seen = jnp.cumsum(is_answer)
    is_prefix = (seen == (seen - is_answer)[begins]) & (segment_ids > 0)
    counts = jnp.zeros_like(segment_ids).at[begins].add(is_prefix)
    return jnp.where(segment_ids > 0, counts[begins], 0)


def join_halves(
    first: tuple[Int[Array, "B T"], Int[Array, "B T"]],
    second: tuple[Int[Array, "B T"], Int[Array, "B T"]],
) -> tuple[Int[Array, "B T"], Int[Array, "B T"], Bool[Array, "B T"]]:
    """Rows in which each document's second half follows its first.

    Args:
      first, second: rows and their segment ids, of a length that fits both halves.

    Returns:
      rows, segment ids, and whether each token belongs to a second half.

    >>> first = jnp.array([[5, 6, 8, 0]]), jnp.array([[1, 1, 2, 0]])
    >>> second = jnp.array([[7, 0, 0, 0]]), jnp.array([[1, 0, 0, 0]])
    >>> [x[0].astype(int).tolist() for x in join_halves(first, second)]
    [[5, 6, 7, 8], [1, 1, 1, 2], [0, 0, 1, 0]]
    """
    length = first[0].shape[1]
    rows, ids = (jnp.concatenate(pair, 1) for pair in zip(first, second, strict=True))
    is_second = jnp.arange(2 * length) >= length
    # Stable sort by document, first halves first, padding last.
    key = jnp.where(ids > 0, 2 * ids + is_second, 2 * length + 2)
    order = jnp.argsort(key, axis=1, stable=True)[:, :length]
    rows, ids = (jnp.take_along_axis(x, order, axis=1) for x in (rows, ids))
    return rows, ids, is_second[order] & (ids > 0)

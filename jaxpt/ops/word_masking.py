"""Masking of whole words and of spans of words, in one row of static length.

Objectives `vmap` these functions over rows with one key per row. Words and spans are
sampled one after the other, as in the sources: in a loop with at most one iteration per
maskable token, which is vectorised over the row.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from jaxpt.ops.segments import segment_lengths, segment_positions


def find_words(
    starts: Bool[Array, "R"], eligible: Bool[Array, "R"], segment_ids: Int[Array, "R"]
) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """The number of each token's word, and of the stretch of words that contains it.

    A stretch is a run of words that a span may cover. Stretches and words end with
    their document and at every token that is not eligible, even within a word.

    Args:
      starts: which tokens begin a word, by their ids.
      eligible: which tokens may be masked.

    >>> starts, ids = jnp.array([1, 0, 1, 0, 0]) > 0, jnp.array([1, 1, 1, 1, 2])
    >>> [x.tolist() for x in find_words(starts, jnp.ones(5, bool), ids)]
    [[1, 1, 2, 2, 3], [1, 1, 1, 1, 2]]
    """
    before = jnp.concatenate([~eligible[:1], eligible[:-1]])
    is_border = (segment_positions(segment_ids) == 0) | (eligible != before)
    return jnp.cumsum(starts | is_border), jnp.cumsum(is_border)


def sample_words(
    rng: Array,
    eligible: Bool[Array, "R"],
    words: Int[Array, "R"],
    count: Int[Array, ""],
    num_slots: int,
) -> Bool[Array, "R"]:
    """The noise mask of whole words, sampled in random order while they fit the count.

    BERT's `create_masked_lm_predictions`: a word that is longer than the rest of the
    count is skipped, so fewer tokens than the count may be masked, but never more. A
    skipped word cannot fit later, so each iteration takes the first word that fits.

    Args:
      words: the word numbers of `find_words`.
      count: the number of tokens to mask; at most `num_slots`, which is static.
    """
    length = len(eligible)
    sizes = jnp.zeros(length + 1, jnp.int32).at[words].add(eligible)
    order = jax.random.uniform(rng, sizes.shape)

    def take_word(_: Array, carry: tuple) -> tuple[Array, Array]:
        taken, left = carry
        fits = ~taken & (sizes > 0) & (sizes <= left)
        first = jnp.argmax(jnp.where(fits, order, -1.0))
        new = fits & (jnp.arange(length + 1) == first)
        return taken | new, left - jnp.sum(new * sizes)

    carry = jnp.zeros(length + 1, bool), count.astype(jnp.int32)
    taken, _ = jax.lax.fori_loop(0, num_slots, take_word, carry)
    return taken[words] & eligible


def span_length_probabilities(p: float, longest: int) -> np.ndarray:
    """P(1), ..., P(longest) of SpanBERT's span lengths: geometric, truncated.

    The distribution is renormalised and not clipped: clipping would give the longest
    length the probability of all longer ones (as in Megatron).

    >>> probabilities = span_length_probabilities(0.2, 10)
    >>> [round(float(p), 4) for p in (probabilities[0], probabilities[-1])]
    [0.2241, 0.0301]
    """
    probabilities = p * (1 - p) ** np.arange(longest)
    return probabilities / probabilities.sum()


def sample_spans(
    rng: Array,
    eligible: Bool[Array, "R"],
    words: Int[Array, "R"],
    stretches: Int[Array, "R"],
    count: Int[Array, ""],
    num_slots: int,
    probabilities: Float[np.ndarray, "K"],
) -> Bool[Array, "R"]:
    """The noise mask of spans of whole words, of exactly `count` tokens.

    SpanBERT, `PairWithSpanMaskingScheme`: a span begins with the word of a random token
    that is not masked yet. Its length in words is sampled, and words that are already
    masked count, too. A span ends with its stretch at the latest. The last span is cut
    when the count is reached, even within a word. Adjacent spans merge.

    Args:
      words, stretches: the numbers of `find_words`.
      probabilities: `span_length_probabilities`, of lengths in words.
    """
    rng_order, rng_lengths = jax.random.split(rng)
    # Rejecting masked tokens is equivalent to taking the tokens in random order.
    order = jax.random.uniform(rng_order, eligible.shape)
    uniform = jax.random.uniform(rng_lengths, (num_slots,))
    bounds = jnp.asarray(np.cumsum(probabilities)[:-1], jnp.float32)
    num_words = 1 + jnp.sum(uniform[:, None] >= bounds, axis=1)

    def add_span(i: Array, carry: tuple) -> tuple[Array, Array]:
        noise_mask, left = carry
        is_open = eligible & ~noise_mask
        anchor = jnp.argmax(jnp.where(is_open, order, -1.0))
        offset = words - words[anchor]
        is_in = is_open & (stretches == stretches[anchor])
        is_in &= (offset >= 0) & (offset < num_words[i])
        is_in &= jnp.cumsum(is_in) <= left
        return noise_mask | is_in, left - jnp.sum(is_in)

    carry = jnp.zeros_like(eligible), count.astype(jnp.int32)
    return jax.lax.fori_loop(0, num_slots, add_span, carry)[0]


def find_masked_positions(
    noise_mask: Bool[Array, "R"], num_slots: int
) -> tuple[Int[Array, "P"], Float[Array, "P"]]:
    """The masked positions in order, and weights [P]: 0 for unused slots.

    >>> noise_mask = jnp.array([False, True, False, True])
    >>> [x.tolist() for x in find_masked_positions(noise_mask, 3)]
    [[1, 3, 0], [1.0, 1.0, 0.0]]
    """
    _, positions = jax.lax.top_k(noise_mask.astype(jnp.float32), num_slots)
    return positions, (jnp.arange(num_slots) < noise_mask.sum()).astype(jnp.float32)


def find_spans(
    noise_mask: Bool[Array, "R"], segment_ids: Int[Array, "R"]
) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """The first and the last position of each token's masked span.

    Spans end with their document. A token that is not masked forms a span of length 1.

    >>> noise_mask, ids = jnp.array([0, 1, 1, 1, 0]) > 0, jnp.array([1, 1, 1, 2, 2])
    >>> [x.tolist() for x in find_spans(noise_mask, ids)]
    [[0, 1, 1, 3, 4], [0, 2, 2, 3, 4]]
    """
    positions = jnp.arange(len(noise_mask))
    follows = jnp.concatenate([jnp.zeros(1, bool), noise_mask[:-1]])
    continues = noise_mask & follows & (segment_positions(segment_ids) > 0)
    firsts = jax.lax.cummax(jnp.where(continues, 0, positions))
    is_last = ~jnp.concatenate([continues[1:], jnp.zeros(1, bool)])
    lasts = jnp.where(is_last, positions, len(noise_mask))
    return firsts, jax.lax.cummin(lasts, reverse=True)


def sample_visible(
    rng: Array,
    tokens: Int[Array, "R"],
    visible: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    positions: Int[Array, "P"],
    fallback: int,
) -> Int[Array, "P"]:
    """For each position, a random visible token of the same document.

    Random tokens thus have the frequencies of the text. The result is `fallback` if the
    document has no visible token.

    >>> ids, visible = jnp.array([1, 1, 1, 2]), jnp.array([True, False, False, False])
    >>> positions = jnp.array([1, 2, 3])
    >>> sample_visible(jax.random.key(0), jnp.arange(5, 9), visible, ids, positions, 0)
    Array([5, 5, 0], dtype=int32)
    """
    counts = jnp.cumsum(visible)
    begins = positions - segment_positions(segment_ids)[positions]
    ends = begins + segment_lengths(segment_ids)[positions] - 1
    low = (counts - visible)[begins]
    num = jnp.where(ends < begins, 0, counts[ends] - low)
    uniform = jax.random.uniform(rng, positions.shape)
    rank = jnp.minimum((uniform * num).astype(jnp.int32), num - 1)
    order = jnp.argsort(~visible, stable=True)
    words = tokens[order[low + jnp.maximum(rank, 0)]]
    return jnp.where(num > 0, words, fallback).astype(tokens.dtype)


def hash_tokens(
    tokens: Int[Array, "R"], real: Bool[Array, "R"]
) -> tuple[UInt[Array, ""], UInt[Array, ""]]:
    """Two 32-bit hashes of a row's real tokens and their positions.

    >>> row, other = jnp.array([7, 8, 0]), jnp.array([7, 8, 5])
    >>> real = jnp.array([True, True, False])
    >>> bool(hash_tokens(row, real)[0] == hash_tokens(other, real)[0])
    True
    """
    values = jnp.where(real, tokens + 1, 0).astype(jnp.uint32)
    # Polynomials modulo 2^32 in odd numbers (FNV's prime, Knuth's multiplier).
    bases = (16777619, 2654435769)
    powers = [np.full(len(tokens), base, np.uint32).cumprod() for base in bases]
    one, two = (jnp.sum(values * p.astype(np.uint32)) for p in powers)
    return one, two

"""Which words and spans of words to hide, in one row of static length.

Objectives `vmap` these over rows with a key each. Words and spans are drawn one after
the other, as their sources draw them: a loop of as many turns as a row has slots, each
of which looks at the whole row at once.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from jaxpt.ops.segments import segment_lengths, segment_positions


def find_words(
    starts: Bool[Array, "R"], eligible: Bool[Array, "R"], segment_ids: Int[Array, "R"]
) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """The number of each token's word, and of the stretch of words that it is in.

    A stretch is as long as a span may be: it ends where a document does and at every
    token that may not be hidden, and so does a word, whatever its next piece says.

    Args:
      starts: which tokens begin a word by what they are.

    >>> starts, ids = jnp.array([1, 0, 1, 0, 0]) > 0, jnp.array([1, 1, 1, 1, 2])
    >>> [x.tolist() for x in find_words(starts, jnp.ones(5, bool), ids)]
    [[1, 1, 2, 2, 3], [1, 1, 1, 1, 2]]
    """
    before = jnp.concatenate([~eligible[:1], eligible[:-1]])
    is_border = (segment_positions(segment_ids) == 0) | (eligible != before)
    return jnp.cumsum(starts | is_border), jnp.cumsum(is_border)


def choose_words(
    rng: Array,
    eligible: Bool[Array, "R"],
    words: Int[Array, "R"],
    count: Int[Array, ""],
    num_slots: int,
) -> Bool[Array, "R"]:
    """Whole words in random order, each taken that still fits into the count.

    BERT's `create_masked_lm_predictions`: a word that is too long is passed over, so
    fewer tokens than the count may be taken, and never more. What did not fit once
    never will, so each turn takes the first that fits.

    Args:
      words: `find_words`' numbers.
      count: of tokens; at most `num_slots`, a static number.
    """
    length = len(eligible)
    sizes = jnp.zeros(length + 1, jnp.int32).at[words].add(eligible)
    order = jax.random.uniform(rng, sizes.shape)

    def turn(_, carry):
        taken, left = carry
        fits = ~taken & (sizes > 0) & (sizes <= left)
        first = jnp.argmax(jnp.where(fits, order, -1.0))
        new = fits & (jnp.arange(length + 1) == first)
        return taken | new, left - jnp.sum(new * sizes)

    carry = jnp.zeros(length + 1, bool), count.astype(jnp.int32)
    taken, _ = jax.lax.fori_loop(0, num_slots, turn, carry)
    return taken[words] & eligible


def span_lengths(p: float, longest: int) -> np.ndarray:
    """P(1), ..., P(longest) of SpanBERT's spans: geometric, cut off and renormalised.

    Not clipped, which would give the longest all that lies beyond it (Megatron's do).

    >>> lengths = span_lengths(0.2, 10)
    >>> [round(float(x), 4) for x in (lengths[0], lengths[-1])]
    [0.2241, 0.0301]
    """
    lengths = p * (1 - p) ** np.arange(longest)
    return lengths / lengths.sum()


def choose_spans(
    rng: Array,
    eligible: Bool[Array, "R"],
    words: Int[Array, "R"],
    stretches: Int[Array, "R"],
    count: Int[Array, ""],
    num_slots: int,
    lengths: Float[np.ndarray, "K"],
) -> Bool[Array, "R"]:
    """Spans of whole words until exactly `count` tokens are hidden.

    SpanBERT, `PairWithSpanMaskingScheme`: a span begins with the word of a random token
    that is not hidden yet, and takes as many words as are drawn, hidden ones too, up to
    the end of its stretch; the last span is cut where the count is reached, within a
    word if need be. Spans that touch are one, for nothing is left to tell them apart.

    Args:
      words, stretches: of `find_words`.
      lengths: `span_lengths`, in words.
    """
    rng_order, rng_lengths = jax.random.split(rng)
    # To draw again whenever a token is hidden already is to take them in random order.
    order = jax.random.uniform(rng_order, eligible.shape)
    draws = jax.random.uniform(rng_lengths, (num_slots,))
    bounds = jnp.asarray(np.cumsum(lengths)[:-1], jnp.float32)
    num_words = 1 + jnp.sum(draws[:, None] >= bounds, axis=1)

    def turn(i, carry):
        hidden, left = carry
        is_open = eligible & ~hidden
        anchor = jnp.argmax(jnp.where(is_open, order, -1.0))
        behind = words - words[anchor]
        is_in = is_open & (stretches == stretches[anchor])
        is_in &= (behind >= 0) & (behind < num_words[i])
        is_in &= jnp.cumsum(is_in) <= left
        return hidden | is_in, left - jnp.sum(is_in)

    carry = jnp.zeros_like(eligible), count.astype(jnp.int32)
    return jax.lax.fori_loop(0, num_slots, turn, carry)[0]


def to_slots(
    hidden: Bool[Array, "R"], num_slots: int
) -> tuple[Int[Array, "P"], Float[Array, "P"]]:
    """The hidden positions in order, and weights [P]: 0 for slots that are left over.

    >>> [x.tolist() for x in to_slots(jnp.array([False, True, False, True]), 3)]
    [[1, 3, 0], [1.0, 1.0, 0.0]]
    """
    _, positions = jax.lax.top_k(hidden.astype(jnp.float32), num_slots)
    return positions, (jnp.arange(num_slots) < hidden.sum()).astype(jnp.float32)


def find_runs(
    hidden: Bool[Array, "R"], segment_ids: Int[Array, "R"]
) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """The first and the last place of the run of hidden tokens that each is in.

    Runs end with their document. What is not hidden stands by itself.

    >>> hidden, ids = jnp.array([0, 1, 1, 1, 0]) > 0, jnp.array([1, 1, 1, 2, 2])
    >>> [x.tolist() for x in find_runs(hidden, ids)]
    [[0, 1, 1, 3, 4], [0, 2, 2, 3, 4]]
    """
    places = jnp.arange(len(hidden))
    follows = jnp.concatenate([jnp.zeros(1, bool), hidden[:-1]])
    goes_on = hidden & follows & (segment_positions(segment_ids) > 0)
    firsts = jax.lax.cummax(jnp.where(goes_on, 0, places))
    is_last = ~jnp.concatenate([goes_on[1:], jnp.zeros(1, bool)])
    lasts = jnp.where(is_last, places, len(hidden))
    return firsts, jax.lax.cummin(lasts, reverse=True)


def draw_visible(
    rng: Array,
    tokens: Int[Array, "R"],
    visible: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    positions: Int[Array, "P"],
    fallback: int,
) -> Int[Array, "P"]:
    """For each position, a random one of the visible tokens of its own document.

    So random words are as frequent as they are in text. `fallback` where a document
    has none.

    >>> ids, visible = jnp.array([1, 1, 1, 2]), jnp.array([True, False, False, False])
    >>> places = jnp.array([1, 2, 3])
    >>> draw_visible(jax.random.key(0), jnp.arange(5, 9), visible, ids, places, 0)
    Array([5, 5, 0], dtype=int32)
    """
    counts = jnp.cumsum(visible)
    begins = positions - segment_positions(segment_ids)[positions]
    ends = begins + segment_lengths(segment_ids)[positions] - 1
    low = (counts - visible)[begins]
    num = jnp.where(ends < begins, 0, counts[ends] - low)
    draw = jax.random.uniform(rng, positions.shape)
    rank = jnp.minimum((draw * num).astype(jnp.int32), num - 1)
    order = jnp.argsort(~visible, stable=True)
    words = tokens[order[low + jnp.maximum(rank, 0)]]
    return jnp.where(num > 0, words, fallback).astype(tokens.dtype)


def hash_tokens(
    tokens: Int[Array, "R"], real: Bool[Array, "R"]
) -> tuple[UInt[Array, ""], UInt[Array, ""]]:
    """Two 32-bit numbers that tell what a row's real tokens are, and where.

    >>> row, other = jnp.array([7, 8, 0]), jnp.array([7, 8, 5])
    >>> real = jnp.array([True, True, False])
    >>> bool(hash_tokens(row, real)[0] == hash_tokens(other, real)[0])
    True
    """
    values = jnp.where(real, tokens + 1, 0).astype(jnp.uint32)
    # Polynomials modulo 2^32: powers of odd numbers (FNV's prime; Knuth's multiplier).
    bases = (16777619, 2654435769)
    powers = [np.full(len(tokens), base, np.uint32).cumprod() for base in bases]
    one, two = (jnp.sum(values * p.astype(np.uint32)) for p in powers)
    return one, two

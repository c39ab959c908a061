"""Edits of token rows: replace masked tokens by sentinels, [MASK]s or random tokens.

Functions on one row (`tokens` [R]) have static output lengths; objectives `vmap` them.
A `noise_mask` is True at the tokens that are masked.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from jaxpt.ops import kernels
from jaxpt.ops.segments import is_last, segment_lengths, segment_positions


def compact(
    tokens: Int[Array, "R"], keep: Bool[Array, "R"], length: int, fill: int = 0
) -> Int[Array, "T"]:
    """The kept tokens in order, in a row of static `length` padded with `fill`.

    >>> keep = jnp.array([False, False, True, True, False, True])
    >>> compact(jnp.arange(10, 16), keep, 3).tolist()
    [12, 13, 15]
    """
    target = jnp.where(keep, jnp.cumsum(keep) - 1, length)
    return jnp.full(length, fill, tokens.dtype).at[target].set(tokens, mode="drop")


def spans_to_sentinels(
    tokens: Int[Array, "R"],
    noise_mask: Bool[Array, "R"],
    sentinels: Int[Array, "K"],
    length: int,
    fill: int = 0,
) -> Int[Array, "T"]:
    """Replaces each masked span by one sentinel, the i-th span by `sentinels[i]`.

    T5's `noise_span_to_unique_sentinel`; with the complement of the mask it is
    `nonnoise_span_to_unique_sentinel`, which makes the target.

    >>> noise_mask = jnp.array([True, True, False, False, True, False])
    >>> sentinels = jnp.array([999, 998])
    >>> spans_to_sentinels(jnp.arange(10, 16), noise_mask, sentinels, 5).tolist()
    [999, 12, 13, 998, 15]
    """
    follows = jnp.concatenate([jnp.zeros(1, bool), noise_mask[:-1]])
    first = noise_mask & ~follows
    # An index past the sentinels is clipped, so that it never selects another token.
    # The objective checks that the vocabulary has enough sentinels.
    sentinel = sentinels[jnp.clip(jnp.cumsum(first) - 1, 0, len(sentinels) - 1)]
    marked = jnp.where(first, sentinel, tokens)
    return compact(marked, ~(noise_mask & follows), length, fill)


def spans_to_sentinels_packed(
    tokens: Int[Array, "R"],
    noise_mask: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    sentinels: Int[Array, "K"],
    length: int,
    close: int,
    fill: int = 0,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """`spans_to_sentinels` of each document, which the id `close` ends.

    Every document starts with the first sentinel; tokens of segment id 0 are removed.
    Returns the row and its new segment ids, both of static `length`.

    >>> tokens, noise_mask = jnp.arange(10, 16), jnp.array([0, 1, 1, 0, 1, 0]) > 0
    >>> ids, sentinels = jnp.array([1, 1, 1, 2, 2, 0]), jnp.array([999, 998])
    >>> packed = spans_to_sentinels_packed(tokens, noise_mask, ids, sentinels, 7, 1)
    >>> [x.tolist() for x in packed]
    [[10, 999, 1, 13, 999, 1, 0], [1, 1, 1, 2, 2, 2, 0]]
    """
    marked, keep = mark_spans(tokens, noise_mask, segment_ids, sentinels)
    return lay_out(marked, keep, segment_ids, length, close, fill)


def mark_spans(
    tokens: Int[Array, "R"],
    noise_mask: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    sentinels: Int[Array, "K"],
) -> tuple[Int[Array, "R"], Bool[Array, "R"]]:
    """Tokens with a sentinel at the start of each masked span, and which to keep.

    Every document starts with the first sentinel.
    """
    is_start = segment_positions(segment_ids) == 0
    follows = jnp.concatenate([jnp.zeros(1, bool), noise_mask[:-1]]) & ~is_start
    first = noise_mask & ~follows
    count = jnp.cumsum(first)
    before = jax.lax.cummax(jnp.where(is_start, count - first, 0))
    sentinel = sentinels[jnp.clip(count - before - 1, 0, len(sentinels) - 1)]
    return jnp.where(first, sentinel, tokens), ~(noise_mask & follows)


def mark_targets(
    tokens: Int[Array, "R"],
    noise_mask: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    sentinels: Int[Array, "K"],
) -> tuple[Int[Array, "R"], Bool[Array, "R"], Int[Array, "R"]]:
    """The target of `mark_spans`: each masked span after its sentinel.

    Departure: T5's `nonnoise_span_to_unique_sentinel` numbers the clean spans; of a
    text that begins with noise (`random_roll`), sentinel i would precede span i + 1.

    Returns:
      `tokens`, `keep` and `opening` for `lay_out`; the opening is the first sentinel if
      the document begins with a masked span, else -1.

    >>> noise_mask, ids = jnp.array([1, 1, 0, 0, 1, 0]) > 0, jnp.ones(6, int)
    >>> args = jnp.arange(10, 16), noise_mask, ids, jnp.array([999, 998])
    >>> marked, keep, opening = mark_targets(*args)
    >>> lay_out(marked, keep, ids, 6, 1, 0, opening)[0].tolist()
    [999, 10, 11, 998, 14, 1]
    """
    position, size = segment_positions(segment_ids), segment_lengths(segment_ids)
    is_start = position == 0
    follows = jnp.concatenate([jnp.zeros(1, bool), noise_mask[:-1]]) & ~is_start
    first = noise_mask & ~follows
    count = jnp.cumsum(first)
    count -= jax.lax.cummax(jnp.where(is_start, count - first, 0))  # within a document
    last = jnp.clip(jnp.arange(len(tokens)) - position + size - 1, 0)
    # A clean span becomes the sentinel of the masked span that follows it, if any.
    is_sentinel = ~noise_mask & (is_start | follows) & (count < count[last])
    sentinel = sentinels[jnp.clip(count, 0, len(sentinels) - 1)]
    opening = jnp.where(noise_mask & is_start, sentinels[0], -1)
    return jnp.where(noise_mask, tokens, sentinel), noise_mask | is_sentinel, opening


def lay_out(
    tokens: Int[Array, "R"],
    keep: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    length: int,
    close: int | None,
    fill: int = 0,
    opening: Int[Array, "R"] | None = None,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """The kept tokens of all documents in order; the id `close` ends each document.

    Args:
      close: None adds nothing.
      opening: at the first token of a document, the id to put before it; -1 for none.

    Returns:
      The row and its new segment ids, both of static `length`; tokens of segment id 0
      are removed.

    >>> keep, ids = jnp.array([1, 0, 1, 1]) > 0, jnp.array([1, 1, 2, 2])
    >>> row, ids = lay_out(jnp.arange(10, 14), keep, ids, 6, 1)
    >>> row.tolist(), ids.tolist()
    ([10, 1, 12, 13, 1, 0], [1, 1, 2, 2, 2, 0])
    """
    is_text = segment_ids > 0
    keep, ends = keep & is_text, is_last(segment_ids)
    opens = jnp.zeros_like(ends)
    if opening is not None:
        opens = is_text & (segment_positions(segment_ids) == 0) & (opening >= 0)
    if close is None:
        ends &= False
    end_positions = jnp.cumsum(opens.astype(int) + keep + ends)

    def put_all(
        into: Array, first: Array | None, values: Array, closing: Array | int | None
    ) -> Array:
        into = into.at[jnp.where(keep, end_positions - 1 - ends, length)].set(
            values, mode="drop"
        )
        if close is not None:
            target = jnp.where(ends, end_positions - 1, length)
            into = into.at[target].set(closing, mode="drop")
        if first is None:
            return into
        target = jnp.where(opens, end_positions - 1 - ends - keep, length)
        return into.at[target].set(first, mode="drop")

    row = put_all(jnp.full(length, fill, tokens.dtype), opening, tokens, close)
    first = None if opening is None else segment_ids
    ids = jnp.zeros(length, segment_ids.dtype)
    return row, put_all(ids, first, segment_ids, segment_ids)


def replace_tokens(
    rng: Array,
    tokens: Int[Array, "P"],
    mask_id: int,
    random_ids: Int[Array, "K"],
    mask_probability: float | Float[Array, ""],
    random_probability: float | Float[Array, ""],
) -> Int[Array, "P"]:
    """BERT's 80/10/10: a token becomes [MASK], one of `random_ids`, or stays.

    Each token is sampled independently.
    """
    rng_kind, rng_word = jax.random.split(rng)
    uniform = jax.random.uniform(rng_kind, tokens.shape)
    word = random_ids[jax.random.randint(rng_word, tokens.shape, 0, len(random_ids))]
    probabilities = mask_probability, random_probability
    return replace_by(uniform, tokens, mask_id, word, *probabilities)


def replace_by(
    uniform: Float[Array, "P"],
    tokens: Int[Array, "P"],
    mask_id: int,
    words: Int[Array, "P"],
    mask_probability: float | Float[Array, ""],
    random_probability: float | Float[Array, ""],
) -> Int[Array, "P"]:
    """`replace_tokens` for given samples: `uniform` in [0, 1), and random `words`.

    >>> uniform = jnp.array([0.1, 0.85, 0.95])
    >>> replace_by(uniform, jnp.array([5, 6, 7]), 0, jnp.array([9, 9, 9]), 0.8, 0.1)
    Array([0, 9, 7], dtype=int32)
    """
    changed = jnp.where(uniform < mask_probability, mask_id, words)
    is_changed = uniform < mask_probability + random_probability
    return jnp.where(is_changed, changed, tokens)


def put(
    tokens: Int[Array, "R"],
    positions: Int[Array, "P"],
    values: Int[Array, "P"],
    weights: Float[Array, "P"],
) -> Int[Array, "R"]:
    """`tokens` with `values` written at distinct `positions`, except at weight 0.

    >>> put(jnp.arange(4), jnp.array([2, 0]), jnp.array([9, 9]), jnp.array([1.0, 0.0]))
    Array([0, 1, 9, 3], dtype=int32)
    """
    target = jnp.where(weights > 0, positions, len(tokens))
    return tokens.at[target].set(values, mode="drop")


def gather(
    hidden_states: Float[Array, "B T D"], positions: Int[Array, "B P"]
) -> Float[Array, "B P D"]:
    """The hidden states at the given positions of each row."""
    return jnp.take_along_axis(hidden_states, positions[:, :, None], axis=1)


def shift_right(
    targets: Int[Array, "B T"],
    start_id: int,
    segment_ids: Int[Array, "B T"] | None = None,
) -> Int[Array, "B T"]:
    """Decoder inputs: the targets shifted right, with a start token in each document.

    >>> shift_right(jnp.array([[5, 6, 7]]), 0).tolist()
    [[0, 5, 6]]
    >>> shift_right(jnp.array([[5, 6, 7]]), 0, jnp.array([[1, 1, 2]])).tolist()
    [[0, 5, 0]]
    """
    shifted = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=start_id)
    if segment_ids is None:
        return shifted
    return jnp.where(segment_positions(segment_ids) == 0, start_id, shifted)


def shift_left(x: Shaped[Array, "B T *D"], by: int) -> Shaped[Array, "B T *D"]:
    """Moves each row by a number of positions to the left; the rest is 0.

    >>> shift_left(jnp.array([[7, 8, 9]]), 1).tolist()
    [[8, 9, 0]]
    """
    return jnp.pad(x, [(0, 0), (0, by)] + [(0, 0)] * (x.ndim - 2))[:, by:]


def sample_gumbel(
    rng: Array,
    logits: Float[Array, "*batch V"],
    temperature: Float[Array, ""] | float = 1.0,
) -> Int[Array, "*batch"]:
    """A sample of softmax(logits / temperature), by the Gumbel-max trick."""
    noise = jax.random.gumbel(rng, logits.shape, logits.dtype)
    return kernels.argmax(logits / temperature + noise)

"""What stands where tokens were hidden: sentinels, masks, random words, samples.

Functions on one row (`tokens` [R]) have static output lengths; objectives `vmap` them.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.ops.segments import is_last, segment_lengths, segment_positions


def compact(
    tokens: Int[Array, "R"], keep: Bool[Array, "R"], length: int, fill: int = 0
) -> Int[Array, "T"]:
    """The kept tokens in order, in a row of static `length` that ends in `fill`.

    >>> keep = jnp.array([False, False, True, True, False, True])
    >>> compact(jnp.arange(10, 16), keep, 3).tolist()
    [12, 13, 15]
    """
    place = jnp.where(keep, jnp.cumsum(keep) - 1, length)
    return jnp.full(length, fill, tokens.dtype).at[place].set(tokens, mode="drop")


def spans_to_sentinels(
    tokens: Int[Array, "R"],
    hidden: Bool[Array, "R"],
    sentinels: Int[Array, "K"],
    length: int,
    fill: int = 0,
) -> Int[Array, "T"]:
    """Each run of hidden tokens becomes one sentinel: the i-th run, `sentinels[i]`.

    T5's `noise_span_to_unique_sentinel`; with the complement as `hidden` it is
    `nonnoise_span_to_unique_sentinel`, which makes the target.

    >>> hidden = jnp.array([True, True, False, False, True, False])
    >>> sentinels = jnp.array([999, 998])
    >>> spans_to_sentinels(jnp.arange(10, 16), hidden, sentinels, 5).tolist()
    [999, 12, 13, 998, 15]
    """
    follows = jnp.concatenate([jnp.zeros(1, bool), hidden[:-1]])
    first = hidden & ~follows
    # Reading past the sentinels must never give a real token, so the index is clipped;
    # that there are enough of them is checked when the objective is built.
    sentinel = sentinels[jnp.clip(jnp.cumsum(first) - 1, 0, len(sentinels) - 1)]
    marked = jnp.where(first, sentinel, tokens)
    return compact(marked, ~(hidden & follows), length, fill)


def spans_to_sentinels_packed(
    tokens: Int[Array, "R"],
    hidden: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    sentinels: Int[Array, "K"],
    length: int,
    close: int,
    fill: int = 0,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """`spans_to_sentinels` of each document by itself, each ended by a `close`.

    Sentinels start from the first in every document, and what has segment id 0 is left
    out. Returns the row and its new segment ids, both of static `length`.

    >>> tokens, hidden = jnp.arange(10, 16), jnp.array([0, 1, 1, 0, 1, 0]) > 0
    >>> ids, sentinels = jnp.array([1, 1, 1, 2, 2, 0]), jnp.array([999, 998])
    >>> found = spans_to_sentinels_packed(tokens, hidden, ids, sentinels, 7, 1)
    >>> [x.tolist() for x in found]
    [[10, 999, 1, 13, 999, 1, 0], [1, 1, 1, 2, 2, 2, 0]]
    """
    marked, keep = mark_spans(tokens, hidden, segment_ids, sentinels)
    return lay_out(marked, keep, segment_ids, length, close, fill)


def mark_spans(
    tokens: Int[Array, "R"],
    hidden: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    sentinels: Int[Array, "K"],
) -> tuple[Int[Array, "R"], Bool[Array, "R"]]:
    """A sentinel at the first token of each hidden run, and which tokens stay.

    Sentinels start from the first in every document.
    """
    is_start = segment_positions(segment_ids) == 0
    follows = jnp.concatenate([jnp.zeros(1, bool), hidden[:-1]]) & ~is_start
    first = hidden & ~follows
    count = jnp.cumsum(first)
    before = jax.lax.cummax(jnp.where(is_start, count - first, 0))
    sentinel = sentinels[jnp.clip(count - before - 1, 0, len(sentinels) - 1)]
    return jnp.where(first, sentinel, tokens), ~(hidden & follows)


def mark_targets(
    tokens: Int[Array, "R"],
    hidden: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    sentinels: Int[Array, "K"],
) -> tuple[Int[Array, "R"], Bool[Array, "R"], Int[Array, "R"]]:
    """What `mark_spans` hid, each run behind its own sentinel, wherever the runs are.

    T5's `nonnoise_span_to_unique_sentinel` numbers the clean runs: of a text that
    begins with noise (`random_roll`), sentinel i would stand before run i + 1.

    Returns:
      `lay_out`'s tokens, what it keeps, and its opening: the first sentinel where a
      document begins with a hidden run, -1 elsewhere.

    >>> hidden = jnp.array([1, 1, 0, 0, 1, 0]) > 0
    >>> ids, sentinels = jnp.ones(6, int), jnp.array([999, 998])
    >>> marked, keep, opening = mark_targets(jnp.arange(10, 16), hidden, ids, sentinels)
    >>> lay_out(marked, keep, ids, 6, 1, 0, opening)[0].tolist()
    [999, 10, 11, 998, 14, 1]
    """
    place, size = segment_positions(segment_ids), segment_lengths(segment_ids)
    is_start = place == 0
    follows = jnp.concatenate([jnp.zeros(1, bool), hidden[:-1]]) & ~is_start
    first = hidden & ~follows
    count = jnp.cumsum(first)
    count -= jax.lax.cummax(jnp.where(is_start, count - first, 0))  # of this document
    last = jnp.clip(jnp.arange(len(tokens)) - place + size - 1, 0)
    # A clean run gives way to the sentinel of the hidden one behind it, if any is.
    is_sign = ~hidden & (is_start | follows) & (count < count[last])
    sentinel = sentinels[jnp.clip(count, 0, len(sentinels) - 1)]
    opening = jnp.where(hidden & is_start, sentinels[0], -1)
    return jnp.where(hidden, tokens, sentinel), hidden | is_sign, opening


def lay_out(
    tokens: Int[Array, "R"],
    keep: Bool[Array, "R"],
    segment_ids: Int[Array, "R"],
    length: int,
    close: int | None,
    fill: int = 0,
    opening: Int[Array, "R"] | None = None,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """The kept tokens of each document, ended by a `close`, one document after another.

    Args:
      close: None for none.
      opening: at a document's first token, what is put before it; below 0, nothing.

    Returns:
      The row and its new segment ids, both of static `length`; what has segment id 0 is
      left out.

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
    written = jnp.cumsum(opens.astype(int) + keep + ends)

    def put_all(into, first, kept, closing):
        into = into.at[jnp.where(keep, written - 1 - ends, length)].set(
            kept, mode="drop"
        )
        if close is not None:
            place = jnp.where(ends, written - 1, length)
            into = into.at[place].set(closing, mode="drop")
        if first is None:
            return into
        place = jnp.where(opens, written - 1 - ends - keep, length)
        return into.at[place].set(first, mode="drop")

    row = put_all(jnp.full(length, fill, tokens.dtype), opening, tokens, close)
    first = None if opening is None else segment_ids
    ids = jnp.zeros(length, segment_ids.dtype)
    return row, put_all(ids, first, segment_ids, segment_ids)


def replace_tokens(
    rng: Array,
    tokens: Int[Array, "P"],
    mask_id: int,
    random_ids: Int[Array, "K"],
    mask_share: float,
    random_share: float,
) -> Int[Array, "P"]:
    """BERT's 80/10/10: a token becomes [MASK], one of `random_ids`, or stays.

    Shares are probabilities, drawn for each token by itself.
    """
    rng_kind, rng_word = jax.random.split(rng)
    kind = jax.random.uniform(rng_kind, tokens.shape)
    word = random_ids[jax.random.randint(rng_word, tokens.shape, 0, len(random_ids))]
    return replace_by(kind, tokens, mask_id, word, mask_share, random_share)


def replace_by(
    kind: Float[Array, "P"],
    tokens: Int[Array, "P"],
    mask_id: int,
    words: Int[Array, "P"],
    mask_share: float,
    random_share: float,
) -> Int[Array, "P"]:
    """The same for given draws: `kind` from 0 to 1, and the random `words`.

    >>> kind = jnp.array([0.1, 0.85, 0.95])
    >>> replace_by(kind, jnp.array([5, 6, 7]), 0, jnp.array([9, 9, 9]), 0.8, 0.1)
    Array([0, 9, 7], dtype=int32)
    """
    changed = jnp.where(kind < mask_share, mask_id, words)
    return jnp.where(kind < mask_share + random_share, changed, tokens)


def put(
    tokens: Int[Array, "R"],
    positions: Int[Array, "P"],
    values: Int[Array, "P"],
    weights: Float[Array, "P"],
) -> Int[Array, "R"]:
    """`values` written at distinct `positions`; slots of weight 0 write nothing.

    >>> put(jnp.arange(4), jnp.array([2, 0]), jnp.array([9, 9]), jnp.array([1.0, 0.0]))
    Array([0, 1, 9, 3], dtype=int32)
    """
    place = jnp.where(weights > 0, positions, len(tokens))
    return tokens.at[place].set(values, mode="drop")


def gather(
    hidden_BTD: Float[Array, "B T D"], positions: Int[Array, "B P"]
) -> Float[Array, "B P D"]:
    """The hidden states at each row's positions."""
    return jnp.take_along_axis(hidden_BTD, positions[:, :, None], axis=1)


def shift_right(
    targets: Int[Array, "B T"],
    start_id: int,
    segment_ids: Int[Array, "B T"] | None = None,
) -> Int[Array, "B T"]:
    """Decoder inputs: the targets one later, behind a start token in each document.

    >>> shift_right(jnp.array([[5, 6, 7]]), 0).tolist()
    [[0, 5, 6]]
    >>> shift_right(jnp.array([[5, 6, 7]]), 0, jnp.array([[1, 1, 2]])).tolist()
    [[0, 5, 0]]
    """
    shifted = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=start_id)
    if segment_ids is None:
        return shifted
    return jnp.where(segment_positions(segment_ids) == 0, start_id, shifted)


def sample_gumbel(
    rng: Array,
    logits: Float[Array, "*batch V"],
    temperature: Float[Array, ""] | float = 1.0,
) -> Int[Array, "*batch"]:
    """A draw from softmax(logits / temperature), by the Gumbel-max trick."""
    noise = jax.random.gumbel(rng, logits.shape, logits.dtype)
    return jnp.argmax(logits / temperature + noise, axis=-1).astype(jnp.int32)

"""BART's noise: sentence permutation, text infilling, token deletion, rotation.

Lewis et al. 2020; fairseq, `denoising_dataset.py`. Functions work on one row of static
length; objectives `vmap` them. `texts` [R] numbers the texts of a row 1, 2, ...; it is
0 at tokens that keep their position (see `find_texts`).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxpt.ops.edits import compact
from jaxpt.ops.noise import ceil_table
from jaxpt.ops.segments import segment_lengths, segment_positions

MIN_PROBABILITY = 1e-7  # where fairseq ends its table of span lengths


def poisson_table(mean: float) -> np.ndarray:
    """Probabilities of the lengths 0, 1, 2, ..., float64, up to the first below 1e-7.

    Departure: only lengths above the mean can end the table. fairseq's table ends at
    length 0 where e^-mean is below 1e-7, so from a mean of 16.2 on it holds only 0.

    >>> poisson_table(3.0)[:4].round(4).tolist(), len(poisson_table(3.0))
    ([0.0498, 0.1494, 0.224, 0.224], 18)
    """
    table = [math.exp(-mean)]
    while len(table) <= mean or table[-1] >= MIN_PROBABILITY:
        table.append(table[-1] * mean / len(table))
    return np.array(table) / sum(table)


def find_texts(
    segment_ids: Int[Array, "R"], is_fixed: Bool[Array, "R"]
) -> Int[Array, "R"]:
    """Numbers the runs of tokens of a document that are not fixed; 0 elsewhere.

    >>> fixed = jnp.array([1, 0, 0, 1, 0, 0, 0]) > 0
    >>> find_texts(jnp.array([1, 1, 1, 1, 1, 2, 0]), fixed).tolist()
    [0, 1, 1, 0, 2, 3, 0]
    """
    is_text = (segment_ids > 0) & ~is_fixed
    before = jnp.pad(segment_ids[:-1], (1, 0))
    continues = jnp.pad(is_text[:-1], (1, 0)) & (segment_ids == before)
    return jnp.where(is_text, jnp.cumsum(is_text & ~continues), 0)


def _runs(ids: Int[Array, "R"]) -> Int[Array, "R"]:
    """Numbers the runs of equal ids 0, 1, ..., including those of id 0."""
    return jnp.cumsum(segment_positions(ids) == 0) - 1


def shuffled_ranks(
    rng: Array, ids: Int[Array, "R"], eligible: Bool[Array, "R"]
) -> Int[Array, "R"]:
    """Each token's rank in a random order of its run, the eligible ones first."""
    runs, bits = _runs(ids), jax.random.bits(rng, ids.shape)
    keys = (runs, ~eligible, bits, jnp.arange(len(ids)))
    order = jax.lax.sort(keys, num_keys=3)[-1]
    # Sorting permutes tokens within their run, so a run keeps its positions.
    return jnp.zeros_like(ids).at[order].set(segment_positions(runs))


def sample_tokens(
    rng: Array,
    texts: Int[Array, "R"],
    eligible: Bool[Array, "R"],
    budgets: Int[Array, "R1"],
) -> Bool[Array, "R"]:
    """A mask of `budgets[n]` random eligible tokens of each text of n tokens.

    If fewer are eligible, all of them are masked.
    """
    ranks = shuffled_ranks(rng, texts, eligible)
    return eligible & (texts > 0) & (ranks < budgets[segment_lengths(texts)])


def budgets_at_starts(
    texts: Int[Array, "R"], budgets: Int[Array, "R1"]
) -> Int[Array, "R"]:
    """`budgets[n]` at the first token of each text of n tokens, 0 elsewhere.

    >>> budgets_at_starts(jnp.array([0, 1, 1, 2]), jnp.array([0, 5, 7])).tolist()
    [0, 7, 0, 5]
    """
    is_first = (texts > 0) & (segment_positions(texts) == 0)
    return jnp.where(is_first, budgets[segment_lengths(texts)], 0)


def permute_sentences(
    rng: Array, sentence_ids: Int[Array, "R"], texts: Int[Array, "R"], fraction: float
) -> Int[Array, "R"]:
    """The source position of each token after permuting the sentences of each text.

    A `fraction` of a text's sentences, rounded up, is sampled, and those are put in a
    random order; with 1, all of them are. Departure: a sentence is a run of one id,
    also the last of a text or a single token. fairseq looks for the id of a full stop,
    which most vocabularies lack, and misses a last sentence of one token.

    >>> ids, texts = jnp.array([1, 1, 2, 2, 2, 2]), jnp.array([0, 1, 1, 1, 1, 0])
    >>> permute_sentences(jax.random.key(2), ids, texts, 1.0).tolist()
    [0, 2, 3, 4, 1, 5]
    """
    length, index = len(texts), jnp.arange(len(texts))
    is_new = (sentence_ids != jnp.pad(sentence_ids[:-1], (1, 0))) | (
        texts != jnp.pad(texts[:-1], (1, 0))
    )
    is_start = (texts > 0) & is_new
    sentence = jnp.cumsum(is_start) - 1
    # The following arrays are indexed by sentence.
    place = jnp.where(is_start, sentence, length)
    text_of = jnp.zeros_like(texts).at[place].set(texts, mode="drop")
    rng_choose, rng_order = jax.random.split(rng)
    everywhere = jnp.ones(length, bool)
    budgets = jnp.asarray(ceil_table(length, fraction))
    chosen = sample_tokens(rng_choose, text_of, everywhere, budgets)
    runs, bits = _runs(text_of), jax.random.bits(rng_order, (length,))
    free = jax.lax.sort((runs, ~chosen, index), num_keys=3)[-1]
    bits = jnp.where(chosen, bits, 0)  # the others stay in order
    order = jax.lax.sort((runs, ~chosen, bits, index), num_keys=4)[-1]
    rank = jnp.zeros_like(texts).at[order].set(free)
    # Indexed by token again: each fixed token is a separate run and keeps its position.
    rank = jnp.where(texts > 0, rank[sentence], 0)
    return jax.lax.sort((_runs(texts), rank, index), num_keys=2, is_stable=True)[-1]


def infill_spans(
    rng: Array,
    texts: Int[Array, "R"],
    budgets: Int[Array, "R1"],
    probabilities: np.ndarray,
) -> tuple[Bool[Array, "R"], Bool[Array, "R"], Int[Array, "R"]]:
    """Samples spans that cover exactly `budgets[n]` of the n tokens of a text.

    Lengths are sampled until their sum reaches the budget, the last one cut to it; a
    length of 0 covers no token and becomes an insertion. All arrangements of the spans
    among the clean tokens are equally likely. Departure: fairseq's spans may overlap,
    and then cover fewer tokens.

    Args:
      probabilities: of the lengths 0, 1, 2, ...; that of length 0 must be below 1.

    Returns:
      the noise mask, the first positions of spans, and the counts of sampled lengths of
      0, to be summed over a text.
    """
    length, index = len(texts), jnp.arange(len(texts))
    position, size = segment_positions(texts), segment_lengths(texts)
    budget, start = budgets[size], index - position
    rng_length, rng_zeros, rng_order = jax.random.split(rng, 3)

    # Each token of a text samples a span length; the text uses the first ones that add
    # up to its budget. The lengths above 0 and the number of lengths of 0 before each
    # are sampled separately.
    cumulative = np.cumsum(probabilities[1:]) / probabilities[1:].sum()
    uniform = jax.random.uniform(rng_length, (length,))
    bounds = jnp.asarray(cumulative, jnp.float32)
    sizes = 1 + jnp.searchsorted(bounds, uniform, side="right")
    sizes = jnp.minimum(sizes, len(probabilities) - 1)
    total = jnp.cumsum(sizes)
    before = total - sizes
    before -= before[start]
    is_span = (texts > 0) & (before < budget)
    sizes = jnp.where(is_span, jnp.minimum(sizes, budget - before), 0)
    log_zero = math.log(probabilities[0]) if probabilities[0] > 0 else -math.inf
    zeros = jnp.log1p(-jax.random.uniform(rng_zeros, (length,))) / log_zero
    zeros = jnp.where(is_span, jnp.minimum(zeros, length).astype(jnp.int32), 0)

    # A text is a sequence of items, clean tokens and spans, in random order.
    runs = _runs(texts)
    num_spans = jax.ops.segment_sum(is_span.astype(jnp.int32), runs, length)[runs]
    is_item = position < size - budget + num_spans
    ranks = shuffled_ranks(rng_order, texts, is_item)
    is_span = (texts > 0) & is_item & (ranks < num_spans)
    span = sizes[jnp.minimum(start + ranks, length - 1)]
    item = jnp.where(is_span, span, is_item | (texts == 0))
    begins = jnp.where(is_span, jnp.cumsum(item) - item, length)
    edges = jnp.zeros(length + 1, jnp.int32)
    first = edges.at[begins].add(1)[:length] > 0
    edges = edges.at[begins].add(1).at[jnp.minimum(begins + span, length)].add(-1)
    return jnp.cumsum(edges)[:length] > 0, first, zeros


def insert_and_rotate(
    rng: Array,
    tokens: Int[Array, "R"],
    keep: Bool[Array, "R"],
    texts: Int[Array, "R"],
    segment_ids: Int[Array, "R"],
    inserts: Int[Array, "R"],
    mask_id: int,
    rotate: float,
    length: int,
    fill: int = 0,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """Inserts [MASK]s into the kept tokens and rotates texts; returns segment ids, too.

    Args:
      inserts: the number of [MASK]s to insert at random positions of a text, summed
        over its tokens. If a row of `length` cannot hold all, the last texts get fewer.
      rotate: the probability that a text is rotated to begin at another random token.

    >>> tokens, texts = jnp.array([5, 11, 12, 13, 6, 0]), jnp.array([0, 1, 1, 1, 0, 0])
    >>> keep, ids = jnp.array([1, 1, 0, 1, 1, 0]) > 0, jnp.array([1, 1, 1, 1, 1, 0])
    >>> args = tokens, keep, texts, ids, jnp.zeros(6, jnp.int32), 4, 1.0, 6
    >>> [x.tolist() for x in insert_and_rotate(jax.random.key(0), *args)]
    [[5, 13, 11, 6, 0, 0], [1, 1, 1, 1, 0, 0]]
    """
    num, index = len(tokens), jnp.arange(length)
    rng_insert, rng_rotate, rng_offset = jax.random.split(rng, 3)
    keep = keep & (segment_ids > 0)
    # Indexed by run: texts, and the fixed tokens between them.
    runs = _runs(texts)
    num_kept = jax.ops.segment_sum(keep.astype(jnp.int32), runs, num)
    added = jax.ops.segment_sum(jnp.where(texts > 0, inserts, 0), runs, num)
    room = length - num_kept.sum() - (jnp.cumsum(added) - added)
    added = jnp.clip(room, 0, added)
    sizes = num_kept + added
    ends = jnp.cumsum(sizes)
    is_text = jnp.zeros(num, bool).at[runs].set(texts > 0)

    # Indexed by position of the output.
    run = jnp.minimum(jnp.searchsorted(ends, index, side="right"), num - 1)
    is_real = index < ends[-1]
    run = jnp.where(is_real, run, num - 1)
    everywhere = jnp.ones(length, bool)
    ranks = shuffled_ranks(rng_insert, jnp.where(is_real, run + 1, 0), everywhere)
    is_added = is_real & (ranks < added[run])
    source = jnp.where(is_real & ~is_added, jnp.cumsum(~is_added) - 1, 0)
    ids = compact(segment_ids, keep, num)[source]
    row = jnp.where(is_added, mask_id, compact(tokens, keep, num)[source])
    first = (ends - sizes)[run]
    segment_of = jnp.zeros(num, ids.dtype).at[runs].max(segment_ids)

    size = sizes[run]
    is_rotated = jax.random.uniform(rng_rotate, (num,)) < rotate
    offset = jax.random.uniform(rng_offset, (num,)) * (sizes - 1)
    offset = jnp.where(
        is_rotated & is_text & (sizes > 1), 1 + offset.astype(jnp.int32), 0
    )
    read = first + (index - first + offset[run]) % jnp.maximum(size, 1)
    row = row[jnp.where(is_real, read, 0)]
    # A run of fixed tokens may span two documents.
    ids = jnp.where(is_text[run], segment_of[run], ids)
    return jnp.where(is_real, row, fill), jnp.where(is_real, ids, 0)

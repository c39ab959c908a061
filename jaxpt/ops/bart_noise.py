"""Noise that moves, hides and adds tokens, each text of a row by itself: BART's.

Lewis et al. 2020; fairseq, `denoising_dataset.py`. Functions work on one row and a
static length; objectives `vmap` them. `texts` [R] are 1, 2, ... along a row, one run of
equal ids for each text, and 0 for what stays where it is (see `find_texts`).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxpt.ops.edits import compact
from jaxpt.ops.noise import ceil_table
from jaxpt.ops.segments import segment_lengths, segment_positions

LEAST_CHANCE = 1e-7  # where fairseq ends its table of span lengths


def poisson_table(mean: float) -> np.ndarray:
    """Chances of the lengths 0, 1, 2, ..., float64, up to the first below 1e-7.

    Only past the mean: fairseq's table, which ends there at once where e^-mean is that
    small, has no length but 0 from a mean of 16.2 on.

    >>> poisson_table(3.0)[:4].round(4).tolist(), len(poisson_table(3.0))
    ([0.0498, 0.1494, 0.224, 0.224], 18)
    """
    chances = [math.exp(-mean)]
    while len(chances) <= mean or chances[-1] >= LEAST_CHANCE:
        chances.append(chances[-1] * mean / len(chances))
    return np.array(chances) / sum(chances)


def find_texts(
    segment_ids: Int[Array, "R"], is_fixed: Bool[Array, "R"]
) -> Int[Array, "R"]:
    """Runs of tokens of one document that are not fixed, as 1, 2, ...; 0 elsewhere.

    >>> fixed = jnp.array([1, 0, 0, 1, 0, 0, 0]) > 0
    >>> find_texts(jnp.array([1, 1, 1, 1, 1, 2, 0]), fixed).tolist()
    [0, 1, 1, 0, 2, 3, 0]
    """
    is_text = (segment_ids > 0) & ~is_fixed
    before = jnp.pad(segment_ids[:-1], (1, 0))
    goes_on = jnp.pad(is_text[:-1], (1, 0)) & (segment_ids == before)
    return jnp.where(is_text, jnp.cumsum(is_text & ~goes_on), 0)


def _runs(ids: Int[Array, "R"]) -> Int[Array, "R"]:
    """0, 1, ... for the runs of equal ids, those of 0 too."""
    return jnp.cumsum(segment_positions(ids) == 0) - 1


def shuffled_ranks(
    rng: Array, ids: Int[Array, "R"], eligible: Bool[Array, "R"]
) -> Int[Array, "R"]:
    """Each place's rank in a random order of its run, the eligible ones first."""
    runs, draw = _runs(ids), jax.random.bits(rng, ids.shape)
    keys = (runs, ~eligible, draw, jnp.arange(len(ids)))
    order = jax.lax.sort(keys, num_keys=3)[-1]
    # Sorted, a run's places still lie where the run lies.
    return jnp.zeros_like(ids).at[order].set(segment_positions(runs))


def choose_tokens(
    rng: Array,
    texts: Int[Array, "R"],
    eligible: Bool[Array, "R"],
    budgets: Int[Array, "R1"],
) -> Bool[Array, "R"]:
    """Of each text of n tokens, `budgets[n]` eligible ones, or as many as there are."""
    ranks = shuffled_ranks(rng, texts, eligible)
    return eligible & (texts > 0) & (ranks < budgets[segment_lengths(texts)])


def count_once(texts: Int[Array, "R"], budgets: Int[Array, "R1"]) -> Int[Array, "R"]:
    """`budgets[n]` at the first place of each text of n tokens, 0 elsewhere.

    >>> count_once(jnp.array([0, 1, 1, 2]), jnp.array([0, 5, 7])).tolist()
    [0, 7, 0, 5]
    """
    is_first = (texts > 0) & (segment_positions(texts) == 0)
    return jnp.where(is_first, budgets[segment_lengths(texts)], 0)


def permute_sentences(
    rng: Array, sentence_ids: Int[Array, "R"], texts: Int[Array, "R"], share: float
) -> Int[Array, "R"]:
    """The place to read each place from, so that sentences of a text change places.

    Of a text's n sentences `share`, rounded up, are chosen, and those are put in a
    random order; 1 is any order of all of them. A sentence is what has one id, be it
    the last of the text or a single token: fairseq looks for the id of a full stop,
    and finds none with most vocabularies, nor the last sentence if it is one token.

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
    # From here on an array's places are the sentences of the row, in order.
    place = jnp.where(is_start, sentence, length)
    text_of = jnp.zeros_like(texts).at[place].set(texts, mode="drop")
    rng_choose, rng_order = jax.random.split(rng)
    everywhere = jnp.ones(length, bool)
    budgets = jnp.asarray(ceil_table(length, share))
    chosen = choose_tokens(rng_choose, text_of, everywhere, budgets)
    runs, draw = _runs(text_of), jax.random.bits(rng_order, (length,))
    places = jax.lax.sort((runs, ~chosen, index), num_keys=3)[-1]
    draw = jnp.where(chosen, draw, 0)  # the others stay in order
    taken = jax.lax.sort((runs, ~chosen, draw, index), num_keys=4)[-1]
    rank = jnp.zeros_like(texts).at[taken].set(places)
    # Back to tokens: fixed ones are runs of their own, and stay.
    rank = jnp.where(texts > 0, rank[sentence], 0)
    return jax.lax.sort((_runs(texts), rank, index), num_keys=2, is_stable=True)[-1]


def infill_spans(
    rng: Array,
    texts: Int[Array, "R"],
    budgets: Int[Array, "R1"],
    chances: np.ndarray,
) -> tuple[Bool[Array, "R"], Bool[Array, "R"], Int[Array, "R"]]:
    """Spans of drawn lengths that hide exactly `budgets[n]` of a text's n tokens.

    Lengths are drawn until their sum meets the budget, the last cut to it; those of 0
    hide nothing and become insertions. Every arrangement of the spans among the clean
    tokens is equally likely. fairseq's spans may overlap, and hide fewer.

    Args:
      chances: of the lengths 0, 1, 2, ...; of one above 0, too.

    Returns:
      hidden, the first places of the spans, and how many lengths of 0 were drawn: the
      sum over a text's places.
    """
    length, index = len(texts), jnp.arange(len(texts))
    place, size = segment_positions(texts), segment_lengths(texts)
    budget, start = budgets[size], index - place
    rng_length, rng_zeros, rng_order = jax.random.split(rng, 3)

    # A text has a place for each span there could be; the first ones that make up the
    # budget are. Drawn apart: lengths above 0, and how many of 0 came before each.
    steps = jnp.asarray(np.cumsum(chances[1:]) / chances[1:].sum(), jnp.float32)
    drawn = jax.random.uniform(rng_length, (length,))
    sizes = 1 + jnp.searchsorted(steps, drawn, side="right")
    sizes = jnp.minimum(sizes, len(chances) - 1)
    total = jnp.cumsum(sizes)
    before = total - sizes
    before -= before[start]
    is_span = (texts > 0) & (before < budget)
    sizes = jnp.where(is_span, jnp.minimum(sizes, budget - before), 0)
    log_rest = math.log(chances[0]) if chances[0] > 0 else -math.inf
    zeros = jnp.log1p(-jax.random.uniform(rng_zeros, (length,))) / log_rest
    zeros = jnp.where(is_span, jnp.minimum(zeros, length).astype(jnp.int32), 0)

    # A text is a row of clean tokens and spans, in any order.
    runs = _runs(texts)
    num_spans = jax.ops.segment_sum(is_span.astype(jnp.int32), runs, length)[runs]
    is_item = place < size - budget + num_spans
    ranks = shuffled_ranks(rng_order, texts, is_item)
    is_span = (texts > 0) & is_item & (ranks < num_spans)
    span = sizes[jnp.minimum(start + ranks, length - 1)]
    item = jnp.where(is_span, span, is_item | (texts == 0))
    begins = jnp.where(is_span, jnp.cumsum(item) - item, length)
    edges = jnp.zeros(length + 1, jnp.int32)
    first = edges.at[begins].add(1)[:length] > 0
    edges = edges.at[begins].add(1).at[jnp.minimum(begins + span, length)].add(-1)
    return jnp.cumsum(edges)[:length] > 0, first, zeros


def write_out(
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
    """The kept tokens, with [MASK]s inserted and texts rotated; and their segments.

    Args:
      inserts: how many [MASK]s a text gets at random places: the sum over its own. Of
        those that `length` has no room for, the last are left out.
      rotate: the share of texts that begin elsewhere, at any token but their first.

    >>> tokens, texts = jnp.array([5, 11, 12, 13, 6, 0]), jnp.array([0, 1, 1, 1, 0, 0])
    >>> keep, ids = jnp.array([1, 1, 0, 1, 1, 0]) > 0, jnp.array([1, 1, 1, 1, 1, 0])
    >>> args = tokens, keep, texts, ids, jnp.zeros(6, jnp.int32), 4, 1.0, 6
    >>> [x.tolist() for x in write_out(jax.random.key(0), *args)]
    [[5, 13, 11, 6, 0, 0], [1, 1, 1, 1, 0, 0]]
    """
    num, index = len(tokens), jnp.arange(length)
    rng_insert, rng_rotate, rng_offset = jax.random.split(rng, 3)
    keep = keep & (segment_ids > 0)
    # By run, of texts and of what lies between them.
    runs = _runs(texts)
    kept = jax.ops.segment_sum(keep.astype(jnp.int32), runs, num)
    added = jax.ops.segment_sum(jnp.where(texts > 0, inserts, 0), runs, num)
    room = length - kept.sum() - (jnp.cumsum(added) - added)
    added = jnp.clip(room, 0, added)
    sizes = kept + added
    ends = jnp.cumsum(sizes)
    is_text = jnp.zeros(num, bool).at[runs].set(texts > 0)

    # By place of what is written.
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
    turns = jax.random.uniform(rng_rotate, (num,)) < rotate
    offset = jax.random.uniform(rng_offset, (num,)) * (sizes - 1)
    offset = jnp.where(turns & is_text & (sizes > 1), 1 + offset.astype(jnp.int32), 0)
    read = first + (index - first + offset[run]) % jnp.maximum(size, 1)
    row = row[jnp.where(is_real, read, 0)]
    # Fixed tokens of two documents may be one run.
    ids = jnp.where(is_text[run], segment_of[run], ids)
    return jnp.where(is_real, row, fill), jnp.where(is_real, ids, 0)

"""Sentence pairs for next-sentence and sentence-order prediction, planned on lengths.

    sentences of a document:  s0 s1 s2 s3 | s4 s5 ...     a chunk of about a row
    B is what follows:        [CLS] s0 s1 [SEP] s2 s3 [SEP]
    B is from elsewhere:      [CLS] s0 s1 [SEP] r7 r8 [SEP]   s2 s3 are put back

    ordered, as it stands:    [CLS] s0 s1 [SEP] s2 s3 [SEP]
    ordered, swapped:         [CLS] s2 s3 [SEP] s0 s1 [SEP]

The procedure of create_pretraining_data.py, https://arxiv.org/abs/1810.04805
(appendix A.2); ordered pairs as in ALBERT's, https://arxiv.org/abs/1909.11942.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

NUM_SPECIALS = 3  # [CLS] A [SEP] B [SEP]


@dataclass(frozen=True, eq=False)
class PairPlan:
    """Where both sentences of each pair lie, in tokens; 25 bytes a pair.

    Attributes:
      a_starts, b_starts: int64 [n].
      a_lengths, b_lengths: int32 [n].
      is_random: bool [n], True where B does not follow A (ordered: it precedes A).
      num_single: chunks of one sentence that ordered pairs leave out.
    """

    a_starts: np.ndarray
    a_lengths: np.ndarray
    b_starts: np.ndarray
    b_lengths: np.ndarray
    is_random: np.ndarray
    num_single: int = 0


def plan_pairs(
    sentence_starts: np.ndarray,
    doc_starts: np.ndarray,
    row_length: int,
    dupe_factor: int,
    short_seq_prob: float,
    seed: int,
    is_ordered: bool = False,
) -> PairPlan:
    """The pairs of `dupe_factor` passes over all documents, pass by pass, in order.

    One departure from the reference: B's document is drawn among the others, where that
    one draws among all, again up to ten times if it met A's own. Another of ordered
    pairs: a chunk of one sentence gives none, where ALBERT's code pairs it with a
    random one and calls that swapped.

    Args:
      sentence_starts: [S+1], strictly rising, with the end.
      doc_starts: [D+1], strictly rising, all of them sentence starts; D at least 2
        where B is drawn.
      row_length: of [CLS] A [SEP] B [SEP]; at least 5.
      short_seq_prob: how often a document aims at a random length below the row's.
      is_ordered: A and B are neighbours, and which comes first is a coin's choice.
    """
    draw = _Draw(seed)
    most = row_length - NUM_SPECIALS
    first = np.searchsorted(sentence_starts, doc_starts)
    num_docs = len(doc_starts) - 1
    # A lane is a document in one pass; all lanes take one pair a step.
    lanes = np.arange(num_docs * dupe_factor)
    docs = lanes % num_docs
    cursors = first[docs]
    targets = np.where(
        draw.uniform(len(lanes)) < short_seq_prob,
        2 + draw.below(np.full(len(lanes), most - 1)),
        most,
    )
    found, num_single = [], 0
    step = _ordered_step if is_ordered else _step
    while len(lanes):
        is_pair, pairs, cursors = step(
            sentence_starts, first, docs, cursors, targets, most, draw
        )
        found.append(tuple(values[is_pair] for values in (lanes, *pairs)))
        num_single += int((~is_pair).sum())
        more = cursors < first[docs + 1]
        lanes, docs, cursors, targets = (
            values[more] for values in (lanes, docs, cursors, targets)
        )
    lanes, *pairs = (np.concatenate(values) for values in zip(*found, strict=True))
    order = np.argsort(lanes, kind="stable")
    fields: list[Any] = [*(values[order] for values in pairs), num_single]
    return PairPlan(*fields)


def _cut_chunk(starts, first, docs, cursors, targets, draw):
    """Each lane's next chunk: its sentences, the first of its B, and its end."""
    stop = _reach(starts, cursors, targets, first[docs + 1])
    num = stop - cursors
    middle = cursors + np.where(num > 1, 1 + draw.below(np.maximum(num - 1, 1)), 1)
    return num, middle, stop


def _step(starts, first, docs, cursors, targets, most, draw):
    """Whether each lane gives a pair (all do), it, and where its next chunk begins."""
    num, middle, stop = _cut_chunk(starts, first, docs, cursors, targets, draw)
    a_lengths = starts[middle] - starts[cursors]
    is_random = (num == 1) | (draw.uniform(len(num)) < 0.5)
    others = draw.below(np.full(len(num), len(first) - 2))
    others += others >= docs
    begin = first[others] + draw.below(first[others + 1] - first[others])
    end = _reach(starts, begin, targets - a_lengths, first[others + 1])
    b_starts = np.where(is_random, starts[begin], starts[middle])
    b_lengths = np.where(is_random, starts[end], starts[stop]) - b_starts
    a_starts, b_starts, a_lengths, b_lengths = _truncate(
        starts[cursors], b_starts, a_lengths, b_lengths, most, draw
    )
    pairs = _pack(a_starts, b_starts, a_lengths, b_lengths, is_random)
    return num > 0, pairs, np.where(is_random, middle, stop)


def _ordered_step(starts, first, docs, cursors, targets, most, draw):
    """`_step` of ordered pairs; a lane whose chunk is one sentence gives none."""
    num, middle, stop = _cut_chunk(starts, first, docs, cursors, targets, draw)
    is_swapped = draw.uniform(len(num)) < 0.5
    borders = np.stack([starts[cursors], starts[middle], starts[stop]])
    begins, lengths = borders[:-1], np.diff(borders, axis=0)
    begins = np.where(is_swapped, begins[::-1], begins)
    lengths = np.where(is_swapped, lengths[::-1], lengths)
    a_starts, b_starts, a_lengths, b_lengths = _truncate(
        begins[0], begins[1], lengths[0], lengths[1], most, draw
    )
    pairs = _pack(a_starts, b_starts, a_lengths, b_lengths, is_swapped)
    return num > 1, pairs, stop


def _pack(a_starts, b_starts, a_lengths, b_lengths, is_random):
    """The arrays of a `PairPlan`."""
    a_lengths, b_lengths = a_lengths.astype(np.int32), b_lengths.astype(np.int32)
    return a_starts, a_lengths, b_starts, b_lengths, is_random


def _reach(starts, begin, lengths, last):
    """The first border so many tokens on; one sentence at least, to `last` at most."""
    return np.clip(np.searchsorted(starts, starts[begin] + lengths), begin + 1, last)


def _truncate(a_starts, b_starts, a_lengths, b_lengths, most, draw):
    """Take tokens off the longer side, each from its front or its back at even odds.

    The reference takes one at a time, B's where both are as long. So the shorter side
    is touched only where it exceeds half a row.
    """
    halves = most - most // 2, most // 2
    fits = a_lengths + b_lengths <= most
    a_new = np.where(
        a_lengths <= halves[0], a_lengths, np.maximum(halves[0], most - b_lengths)
    )
    a_new = np.where(fits, a_lengths, a_new)
    b_new = np.where(fits, b_lengths, np.minimum(b_lengths, most - a_new))
    a_starts = a_starts + draw.heads(a_lengths - a_new)
    b_starts = b_starts + draw.heads(b_lengths - b_new)
    return a_starts, b_starts, a_new, b_new


class _Draw:
    """Random numbers made of raw bits, which NumPy keeps the same in every version."""

    def __init__(self, seed: int):
        # The counter keeps them apart from the feed's, which have the same keys.
        key, counter = [seed % 2**64, 0], [0, 0, 0, 2**63]
        self._bits = np.random.Philox(
            key=np.array(key, np.uint64), counter=np.array(counter, np.uint64)
        ).random_raw

    def uniform(self, size: int) -> np.ndarray:
        """Between 0 and 1, float64 [size]."""
        return (self._bits(size) >> np.uint64(11)) * 2.0**-53

    def below(self, limits: np.ndarray) -> np.ndarray:
        """From 0 to below each limit, int64 shaped as limits."""
        # 2**64 exceeds any limit so far that the bias of the remainder is nothing.
        return (self._bits(len(limits)) % limits.astype(np.uint64)).astype(np.int64)

    def heads(self, tosses: np.ndarray) -> np.ndarray:
        """How many of so many coins show heads, int64 shaped as tosses."""
        heads = np.zeros(len(tosses), np.int64)
        left = tosses.copy()
        while (some := np.flatnonzero(left > 0)).size:
            used = np.minimum(left[some], 63)
            mask = (np.uint64(1) << used.astype(np.uint64)) - np.uint64(1)
            heads[some] += np.bitwise_count(self._bits(len(some)) & mask)
            left[some] -= used
        return heads

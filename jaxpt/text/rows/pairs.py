"""Plans sentence pairs for next-sentence and sentence-order prediction.

    sentences of a document:  s0 s1 s2 s3 | s4 s5 ...     a chunk of about a row
    B follows A:              [CLS] s0 s1 [SEP] s2 s3 [SEP]
    B is random:              [CLS] s0 s1 [SEP] r7 r8 [SEP]   s2 s3 are used again

    ordered, in text order:   [CLS] s0 s1 [SEP] s2 s3 [SEP]
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
    """The tokens of both segments A and B of each pair; 25 bytes per pair.

    Attributes:
      a_starts, b_starts: int64 [n].
      a_lengths, b_lengths: int32 [n].
      is_random: bool [n], True where B does not follow A (ordered: it precedes A).
      num_single: the number of chunks of one sentence, which give no ordered pair.
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

    Departures: a random B's document is sampled among the other documents; the
    reference samples among all, and again up to ten times if it is A's own. Of ordered
    pairs, a chunk of one sentence gives none; ALBERT's code pairs it with a random one
    and labels that swapped.

    Args:
      sentence_starts: [S+1], strictly increasing, with the end.
      doc_starts: [D+1], strictly increasing, all of them sentence starts; D is at least
        2 unless pairs are ordered.
      row_length: of [CLS] A [SEP] B [SEP]; at least 5.
      short_seq_prob: the probability that a document aims at a random shorter length.
      is_ordered: whether A and B are consecutive, in random order.
    """
    random = _Random(seed)
    most = row_length - NUM_SPECIALS
    first = np.searchsorted(sentence_starts, doc_starts)
    num_docs = len(doc_starts) - 1
    # A lane is a document in one pass; each step makes one pair of every lane.
    lanes = np.arange(num_docs * dupe_factor)
    docs = lanes % num_docs
    cursors = first[docs]
    targets = np.where(
        random.uniform(len(lanes)) < short_seq_prob,
        2 + random.below(np.full(len(lanes), most - 1)),
        most,
    )
    found, num_single = [], 0
    step = _ordered_step if is_ordered else _step
    while len(lanes):
        is_pair, pairs, cursors = step(
            sentence_starts, first, docs, cursors, targets, most, random
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


def _cut_chunk(starts, first, docs, cursors, targets, random):
    """Each lane's next chunk: its number of sentences, its B's first, and its end."""
    stop = _reach(starts, cursors, targets, first[docs + 1])
    num = stop - cursors
    middle = cursors + np.where(num > 1, 1 + random.below(np.maximum(num - 1, 1)), 1)
    return num, middle, stop


def _step(starts, first, docs, cursors, targets, most, random):
    """Whether each lane gives a pair (here True), the pairs, and the next cursors."""
    num, middle, stop = _cut_chunk(starts, first, docs, cursors, targets, random)
    a_lengths = starts[middle] - starts[cursors]
    is_random = (num == 1) | (random.uniform(len(num)) < 0.5)
    others = random.below(np.full(len(num), len(first) - 2))
    others += others >= docs
    begin = first[others] + random.below(first[others + 1] - first[others])
    end = _reach(starts, begin, targets - a_lengths, first[others + 1])
    b_starts = np.where(is_random, starts[begin], starts[middle])
    b_lengths = np.where(is_random, starts[end], starts[stop]) - b_starts
    a_starts, b_starts, a_lengths, b_lengths = _truncate(
        starts[cursors], b_starts, a_lengths, b_lengths, most, random
    )
    pairs = _pack(a_starts, b_starts, a_lengths, b_lengths, is_random)
    return num > 0, pairs, np.where(is_random, middle, stop)


def _ordered_step(starts, first, docs, cursors, targets, most, random):
    """`_step` of ordered pairs; a chunk of one sentence gives no pair."""
    num, middle, stop = _cut_chunk(starts, first, docs, cursors, targets, random)
    is_swapped = random.uniform(len(num)) < 0.5
    borders = np.stack([starts[cursors], starts[middle], starts[stop]])
    begins, lengths = borders[:-1], np.diff(borders, axis=0)
    begins = np.where(is_swapped, begins[::-1], begins)
    lengths = np.where(is_swapped, lengths[::-1], lengths)
    a_starts, b_starts, a_lengths, b_lengths = _truncate(
        begins[0], begins[1], lengths[0], lengths[1], most, random
    )
    pairs = _pack(a_starts, b_starts, a_lengths, b_lengths, is_swapped)
    return num > 1, pairs, stop


def _pack(a_starts, b_starts, a_lengths, b_lengths, is_random):
    """The arrays of a `PairPlan`."""
    a_lengths, b_lengths = a_lengths.astype(np.int32), b_lengths.astype(np.int32)
    return a_starts, a_lengths, b_starts, b_lengths, is_random


def _reach(starts, begin, lengths, last):
    """The first sentence start `lengths` tokens on; at least the next, up to `last`."""
    return np.clip(np.searchsorted(starts, starts[begin] + lengths), begin + 1, last)


def _truncate(a_starts, b_starts, a_lengths, b_lengths, most, random):
    """Removes tokens of the longer side, each with probability 0.5 at front or back.

    The reference removes one token at a time, B's where both sides are equally long, so
    the shorter side is cut only where it exceeds half a row.
    """
    halves = most - most // 2, most // 2
    fits = a_lengths + b_lengths <= most
    a_new = np.where(
        a_lengths <= halves[0], a_lengths, np.maximum(halves[0], most - b_lengths)
    )
    a_new = np.where(fits, a_lengths, a_new)
    b_new = np.where(fits, b_lengths, np.minimum(b_lengths, most - a_new))
    a_starts = a_starts + random.binomial(a_lengths - a_new)
    b_starts = b_starts + random.binomial(b_lengths - b_new)
    return a_starts, b_starts, a_new, b_new


class _Random:
    """Random numbers made of raw bits, which are the same in every version of NumPy."""

    def __init__(self, seed: int):
        # The feed has the same keys; this counter keeps the bits independent of it.
        key, counter = [seed % 2**64, 0], [0, 0, 0, 2**63]
        self._bits = np.random.Philox(
            key=np.array(key, np.uint64), counter=np.array(counter, np.uint64)
        ).random_raw

    def uniform(self, size: int) -> np.ndarray:
        """Uniform in [0, 1), float64 [size]."""
        return (self._bits(size) >> np.uint64(11)) * 2.0**-53

    def below(self, limits: np.ndarray) -> np.ndarray:
        """Uniform whole numbers in [0, limit), int64 shaped as limits."""
        # The bias of the remainder is negligible, as limits are far below 2**64.
        return (self._bits(len(limits)) % limits.astype(np.uint64)).astype(np.int64)

    def binomial(self, counts: np.ndarray) -> np.ndarray:
        """Binomial samples of `counts` trials with p = 0.5, int64 shaped as counts."""
        found = np.zeros(len(counts), np.int64)
        left = counts.copy()
        while (some := np.flatnonzero(left > 0)).size:
            used = np.minimum(left[some], 63)
            mask = (np.uint64(1) << used.astype(np.uint64)) - np.uint64(1)
            found[some] += np.bitwise_count(self._bits(len(some)) & mask)
            left[some] -= used
        return found

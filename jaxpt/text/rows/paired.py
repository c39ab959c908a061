"""Sentence-pair rows for next-sentence and sentence-order prediction.

    sentences of a document:  s0 s1 s2 s3 | s4 s5 ...     a chunk of about a row
    B follows A:              [CLS] s0 s1 [SEP] s2 s3 [SEP]
    B is random:              [CLS] s0 s1 [SEP] r7 r8 [SEP]   s2 s3 are used again

    ordered, in text order:   [CLS] s0 s1 [SEP] s2 s3 [SEP]
    ordered, swapped:         [CLS] s2 s3 [SEP] s0 s1 [SEP]

The procedure of create_pretraining_data.py, https://arxiv.org/abs/1810.04805
(appendix A.2); ordered pairs as in ALBERT's, https://arxiv.org/abs/1909.11942.
"""

import logging
from dataclasses import dataclass
from typing import cast

import numpy as np

from jaxpt.errors import DataError
from jaxpt.text.rows.corpus import Corpus, RowArrays, copy_pieces
from jaxpt.text.rows.rows_spec import NUM_SPECIALS, PAIR_KEYS, PAIRS, RowsSpec
from jaxpt.text.tokens.vocab import Vocab

Array = np.ndarray
_log = logging.getLogger(__name__)

MOST_RANDOM = 0.9  # second segments; above, a warning
_NOTES = {"pairs": "with a random second", "ordered_pairs": "in swapped order"}


def plan_pair_rows(corpus: Corpus, spec: RowsSpec, vocab: Vocab) -> "PairRows":
    """Plans the pairs of a corpus, in one of the forms `PAIRS`."""
    form, row_length = spec.rows, spec.row_length
    specials = [vocab.require(name) for name in ("cls", "sep", "pad")]
    doc_starts = _without_empty(corpus.doc_starts)
    if form == "pairs" and len(doc_starts) < 3:
        raise DataError(
            f"data.rows='pairs': needs 2 documents or more to take a random second "
            f"segment from another one, a split has {len(doc_starts) - 1}; "
            "data.documents=paragraph or line divides a file"
        )
    assert corpus.sentence_starts is not None  # `make_rows` checks it
    plan = plan_pairs(
        _without_empty(corpus.sentence_starts),
        doc_starts,
        row_length,
        spec.dupe_factor,
        spec.short_seq_prob,
        spec.seed,
        is_ordered=form == "ordered_pairs",
    )
    if not len(plan.a_starts):
        raise DataError(
            f"data.rows={form!r}: needs two consecutive sentences of which the "
            f"first leaves room in rows of data.row_length={row_length}, "
            f"and a split has none"
        )
    share = plan.is_random.mean()
    if form == "pairs" and share > MOST_RANDOM:
        _log.warning(
            f"data.rows='pairs': {share:.1%} of the second segments are random, as few "
            f"documents have two sentences within data.row_length={row_length} tokens; "
            "set data.sentences or a longer data.row_length"
        )
    note = f"sentence pairs of {spec.dupe_factor} passes, {plan.is_random.mean():.1%} "
    return PairRows(corpus, form, row_length, specials, plan, note + _NOTES[form])


def _without_empty(starts: np.ndarray) -> np.ndarray:
    """The starts, with the end, without those of empty pieces."""
    return np.append(starts[:-1][np.diff(starts) > 0], starts[-1])


class PairRows:
    """Rows [CLS] A [SEP] B [SEP], then padding (a `forms.Rows`)."""

    is_sampled = False

    def __init__(
        self,
        corpus: Corpus,
        form: str,
        row_length: int,
        specials: list[int],
        plan: "PairPlan",
        note: str,
    ):
        self.num_rows = len(plan.a_starts)
        used = plan.a_lengths.sum() + plan.b_lengths.sum()
        used += NUM_SPECIALS * self.num_rows
        self.fill_rate = float(used / (self.num_rows * row_length))
        self.notes: tuple[str, ...] = (note,)
        if plan.num_single:
            self.notes += (f"{plan.num_single:,} chunks of one sentence left out",)
        self.keys: tuple[str, ...] = (*PAIR_KEYS, PAIRS[form])
        self._corpus, self._plan, self._length = corpus, plan, row_length
        self._cls, self._sep, self._pad = specials

    def read(self, indices: np.ndarray) -> RowArrays:
        """See `forms.Rows.read`."""
        plan, rows = self._plan, np.arange(len(indices))
        a_lengths, b_lengths = plan.a_lengths[indices], plan.b_lengths[indices]
        a_starts, b_starts = plan.a_starts[indices], plan.b_starts[indices]
        sep = a_lengths + 1
        last = sep + b_lengths + 1
        tokens = np.full((len(indices), self._length), self._pad, np.int32)
        tokens[:, 0] = self._cls
        tokens[rows, sep] = tokens[rows, last] = self._sep
        copy_pieces(self._corpus, tokens, rows, 0 * rows + 1, a_starts, a_lengths)
        copy_pieces(self._corpus, tokens, rows, sep + 1, b_starts, b_lengths)
        columns = np.arange(self._length)
        is_real = columns <= last[:, None]
        types = is_real & (columns > sep[:, None])
        values = (tokens, is_real, types, plan.is_random[indices])
        pairs = zip(self.keys, values, strict=True)
        return cast(RowArrays, {key: value.astype(np.int32) for key, value in pairs})


@dataclass(frozen=True, eq=False)
class PairPlan:
    """The positions of the segments A and B of each pair; 25 bytes per pair.

    Attributes:
      a_starts, b_starts: int64 [n].
      a_lengths, b_lengths: int32 [n].
      is_random: bool [n], True if B does not follow A (ordered: B precedes A).
      num_single: the number of chunks of one sentence, which give no ordered pair.
    """

    a_starts: Array
    a_lengths: Array
    b_starts: Array
    b_lengths: Array
    is_random: Array
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
    """Plans the pairs of `dupe_factor` passes over all documents, in order.

    Departures: a random B's document is sampled among the other documents; the
    reference samples among all, and again up to ten times if it is A's own. A chunk
    of one sentence gives no ordered pair; ALBERT's code pairs it with a random one and
    labels that swapped.

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
    lanes = np.arange(num_docs * dupe_factor)
    docs = lanes % num_docs
    cursors = first[docs]
    targets = np.where(
        random.uniform(len(lanes)) < short_seq_prob,
        2 + random.below(np.full(len(lanes), most - 1)),
        most,
    )
    steps, num_single = [], 0
    planner = _PairPlanner(sentence_starts, first, most, random)
    step = planner.ordered_step if is_ordered else planner.step
    while len(lanes):
        is_pair, pairs, cursors = step(docs, cursors, targets)
        steps.append(tuple(values[is_pair] for values in (lanes, *pairs)))
        num_single += int((~is_pair).sum())
        more = cursors < first[docs + 1]
        lanes, docs, cursors, targets = (
            values[more] for values in (lanes, docs, cursors, targets)
        )
    lanes, *fields = (np.concatenate(values) for values in zip(*steps, strict=True))
    order = np.argsort(lanes, kind="stable")
    a_starts, b_starts, a_lengths, b_lengths, is_random = (v[order] for v in fields)
    return PairPlan(
        a_starts=a_starts,
        a_lengths=a_lengths.astype(np.int32),
        b_starts=b_starts,
        b_lengths=b_lengths.astype(np.int32),
        is_random=is_random,
        num_single=num_single,
    )


@dataclass(frozen=True, eq=False)
class _PairPlanner:
    """Makes the next pair of each lane (a document in one pass).

    Attributes:
      starts: [S+1], the sentence starts, with the end.
      first: [D+1], the first sentence of each document, with the end.
      most: the maximum number of tokens of A and B.
    """

    starts: Array
    first: Array
    most: int
    random: "_Random"

    def step(
        self, docs: Array, cursors: Array, targets: Array
    ) -> tuple[Array, tuple[Array, ...], Array]:
        """Whether each lane gives a pair (here True), the pairs, the next cursors."""
        starts, first, random = self.starts, self.first, self.random
        num, middle, stop = self._cut_chunk(docs, cursors, targets)
        a_lengths = starts[middle] - starts[cursors]
        is_random = (num == 1) | (random.uniform(len(num)) < 0.5)
        others = random.below(np.full(len(num), len(first) - 2))
        others += others >= docs
        begin = first[others] + random.below(first[others + 1] - first[others])
        end = self._reach(begin, targets - a_lengths, first[others + 1])
        b_starts = np.where(is_random, starts[begin], starts[middle])
        b_lengths = np.where(is_random, starts[end], starts[stop]) - b_starts
        segments = starts[cursors], b_starts, a_lengths, b_lengths
        pairs = *_truncate(*segments, self.most, random), is_random
        return num > 0, pairs, np.where(is_random, middle, stop)

    def ordered_step(
        self, docs: Array, cursors: Array, targets: Array
    ) -> tuple[Array, tuple[Array, ...], Array]:
        """`step` of ordered pairs; a chunk of one sentence gives no pair."""
        num, middle, stop = self._cut_chunk(docs, cursors, targets)
        is_swapped = self.random.uniform(len(num)) < 0.5
        borders = self.starts[np.stack([cursors, middle, stop])]
        begins, lengths = borders[:-1], np.diff(borders, axis=0)
        a_starts, b_starts = np.where(is_swapped, begins[::-1], begins)
        a_lengths, b_lengths = np.where(is_swapped, lengths[::-1], lengths)
        segments = a_starts, b_starts, a_lengths, b_lengths
        pairs = *_truncate(*segments, self.most, self.random), is_swapped
        return num > 1, pairs, stop

    def _cut_chunk(
        self, docs: Array, cursors: Array, targets: Array
    ) -> tuple[Array, Array, Array]:
        """Each lane's next chunk: its number of sentences, its B's first, its end."""
        stop = self._reach(cursors, targets, self.first[docs + 1])
        num = stop - cursors
        inside = 1 + self.random.below(np.maximum(num - 1, 1))
        return num, cursors + np.where(num > 1, inside, 1), stop

    def _reach(self, begin: Array, lengths: Array, last: Array) -> Array:
        """The first sentence start after `lengths` tokens, at most `last`."""
        ends = np.searchsorted(self.starts, self.starts[begin] + lengths)
        return np.clip(ends, begin + 1, last)


def _truncate(
    a_starts: Array,
    b_starts: Array,
    a_lengths: Array,
    b_lengths: Array,
    most: int,
    random: "_Random",
) -> tuple[Array, Array, Array, Array]:
    """Removes tokens of the longer side, each with probability 0.5 at front or back.

    The reference removes one token at a time, from B if both sides are equally long, so
    the shorter side is cut only if it exceeds half a row.
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
    """Random numbers from raw bits, which are the same in every version of NumPy."""

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
        sums = np.zeros(len(counts), np.int64)
        num_left = counts.copy()
        while (some := np.flatnonzero(num_left > 0)).size:
            used = np.minimum(num_left[some], 63)
            mask = (np.uint64(1) << used.astype(np.uint64)) - np.uint64(1)
            sums[some] += np.bitwise_count(self._bits(len(some)) & mask)
            num_left[some] -= used
        return sums

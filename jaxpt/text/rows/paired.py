"""Rows of sentence pairs: [CLS] A [SEP] B [SEP] and padding."""

import numpy as np

from jaxpt.errors import UserError
from jaxpt.text.rows.corpus import Corpus, copy_pieces
from jaxpt.text.rows.pairs import NUM_SPECIALS, PairPlan, plan_pairs
from jaxpt.text.tokens.vocab import Vocab

# Forms of pairs (`data.rows`), and the key of their rows' label.
PAIRS = {"pairs": "is_random_next", "ordered_pairs": "is_swapped"}
_NOTES = {"pairs": "with a random second", "ordered_pairs": "in swapped order"}


def plan_pair_rows(corpus: Corpus, spec, vocab: Vocab) -> "PairRows":
    """Plans the pairs of a corpus; `spec` is a `forms.RowsSpec` of a form in `PAIRS`.

    Raises:
      UserError: the vocabulary or the text lacks what the form needs, or the text gives
        no pair.
    """
    specials = [vocab.require(name) for name in ("cls", "sep", "pad")]
    doc_starts = _without_empty(corpus.doc_starts)
    if spec.rows == "pairs" and len(doc_starts) < 3:
        raise UserError(
            f"data.rows='pairs': needs 2 documents or more to take a random second "
            f"segment from another one, a split has {len(doc_starts) - 1}"
        )
    plan = plan_pairs(
        _without_empty(corpus.sentence_starts),
        doc_starts,
        spec.row_length,
        spec.dupe_factor,
        spec.short_seq_prob,
        spec.seed,
        is_ordered=spec.rows == "ordered_pairs",
    )
    if not len(plan.a_starts):
        raise UserError(
            f"data.rows={spec.rows!r}: needs two consecutive sentences of which the "
            f"first leaves room in rows of data.row_length={spec.row_length}, "
            f"and a split has none"
        )
    return PairRows(corpus, spec, specials, plan)


def _without_empty(starts: np.ndarray) -> np.ndarray:
    """The starts, with the end, without those of empty pieces."""
    return np.append(starts[:-1][np.diff(starts) > 0], starts[-1])


class PairRows:
    """Rows [CLS] A [SEP] B [SEP], then padding (a `forms.Rows`)."""

    is_sampled = False

    def __init__(self, corpus, spec, specials: list[int], plan: PairPlan):
        self.num_rows = len(plan.a_starts)
        used = plan.a_lengths.sum() + plan.b_lengths.sum()
        used += NUM_SPECIALS * self.num_rows
        self.fill_rate = float(used / (self.num_rows * spec.row_length))
        self.notes: tuple[str, ...] = (
            f"sentence pairs of {spec.dupe_factor} passes, "
            f"{plan.is_random.mean():.1%} {_NOTES[spec.rows]}",
        )
        if plan.num_single:
            self.notes += (f"{plan.num_single:,} chunks of one sentence left out",)
        self.keys = spec.keys
        self._corpus, self._plan, self._length = corpus, plan, spec.row_length
        self._cls, self._sep, self._pad = specials

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
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
        return {key: value.astype(np.int32) for key, value in pairs}

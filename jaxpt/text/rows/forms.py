"""Rows of equal length from a corpus: chunks and windows here, others by name."""

import bisect
import logging
from typing import Protocol

import numpy as np

from jaxpt.by_name import load_place
from jaxpt.errors import ConfigError, DataError
from jaxpt.text.rows.corpus import (
    Corpus,
    RowArrays,
    count_sentences,
    of_answers,
    ragged,
)
from jaxpt.text.rows.rows_spec import PACKED, PAIRS, PLAIN, RowsSpec
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

# Below this share of documents with several sentences, forms of sentences warn.
MIN_SEVERAL = 0.5
_log = logging.getLogger(__name__)
# The functions that plan the other forms.
PLANNERS = {
    **dict.fromkeys(PACKED, "jaxpt.text.rows.packed:plan_packed"),
    **dict.fromkeys(PAIRS, "jaxpt.text.rows.paired:plan_pair_rows"),
}


class PlannedRows(Protocol):
    """Planned rows of a corpus, which are read by index.

    Attributes:
      num_rows: the number of rows.
      keys: the keys that `read` returns.
      is_sampled: whether rows are sampled with replacement, or read once per epoch.
      fill_rate: the fraction of positions that are not padding.
      notes: what was cut or left out, for the log.
    """

    num_rows: int
    keys: tuple[str, ...]
    is_sampled: bool
    fill_rate: float
    notes: tuple[str, ...]

    def read(self, indices: np.ndarray) -> RowArrays:
        """The rows at indices int64 [n]."""
        ...


def make_rows(corpus: Corpus, spec: RowsSpec, vocab: Vocab) -> PlannedRows:
    """Plans the rows of a corpus."""
    needs_sentences = spec.sentence_ids or spec.rows in (*PACKED[1:], *PAIRS)
    if needs_sentences and corpus.sentence_starts is None:
        setting = "sentence_ids=True" if spec.sentence_ids else f"rows={spec.rows!r}"
        raise ConfigError(
            f"data.sentences='': must be set for data.{setting}, which needs documents "
            f"cut into sentences"
        )
    if spec.sentence_ids or spec.rows in PAIRS:
        _check_sentences(corpus, spec)
    if spec.rows in PLAIN:
        return _Stretches(corpus, spec, spec.text_form(vocab))
    planned: PlannedRows = load_place(PLANNERS[spec.rows])(corpus, spec, vocab)
    return planned


def _check_sentences(corpus: Corpus, spec: RowsSpec) -> None:
    """Warns if most documents have one sentence, and refuses pairs if all have.

    A document of one sentence gives next-sentence prediction a random second segment
    only, and leaves nothing to permute.
    """
    share = corpus.share_of_several_sentences()
    setting = f"rows={spec.rows!r}" if spec.rows in PAIRS else "sentence_ids=True"
    line = (
        f"data.{setting}: {share:.1%} of the documents have more than one sentence; "
        "set data.sentences ('lines', or 'punctuation', which knows the marks of all "
        "scripts that have some) or data.documents so that more have"
    )
    if not share and spec.rows in PAIRS:
        raise DataError(
            f"{line}; a row (data.row_length={spec.row_length}) needs two consecutive "
            "sentences"
        )
    if share < MIN_SEVERAL:
        _log.warning(line)


class _Stretches:
    """Rows of consecutive tokens: "chunks", which do not overlap, and "windows"."""

    fill_rate = 1.0
    notes: tuple[str, ...] = ()

    def __init__(self, corpus: Corpus, spec: RowsSpec, form: TextForm):
        length = spec.num_ordinary(form)
        check_length(corpus, length)
        self.is_sampled = spec.rows == "windows"
        self.keys = spec.keys
        self._corpus, self._length, self._form = corpus, length, form
        self._stride = 1 if self.is_sampled else length
        self.num_rows = (corpus.num_tokens - length) // self._stride + 1

    def read(self, indices: np.ndarray) -> RowArrays:
        starts = np.asarray(indices, np.int64) * self._stride
        tokens = self._corpus.gather(starts, self._length)
        arrays = RowArrays(tokens=self._form.wrap(tokens))
        if "answers" in self.keys:
            answers = of_answers(self._corpus).gather(starts, self._length)
            around = [(0, 0), (len(self._form.before), len(self._form.after))]
            arrays["answers"] = np.pad(answers, around)
        if "sentence_ids" in self.keys:
            lengths, rows = np.full(len(starts), self._length), np.arange(len(starts))
            offsets, shape = np.zeros_like(rows), (len(starts), self._length)
            ids = count_sentences(self._corpus, starts, lengths, rows, offsets, shape)
            arrays["sentence_ids"] = ids
        return arrays


def windows(corpus: Corpus, length: int, num: int) -> np.ndarray:
    """Evenly spaced rows of a corpus, int32 [m, length], documents joined.

    Args:
      num: the number of rows, which may overlap; 0 for all consecutive rows.
    """
    starts = window_starts(corpus, length, num)
    if num == 0:
        return corpus.read(0, len(starts) * length).reshape(len(starts), length)
    return corpus.gather(starts, length)


def window_starts(corpus: Corpus, length: int, num: int) -> np.ndarray:
    """The first token of each row of `windows`, int64 [m]."""
    check_length(corpus, length)
    if num == 0:
        return np.arange(corpus.num_tokens // length) * length
    return np.arange(num) * (corpus.num_tokens - length) // max(num - 1, 1)


def passages(
    corpus: Corpus, length: int, num: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most `num` labelled rows within documents, evenly over the documents.

    They do not overlap; documents without a label or shorter than a row are skipped.

    Returns:
      tokens: int32 [m, length].
      labels: int32 [m], indices into `corpus.label_names`.
      documents: int64 [m], each row's document.
    """
    room = np.where(corpus.labels >= 0, np.diff(corpus.doc_starts) // length, 0)
    quota = _distribute(num, room)
    docs = np.repeat(np.arange(len(quota)), quota)
    number = ragged(np.zeros(len(quota), np.int64), quota)
    chunks = number * room[docs] // quota[docs]
    starts = corpus.doc_starts[docs] + chunks * length
    return corpus.gather(starts, length), corpus.labels[docs], docs


def check_length(corpus: Corpus, length: int) -> None:
    """Raises UserError if a corpus is shorter than one row of `length` tokens."""
    if corpus.num_tokens < length:
        raise ConfigError(
            f"data.path: a split has {corpus.num_tokens} tokens, fewer than one row of "
            f"{length}; use more text, or shorter rows (data.seq_len, data.row_length)"
        )


def _distribute(num: int, room: np.ndarray) -> np.ndarray:
    """Distributes `num` items over bins with limited room, as evenly as possible.

    The result is int64 like `room`; if the bins have too little room, all are filled.
    """
    levels = range(int(room.max(initial=0)) + 1)
    level = bisect.bisect_right(
        levels, num, key=lambda level: np.minimum(room, level).sum()
    )
    level = max(level - 1, 0)
    quota = np.minimum(room, level)
    # Fewer items are left than bins with room for one more.
    wider = np.flatnonzero(room > level)
    num_left = max(min(num - int(quota.sum()), len(wider)), 0)
    quota[wider[np.arange(num_left) * len(wider) // max(num_left, 1)]] += 1
    return quota

"""Rows of fresh documents: each row of training is drawn for its step.

    row r = documents r m, r m + 1, ..., r m + m - 1 of the language's endless stream

    chunks, windows    joined, and cut at the end of the row
    packed             whole documents, then padding; longer ones are truncated

The feed draws the number r below 2^48, as it draws the start of a window. So a row is a
function of the run's seed and the step, and practically never repeats: with a
probability of n^2 / 2^49 in n rows.
"""

import numpy as np

from jaxpt.errors import ConfigError
from jaxpt.text.rows.corpus import RowArrays, refuse_answers
from jaxpt.text.rows.rows_spec import PLAIN, RowsSpec
from jaxpt.text.stores.fresh import FreshDocuments
from jaxpt.text.tokens.vocab import Vocab

NUM_ROWS = 2**48
FORMS = (*PLAIN, "packed")


class FreshRows:
    """Planned rows (`forms.PlannedRows`) without end."""

    num_rows = NUM_ROWS
    is_sampled = True

    def __init__(self, fresh: FreshDocuments, spec: RowsSpec, vocab: Vocab):
        path = fresh.named.path
        self.notes: tuple[str, ...] = ()
        if spec.rows not in FORMS:
            raise ConfigError(
                f"data.rows={spec.rows}: must be one of {', '.join(FORMS)} with the "
                f"language data.path={path}, whose documents have no sentences"
            )
        self.keys = spec.keys
        has_answers = fresh.named.spec.HAS_ANSWERS
        if spec.answers_only and not has_answers:
            raise refuse_answers()
        if has_answers and not spec.answers_only:
            self.notes = ("losses are read in the whole text, not in answers only",)
        self._fresh, self._spec = fresh, spec
        self._form, self._pad = spec.text_form(vocab), 0
        self._length = spec.num_ordinary(self._form)
        whole, rest = divmod(self._length, fresh.length)
        self._num = whole + bool(rest)
        if spec.rows == "packed":
            self._pad = vocab.require("pad")
            self._num = min(max(whole, 1), spec.max_documents)
        self._filled = min(self._num * fresh.length, self._length)
        self.fill_rate = self._filled / self._length

    def read(self, indices: np.ndarray) -> RowArrays:
        """The rows at indices int64 [n]."""
        numbers = np.asarray(indices, np.int64)[:, None] * self._num
        numbers = (numbers + np.arange(self._num)).ravel()
        shape = len(indices), self._length
        tokens, answers = np.full(shape, self._pad, np.int32), np.zeros(shape, np.int32)
        read = self._fresh.read(numbers)
        for array, documents in zip((tokens, answers), read, strict=True):
            joined = documents.reshape(shape[0], -1)
            array[:, : self._filled] = joined[:, : self._filled]
        places = np.arange(self._length)
        number = np.where(places < self._filled, places // self._fresh.length + 1, 0)
        ids = np.tile(number.astype(np.int32), (shape[0], 1))
        arrays = RowArrays(tokens=self._form.wrap(tokens))
        if "segment_ids" in self.keys:
            isolated = self._spec.isolate_documents
            arrays["segment_ids"] = ids if isolated else np.minimum(ids, 1)
        if "answers" in self.keys:
            around = [(0, 0), (len(self._form.before), len(self._form.after))]
            arrays["answers"] = np.pad(answers, around)
        if "sentence_ids" in self.keys:
            arrays["sentence_ids"] = ids
        return arrays

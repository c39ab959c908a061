"""Rows of whole documents or sentences, packed and followed by padding."""

import numpy as np

from jaxpt.errors import ConfigError
from jaxpt.text.rows.corpus import (
    Corpus,
    RowArrays,
    copy_pieces,
    count_sentences,
    of_answers,
    ragged,
)
from jaxpt.text.rows.packing import Packing, pack_documents, pack_sentences
from jaxpt.text.rows.rows_spec import RowsSpec
from jaxpt.text.tokens.vocab import Vocab


def plan_packed(corpus: Corpus, spec: RowsSpec, vocab: Vocab) -> "_Packed":
    """Plans rows of the forms `PACKED`."""
    length, most, pad = spec.row_length, spec.max_documents, vocab.require("pad")
    if spec.rows == "packed":
        truncate = spec.long_documents == "truncate"
        plan = pack_documents(corpus.doc_starts, length, most, truncate)
        action = "truncated" if truncate else "split"
        note = f"documents longer than a row {action}"
    else:
        assert corpus.sentence_starts is not None  # `forms.make_rows` checks it
        plan = pack_sentences(
            corpus.sentence_starts,
            corpus.doc_starts,
            length,
            most if spec.rows == "full_sentences" else 0,
        )
        note = "sentences longer than a row cut"
    if len(plan.row_starts) < 2:
        raise ConfigError(
            f"data.path: a split of {corpus.num_tokens} tokens gives no row of "
            f"data.rows={spec.rows!r}"
        )
    notes = ((plan.num_long, note), (plan.num_left_out, "rows of one token left out"))
    texts = tuple(f"{num:,} {text}" for num, text in notes if num)
    return _Packed(corpus, spec, pad, plan, texts)


class _Packed:
    """Rows of whole documents or parts of them, followed by padding."""

    is_sampled = False

    def __init__(
        self,
        corpus: Corpus,
        spec: RowsSpec,
        pad: int,
        plan: Packing,
        notes: tuple[str, ...],
    ):
        self.num_rows = len(plan.row_starts) - 1
        self.keys = spec.keys
        self.fill_rate = float(plan.lengths.sum() / (self.num_rows * spec.row_length))
        self.notes = notes
        self._corpus, self._spec, self._pad, self._plan = corpus, spec, pad, plan

    def read(self, indices: np.ndarray) -> RowArrays:
        shape = len(indices), self._spec.row_length
        plan = self._plan
        counts = plan.row_starts[indices + 1] - plan.row_starts[indices]
        pieces = ragged(plan.row_starts[indices], counts)
        starts, lengths = plan.starts[pieces], plan.lengths[pieces]
        rows = np.repeat(np.arange(len(indices)), counts)
        before = np.cumsum(lengths) - lengths
        offsets = before - before[np.searchsorted(rows, rows)]
        tokens = np.full(shape, self._pad, np.int32)
        copy_pieces(self._corpus, tokens, rows, offsets, starts, lengths)
        filled = np.bincount(rows, lengths, minlength=len(indices))
        is_real = np.arange(shape[1]) < filled[:, None]
        segments = is_real.astype(np.int32)
        if self._spec.isolate_documents:
            begins = np.zeros(shape, np.int32)
            begins[rows, offsets] = 1
            segments *= np.cumsum(begins, axis=1, dtype=np.int32)
        arrays = RowArrays(tokens=tokens, segment_ids=segments)
        if "answers" in self.keys:
            answers = np.zeros(shape, np.int32)
            marked = of_answers(self._corpus)
            copy_pieces(marked, answers, rows, offsets, starts, lengths)
            arrays["answers"] = answers
        if "sentence_ids" in self.keys:
            ids = count_sentences(self._corpus, starts, lengths, rows, offsets, shape)
            arrays["sentence_ids"] = ids * is_real
        return arrays

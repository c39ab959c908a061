"""Rows of equal length from a corpus: chunks, windows, packed documents, pairs."""

import bisect
import logging
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import numpy as np

from jaxpt.errors import ConfigError, DataError
from jaxpt.setting_types import Fraction, NonNegativeInt, OneOf, PositiveInt, Settings
from jaxpt.text.rows.corpus import Corpus, RowArrays, copy_pieces, of_answers
from jaxpt.text.rows.packing import Packing, pack_documents, pack_sentences, ragged
from jaxpt.text.rows.paired import NUM_SPECIALS, PAIR_KEYS, PAIRS, plan_pair_rows
from jaxpt.text.tokens.vocab import Vocab

PLAIN = ("chunks", "windows")
PACKED = ("packed", "full_sentences", "doc_sentences")
SEGMENTED = (*PACKED, *PAIRS)  # their rows have segment_ids
FORMS = (*PLAIN, *PACKED, *PAIRS)
# Below this share of documents with several sentences, forms of sentences warn.
MIN_SEVERAL = 0.5
_log = logging.getLogger(__name__)
LONG_DOCUMENTS = ("split", "truncate")
# The settings that add optional keys to rows.
CARRIERS = {
    "segment_ids": "data.rows=packed",
    "type_ids": "data.rows=pairs",
    "is_random_next": "data.rows=pairs",
    "is_swapped": "data.rows=ordered_pairs",
    "sentence_ids": "data.sentence_ids=True",
    "answers": "data.answers_only=True",
}


Frame = tuple[tuple[int, ...], tuple[int, ...]]  # ids before and after


@dataclass(frozen=True)
class RowsSpec(Settings):
    """The form of rows; the settings `data.*` of the same names.

    Attributes:
      row_length: tokens in a row.
      rows: the form. "chunks": consecutive rows of the joined documents. "windows":
        rows that begin at a random token, as in nanoGPT. "packed": whole documents,
        packed by best fit. "full_sentences", "doc_sentences": consecutive whole
        sentences, across documents or not (RoBERTa). "pairs": two segments, the second
        one often from another document (BERT). "ordered_pairs": two consecutive
        segments, often swapped (ALBERT).
      long_documents: whether "packed" splits documents longer than a row or truncates
        them. The sentence forms always split sentences longer than a row.
      max_documents: the maximum number of documents in a packed row.
      isolate_documents: whether the documents of a packed row are separate segments.
      sentence_ids: whether rows have the sentence number of each token.
      answers_only: whether losses are read in the answers of a task only, and nothing
        else is hidden: the nodes of the path in `star:`, the values in `recall:`, and
        in `facts:` keys and values. Filled in for these languages, if the objective can
        do so; others read the whole text.
      add_special_tokens: whether each row of chunks or windows begins and ends with the
        special tokens that a text has: those of an imported model, else [CLS] and
        [SEP].
      dupe_factor: the number of passes over the text in an epoch of pairs.
      short_seq_prob: the probability that pairs aim at a random shorter length.
      seed: of the random choices of pairs.
    """

    SECTION: ClassVar[str] = "data"

    row_length: PositiveInt
    rows: Annotated[str, OneOf(*FORMS)] = "chunks"
    long_documents: Annotated[str, OneOf(*LONG_DOCUMENTS)] = "split"
    max_documents: PositiveInt = 8
    isolate_documents: bool = True
    sentence_ids: bool = False
    answers_only: bool = False
    add_special_tokens: bool = False
    dupe_factor: PositiveInt = 10
    short_seq_prob: Fraction = 0.1
    seed: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        least = NUM_SPECIALS + 2
        is_good = self.rows not in PAIRS or self.row_length >= least
        self.check("row_length", is_good, f"at least {least} for sentence pairs")
        if self.sentence_ids and self.rows in PAIRS:
            raise ConfigError(
                f"data.sentence_ids=True: must be False with data.rows={self.rows!r}, "
                "whose type_ids mark the two sentences"
            )
        if self.answers_only and self.rows in PAIRS:
            raise ConfigError(
                f"data.answers_only=True: must be False with data.rows={self.rows!r}"
            )
        is_other = self.rows not in PLAIN or self.sentence_ids
        if self.add_special_tokens and is_other:
            raise ConfigError(
                f"data.add_special_tokens=True: must be False with data.rows="
                f"{self.rows!r} and data.sentence_ids={self.sentence_ids}; rows of "
                f"{' and '.join(PLAIN)} have special tokens"
            )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of rows of this form."""
        if self.rows in PAIRS:
            return (*PAIR_KEYS, PAIRS[self.rows])
        flags = ("sentence_ids",) * self.sentence_ids + ("answers",) * self.answers_only
        return ("tokens", *("segment_ids",) * (self.rows in PACKED), *flags)


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
        return _Stretches(corpus, spec, find_frame(spec, vocab))
    if spec.rows in PAIRS:
        return plan_pair_rows(
            corpus,
            vocab,
            spec.rows,
            spec.row_length,
            spec.dupe_factor,
            spec.short_seq_prob,
            spec.seed,
        )
    return _plan_packed(corpus, spec, vocab.require("pad"))


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


def find_frame(spec: RowsSpec, vocab: Vocab) -> Frame:
    """The special tokens at the beginning and the end of each row, if it has any."""
    if not spec.add_special_tokens:
        return (), ()
    if vocab.framing is not None:
        frame = vocab.framing.before, vocab.framing.after
    else:
        frame = (vocab.require("cls"),), (vocab.require("sep"),)
    if (least := sum(map(len, frame)) + 1) > spec.row_length:
        raise ConfigError(
            f"data.row_length={spec.row_length}: must be at least {least} with "
            f"data.add_special_tokens=True"
        )
    return frame


def add_frame(tokens: np.ndarray, frame: Frame) -> np.ndarray:
    """Rows int32 [n, R] with ids before and after each.

    >>> add_frame(np.array([[7, 8]]), ((1,), (2,))).tolist()
    [[1, 7, 8, 2]]
    """
    ends = (np.tile(np.array(ids, np.int32), (len(tokens), 1)) for ids in frame)
    before, after = ends
    return np.concatenate([before, tokens, after], axis=1)


def hide_frame(frame: Frame) -> Frame:
    """A frame of zeros of the same lengths."""
    before, after = frame
    return (0,) * len(before), (0,) * len(after)


class _Stretches:
    """Rows of consecutive tokens: "chunks", which do not overlap, and "windows"."""

    fill_rate = 1.0
    notes: tuple[str, ...] = ()

    def __init__(self, corpus: Corpus, spec: RowsSpec, frame: Frame):
        length = spec.row_length - sum(map(len, frame))
        check_length(corpus, length)
        self.is_sampled = spec.rows == "windows"
        self.keys = spec.keys
        self._corpus, self._length, self._frame = corpus, length, frame
        self._stride = 1 if self.is_sampled else length
        self.num_rows = (corpus.num_tokens - length) // self._stride + 1

    def read(self, indices: np.ndarray) -> RowArrays:
        starts = np.asarray(indices, np.int64) * self._stride
        tokens = self._corpus.gather(starts, self._length)
        arrays = RowArrays(tokens=add_frame(tokens, self._frame))
        if "answers" in self.keys:
            answers = of_answers(self._corpus).gather(starts, self._length)
            arrays["answers"] = add_frame(answers, hide_frame(self._frame))
        if "sentence_ids" in self.keys:
            lengths, rows = np.full(len(starts), self._length), np.arange(len(starts))
            offsets, shape = np.zeros_like(rows), (len(starts), self._length)
            ids = _count_sentences(self._corpus, starts, lengths, rows, offsets, shape)
            arrays["sentence_ids"] = ids
        return arrays


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
            ids = _count_sentences(self._corpus, starts, lengths, rows, offsets, shape)
            arrays["sentence_ids"] = ids * is_real
        return arrays


def _count_sentences(
    corpus: Corpus,
    starts: np.ndarray,
    lengths: np.ndarray,
    rows: np.ndarray,
    offsets: np.ndarray,
    shape: tuple[int, int],
) -> np.ndarray:
    """The sentence number of each token of rows, from 1, int32 [n, R].

    Padding has the number of its row's last sentence.

    Args:
      starts, lengths: [k], pieces of text.
      rows, offsets: [k], the positions of the pieces in rows.
    """
    borders = corpus.sentence_starts
    assert borders is not None  # `make_rows` checks it
    begins = np.zeros(shape, np.int32)
    begins[rows, offsets] = 1
    first = np.searchsorted(borders, starts, "right")
    counts = np.searchsorted(borders, starts + lengths, "left") - first
    inner = borders[ragged(first, counts)]
    piece = np.repeat(np.arange(len(starts)), counts)
    begins[rows[piece], inner - starts[piece] + offsets[piece]] = 1
    return np.cumsum(begins, axis=1, dtype=np.int32)


def _plan_packed(corpus: Corpus, spec: RowsSpec, pad: int) -> _Packed:
    length, most = spec.row_length, spec.max_documents
    if spec.rows == "packed":
        truncate = spec.long_documents == "truncate"
        plan = pack_documents(corpus.doc_starts, length, most, truncate)
        action = "truncated" if truncate else "split"
        note = f"documents longer than a row {action}"
    else:
        assert corpus.sentence_starts is not None  # `make_rows` checks it
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
            f"data.path: a split has {corpus.num_tokens} tokens, "
            f"fewer than one row of {length}"
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

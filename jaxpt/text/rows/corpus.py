"""A corpus: some documents of a text as one sequence of tokens, and rows of them."""

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np
from numpy.typing import ArrayLike

from jaxpt.errors import ConfigError
from jaxpt.text.stores.stream import TokenStream, check_range

if TYPE_CHECKING:
    from jaxpt.text.stores.fresh import FreshDocuments


class RowArrays(TypedDict, total=False):
    """The arrays of n rows, int32; `forms.RowsSpec.keys` lists those of a form.

    Attributes:
      tokens: [n, R], padded with [PAD].
      segment_ids: [n, R], 1.. the documents of a packed row, 1 throughout a pair, 0
        padding.
      sentence_ids: [n, R], 1.. the sentences of a row, 0 padding.
      answers: [n, R], 1 in the answers of a task, 0 elsewhere.
      type_ids: [n, R], 0 in [CLS] A [SEP] and in padding, 1 in B [SEP].
      is_random_next: [n], 1 if B does not follow A.
      is_swapped: [n], 1 if B precedes A.
    """

    tokens: np.ndarray
    segment_ids: np.ndarray
    sentence_ids: np.ndarray
    answers: np.ndarray
    type_ids: np.ndarray
    is_random_next: np.ndarray
    is_swapped: np.ndarray


def as_dict(arrays: RowArrays) -> dict[str, np.ndarray]:
    """The same arrays, typed for access by any key."""
    return cast(dict[str, np.ndarray], arrays)


@dataclass(frozen=True, eq=False)
class Corpus:
    """The documents of a split as one sequence of tokens, without copying them.

    All positions count from the corpus's first token. The corpus concatenates runs of
    the token stream, in which its documents need not be adjacent.

    Attributes:
      stream: the tokens of the whole text.
      run_starts: int64 [N], the position in the stream of each run's first token.
      run_offsets: int64 [N+1], its position in the corpus, and the end.
      doc_starts: int64 [D+1]; document i is read(doc_starts[i], doc_starts[i+1]).
      labels: int32 [D], indices into `label_names`, -1 for none.
      label_names: the labels of the whole text, the same in all its splits.
      sentence_starts: int64 [S+1], including the end and all document starts; None if
        the text was not cut into sentences.
      byte_stream: the bytes of text of each token of the stream; None if the vocabulary
        has them, or they are not known.
      fingerprint: the sha256 of the corpus's content, in hex.
      answers: of each token of the stream, 1 in the answers of a task and 0 elsewhere;
        None if the text is not a task.
      fresh: of the training text of a language, the documents that training reads in
        place of the corpus's own.
    """

    stream: TokenStream
    run_starts: np.ndarray
    run_offsets: np.ndarray
    doc_starts: np.ndarray
    labels: np.ndarray
    label_names: tuple[str, ...]
    sentence_starts: np.ndarray | None
    byte_stream: TokenStream | None
    fingerprint: str
    answers: TokenStream | None = None
    fresh: "FreshDocuments | None" = None

    @classmethod
    def from_arrays(
        cls,
        tokens: ArrayLike,
        doc_starts: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        sentence_starts: ArrayLike | None = None,
        label_names: tuple[str, ...] = (),
    ) -> "Corpus":
        """A corpus of tokens in memory, by default one document without a label."""
        tokens = np.ascontiguousarray(tokens, np.int32)
        if doc_starts is None:
            doc_starts = [0, len(tokens)]
        doc_starts = np.ascontiguousarray(doc_starts, np.int64)
        if labels is None:
            labels = np.full(len(doc_starts) - 1, -1)
        if sentence_starts is not None:
            sentence_starts = np.asarray(sentence_starts, np.int64)
        digest = hashlib.sha256(tokens.data)
        digest.update(doc_starts.data)
        return cls(
            stream=TokenStream([tokens]),
            run_starts=np.zeros(1, np.int64),
            run_offsets=np.array([0, len(tokens)], np.int64),
            doc_starts=doc_starts,
            labels=np.asarray(labels, np.int32),
            label_names=label_names,
            sentence_starts=sentence_starts,
            byte_stream=None,
            fingerprint=digest.hexdigest(),
        )

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all documents."""
        return int(self.run_offsets[-1])

    def share_of_several_sentences(self) -> float:
        """The share of the documents that have more than one sentence.

        >>> two = Corpus.from_arrays(range(6), [0, 4, 6], sentence_starts=[0, 2, 4, 6])
        >>> two.share_of_several_sentences()
        0.5
        """
        assert self.sentence_starts is not None
        starts = np.unique(self.sentence_starts)
        counts = np.diff(np.searchsorted(starts, self.doc_starts))
        return float((counts > 1).mean()) if len(counts) else 0.0

    def read(self, start: int, stop: int) -> np.ndarray:
        """A copy of tokens start..stop-1, int32.

        Raises:
          IndexError: some of them are outside the corpus.
        """
        check_range(start, stop, self.num_tokens)
        pieces = []
        run = int(np.searchsorted(self.run_offsets, start, "right")) - 1
        while start < stop:
            until = min(stop, int(self.run_offsets[run + 1]))
            shift = int(self.run_starts[run] - self.run_offsets[run])
            pieces.append(self.stream.read(start + shift, until + shift))
            start, run = until, run + 1
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([np.zeros(0, np.int32), *pieces])

    def gather(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Rows of `length` tokens that begin at `starts` [n], int32 [n, length].

        Raises:
          IndexError: a row reaches outside the corpus.
        """
        starts = np.asarray(starts, np.int64)
        if len(starts):
            check_range(starts.min(), starts.max() + length, self.num_tokens)
        if len(self.run_starts) == 1:
            return self.stream.gather(starts + self.run_starts[0], length)
        out = np.empty((len(starts), length), np.int32)
        if not out.size:
            return out
        runs = np.searchsorted(self.run_offsets, starts, "right") - 1
        runs = np.minimum(runs, len(self.run_starts) - 1)
        is_whole = starts + length <= self.run_offsets[runs + 1]
        shifts = self.run_starts[runs] - self.run_offsets[runs]
        out[is_whole] = self.stream.gather((starts + shifts)[is_whole], length)
        for row in np.flatnonzero(~is_whole).tolist():
            out[row] = self.read(int(starts[row]), int(starts[row]) + length)
        return out


def select(whole: Corpus, is_in: np.ndarray, name: str) -> Corpus:
    """Selects the documents where `is_in` [D] is True as a new corpus.

    Args:
      name: the name of the split, a part of the fingerprint.
    """
    docs = np.flatnonzero(is_in)
    starts, ends = whole.doc_starts[docs], whole.doc_starts[docs + 1]
    offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
    # Documents adjacent in the stream are one run, so that few rows span two runs.
    stream_starts = _to_stream(whole, starts)
    is_new = np.ones(len(docs), bool)
    is_new[1:] = stream_starts[1:] != stream_starts[:-1] + (ends - starts)[:-1]
    run_offsets = np.append(offsets[:-1][is_new], offsets[-1])
    sentences = whole.sentence_starts
    if sentences is not None:
        begins = sentences[:-1]
        doc = np.searchsorted(whole.doc_starts, begins, "right") - 1
        shifts = np.full(len(is_in), -1, np.int64)
        shifts[docs] = offsets[:-1] - starts
        is_selected = is_in[doc]
        sentences = np.append(
            begins[is_selected] + shifts[doc[is_selected]], offsets[-1]
        )
    digest = hashlib.sha256(f"{whole.fingerprint} {name}".encode())
    digest.update(docs.astype("<i8").tobytes())
    return replace(
        whole,
        run_starts=stream_starts[is_new],
        run_offsets=run_offsets,
        doc_starts=offsets,
        labels=whole.labels[docs],
        sentence_starts=sentences,
        fingerprint=digest.hexdigest(),
    )


def cut(whole: Corpus, start: int, stop: int, name: str) -> Corpus:
    """Tokens start..stop-1 of a corpus; a document that crosses a border is cut."""
    if start == stop:
        return select(whole, np.zeros(len(whole.labels), bool), name)
    first = int(np.searchsorted(whole.doc_starts, start, "right")) - 1
    last = int(np.searchsorted(whole.doc_starts, stop, "left"))
    inner = np.clip(whole.doc_starts[first : last + 1], start, stop)
    runs = np.searchsorted(whole.run_offsets, [start, stop], "left")
    begins = whole.run_offsets[runs[0] : runs[1]]
    if not len(begins) or begins[0] != start:
        begins = np.concatenate([[start], begins])
    sentences = whole.sentence_starts
    if sentences is not None:
        inside = sentences[(sentences > start) & (sentences < stop)]
        sentences = np.concatenate([[start], inside, [stop]]) - start
    digest = hashlib.sha256(f"{whole.fingerprint} {name} {start} {stop}".encode())
    return replace(
        whole,
        run_starts=_to_stream(whole, begins),
        run_offsets=np.append(begins, stop) - start,
        doc_starts=inner - start,
        labels=whole.labels[first:last],
        sentence_starts=sentences,
        fingerprint=digest.hexdigest(),
    )


def of_answers(corpus: Corpus) -> Corpus:
    """The same corpus whose tokens are 1 in answers, 0 elsewhere.

    Raises:
      ConfigError: it has no answers.
    """
    if corpus.answers is None:
        raise refuse_answers()
    return replace(corpus, stream=corpus.answers)


def refuse_answers() -> ConfigError:
    """The error of a text without answers."""
    return ConfigError(
        "data.answers_only=True: must be False with a text that has no answers; "
        "of the languages, star, facts and recall have some"
    )


def copy_pieces(
    corpus: Corpus,
    out: np.ndarray,
    rows: np.ndarray,
    offsets: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Copies pieces of a corpus into rows `out` [n, R].

    Args:
      rows, offsets: [k], the position of each piece in `out`, sorted by row.
      starts, lengths: [k], its position and length in the corpus.
    """
    # Pieces that are adjacent both in the text and in a row are read together.
    is_new = np.ones(len(rows), bool)
    is_new[1:] = (rows[1:] != rows[:-1]) | (starts[1:] != (starts + lengths)[:-1])
    firsts = np.flatnonzero(is_new)
    lengths = np.add.reduceat(lengths, firsts) if len(firsts) else lengths
    pieces = zip(
        rows[firsts].tolist(),
        offsets[firsts].tolist(),
        starts[firsts].tolist(),
        lengths.tolist(),
        strict=True,
    )
    for row, offset, start, length in pieces:
        out[row, offset : offset + length] = corpus.read(start, start + length)


def count_sentences(
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
    assert borders is not None  # `forms.make_rows` checks it
    begins = np.zeros(shape, np.int32)
    begins[rows, offsets] = 1
    first = np.searchsorted(borders, starts, "right")
    counts = np.searchsorted(borders, starts + lengths, "left") - first
    inner = borders[ragged(first, counts)]
    piece = np.repeat(np.arange(len(starts)), counts)
    begins[rows[piece], inner - starts[piece] + offsets[piece]] = 1
    return np.cumsum(begins, axis=1, dtype=np.int32)


def ragged(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of each run in turn, int64 [sum of lengths].

    >>> ragged(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    lengths = np.asarray(lengths, np.int64)
    shifts = np.asarray(starts, np.int64) - (np.cumsum(lengths) - lengths)
    return np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)


def _to_stream(corpus: Corpus, positions: np.ndarray) -> np.ndarray:
    """The positions in the stream of tokens at `positions` of the corpus, int64."""
    positions = np.asarray(positions, np.int64)
    if not len(corpus.run_starts):
        return positions
    runs = np.searchsorted(corpus.run_offsets, positions, "right") - 1
    runs = np.minimum(runs, len(corpus.run_starts) - 1)
    return positions + corpus.run_starts[runs] - corpus.run_offsets[runs]


def split_count(num: int, fractions: tuple[float, ...]) -> list[int]:
    """Whole numbers in proportion to `fractions`, each at least 1; all 0 if num is 0.

    >>> split_count(12, (0.75, 0.25)), split_count(0, (0.5, 0.5))
    ([9, 3], [0, 0])
    """
    if not num:
        return [0] * len(fractions)
    borders = np.round(np.cumsum((0.0, *fractions)) * num).astype(int)
    return np.maximum(np.diff(borders), 1).tolist()

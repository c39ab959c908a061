"""A split: some of a text's documents, read as one run of tokens."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from jaxpt.text.stores.stream import TokenStream


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents of one split in a row, their tokens left where they lie.

    All places count from the split's own first token. The documents need not be
    neighbours in the stream: runs of it follow each other here.

    Attributes:
      stream: the tokens of the whole text.
      run_starts: int64 [N], where each run begins in the stream.
      run_places: int64 [N+1], where each begins here, and the end.
      doc_starts: int64 [D+1]; document i is read(doc_starts[i], doc_starts[i+1]).
      labels: int32 [D], places in `label_names`, -1 for none.
      label_names: the labels of the whole text, alike in all its splits.
      sentence_starts: int64 [S+1] with the end, every document start among them; None
        where the text was not cut into sentences.
      byte_stream: how many bytes of text each token of the stream stands for; None
        where the vocabulary tells, or nobody knows.
      fingerprint: sha256 of what the split holds, in hex.
    """

    stream: TokenStream
    run_starts: np.ndarray
    run_places: np.ndarray
    doc_starts: np.ndarray
    labels: np.ndarray
    label_names: tuple[str, ...]
    sentence_starts: np.ndarray | None
    byte_stream: TokenStream | None
    fingerprint: str

    @classmethod
    def from_arrays(
        cls,
        tokens,
        doc_starts=None,
        labels=None,
        sentence_starts=None,
        label_names: tuple[str, ...] = (),
    ) -> "Corpus":
        """A split of tokens in memory, by default one document without a label."""
        tokens = np.ascontiguousarray(tokens, np.int32)
        if doc_starts is None:
            doc_starts = [0, len(tokens)]
        doc_starts = np.ascontiguousarray(doc_starts, np.int64)
        if labels is None:
            labels = np.full(len(doc_starts) - 1, -1)
        if sentence_starts is not None:
            sentence_starts = np.asarray(sentence_starts, np.int64)
        digest = hashlib.sha256(tokens)
        digest.update(doc_starts)
        return cls(
            stream=TokenStream([tokens]),
            run_starts=np.zeros(1, np.int64),
            run_places=np.array([0, len(tokens)], np.int64),
            doc_starts=doc_starts,
            labels=np.asarray(labels, np.int32),
            label_names=label_names,
            sentence_starts=sentence_starts,
            byte_stream=None,
            fingerprint=digest.hexdigest(),
        )

    @property
    def num_tokens(self) -> int:
        """Tokens in all documents."""
        return int(self.run_places[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop-1, int32, a copy.

        Raises:
          IndexError: they are not all there.
        """
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start} to {stop} of {self.num_tokens}")
        pieces = []
        run = int(np.searchsorted(self.run_places, start, "right")) - 1
        while start < stop:
            until = min(stop, int(self.run_places[run + 1]))
            shift = int(self.run_starts[run] - self.run_places[run])
            pieces.append(self.stream.read(start + shift, until + shift))
            start, run = until, run + 1
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([np.zeros(0, np.int32), *pieces])

    def gather(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Rows of `length` tokens that begin at `starts` [n], int32 [n, length].

        Raises:
          IndexError: a row is not all there.
        """
        starts = np.asarray(starts, np.int64)
        if len(starts) and not (
            0 <= starts.min() and starts.max() + length <= self.num_tokens
        ):
            raise IndexError(
                f"rows of {length} at {starts.min()} to {starts.max()} of "
                f"{self.num_tokens} tokens"
            )
        if len(self.run_starts) == 1:
            return self.stream.gather(starts + self.run_starts[0], length)
        out = np.empty((len(starts), length), np.int32)
        if not out.size:
            return out
        runs = np.searchsorted(self.run_places, starts, "right") - 1
        runs = np.minimum(runs, len(self.run_starts) - 1)
        is_whole = starts + length <= self.run_places[runs + 1]
        shifts = self.run_starts[runs] - self.run_places[runs]
        out[is_whole] = self.stream.gather((starts + shifts)[is_whole], length)
        for row in np.flatnonzero(~is_whole).tolist():
            out[row] = self.read(int(starts[row]), int(starts[row]) + length)
        return out


def select(whole: Corpus, is_in: np.ndarray, name: str) -> Corpus:
    """The documents of a corpus where `is_in` [D] is True, as a split of their own.

    Args:
      name: of the split; it enters the fingerprint.
    """
    docs = np.flatnonzero(is_in)
    starts, ends = whole.doc_starts[docs], whole.doc_starts[docs + 1]
    places = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
    # Neighbours in the stream are one run, so that few rows cross from one to another.
    stream_starts = _to_stream(whole, starts)
    is_new = np.ones(len(docs), bool)
    is_new[1:] = stream_starts[1:] != stream_starts[:-1] + (ends - starts)[:-1]
    run_places = np.append(places[:-1][is_new], places[-1])
    sentences = whole.sentence_starts
    if sentences is not None:
        begins = sentences[:-1]
        doc = np.searchsorted(whole.doc_starts, begins, "right") - 1
        own = np.full(len(is_in), -1, np.int64)
        own[docs] = places[:-1] - starts
        kept = is_in[doc]
        sentences = np.append(begins[kept] + own[doc[kept]], places[-1])
    digest = hashlib.sha256(f"{whole.fingerprint} {name}".encode())
    digest.update(docs.astype("<i8").tobytes())
    return replace(
        whole,
        run_starts=stream_starts[is_new],
        run_places=run_places,
        doc_starts=places,
        labels=whole.labels[docs],
        sentence_starts=sentences,
        fingerprint=digest.hexdigest(),
    )


def cut(whole: Corpus, start: int, stop: int, name: str) -> Corpus:
    """Tokens start..stop-1 of a corpus; a document across an end is cut there."""
    if start == stop:
        return select(whole, np.zeros(len(whole.labels), bool), name)
    first = int(np.searchsorted(whole.doc_starts, start, "right")) - 1
    last = int(np.searchsorted(whole.doc_starts, stop, "left"))
    inner = np.clip(whole.doc_starts[first : last + 1], start, stop)
    runs = np.searchsorted(whole.run_places, [start, stop], "left")
    places = whole.run_places[runs[0] : runs[1]]
    if not len(places) or places[0] != start:
        places = np.concatenate([[start], places])
    sentences = whole.sentence_starts
    if sentences is not None:
        inside = sentences[(sentences > start) & (sentences < stop)]
        sentences = np.concatenate([[start], inside, [stop]]) - start
    digest = hashlib.sha256(f"{whole.fingerprint} {name} {start} {stop}".encode())
    return replace(
        whole,
        run_starts=_to_stream(whole, places),
        run_places=np.append(places, stop) - start,
        doc_starts=inner - start,
        labels=whole.labels[first:last],
        sentence_starts=sentences,
        fingerprint=digest.hexdigest(),
    )


def copy_pieces(corpus: Corpus, out, rows, offsets, starts, lengths) -> None:
    """Reads pieces of a split to their places in `out` [n, R].

    Args:
      rows, offsets: [k], where each piece begins in `out`, row by row.
      starts, lengths: [k], where it lies in the split.
    """
    # Neighbours in the text that are neighbours in a row are read as one.
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


def _to_stream(corpus: Corpus, places: np.ndarray) -> np.ndarray:
    """Where tokens of the corpus lie in its stream, int64."""
    places = np.asarray(places, np.int64)
    if not len(corpus.run_starts):
        return places
    runs = np.searchsorted(corpus.run_places, places, "right") - 1
    runs = np.minimum(runs, len(corpus.run_starts) - 1)
    return places + corpus.run_starts[runs] - corpus.run_places[runs]

"""Computes the positions of documents, [EOS] and sentences in a store."""

from dataclasses import dataclass, field

import numpy as np

from jaxpt.text.stores.encode import Encoded
from jaxpt.text.stores.store import (
    DOC_BYTES,
    DOC_STARTS,
    LABELS,
    SENTENCE_STARTS,
    TOKEN_BYTES,
)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Consecutive texts, each a document or the next part of one.

    Attributes:
      is_start: bool [p], False if a piece continues the previous one.
      is_heldout: bool [p].
      labels: p names, "" for none; used of pieces that start documents.
      num_bytes: int64 [p], of the text in UTF-8.
    """

    is_start: np.ndarray
    is_heldout: np.ndarray
    labels: list[str]
    num_bytes: np.ndarray


@dataclass
class Layout:
    """The layout of the text written so far, in plain values for the journal.

    Each document ends with [EOS] if more than one is not held out, so a document's
    [EOS] is written when the next document begins. Documents without a token are
    dropped.
    """

    eos: int | None
    has_sentences: bool
    has_sizes: bool
    num_tokens: int = 0
    num_documents: int = 0
    num_main: int = 0
    num_sentences: int = 0
    num_bytes: int = 0
    num_unknown: int = 0
    unknown_bytes: int = 0
    dropped: int = 0
    label_names: list[str] = field(default_factory=list)
    # The open document, which may continue; its start is -1 until it has a token.
    is_open: bool = False
    open_start: int = -1
    open_bytes: int = 0
    open_label: str = ""
    open_is_heldout: bool = False
    # Its bytes after its last token, or all of them if it has no token.
    open_rest: int = 0
    # The last token's bytes, which may still increase; -1 without a token.
    last_size: int = -1
    # A sentence begins at the next token.
    is_sentence_due: bool = False

    def add(self, pieces: Pieces, encoded: Encoded) -> tuple[np.ndarray, dict]:
        """Appends pieces to the text.

        Returns:
          tokens: in the dtype of the encoded ones, with [EOS] inserted.
          arrays: the values to append to each of the store's other files, by name.
        """
        docs = self._group(pieces, encoded.counts)
        ends, tokens = np.zeros(0, np.int64), encoded.tokens
        if self.eos is not None:
            is_closing = docs.is_new & (docs.numbers > 0) & (docs.num_main > 1)
            ends = docs.begins[is_closing]
            tokens = np.insert(tokens, ends, self.eos) if len(ends) else tokens

        def to_store(begins: np.ndarray) -> np.ndarray:
            """Positions in the store of positions among the encoded tokens."""
            return self.num_tokens + begins + np.searchsorted(ends, begins, "right")

        starts = np.where(docs.is_new, to_store(docs.begins), docs.old_starts)
        sizes = self._share_bytes(pieces, encoded, ends) if self.has_sizes else None
        arrays = self._close(docs, starts)
        if self.has_sizes:
            arrays[TOKEN_BYTES] = sizes
        if self.has_sentences:
            sentences = self._find_sentences(encoded, docs.begins[docs.is_new])
            arrays[SENTENCE_STARTS] = to_store(sentences)
            self.num_sentences += len(sentences)
        self.num_tokens += len(tokens)
        self.num_documents += int(docs.is_new.sum())
        self.num_main = int(docs.num_main[-1])
        self.num_unknown += encoded.num_unknown
        self.unknown_bytes += encoded.unknown_bytes
        return tokens, arrays

    def finish(self, dtype: str) -> tuple[np.ndarray, dict]:
        """The last tokens and arrays, as `add` returns them, with the ends."""
        tokens = np.zeros(0, dtype)
        if self.eos is not None and self.num_main > 1:
            tokens = np.array([self.eos], dtype)
        # The start of one more document closes the last one.
        none, zero = np.zeros(0, np.int64), np.zeros(1, np.int64)
        end_piece = Pieces(np.ones(1, bool), np.zeros(1, bool), [""], zero)
        docs, sizes = self._group(end_piece, zero), {}
        if self.has_sizes:
            self._share_bytes(end_piece, Encoded(none, zero, none, 0, none), none)
            sizes[TOKEN_BYTES] = np.append(self.last_size, np.zeros(len(tokens)))
        arrays = sizes | self._close(docs, docs.old_starts)
        self.num_tokens += len(tokens)
        end = np.array([self.num_tokens])
        arrays[DOC_STARTS] = np.append(arrays[DOC_STARTS], end)
        return tokens, arrays | ({SENTENCE_STARTS: end} if self.has_sentences else {})

    def _group(self, pieces: Pieces, counts: np.ndarray) -> "_Documents":
        """Sums pieces by document; the first is the open document, even if empty."""
        group = np.cumsum(pieces.is_start)
        num = int(group[-1]) + 1
        firsts = np.flatnonzero(pieces.is_start)
        # This is exact: bincount's float weights represent whole numbers up to 2**53.
        num_tokens = np.bincount(group, counts, num).astype(np.int64)
        num_bytes = np.bincount(group, pieces.num_bytes, num).astype(np.int64)
        num_bytes[0] += self.open_bytes
        is_heldout = np.append(self.open_is_heldout, pieces.is_heldout[firsts])
        old_starts = np.full(num, -1)
        old_starts[0] = self.open_start
        is_new = (num_tokens > 0) & (old_starts < 0)
        return _Documents(
            begins=np.append(0, (np.cumsum(counts) - counts)[firsts]),
            old_starts=old_starts,
            is_new=is_new,
            numbers=self.num_documents + np.cumsum(is_new) - 1,
            num_main=self.num_main + np.cumsum(is_new & ~is_heldout),
            is_heldout=is_heldout,
            labels=[self.open_label, *(pieces.labels[i] for i in firsts.tolist())],
            num_bytes=num_bytes,
        )

    def _share_bytes(
        self, pieces: Pieces, encoded: Encoded, eos: np.ndarray
    ) -> np.ndarray:
        """The bytes of the previous last token, and of all tokens but the last.

        A token's bytes are those from the end of the previous token of its document to
        its own end, or to the document's end for the last token. As pieces may end with
        text without a token, the last token's bytes are known with the next token.

        Args:
          eos: positions among the encoded tokens before which [EOS] is inserted.
        """
        counts, num_bytes = encoded.counts, pieces.num_bytes
        piece_begins = np.cumsum(num_bytes) - num_bytes
        doc_begins = np.append(-self.open_rest, piece_begins[pieces.is_start])
        doc_ends = np.append(doc_begins[1:], num_bytes.sum())
        within = np.cumsum(encoded.sizes, dtype=np.int64)
        before = np.append(0, within)[np.cumsum(counts) - counts]
        ends = within + np.repeat(piece_begins - before, counts)
        doc = np.repeat(np.cumsum(pieces.is_start), counts)
        starts = np.append(0, ends)[:-1]
        is_first = np.diff(doc, prepend=-1) > 0
        starts[is_first] = doc_begins[doc[is_first]]
        last = len(doc_begins) - 1
        is_last = np.diff(doc, append=last) > 0
        ends[is_last] = doc_ends[doc[is_last]]
        if last and self.open_start >= 0 and not (doc == 0).any():
            self.last_size += int(doc_ends[0] - doc_begins[0])
        has_token = len(doc) and doc[-1] == last
        self.open_rest = int(doc_ends[-1] - (ends if has_token else doc_begins)[-1])
        sizes = np.insert(ends - starts, eos, 0)
        if self.last_size >= 0:
            sizes = np.append(self.last_size, sizes)
        if len(sizes):
            self.last_size = int(sizes[-1])
        return sizes[:-1]

    def _find_sentences(self, encoded: Encoded, begins: np.ndarray) -> np.ndarray:
        """The starts of sentences among the encoded tokens, int64."""
        num = len(encoded.tokens)
        due = np.zeros(int(self.is_sentence_due and num > 0), np.int64)
        starts = np.unique(np.concatenate([due, encoded.sentence_starts, begins]))
        is_at_end = bool(len(starts)) and int(starts[-1]) == num
        self.is_sentence_due = is_at_end or (self.is_sentence_due and not num)
        return starts[:-1] if is_at_end else starts

    def _close(self, docs: "_Documents", starts: np.ndarray) -> dict:
        """Keeps the last document open and returns the arrays of the others."""
        is_kept = starts >= 0
        kept_docs = np.flatnonzero(is_kept[:-1])
        self.dropped += len(is_kept) - 1 - len(kept_docs) - (not self.is_open)
        self.num_bytes += int(docs.num_bytes[kept_docs].sum())
        names = [docs.labels[i] for i in kept_docs.tolist()]
        ids = {name: id_ for id_, name in enumerate(self.label_names)} | {"": -1}
        new = [name for name in dict.fromkeys(names) if name not in ids]
        ids |= {name: len(self.label_names) + i for i, name in enumerate(new)}
        self.label_names = self.label_names + new
        self.is_open = True
        self.open_start = int(starts[-1])
        self.open_bytes = int(docs.num_bytes[-1])
        self.open_label = docs.labels[-1]
        self.open_is_heldout = bool(docs.is_heldout[-1])
        return {
            DOC_STARTS: starts[kept_docs],
            DOC_BYTES: docs.num_bytes[kept_docs],
            LABELS: np.array([ids[name] for name in names], np.int64),
        }


@dataclass(frozen=True, eq=False)
class _Documents:
    """The documents [d] of some pieces.

    Attributes:
      begins: each document's position among the pieces' tokens.
      old_starts: its position in the store if it had tokens before, else -1.
      is_new: whether its first token is among the pieces' tokens.
      numbers: each new document's number among all documents.
      num_main: the number of documents not held out, up to and including each.
    """

    begins: np.ndarray
    old_starts: np.ndarray
    is_new: np.ndarray
    numbers: np.ndarray
    num_main: np.ndarray
    is_heldout: np.ndarray
    labels: list[str]
    num_bytes: np.ndarray

"""Packs documents and sentences into rows, by their lengths only.

    lengths 5 3 4 2, row of 6:   full_sentences   |5 .|3 .|4 2|  consecutive, in order
                                 best_fit         |5 .|4 2|3 .|  any order, few rows

Full and doc sentences: RoBERTa, https://arxiv.org/abs/1907.11692 (section 4.2).
Best-fit bins: "Fewer Truncations Improve Language Modeling",
https://arxiv.org/abs/2404.10830.
"""

from bisect import insort
from dataclasses import dataclass

import numpy as np

from jaxpt.text.rows.corpus import ragged


@dataclass(frozen=True, eq=False)
class Packing:
    """Rows of pieces of a text; a piece is within one document.

    Attributes:
      row_starts: int64 [N+1]; row i is pieces row_starts[i] .. row_starts[i+1]-1.
      starts, lengths: int64 [P], the first token and the length of each piece.
      num_long: the number of documents or sentences longer than a row.
      num_left_out: the number of rows that were left out.
    """

    row_starts: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    num_long: int
    num_left_out: int


def pack_documents(
    doc_starts: np.ndarray, row_length: int, max_documents: int, truncate: bool
) -> Packing:
    """Rows of whole documents, packed by best fit.

    Args:
      doc_starts: [D+1], with the end.
      max_documents: the maximum number of documents of a row.
      truncate: whether documents longer than a row are truncated; if not, they fill
        whole rows, and the rest is packed like the other documents.
    """
    starts, lengths = np.asarray(doc_starts)[:-1], np.diff(doc_starts)
    num_long = int((lengths > row_length).sum())
    if truncate:
        lengths = np.minimum(lengths, row_length)
        starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    else:
        starts, lengths = _cut(starts, lengths, row_length)
    row_starts, members = best_fit(lengths, row_length, max_documents)
    return Packing(row_starts, starts[members], lengths[members], num_long, 0)


def pack_sentences(
    sentence_starts: np.ndarray,
    doc_starts: np.ndarray,
    row_length: int,
    max_documents: int,
) -> Packing:
    """Rows of consecutive whole sentences; a sentence longer than a row is cut.

    Args:
      sentence_starts: [S+1], with the end, every document start among them.
      doc_starts: [D+1], with the end.
      max_documents: the maximum number of documents of a row; 0 gives each document
        separate rows.
    """
    starts, lengths = np.asarray(sentence_starts)[:-1], np.diff(sentence_starts)
    num_long = int((lengths > row_length).sum())
    starts, lengths = _cut(starts, lengths, row_length)
    doc_ids = np.searchsorted(doc_starts, starts, "right")
    num_tokens = int(doc_starts[-1])
    if not max_documents:
        slices = doc_sentences(lengths, doc_ids, row_length)
        lengths = slices[:, 1] - slices[:, 0]
        num_left_out = num_tokens - int(lengths.sum())  # rows of a single token
        row_starts = np.arange(len(slices) + 1)
        return Packing(row_starts, slices[:, 0], lengths, num_long, num_left_out)
    slices = full_sentences(lengths, row_length, doc_ids, max_documents)
    # Rows are contiguous in the text; pieces end where a row or a document ends.
    pieces = np.union1d(slices[:, 0], doc_starts)
    pieces = pieces[pieces < num_tokens]
    row_starts = np.append(np.searchsorted(pieces, slices[:, 0]), len(pieces))
    lengths = np.diff(np.append(pieces, num_tokens))
    return Packing(row_starts, pieces, lengths, num_long, 0)


def full_sentences(
    lengths: np.ndarray,
    block: int,
    doc_ids: np.ndarray | None = None,
    max_documents: int = 0,
) -> np.ndarray:
    """Fills rows with consecutive whole sentences, across documents.

    fairseq's `complete`: a sentence longer than a row is a separate row, uncut.

    Args:
      lengths: [S], tokens of each sentence.
      block: tokens in a row.
      doc_ids: [S], the document of each sentence, never decreasing.
      max_documents: the maximum number of documents of a row; 0 for any number.

    Returns:
      int64 [n, 2], the start and the end of each row's tokens.

    >>> full_sentences(np.array([5, 4, 2]), 6).tolist()
    [[0, 5], [5, 11]]
    """
    lengths = np.asarray(lengths, np.int64)
    is_real = lengths > 0
    lengths = lengths[is_real]
    ends, limits = _fit(lengths, block)
    if max_documents:
        number, first = _documents(np.asarray(doc_ids)[is_real])
        limits = np.minimum(
            limits, first[np.minimum(number + max_documents, len(first) - 1)]
        )
    return _chain(ends, limits)


def doc_sentences(lengths: np.ndarray, doc_ids: np.ndarray, block: int) -> np.ndarray:
    """Fills rows with consecutive whole sentences of one document.

    fairseq's `complete_doc`: a sentence longer than a row is a separate row, uncut; a
    row of a single token is left out.

    Args:
      lengths: [S], tokens of each sentence.
      doc_ids: [S], the document of each sentence, never decreasing.
      block: tokens in a row.

    Returns:
      int64 [n, 2], the start and the end of each row's tokens.

    >>> doc_sentences(np.array([5, 4, 2]), np.array([0, 0, 1]), 9).tolist()
    [[0, 9], [9, 11]]
    """
    slices = full_sentences(lengths, block, doc_ids, max_documents=1)
    return slices[slices[:, 1] - slices[:, 0] > 1]


def best_fit(
    lengths: np.ndarray, capacity: int, max_documents: int
) -> tuple[np.ndarray, np.ndarray]:
    """Best-fit decreasing: longest pieces first, each into the fullest bin it fits.

    Ties go to the bin with the fewest pieces. Pieces of one length are placed together,
    so the time depends little on their number.

    Args:
      lengths: [N], each 1 to capacity.
      max_documents: the maximum number of pieces in a bin.

    Returns:
      bin_starts: int64 [bins + 1].
      members: int64 [N]; bin i holds pieces members[bin_starts[i]:bin_starts[i + 1]],
        longest first.

    >>> starts, members = best_fit(np.array([5, 3, 4, 2]), 6, 16)
    >>> np.split(members, starts[1:-1])
    [array([2, 3]), array([0]), array([1])]
    """
    lengths = np.asarray(lengths, np.int64)
    if lengths.size and not 1 <= lengths.min() <= lengths.max() <= capacity:
        raise ValueError(f"lengths must be between 1 and {capacity}")
    shapes = _place(np.bincount(lengths, minlength=1), capacity, max_documents)
    tiled = [np.tile(shape, count) for shape, count in shapes]
    sizes = np.concatenate([np.zeros(0, np.int64), *tiled])
    per_bin = np.repeat([len(s) for s, _ in shapes], [n for _, n in shapes])
    bin_starts = np.concatenate([[0], np.cumsum(per_bin)]).astype(np.int64)
    # Pieces of one length are used in order.
    members = np.empty(len(lengths), np.int64)
    members[np.argsort(sizes, kind="stable")] = np.argsort(lengths, kind="stable")
    return bin_starts, members


def _cut(
    starts: np.ndarray, lengths: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts pieces longer than `most` tokens; returns all starts and lengths."""
    counts = -(-lengths // most)
    offsets = ragged(np.zeros(len(counts), np.int64), counts) * most
    lengths = np.minimum(np.repeat(lengths, counts) - offsets, most)
    return np.repeat(starts, counts) + offsets, lengths


def _fit(lengths: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Token offsets [S+1], and for each sentence the one after a row that it begins."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    limits = np.searchsorted(ends, ends[:-1] + block, "right") - 1
    return ends, np.maximum(limits, np.arange(1, len(ends)))


def _documents(doc_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each sentence's document number [S], and each document's first sentence [D+1]."""
    is_first = np.ones(len(doc_ids), bool)
    is_first[1:] = doc_ids[1:] != doc_ids[:-1]
    first = np.append(np.flatnonzero(is_first), len(doc_ids))
    return np.cumsum(is_first) - 1, first


def _chain(ends: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Consecutive rows, each beginning at the end of the previous one."""
    borders, sentence, last = [0], 0, len(limits)
    following = np.ascontiguousarray(limits).data
    while sentence < last:
        sentence = following[sentence]
        borders.append(sentence)
    tokens = ends[borders]
    return np.stack([tokens[:-1], tokens[1:]], axis=1)


def _place(
    counts: np.ndarray, capacity: int, max_documents: int
) -> list[tuple[tuple[int, ...], int]]:
    """Best-fit decreasing of counts[l] pieces of each length l.

    Returns:
      (lengths of the pieces of a bin, number of such bins) for every kind of bin.
    """
    # open_[free]: kinds of bins [(pieces, lengths, number)] with `free` tokens left,
    # fewest pieces first; for a fast search, bit `free` of mask is set if it has any.
    open_: dict[int, list[tuple[int, tuple[int, ...], int]]] = {}
    mask, placed = 0, []
    for length in np.flatnonzero(counts)[::-1].tolist():
        num_left = int(counts[length])
        while num_left:
            higher = mask >> length
            if higher:
                free = length + (higher & -higher).bit_length() - 1
                pieces, shape, bins = open_[free].pop(0)
            else:
                free, pieces, shape, bins = capacity, 0, (), num_left
            # The bin that is the best fit remains so until it cannot take another.
            each = min(free // length, max_documents - pieces, num_left)
            used = min(num_left // each, bins)
            num_left -= used * each
            rest = (pieces, shape, bins - used) if higher else (0, (), 0)
            filled = (pieces + each, shape + (length,) * each, used)
            for room, kind in ((free, rest), (free - each * length, filled)):
                if not kind[2]:
                    continue
                if kind[0] == max_documents or not room:
                    placed.append((kind[1], kind[2]))
                else:
                    insort(open_.setdefault(room, []), kind)
                    mask |= 1 << room
            if higher and not open_[free]:
                mask &= ~(1 << free)
    for room in sorted(open_):
        placed += [(shape, bins) for _, shape, bins in open_[room]]
    return placed

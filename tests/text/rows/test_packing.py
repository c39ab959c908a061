from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.rows.corpus import ragged
from jaxpt.text.rows.packing import (
    best_fit,
    doc_sentences,
    full_sentences,
    pack_documents,
    pack_sentences,
)

SENTENCES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=30
)


def read(sentences, slices) -> list[list[int]]:
    tokens = [token for sentence in sentences for token in sentence]
    return [tokens[start:stop] for start, stop in slices.tolist()]


def lengths_of(sentences) -> np.ndarray:
    return np.array([len(sentence) for sentence in sentences])


def test_fairseq_complete():
    """The vectors of fairseq's tests/test_token_block_dataset.py."""
    data = [[5, 4, 3, 2, 1], [8, 7, 6, 1], [9, 1]]
    rows = read(data, full_sentences(lengths_of(data), 6))
    assert rows == [[5, 4, 3, 2, 1], [8, 7, 6, 1, 9, 1]]
    data = [[4, 3, 2, 1], [5, 1], [1], [6, 1]]
    rows = read(data, full_sentences(lengths_of(data), 3))
    assert rows == [[4, 3, 2, 1], [5, 1, 1], [6, 1]]


def test_fairseq_complete_beyond_32_bits():
    """fairseq's test_4billion_tokens: offsets must not be 32-bit."""
    slices = full_sentences(np.full(430_000, 10_000, np.int32), 6)
    assert slices[-1].tolist() == [4_299_990_000, 4_300_000_000]
    assert len(slices) == 430_000


def test_doc_sentences_by_hand():
    data = [[1, 2], [3], [4, 5, 6], [7], [8, 9]]
    docs = np.array([0, 0, 0, 1, 2])
    rows = read(data, doc_sentences(lengths_of(data), docs, 4))
    # Document 1 is one token: fairseq leaves such a row out.
    assert rows == [[1, 2, 3], [4, 5, 6], [8, 9]]
    rows = read(data, doc_sentences(lengths_of(data), docs, 6))
    assert rows == [[1, 2, 3, 4, 5, 6], [8, 9]]


def take_sentences(lengths, docs, block, max_documents) -> list[list[int]]:
    """One sentence after the other, as fairseq goes about it."""
    rows, start, size, held = [], 0, 0, []
    for length, doc in zip(lengths, docs):
        if not length:
            continue
        is_full = size + length > block or len({*held, doc}) > max_documents
        if size and is_full:
            rows.append([start, start + size])
            start, size, held = start + size, 0, []
        size, held = size + length, [*held, doc]
    return rows + [[start, start + size]] * bool(size)


@given(SENTENCES, st.integers(1, 12), st.integers(1, 4))
def test_sentences_as_one_at_a_time(sentences, block, max_documents):
    lengths, jumps = (np.array(values) for values in zip(*sentences))
    docs = np.cumsum(jumps)
    result = full_sentences(lengths, block).tolist()
    assert result == take_sentences(lengths, docs, block, 10**9)
    result = full_sentences(lengths, block, docs, max_documents).tolist()
    assert result == take_sentences(lengths, docs, block, max_documents)
    result = doc_sentences(lengths, docs, block).tolist()
    expected = take_sentences(lengths, docs, block, 1)
    assert result == [[a, b] for a, b in expected if b - a > 1]


def test_nothing_to_pack():
    nothing = np.zeros(0, np.int64)
    assert full_sentences(nothing, 4).shape == (0, 2)
    assert doc_sentences(nothing, nothing, 4).shape == (0, 2)
    starts, members = best_fit(nothing, 4, 2)
    assert starts.tolist() == [0]
    assert members.shape == (0,)


def split(bin_starts, members) -> list[list[int]]:
    return [members[a:b].tolist() for a, b in zip(bin_starts[:-1], bin_starts[1:])]


def test_best_fit_by_hand():
    # 6 and 4 fill a row; 5 goes with 4, where it leaves less free than with nothing.
    lengths = [4, 6, 5, 4, 1]
    bins = split(*best_fit(np.array(lengths), 10, 16))
    assert sorted(sorted(lengths[i] for i in members) for members in bins) == [
        [1, 4, 5],
        [4, 6],
    ]
    bins = split(*best_fit(np.array(lengths), 10, 2))
    assert sorted(sorted(lengths[i] for i in members) for members in bins) == [
        [1],
        [4, 5],
        [4, 6],
    ]
    assert split(*best_fit(np.array([2, 2, 2, 2, 2]), 4, 16)) == [[0, 1], [2, 3], [4]]
    # 4 + 4 + 4 and, later, 10 + 2 leave 1 free each: fewer pieces go first.
    bins = split(*best_fit(np.array([10, 4, 4, 4, 2, 1]), 13, 4))
    assert sorted(bins) == [[0, 4, 5], [1, 2, 3]]


def fit_one_by_one(lengths, capacity, max_documents) -> Counter:
    """Best-fit decreasing, the plain way: the free space and pieces of each bin."""
    bins = []
    for length in sorted(lengths, reverse=True):
        fits = [b for b in bins if b[0] >= length and b[1] < max_documents]
        best = min(fits, default=None)
        if best is None:
            best = [capacity, 0]
            bins.append(best)
        best[0] -= length
        best[1] += 1
    return Counter(map(tuple, bins))


@given(
    st.lists(st.integers(1, 12), max_size=60),
    st.integers(12, 20),
    st.integers(1, 5),
)
def test_best_fit_as_one_by_one(lengths, capacity, max_documents):
    lengths = np.array(lengths, np.int64)
    starts, members = best_fit(lengths, capacity, max_documents)
    assert sorted(members.tolist()) == list(range(len(lengths)))
    bins = split(starts, members)
    assert all(0 < len(b) <= max_documents for b in bins)
    assert all(np.diff(lengths[b]).max(initial=-1) <= 0 for b in bins)
    result = Counter((capacity - int(lengths[b].sum()), len(b)) for b in bins)
    assert result == fit_one_by_one(lengths.tolist(), capacity, max_documents)


def test_best_fit_of_many():
    lengths = np.clip(
        np.random.default_rng(0).lognormal(4, 1, 1_000_000).astype(int), 1, 512
    )
    starts, members = best_fit(lengths, 512, 32)
    sums = np.add.reduceat(lengths[members], starts[:-1])
    assert sums.max() <= 512
    assert sums.mean() > 0.97 * 512
    assert (np.bincount(members, minlength=len(lengths)) == 1).all()


@pytest.mark.parametrize("lengths", [[0, 3], [5], [-1]])
def test_best_fit_refuses_what_fits_nowhere(lengths):
    with pytest.raises(ValueError, match="between 1 and 4"):
        best_fit(np.array(lengths), 4, 2)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 6)), max_size=20))
def test_ragged(runs):
    starts, lengths = np.array(runs, np.int64).reshape(-1, 2).T
    expected = [start + i for start, length in runs for i in range(length)]
    assert ragged(starts, lengths).tolist() == expected


def test_pack_documents_by_hand():
    # Documents of 7, 0, 2 and 3 tokens: 7 is 4 + 3 if it is split.
    starts = np.array([0, 7, 7, 9, 12])
    packing = pack_documents(starts, 4, 16, truncate=False)
    rows = split(packing.row_starts, np.stack([packing.starts, packing.lengths], 1))
    assert sorted(rows) == [[[0, 4]], [[4, 3]], [[7, 2]], [[9, 3]]]
    assert packing.num_long == 1
    packing = pack_documents(starts, 5, 16, truncate=True)
    rows = split(packing.row_starts, np.stack([packing.starts, packing.lengths], 1))
    assert sorted(rows) == [[[0, 5]], [[9, 3], [7, 2]]]
    assert packing.num_long == 1


DOCUMENTS = st.lists(
    st.lists(st.integers(0, 12), min_size=0, max_size=6), min_size=1, max_size=8
)


def lay_out(documents) -> tuple[np.ndarray, np.ndarray]:
    """Sentence and document starts, with the end, of documents of sentence lengths."""
    lengths = [length for doc in documents for length in doc or [0]]
    sentences = np.cumsum([0, *lengths])
    docs = np.cumsum([0, *map(sum, documents)])
    return sentences, docs


@given(DOCUMENTS, st.integers(1, 10), st.integers(1, 4), st.booleans())
def test_pack_documents(documents, row_length, max_documents, truncate):
    _, docs = lay_out(documents)
    packing = pack_documents(docs, row_length, max_documents, truncate)
    sizes = np.diff(docs)
    assert packing.num_long == (sizes > row_length).sum()
    pieces = sorted(zip(packing.starts.tolist(), packing.lengths.tolist()))
    expected = []
    for start, size in zip(docs[:-1].tolist(), sizes.tolist()):
        whole = range(0, min(size, row_length) if truncate else size, row_length)
        expected += [(start + at, min(row_length, size - at)) for at in whole]
    assert pieces == expected
    for row in split(packing.row_starts, packing.lengths):
        assert 1 <= len(row) <= max_documents
        assert sum(row) <= row_length


@given(DOCUMENTS, st.integers(1, 10), st.integers(0, 4))
def test_pack_sentences(documents, row_length, max_documents):
    sentences, docs = lay_out(documents)
    packing = pack_sentences(sentences, docs, row_length, max_documents)
    assert packing.num_long == (np.diff(sentences) > row_length).sum()
    covered = ragged(packing.starts, packing.lengths)
    missing = sorted(set(range(docs[-1])) - set(covered.tolist()))
    assert len(missing) == packing.num_left_out == docs[-1] - len(covered)
    if max_documents:
        assert not missing
    doc_of = np.repeat(np.arange(len(documents)), np.diff(docs))
    # Rows end between sentences, or at a multiple of a row within a long one.
    borders = set(sentences.tolist())
    for start, stop in zip(sentences[:-1].tolist(), sentences[1:].tolist()):
        borders |= set(range(start, stop, row_length))
    rows = split(packing.row_starts, np.stack([packing.starts, packing.lengths], 1))
    for row in rows:
        assert 1 <= len(row) <= (max_documents or 1)
        assert sum(length for _, length in row) <= row_length
        assert row[0][0] in borders
        assert sum(row[-1]) in borders
        for start, length in row:
            assert len(set(doc_of[start : start + length])) == 1
        starts = [start for start, _ in row]
        assert starts[1:] == [sum(piece) for piece in row[:-1]]
        assert len({doc_of[start] for start in starts}) == len(row)

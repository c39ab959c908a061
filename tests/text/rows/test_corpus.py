"""Splits as views of a stream: every place is found, nothing is copied or lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.rows.corpus import Corpus, cut, select
from jaxpt.text.stores.stream import TokenStream


@given(st.lists(st.integers(0, 7), max_size=6), st.data())
def test_a_stream_reads_across_its_shards(sizes, data):
    whole = np.arange(sum(sizes), dtype=np.uint16)
    stream = TokenStream(np.split(whole, np.cumsum(sizes)[:-1]) if sizes else [])
    assert stream.num_tokens == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    result = stream.read(start, stop)
    assert result.dtype == np.int32
    assert result.tolist() == list(range(start, stop))
    length = stop - start
    starts = data.draw(st.lists(st.integers(0, len(whole) - length), max_size=4))
    rows = stream.gather(np.array(starts, np.int64), length)
    assert rows.dtype == np.int32 and rows.shape == (len(starts), length)
    assert rows.tolist() == [list(range(s, s + length)) for s in starts]


def test_a_stream_ends_where_it_ends():
    stream = TokenStream([np.arange(3), np.arange(2)])
    for start, stop in ((-1, 2), (2, 6), (4, 3)):
        with pytest.raises(IndexError):
            stream.read(start, stop)
    for starts in ([-1], [0, 3]):
        with pytest.raises(IndexError):
            stream.gather(np.array(starts), 3)


def documents(corpus: Corpus) -> list[list[int]]:
    starts = corpus.doc_starts.tolist()
    pairs = zip(starts[:-1], starts[1:], strict=True)
    return [corpus.read(a, b).tolist() for a, b in pairs]


def sentences(corpus: Corpus) -> list[list[int]]:
    starts = corpus.sentence_starts.tolist()
    pairs = zip(starts[:-1], starts[1:], strict=True)
    return [corpus.read(a, b).tolist() for a, b in pairs]


def make(sizes: list[int]) -> Corpus:
    """Documents of these sizes over two shards, each cut into sentences of 2."""
    tokens = np.arange(sum(sizes))
    starts = np.cumsum([0, *sizes])
    pairs = list(zip(starts[:-1], starts[1:], strict=True))
    breaks = [p for a, b in pairs for p in range(a, b, 2)] + [len(tokens)]
    whole = Corpus.from_arrays(tokens, starts, range(len(sizes)), breaks)
    half = len(tokens) // 2
    stream = TokenStream([tokens[:half], tokens[half:]])
    return Corpus(**{**vars(whole), "stream": stream})


def test_select_by_hand():
    whole = make([3, 2, 4, 1])
    part = select(whole, np.array([False, True, True, False]), "x")
    assert documents(part) == [[3, 4], [5, 6, 7, 8]]
    assert sentences(part) == [[3, 4], [5, 6], [7, 8]]
    assert len(part.run_starts) == 1  # neighbours are one run
    part = select(whole, np.array([True, False, True, True]), "x")
    assert documents(part) == [[0, 1, 2], [5, 6, 7, 8], [9]]
    assert sentences(part) == [[0, 1], [2], [5, 6], [7, 8], [9]]
    assert part.labels.tolist() == [0, 2, 3]
    assert part.gather(np.array([1, 2, 4]), 4).tolist() == [
        [1, 2, 5, 6],
        [2, 5, 6, 7],
        [6, 7, 8, 9],
    ]
    inner = select(whole, np.array([False, True, False, False]), "x")
    for view, start in ((part, 5), (part, -1), (inner, -1), (inner, 1)):
        with pytest.raises(IndexError):  # although the stream continues there
            view.gather(np.array([start]), 4 if view is part else 2)
    with pytest.raises(IndexError):
        part.read(5, 9)


def test_cut_by_hand():
    whole = make([3, 2, 4, 1])
    left, right = cut(whole, 0, 6, "a"), cut(whole, 6, 10, "b")
    assert documents(left) == [[0, 1, 2], [3, 4], [5]]
    assert documents(right) == [[6, 7, 8], [9]]
    assert sentences(left) == [[0, 1], [2], [3, 4], [5]]
    assert sentences(right) == [[6], [7, 8], [9]]
    assert left.labels.tolist() == [0, 1, 2] and right.labels.tolist() == [2, 3]
    assert left.fingerprint != right.fingerprint
    # A cut between two documents divides none.
    assert documents(cut(whole, 0, 5, "a")) == [[0, 1, 2], [3, 4]]
    assert documents(cut(whole, 5, 10, "a")) == [[5, 6, 7, 8], [9]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=7), st.data())
def test_views_of_views_lose_nothing(sizes, data):
    whole = make(sizes)
    is_in = np.array(data.draw(st.tuples(*[st.booleans()] * len(sizes))))
    part = select(whole, is_in, "x")
    expected = [d for d, kept in zip(documents(whole), is_in, strict=True) if kept]
    assert documents(part) == expected
    border = data.draw(st.integers(0, part.num_tokens))
    halves = [cut(part, 0, border, "a"), cut(part, border, part.num_tokens, "b")]
    joined = [t for half in halves for d in documents(half) for t in d]
    assert joined == [t for d in expected for t in d]
    for half in (part, *halves):
        assert half.doc_starts[0] == 0 and half.doc_starts[-1] == half.num_tokens
        assert len(half.labels) == len(half.doc_starts) - 1
        assert sum(sentences(half), []) == half.read(0, half.num_tokens).tolist()
        assert set(half.doc_starts.tolist()) <= set(half.sentence_starts.tolist())
        size = min(3, half.num_tokens)
        starts = np.arange(half.num_tokens - size + 1)
        rows = half.gather(starts, size)
        tokens = half.read(0, half.num_tokens)
        assert rows.tolist() == [tokens[s : s + size].tolist() for s in starts]

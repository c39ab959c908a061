"""Measures of tokens: by hand, and what holds of any text."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.evaluation.text_statistics import (
    distinct,
    entropy,
    list_ngrams,
    repeated_lines,
    repetition,
)

tokens = st.lists(st.integers(0, 4), max_size=20).map(np.array)


def test_by_hand():
    # "I am fine" and "I am here": 4 of 6 words, 3 of 4 pairs of words differ.
    texts = [np.array([1, 2, 3]), np.array([1, 2, 4])]
    assert distinct(texts, 1) == pytest.approx(4 / 6)
    assert distinct(texts, 2) == pytest.approx(3 / 4)
    assert distinct(texts, 3) == 1 and math.isnan(distinct(texts, 4))
    # Of a b c a b c a b the 4-grams are abca, bcab, cabc, abca, bcab: two repeat.
    assert repetition(np.array([1, 2, 3, 1, 2, 3]), 4) == 0
    assert repetition(np.array([1, 2, 3, 1, 2, 3, 1, 2]), 4) == pytest.approx(2 / 5)
    assert entropy(np.array([1, 1, 1])) == 0 and entropy(np.array([])) == 0
    assert entropy(np.array([1, 2, 3, 3])) == pytest.approx(1.5 * math.log(2))


def test_lines_repeat_without_their_spaces_and_blank_ones():
    assert repeated_lines("a\n a \n\n\nb") == pytest.approx(1 / 3)
    assert repeated_lines("") == 0 == repeated_lines("\n\n")


@given(tokens, st.integers(1, 4))
def test_bounds(ids, n):
    count = len(list_ngrams(ids, n))
    assert count == max(0, len(ids) - n + 1)
    assert 0 <= entropy(ids) <= math.log(max(len(ids), 1)) + 1e-9
    if count:
        assert 0 <= repetition(ids, n) < 1
        assert distinct([ids], n) == pytest.approx(1 - repetition(ids, n))
    else:
        assert math.isnan(repetition(ids, n)) and math.isnan(distinct([ids], n))


@given(st.lists(tokens, max_size=5), st.permutations(range(5)))
def test_names_of_tokens_and_order_of_texts_do_not_matter(texts, names):
    renamed = [np.array([names[i] for i in ids], int) for ids in texts[::-1]]
    for n in (1, 2):
        np.testing.assert_equal(distinct(texts, n), distinct(renamed, n))
    values = sorted(map(entropy, texts))
    assert values == pytest.approx(sorted(map(entropy, renamed)))

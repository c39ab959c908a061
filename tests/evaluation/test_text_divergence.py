"""MAUVE of histograms, and histograms of vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.evaluation.text_divergence import (
    EDGE,
    NUM_WEIGHTS,
    SCALING,
    divergence,
    make_histograms,
    mauve,
)

counts = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=8
).map(lambda pairs: np.array([*pairs, (1, 1)], float).T)


def to_shares(pair):
    return tuple(each / each.sum() for each in pair)


def draw_vectors(seed=0, num=60, shift=0.0):
    vectors = np.random.default_rng(seed).normal(size=(num, 6))
    vectors[:, 0] += shift
    return vectors


def test_by_hand():
    p, q = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    assert divergence(p, q) == pytest.approx(0.5 * np.log(3))
    assert divergence(p, np.array([1.0, 0.0])) == np.inf
    # Without overlap, KL(q | r) = -ln(1 - w) and KL(p | r) = -ln w: the curve is
    # ((1 - w)^5, w^5), whose area is the beta function 5 B(6, 5) = 1 / 252.
    weights = np.linspace(EDGE, 1 - EDGE, NUM_WEIGHTS)
    x = np.r_[0.0, (1 - weights[::-1]) ** SCALING, 1.0]
    y = np.r_[1.0, weights[::-1] ** SCALING, 0.0]
    value = mauve(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert value == pytest.approx(np.trapezoid(y, x))
    assert value == pytest.approx(1 / 252, rel=0.05)


@given(counts)
def test_between_0_and_1_symmetric_and_1_for_equal_histograms(pair):
    p, q = to_shares(pair)
    value = mauve(p, q)
    assert 0 < value <= 1 + 1e-9
    assert value == pytest.approx(mauve(q, p))
    assert mauve(p, p) == pytest.approx(1)
    assert (value > 1 - 1e-9) == np.allclose(p, q)
    order = np.random.default_rng(0).permutation(len(p))
    assert mauve(p[order], q[order]) == pytest.approx(value)


def test_equal_texts_have_equal_histograms_in_any_order():
    vectors = draw_vectors()
    order = np.random.default_rng(1).permutation(len(vectors))
    p, q = make_histograms(vectors, vectors[order], 6)
    np.testing.assert_array_equal(p, q)
    assert len(p) == 6 and p.sum() == pytest.approx(1)


def test_order_of_texts_changes_nothing():
    first, second = draw_vectors(0), draw_vectors(1, shift=1.0)
    order = np.random.default_rng(1).permutation(len(first))
    before = mauve(*make_histograms(first, second, 6))
    assert mauve(*make_histograms(first[order], second[order], 6)) == before


def test_farther_sets_have_less():
    first = draw_vectors(0, 200)
    values = [
        mauve(*make_histograms(first, draw_vectors(1, 200, shift), 20))
        for shift in (0.0, 1.0, 4.0)
    ]
    assert values[0] > 0.85 and values[0] > values[1] > values[2] > 0


def test_few_different_texts_have_few_clusters():
    ones = np.ones((5, 3))
    assert [each.tolist() for each in make_histograms(ones, ones, 4)] == [[1], [1]]
    p, q = make_histograms(ones, -ones, 4)
    assert len(p) == 2 and p @ q == 0
    zeros = make_histograms(np.zeros((2, 3)), ones, 2)
    assert zeros[0] @ zeros[1] == 0  # an empty text's vector is 0


@pytest.mark.peers
def test_the_area_is_the_authors():
    package = pytest.importorskip("mauve.compute_mauve")
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(12, 0.3), 2)
        p[rng.random(12) < 0.2] = 0
        p /= p.sum()
        weights = np.linspace(1e-6, 1 - 1e-6, 25)
        curve = package.get_divergence_curve_for_multinomials(p, q, weights, 5)
        x, y = curve.T
        areas = [
            package.compute_area_under_curve(a[np.argsort(a)], b[np.argsort(a)])
            for a, b in ((x, y), (y, x))
        ]
        assert mauve(p, q) == pytest.approx(np.mean(areas))

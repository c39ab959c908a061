"""Spearman's correlation: its value, and each pair's part in its error."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from jaxpt.evaluation.rank_correlation import (
    correlation_interval,
    pair_values,
    spearman,
)

columns = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=30
)


def weighted(x, y, weights):
    """The correlation of mid-ranks with weights, straight from its definition."""
    weights = weights / weights.sum()

    def ranks(values):
        below = (values[None] < values[:, None]) + 0.5 * (
            values[None] == values[:, None]
        )
        return below @ weights - 0.5

    r, s = ranks(x), ranks(y)
    product, first, second = ((weights * each).sum() for each in (r * s, r * r, s * s))
    return product / np.sqrt(first * second)


def draw(num=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 12, num).astype(float)
    return x, np.round(x + rng.normal(0, 4, num))


@given(columns)
def test_value_is_scipys_with_average_ranks(pairs):
    x, y = np.array(pairs, float).T
    assume(np.ptp(x) and np.ptp(y))
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(weighted(x, y, np.ones(len(x))))
    assert spearman(x, -y) == pytest.approx(-spearman(x, y))


def test_pair_values_are_the_derivative_by_a_pairs_weight():
    x, y = draw()
    values, step = pair_values(x, y), 1e-6
    rho = spearman(x, y)
    for i in range(len(x)):
        share = np.full(len(x), (1 - step) / len(x))
        share[i] += step
        slope = (weighted(x, y, share) - rho) / step
        assert values[i] - rho == pytest.approx(slope, abs=1e-4)


@given(columns, st.randoms(use_true_random=False))
def test_pair_values_have_the_correlation_as_mean_in_any_order(pairs, random):
    x, y = np.array(pairs, float).T
    values = pair_values(x, y)
    assert values.mean() == pytest.approx(spearman(x, y), abs=1e-12)
    order = list(range(len(x)))
    random.shuffle(order)
    again = pair_values(x[order], y[order])
    np.testing.assert_allclose(again, values[order], atol=1e-12)  # some are 0


def test_error_of_the_mean_is_that_of_the_bootstrap():
    x, y = draw(400)
    error = pair_values(x, y).std(ddof=1) / np.sqrt(len(x))
    low, high, method = correlation_interval(spearman, x, y)
    assert (high - low) / (2 * 1.96) == pytest.approx(error, rel=0.1)
    assert low < spearman(x, y) < high and method == "bootstrap over pairs"


def test_a_constant_column_has_no_correlation():
    x, y = np.ones(5), np.arange(5.0)
    assert spearman(x, y) == 0 and not pair_values(x, y).any()
    assert spearman(np.stack([x, y]), np.stack([y, y])).tolist() == [0, 1]

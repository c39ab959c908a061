"""Intervals of two samples: known special cases, and the error rate they promise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxpt.judge.unpaired import Sample, find_error_rate, find_factor, half_width

LEVELS = (0.2, 0.05, 0.0083, 0.001, 0.0002)


def draw_rate(num, other, ratio, level, num_draws=200_000):
    """How often the interval misses, by drawing the values."""
    draw = np.random.default_rng(0)
    first = draw.normal(0, 1, (num_draws, num))
    second = draw.normal(0, ratio, (num_draws, other))
    sides = [Sample(x.std(-1, ddof=1), x.shape[1]) for x in (first, second)]
    gap = np.abs(first.mean(-1) - second.mean(-1))
    return np.mean(gap > half_width(*sides, level))


def test_few_values_on_one_side_are_few():
    """However many the other side has: Welch's interval misses more often."""
    assert find_factor(4, 100, 0.0083) < 1
    assert find_factor(100, 4, 0.0083) == find_factor(4, 100, 0.0083)
    assert find_factor(65, 100, 0.0083) == 1


@pytest.mark.parametrize("num, other", [(4, 4), (5, 5), (4, 10)])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 5.0, 40.0])
def test_it_misses_as_often_as_stated_at_most(num, other, ratio):
    for level in (0.05, 0.0083):
        rate = draw_rate(num, other, ratio, level)
        assert rate < level + 3 * math.sqrt(level / 200_000)


@pytest.mark.parametrize("num, other", [(4, 4), (4, 7), (5, 5), (10, 10), (40, 40)])
def test_no_ratio_of_the_variances_exceeds_the_level(num, other):
    """Between the levels that are solved, too, to 3 % of the level."""
    for level in LEVELS:
        factor = find_factor(num, other, level)
        assert find_error_rate(num, other, level, factor) < 1.03 * level


def test_the_integral_is_the_rate_that_draws_have():
    """For Welch's interval, whose worst ratio for 4 + 4 values is near 5."""
    draw = np.random.default_rng(0)
    first, second = draw.normal(0, 1, (2, 200_000, 4)) * [[[1]], [[5]]]
    p = stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue
    assert np.mean(p < 0.05) == pytest.approx(find_error_rate(4, 4, 0.05, 1), rel=0.03)


def test_welchs_interval_misses_more_often_and_most_at_small_levels():
    """The reason for the stricter level."""
    rates = [find_error_rate(4, 4, x, 1.0) / x for x in (0.05, 0.05 / 6, 0.05 / 91)]
    assert rates == pytest.approx([1.11, 1.51, 2.8], abs=0.1) or rates[2] > 2.8


def test_one_spread_alone_is_students_t():
    t = stats.t.ppf(0.975, 4)
    for other in (Sample(0.0, 5), Sample(0.0, 0), Sample(0.0, 30)):
        for sides in ((Sample(2.0, 5), other), (other, Sample(2.0, 5))):
            width = half_width(*sides, 0.05)
            assert width == pytest.approx(t * 2 / 5**0.5)
    assert half_width(Sample(0.0, 5), Sample(0.0, 5), 0.05) == 0.0


@settings(deadline=None)
@given(
    st.floats(0, 100), st.floats(0, 100), st.integers(2, 12), st.integers(2, 12),
    st.floats(1e-9, 0.999), st.floats(1e-9, 0.999),
)  # fmt: skip
def test_it_is_between_welch_and_banerjee_and_narrows_with_the_level(
    a, b, num, other, one, two
):
    sides = Sample(a, num), Sample(b, other)
    widths = [float(half_width(*sides, level)) for level in sorted((one, two))]
    assert widths[0] >= widths[1] * (1 - 1e-12)
    ends = [stats.t.ppf(1 - one / 2, n - 1) * s / n**0.5 for s, n in sides]
    assert float(half_width(*sides, one)) <= math.hypot(*ends) * (1 + 1e-6)
    assert half_width(*sides[::-1], one) == pytest.approx(half_width(*sides, one))

"""Intervals against published numbers and without a width; the expected best of n."""

import itertools

import numpy as np
import pytest
from scipy import stats

from jaxpt.judge.bootstrap import DRAWS, bootstrap
from jaxpt.judge.intervals import (
    expected_best,
    map_interval,
    mean_interval,
    ratio_interval,
)


def test_wilson_of_a_textbook():
    # 81 of 263 (Newcombe 1998, table I, method 3): 0.2553 to 0.3662.
    result = mean_interval(np.array([1.0] * 81 + [0.0] * 182))
    assert result.method == "Wilson"
    assert [round(x, 4) for x in result[:2]] == [0.2553, 0.3662]


def test_the_bootstrap_has_as_many_draws_as_it_says():
    values = np.array([1.0, 2.0, 4.0])
    means = bootstrap(lambda drawn: values[drawn].mean(1), 3)
    assert means.shape == (DRAWS,)
    assert means.mean() == pytest.approx(values.mean(), abs=0.1)


def test_all_right_has_a_width():
    low, high, _ = mean_interval(np.ones(10))
    assert high == pytest.approx(1)
    assert low == pytest.approx(10 / (10 + stats.norm.ppf(0.975) ** 2))


def test_shares_are_drawn_again():
    values = np.random.default_rng(0).random(400)
    low, high, method = mean_interval(values)
    error = values.std() / 20
    assert method == "bootstrap over items"
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)


def test_one_item_has_no_interval():
    for result in (
        mean_interval(np.array([2.5])),
        mean_interval(np.array([0.0])),
        ratio_interval(np.ones(1), np.ones(1)),
    ):
        assert np.isnan(result[:2]).all() and result.method.startswith("none")


def test_a_ratio_weighs_its_items():
    totals, sizes = np.array([2.0, 4.0, 60.0] * 50), np.array([1.0, 2.0, 30.0] * 50)
    low, high, _ = ratio_interval(totals, sizes)  # always 2, whatever is drawn
    assert low == pytest.approx(2) and high == pytest.approx(2)


def test_a_falling_function_turns_the_ends():
    result = mean_interval(np.array([1.0, 0.0, 1.0]))
    turned = map_interval(result, lambda x: -x)
    assert turned[:2] == (-result.high, -result.low)


@pytest.mark.parametrize("n, unbiased", [(2, 0.783333), (3, 0.85), (4, 0.9)])
def test_the_reference_best_of_n(n, unbiased):
    assert expected_best((0.5, 0.6, 0.7, 0.9), n) == pytest.approx(unbiased, abs=1e-6)


def test_the_best_of_n_is_the_mean_over_all_subsets():
    values = np.random.default_rng(0).normal(size=7)
    for n in range(1, 8):
        every = [max(some) for some in itertools.combinations(values, n)]
        assert expected_best(values, n) == pytest.approx(np.mean(every))
    for n in (0, 8):
        with pytest.raises(ValueError, match=f"n={n}: must be among 1 to 7"):
            expected_best(values, n)

"""Tests of the best of n tries."""

import itertools

import numpy as np
import pytest

from jaxpt.statistics import expected_best

VALUES = (0.5, 0.6, 0.7, 0.9)


@pytest.mark.parametrize("n, unbiased", [(2, 0.783333), (3, 0.85), (4, 0.9)])
def test_the_reference_best_of_n(n, unbiased):
    assert expected_best.expected_best(VALUES, n) == pytest.approx(unbiased, abs=1e-6)


def test_the_best_of_n_is_the_mean_over_all_subsets():
    values = np.random.default_rng(0).normal(size=7)
    for n in range(1, 8):
        every = [max(some) for some in itertools.combinations(values, n)]
        assert expected_best.expected_best(values, n) == pytest.approx(np.mean(every))
    for n in (0, 8):
        with pytest.raises(ValueError, match=f"n={n}: must be among 1 to 7"):
            expected_best.expected_best(values, n)

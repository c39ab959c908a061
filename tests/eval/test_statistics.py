"""Tests of few seeds: exact p values, the best of n, seeds and examples resampled."""

import itertools

import numpy as np
import pytest

from jaxpt.eval import statistics
from jaxpt.eval.examples import Examples
from jaxpt.report.verdicts import subtract

VALUES = (0.5, 0.6, 0.7, 0.9)


def test_the_reference_p_value_and_the_smallest_ones():
    found = statistics.sign_flip_test((0.02, 0.01, 0.03, -0.005, 0.015))
    assert found == 0.125
    assert statistics.sign_flip_test([0.1, 0.2, 0.3]) == 0.25
    assert statistics.sign_flip_test([0.1] * 5) == 0.0625
    assert statistics.sign_flip_test([0.1] * 6) == 0.03125
    assert statistics.sign_flip_test([0.0, 0.0]) == 1.0


def test_many_pairs_are_drawn_and_agree_with_all(monkeypatch):
    values = np.random.default_rng(1).normal(0.3, 1, 12)
    exact = statistics.sign_flip_test(values)
    assert 0.01 < exact < 0.9
    monkeypatch.setattr(statistics, "EXACT", 3)
    drawn = statistics.sign_flip_test(values)
    assert drawn == pytest.approx(exact, abs=0.01)
    assert drawn == statistics.sign_flip_test(values)  # of one seed
    assert statistics.sign_flip_test([1.0] * 40) == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.parametrize("values", [[], [0.1, np.nan], [[0.1], [0.2]]])
def test_what_cannot_be_tested_is_refused(values):
    with pytest.raises(ValueError, match="finite numbers"):
        statistics.sign_flip_test(values)


@pytest.mark.parametrize(
    "n, biased, unbiased",
    [(2, 0.75625, 0.783333), (3, 0.801563, 0.85), (4, 0.830078, 0.9)],
)
def test_the_reference_best_of_n(n, biased, unbiased):
    assert statistics.expected_best(VALUES, n) == pytest.approx(unbiased, abs=1e-6)
    assert statistics.expected_best_biased(VALUES, n) == pytest.approx(biased, abs=1e-6)


def test_the_best_of_n_is_the_mean_over_all_subsets():
    values = np.random.default_rng(0).normal(size=7)
    for n in range(1, 8):
        every = [max(some) for some in itertools.combinations(values, n)]
        assert statistics.expected_best(values, n) == pytest.approx(np.mean(every))
    for n in (0, 8):
        with pytest.raises(ValueError, match=f"n={n}: must be among 1 to 7"):
            statistics.expected_best(values, n)


def make_scores(num_seeds, seed_effect, seed=0, num_examples=400):
    """Two sides whose seeds share an effect, the second ahead by 0.1."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, seed_effect, (num_seeds, 1))
    noise = rng.normal(0, 0.2, (2, num_seeds, num_examples))
    return shared + noise[0], shared + 0.1 + noise[1]


def test_a_difference_that_never_varies_has_no_width():
    first, _ = make_scores(4, 0.3)
    found = statistics.multi_bootstrap(first, first + 0.25)
    assert found.difference == pytest.approx(0.25)
    assert np.allclose(found.draws, 0.25)
    assert found.p == 1 / 500
    tie = statistics.multi_bootstrap(first, first)
    assert tie.low == tie.high == 0 and tie.p == 1


def test_pairing_takes_out_what_the_seeds_share():
    first, second = make_scores(6, 0.5)
    paired = statistics.multi_bootstrap(first, second)
    alone = statistics.multi_bootstrap(first, second, paired_seeds=False)
    assert paired.difference == alone.difference
    assert paired.high - paired.low < 0.2 * (alone.high - alone.low)
    assert paired.low > 0 and paired.p == 1 / 500
    assert alone.low < 0 < alone.high and alone.p > 0.1


def test_the_spread_is_that_of_the_closed_form():
    """`verdicts` computes what the draws converge to, without their (n - 1) / n."""
    rng = np.random.default_rng(3)
    seeds, examples = 40, 300
    first = rng.normal(0, 1, (seeds, examples)) + rng.normal(0, 1, (1, examples))
    second = first + rng.normal(0.1, 0.3, (seeds, 1)) + rng.normal(0, 2, (1, examples))
    found = statistics.multi_bootstrap(first, second, num_draws=3000)
    ones, groups = np.ones(examples), np.arange(examples)
    sides = [
        {s: Examples(row, ones, groups) for s, row in enumerate(side)}
        for side in (second, first)
    ]
    means = [{s: e.mean for s, e in side.items()} for side in sides]
    closed = subtract(*means, *sides)
    assert found.difference == pytest.approx(closed.mean)
    assert found.draws.std() == pytest.approx(closed.error, rel=0.06)


def test_runs_of_a_seed_are_averaged_first():
    first, second = make_scores(5, 0.3)
    noise = np.random.default_rng(2).normal(0, 3, second.shape)
    runs = np.stack([second + noise, second - noise], axis=1)
    found = statistics.multi_bootstrap(first, runs)
    assert np.allclose(found.draws, statistics.multi_bootstrap(first, second).draws)


def test_unequal_shapes_are_refused():
    first, second = make_scores(5, 0.3)
    with pytest.raises(ValueError, match="400 and 399 examples"):
        statistics.multi_bootstrap(first, second[:, 1:])
    with pytest.raises(ValueError, match="5 and 4 seeds"):
        statistics.multi_bootstrap(first, second[1:])
    statistics.multi_bootstrap(first, second[1:], paired_seeds=False, num_draws=3)
    with pytest.raises(ValueError, match=r"must be \[S, X\]"):
        statistics.multi_bootstrap(first[0], second[0])

"""Cost ratios: by hand, against verdicts, and how often intervals hold the true one.

The table of docs/explanation/statistics.md:

    .venv/bin/python -m pytest -m slow -s tests/judge/test_cost_ratio.py
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from jaxpt.judge.cost_ratio import Curve, Ratio, find_ratio, from_documents
from jaxpt.judge.examples import Examples
from jaxpt.judge.verdicts import Side, subtract

EIGHT = np.arange(1, 9) / 8  # evaluations of a run
BUDGETS = np.array([0.125, 0.25, 0.5, 1.0])
RUNS = np.array([[0.01], [0.0], [-0.01], [0.0]])


def make(costs, means):
    return Curve(np.array(costs, np.float64), np.array([means]) + RUNS)


def test_the_estimate_is_where_the_mean_passes_the_final_quality_of_the_other():
    first, second = make([1, 2, 4, 8], [1, 2, 3, 4]), make([1, 2, 4, 8], [0, 0, 1, 2.5])
    expected = 8 / (2 * math.sqrt(2))  # halfway between 2 and 4, in the logarithm
    assert find_ratio(first, second, 0.05).value == pytest.approx(expected)
    assert find_ratio(second, first, 0.05).value == pytest.approx(1 / expected)
    same = find_ratio(first, first, 0.05)
    assert same.value == 1.0 and not same.is_apart


def test_a_curve_that_falls_for_a_while_is_made_monotone():
    falling = make([1, 2, 4, 8], [1, 3, 2, 4])
    flat = isotonic_regression([1, 3, 2, 4]).x
    assert flat.tolist() == [1, 2.5, 2.5, 4]
    other = make([1, 8], [0, 2.6])
    cost = 4 * 2 ** (0.1 / 1.5)  # the first passing of the curve itself is before 2
    assert find_ratio(falling, other, 0.05).value == pytest.approx(8 / cost)


def test_a_worse_system_that_was_as_good_before_still_needs_more():
    """Its peak at a quarter of the cost would otherwise be a second solution."""
    falling = make([1, 2, 4, 8], [2, 4, 2, 1])
    ratio = find_ratio(make([1, 2, 4, 8], [0.5, 2, 3, 4]), falling, 0.05)
    assert 1 < ratio.low < ratio.value < ratio.high < 8


def test_what_is_beyond_the_curves_is_not_guessed():
    high, low = make([1, 2, 4], [5, 6, 7]), make([1, 2, 4], [0, 1, 2])
    assert find_ratio(high, low, 0.05) == Ratio(math.inf, 4.0, math.inf, 0.25, 4.0)
    assert find_ratio(low, high, 0.05) == Ratio(0.0, 0.0, 0.25, 0.25, 4.0)
    # Without a difference both ends are open.
    noisy = make([1, 2], [0.001, 0.002])
    ratio = find_ratio(noisy, make([1, 2], [0, 0.0015]), 0.05)
    assert (ratio.low, ratio.high) == (0.0, math.inf) and not ratio.is_apart


def test_curves_of_other_lengths_are_read_at_the_smaller_last_cost():
    long, short = make([1, 2, 4, 8], [0, 1, 2, 3]), make([1, 2, 4], [0, 0.5, 1])
    ratio = find_ratio(long, short, 0.05)
    assert ratio.value == pytest.approx(2.0)  # 4 / 2, not 8 / 2
    assert (ratio.least, ratio.most) == (0.25, 4.0)
    earlier = find_ratio(long, short, 0.05, end=2.0)
    assert earlier.most == 2.0 and earlier.value == pytest.approx(math.sqrt(2))


def test_fewer_than_four_runs_have_no_interval():
    first, second = make([1, 2, 4], [1, 2, 3]), make([1, 2, 4], [0, 1, 2])
    ratio = find_ratio(first._replace(values=first.values[:3]), second, 0.05)
    assert ratio.value == pytest.approx(2.0, rel=0.01)
    assert (ratio.low, ratio.high) == (0.0, math.inf)


@pytest.mark.parametrize(
    "costs, message",
    [
        ([1.0], "a curve has 1 costs and 1 values"),
        ([2.0, 1.0], "must rise from above 0"),
        ([0.0, 1.0], "must rise from above 0"),
        ([9.0, 10.0], "a curve begins above 4"),
    ],
)
def test_other_curves_are_refused(costs, message):
    with pytest.raises(ValueError, match=message):
        find_ratio(make(costs, [0] * len(costs)), make([1, 4], [0, 1]), 0.05)


class Case(NamedTuple):
    """How two systems are drawn.

    Attributes:
      num_runs: of each.
      ratio: the true one.
      spreads: the standard deviations over runs of both, in units of `noise`.
      num_documents: test documents; 0 for none.
      noise: the standard deviation of a run; qualities rise from 0.33 to 0.8.
      costs: of the evaluations.
      is_late: the influence of documents is known at the end alone.
      is_binary: documents are questions whose answers are right or wrong.
    """

    num_runs: int = 4
    ratio: float = 2.0
    spreads: tuple[float, float] = (1.0, 1.0)
    num_documents: int = 0
    noise: float = 0.01
    costs: np.ndarray = EIGHT
    is_late: bool = False
    is_binary: bool = False


def find_quality(cost):
    """The true quality: a curve that saturates, and is not linear in the log cost."""
    return 1 - 1 / (1 + 4 * cost)


def draw_curve(draw, case, means, spread):
    """One system; half of the variance of a run is the same at all its evaluations."""
    num = len(case.costs)
    shared = draw.normal(0, 1, (case.num_runs, 1))
    runs = (shared + draw.normal(0, 1, (case.num_runs, num))) * math.sqrt(0.5)
    values = means + case.noise * spread * runs
    if not case.num_documents:
        return Curve(case.costs, values)
    if case.is_binary:
        return answer(draw, case, values)
    taste = draw.normal(0, 3, case.num_documents) * case.noise
    rest = draw.normal(0, case.noise, (*values.shape, case.num_documents))
    curve = from_documents(case.costs, values[..., None] + taste + rest)
    return curve._replace(influence=curve.influence[-1:]) if case.is_late else curve


def answer(draw, case, values):
    """Answers to questions, some of which are easier for this system than others.

    Equal qualities have equal shares of right answers.
    """
    ease = draw.normal(0, 1, case.num_documents)
    odds = np.log(values / (1 - values))[..., None] + ease
    hits = draw.random(odds.shape) < 1 / (1 + np.exp(-odds))
    curve = from_documents(case.costs, hits.astype(float))
    return curve._replace(influence=curve.influence[-1:])


def draw_pair(draw, case):
    """Two systems of which the second needs `ratio` times the cost."""
    of_both = find_quality(case.costs), find_quality(case.costs / case.ratio)
    return [
        draw_curve(draw, case, means, spread)
        for means, spread in zip(of_both, case.spreads, strict=True)
    ]


def test_one_is_excluded_exactly_if_the_verdict_is_significant():
    draw, outcomes = np.random.default_rng(3), set()
    documents = np.arange(12)
    for num_documents, level in itertools.product((0, 12), (0.05, 0.05 / 6)):
        for ratio in (1.0, 1.05, 1.15):
            case = Case(4, ratio, (1.0, 2.0), num_documents, costs=BUDGETS)
            for _ in range(15):
                pair = draw_pair(draw, case)
                sides = [to_side(curve, documents) for curve in pair]
                low, high = subtract(*sides).interval(level)
                is_ahead = low > 0 or high < 0
                assert find_ratio(*pair, level).is_apart == is_ahead
                outcomes.add((is_ahead, num_documents))
    assert len(outcomes) == 4


def to_side(curve, documents):
    """The end of a curve as verdicts have it."""
    ends = dict(enumerate(curve.values[:, -1].tolist()))
    if curve.influence is None:
        return Side(ends)
    weights = np.ones(len(documents))
    totals = curve.influence[-1] * len(documents)
    examples = {
        seed: Examples(totals + value, weights, documents)
        for seed, value in ends.items()
    }
    return Side(ends, examples)


def test_the_order_of_the_two_does_not_matter():
    draw = np.random.default_rng(4)
    for ratio in (1.0, 1.3, 3.0):
        first, second = draw_pair(draw, Case(ratio=ratio, num_documents=12))
        expected = find_ratio(first, second, 0.05)
        assert find_ratio(second, first, 0.05).invert() == pytest.approx(expected)


def test_an_interval_allows_for_the_curve_between_two_points():
    """Of a curve that bends, and of runs that hardly differ."""
    costs, offsets = (
        np.array([1.0, 2.0, 4.0, 8.0]),
        np.array([[-1], [0], [0], [1]]) / 1e6,
    )
    bent = Curve(costs, 1 - 1 / (1 + costs) + offsets)
    straight = Curve(costs, np.log(costs) + offsets)
    assert np.allclose(bent.bend(costs), 0) and np.allclose(
        straight.bend(costs * 0.9), 0
    )
    places = np.array([1.5, 3.0, 6.0])
    assert (bent.bend(places) > 1e-3).all()
    true = 6.0
    slow = Curve(costs, 1 - 1 / (1 + costs / true) + offsets)
    ratio = find_ratio(bent, slow, 0.05)
    assert abs(ratio.value - true) > 0.05  # linearly
    assert ratio.low < true < ratio.high and ratio.high / ratio.low < 1.3
    assert find_ratio(bent, bent, 0.05).value == 1.0


def test_errors_of_documents_widen_the_interval():
    first, second = draw_pair(np.random.default_rng(5), Case(num_documents=12))
    whole = find_ratio(first, second, 0.05)
    seeds = find_ratio(
        first._replace(influence=None), second._replace(influence=None), 0.05
    )
    assert whole.low < seeds.low < seeds.high < whole.high
    assert whole.value == seeds.value


class Found(NamedTuple):
    """How often intervals hold the true ratio, and their median width as a factor."""

    coverage: float
    factor: float


def simulate(case, num_draws, seed=0, find=find_ratio):
    """The coverage at 0.95."""
    draw, held, widths = np.random.default_rng(seed), 0, []
    for _ in range(num_draws):
        ratio = find(*draw_pair(draw, case), 0.05)
        held += ratio.low <= case.ratio <= ratio.high
        widths.append(ratio.high / ratio.low if ratio.low else math.inf)
    return Found(held / num_draws, math.sqrt(np.median(widths)))


def bootstrap(first, second, level, num_draws=300):
    """The percentile interval over runs, for comparison."""
    draw, logs, values = np.random.default_rng(0), np.log(first.costs), []
    sizes = len(first.values), len(second.values)
    for _ in range(num_draws):
        drawn = [draw.integers(size, size=size) for size in sizes]
        means = isotonic_regression(first.values[drawn[0]].mean(0)).x
        goal = second.values[drawn[1], -1].mean()
        place = int(np.searchsorted(means, goal).clip(1, len(means) - 1))
        ends = means[place - 1 : place + 1]
        values.append(math.exp(-np.interp(goal, ends, logs[place - 1 : place + 1])))
    low, high = np.quantile(values, [level / 2, 1 - level / 2])
    return Ratio(float(np.median(values)), low, high, 0.0, math.inf)


@pytest.mark.parametrize(
    "case", [Case(4, 2.0), Case(5, 1.3, (1.0, 5.0)), Case(4, 1.0, num_documents=24)]
)
def test_intervals_hold_the_true_ratio(case):
    """A percentile bootstrap of runs does not pass: it has .85 and less."""
    assert simulate(case, 300).coverage >= 0.915


SPREADS = ((1.0, 1.0), (5.0, 1.0), (1.0, 5.0))
CASES = {
    "no documents": {},
    "24 documents": {"num_documents": 24},
    "24 documents, known at the end alone": {"num_documents": 24, "is_late": True},
    "four budgets, 24 documents": {"num_documents": 24, "costs": BUDGETS},
    "200 right or wrong answers, known at the end alone": {
        "num_documents": 200,
        "is_binary": True,
    },
    "no documents, standard deviations of 0.003": {"noise": 0.003},
}


@pytest.mark.slow
@pytest.mark.parametrize("label", CASES)
def test_coverage_is_as_stated(label):
    """Prints a row for each number of runs: coverage by true ratio, and widths."""
    num = 1000
    for num_runs in (4, 5, 10):
        rates, cells = [], []
        for ratio in (1.0, 1.3, 2.0, 4.0):
            found = [
                simulate(Case(num_runs, ratio, spreads, **CASES[label]), num)
                for spreads in SPREADS
            ]
            rates += [each.coverage for each in found]
            least, most = min(rates[-3:]), max(rates[-3:])
            cells.append(f"{least:.3f} to {most:.3f} (×/÷ {found[0].factor:.2f})")
        print(f"\n| {label}, {num_runs} seeds | {' | '.join(cells)} |")
        assert np.mean(rates) >= 0.93
        assert min(rates) >= 0.92


@pytest.mark.slow
def test_a_bootstrap_of_runs_is_too_narrow():
    rates = [
        simulate(Case(4, ratio), 400, find=bootstrap).coverage for ratio in (1.3, 2.0)
    ]
    print("\nbootstrap, 4 seeds:", *rates)
    assert max(rates) < 0.9


@pytest.mark.slow
def test_coverage_between_points_that_are_far_apart_is_as_stated():
    """The error of the interpolation is allowed for, but not known."""
    early = [simulate(Case(n, 5.0, noise=0.003), 500).coverage for n in (5, 10)]
    coarse = simulate(Case(5, 1.4, costs=BUDGETS), 400).coverage
    print("\nbetween the first two evaluations:", *early, "two budgets:", coarse)
    assert early[0] > 0.91 and early[1] > 0.85 and coarse > 0.93

"""Verdicts: the stated error rate by simulation; examples from the sources."""

import math

import numpy as np
import pytest
from comparisons import (
    Case,
    Drawn,
    draw_many,
    find_rate,
    judge_arrays,
    list_cases,
    to_results,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxpt.judge import verdicts
from jaxpt.judge.examples import Examples
from jaxpt.judge.unpaired import Sample
from jaxpt.judge.verdicts import Difference, Results, Side, judge, subtract


def of_values(values, **changes):
    """Results of a metric of which no examples were kept: {name: [value per seed]}."""
    by_seed = {name: dict(enumerate(v)) for name, v in values.items()}
    return Results(**{"metric": "m", "higher_is_better": True, "margin": 0.0}
                   | {"values": by_seed, "examples": {}} | changes)  # fmt: skip


def of_seeds(values, examples=()):
    """A side of a difference, from one value per seed."""
    return Side(dict(enumerate(values)), dict(examples))


def test_many_seeds_give_welchs_t_test():
    draw = np.random.default_rng(0)
    first, second = draw.normal(0, 1, 80), draw.normal(0.3, 3, 100)
    result = subtract(of_seeds(first), of_seeds(second))
    reference = stats.ttest_ind(first, second, equal_var=False)
    assert result.mean == pytest.approx(first.mean() - second.mean())
    assert result.p == pytest.approx(reference.pvalue)
    expected = reference.confidence_interval(0.9)
    assert result.interval(0.1) == pytest.approx((expected.low, expected.high))


def resample(first, second, num_draws):
    """The differences of a multi-bootstrap, of seeds of each side and of examples.

    Sellam et al. 2022; google-research/language, language/multiberts/multibootstrap.py.
    """
    rng, draws = np.random.default_rng(0), np.empty(num_draws)
    num_seeds, num_examples = first.shape
    for i in range(num_draws):
        picks = rng.integers(num_examples, size=num_examples)
        counts = np.bincount(picks, minlength=num_examples) / num_examples
        picked = rng.integers(num_seeds, size=(2, num_seeds))
        draws[i] = (second @ counts)[picked[0]].mean()
        draws[i] -= (first @ counts)[picked[1]].mean()
    return draws


def test_the_spread_is_that_of_a_multi_bootstrap():
    """What the draws converge to is computed, without their (n - 1) / n."""
    rng = np.random.default_rng(3)
    seeds, examples = 40, 300
    first = rng.normal(0, 1, (seeds, examples)) + rng.normal(0, 1, (1, examples))
    second = first + rng.normal(0.1, 0.3, (seeds, 1)) + rng.normal(0, 2, (1, examples))
    ones, groups = np.ones(examples), np.arange(examples)
    sides = [
        {s: Examples(row, ones, groups) for s, row in enumerate(side)}
        for side in (second, first)
    ]
    closed = subtract(*map(from_examples, sides))
    draws = resample(first, second, 3000)
    assert draws.mean() == pytest.approx(closed.mean, abs=3 * closed.error / 3000**0.5)
    assert draws.std() == pytest.approx(closed.error, rel=0.06)


def test_each_side_has_its_own_seeds():
    """Seeds that only one has count, and which seeds they are does not."""
    first, second = [1.0, 2.0, 5.0, 3.0, 4.0], [0.5, 0.25, 1.5, 1.0]
    result = subtract(of_seeds(first), of_seeds(second))
    assert result.mean == pytest.approx(3.0 - 0.8125) and result.num_seeds == 4
    assert result.seeds_error == pytest.approx(
        math.hypot(stats.sem(first), stats.sem(second))
    )
    other = dict(zip((7, 3, 9, 8), reversed(second)))
    assert subtract(of_seeds(first), Side(other)).p == pytest.approx(result.p)
    assert not subtract(Side({0: 1.0}), Side({})).is_testable


def from_examples(examples):
    """A side of a difference, from examples by seed."""
    return Side({seed: e.mean for seed, e in examples.items()}, examples)


def draw_examples(draw, num_seeds=3, num_groups=40, per_group=5, skills=(0.3, 0.0)):
    """Two objectives' hits on the same examples, equal within a document."""
    groups = np.repeat(np.arange(num_groups), per_group)
    weights = draw.integers(1, 4, len(groups)).astype(float)
    ease = draw.normal(0, 1, num_groups)[groups]
    results = []
    for skill in skills:
        taste = draw.normal(0, 0.7, num_groups)[groups]
        by_seed = {}
        for seed in range(num_seeds):
            chance = 1 / (1 + np.exp(-(ease + taste + skill + draw.normal(0, 0.2))))
            by_seed[seed] = Examples(draw.binomial(weights.astype(int), chance).astype(float), weights, groups)  # noqa: E501  # fmt: skip
        results.append(by_seed)
    return results


def test_errors_are_those_that_a_bootstrap_draws():
    """Of examples alone, by whole documents; then of both, as the multi-bootstrap."""
    draw = np.random.default_rng(1)
    first, second = draw_examples(draw, num_seeds=25)
    result = subtract(from_examples(first), from_examples(second))
    groups = first[0].groups
    totals = np.stack(
        [[np.bincount(groups, e.totals) for e in each.values()]
         for each in (first, second)]
    )  # fmt: skip
    weights = np.bincount(groups, first[0].weights)
    only, both = [], []
    for _ in range(4000):
        picked = draw.integers(0, 40, 40)
        rates = totals[:, :, picked].sum(-1) / weights[picked].sum()
        means = rates.mean(axis=1)
        only.append(means[0] - means[1])
        seeds = draw.integers(0, 25, (2, 25))
        both.append(rates[0, seeds[0]].mean() - rates[1, seeds[1]].mean())
    assert result.examples_error == pytest.approx(np.std(only), rel=0.05)
    assert result.error == pytest.approx(np.std(both), rel=0.07)
    assert result.num_groups == 40 and result.num_seeds == 25


def test_the_error_of_few_documents_is_that_of_their_mean():
    """With Bessel's correction, which counts if they are few."""
    totals, ones = np.array([0.3, -1.0, 2.0, 0.5]), np.ones(4)
    sides = [{0: Examples(x, ones, np.arange(4))} for x in (totals, np.zeros(4))]
    result = subtract(*map(from_examples, sides))
    assert result.examples_error == pytest.approx(stats.sem(totals))


def test_examples_of_one_document_are_no_more_than_one():
    """Each example of a document copied: the same error, not a smaller one."""
    first, second = draw_examples(np.random.default_rng(2), per_group=1)
    many = [
        {seed: Examples(*(np.repeat(part, 9) for part in each[seed])) for seed in each}
        for each in (first, second)
    ]
    one, nine = (
        subtract(*map(from_examples, pair)) for pair in ((first, second), many)
    )
    assert nine.examples_error == pytest.approx(one.examples_error)


def test_a_single_document_is_cut_into_blocks():
    """Of consecutive examples, which are correlated: not one each."""
    draw = np.random.default_rng(0)
    part = np.repeat(draw.normal(0, 1, 40), 5)  # of the text: easier and harder ones
    sides = [
        from_examples({0: Examples(sign * part, np.ones(200), np.zeros(200, int))})
        for sign in (1, -1)
    ]
    result = subtract(*sides)
    assert result.num_groups == 40 and result.is_cut
    assert result.examples_error == pytest.approx(2 * stats.sem(part[::5]))
    # Two objectives that cut it into other rows have the same blocks.
    wide = Examples(part[::5] * 5, np.full(40, 5.0), np.zeros(40, int))
    other = subtract(from_examples({0: wide}), sides[1])
    assert other.examples_error == pytest.approx(result.examples_error)
    # One example has no error, two have.
    few = Examples(np.array([1.0, 0.0]), np.ones(2), np.zeros(2, int))
    one = Examples(*(column[:1] for column in few))
    assert subtract(*[from_examples({0: one})] * 2).num_groups == 0
    assert subtract(*[from_examples({0: few})] * 2).num_groups == 2


def test_documents_may_be_cut_into_other_rows():
    """Each of a document's examples in two halves, for one objective alone."""
    first, second = draw_examples(np.random.default_rng(4))
    halves = {
        seed: Examples(
            np.repeat(e.totals / 2, 2), np.repeat(e.weights / 2, 2), e.groups.repeat(2)
        )
        for seed, e in first.items()
    }
    expected, result = (
        subtract(from_examples(each), from_examples(second)) for each in (first, halves)
    )
    assert result.examples_error == pytest.approx(expected.examples_error)
    assert result.p == pytest.approx(expected.p)


def test_seeds_that_agree_by_chance_are_no_proof():
    """With equal counts on both sides the spread is unknown: p is a permutation's."""
    four = Difference(0.4, Sample(0.0, 4), Sample(0.0, 4), 0.05, 24)
    assert four.p == 2 / 70 and four.interval(0.01) == (-math.inf, math.inf)
    assert four.interval(0.05)[0] > 0 and four.seeds_needed(0.01) == 5  # 2 / 252
    # Equal to rounding alone: 0.1 + 0.2 is not 0.3.
    pairs = judge([of_values({"a": [0.1 + 0.2] * 2 + [0.3] * 2, "b": [0.1] * 4})])
    assert pairs[0].difference.seeds_error == 0 and pairs[0].p == 2 / 70
    # Against a constant only the signs are evidence.
    constant = four._replace(second=Sample(0.0, 0))
    assert constant.p == 2**-3 and constant.interval(0.05)[0] == -math.inf


def test_a_side_without_spread_has_the_freedom_of_the_other():
    result = Difference(1.0, Sample(0.0, 9), Sample(0.4, 4))
    half = stats.t.ppf(0.975, 3) * 0.4 / 2
    assert result.interval(0.05) == pytest.approx((1 - half, 1 + half))


def test_a_baseline_without_a_network_has_no_error_of_seeds():
    """Also if it is stated once for each seed: no spread, and no seeds."""
    values = [0.5, 0.7, 0.6, 0.8, 0.4]
    family = of_values({"a": values, "b": [0.3] * 5}, constants=("b",))
    (pair,) = judge([family])
    assert pair.difference.second.num == 0 and pair.difference.num_seeds == 5
    assert pair.p == pytest.approx(stats.ttest_1samp(values, 0.3).pvalue)


def test_each_source_of_error_keeps_its_own_quantile():
    """By hand: t[3] = 3.1824 and t[39] = 2.0227 at 5 %; the tables of any textbook."""
    result = Difference(0.5, Sample(0.6, 4), Sample(0.0, 0), 0.4, 40)
    half = math.hypot(3.1824 * 0.3, 2.0227 * 0.4)
    assert result.half_width(0.05) == pytest.approx(half, rel=1e-4)
    assert result.interval(0.05) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-4)


SPREADS = st.floats(0, 10)
DIFFERENCES = st.builds(
    lambda mean, a, b, num, other, documents: Difference(
        mean, Sample(a, num), Sample(b, other), *documents
    ),
    st.floats(0, 50), SPREADS, SPREADS, st.integers(4, 9), st.sampled_from([0, 4, 7]),
    st.just((0.0, 0)) | st.tuples(st.floats(1e-3, 10), st.integers(2, 300)),
)  # fmt: skip


@settings(deadline=None)
@given(DIFFERENCES)
def test_the_p_value_is_the_level_whose_interval_ends_at_0(result):
    if result.error > 1e-9 and 1e-9 < result.p < 0.99:
        assert result.interval(result.p * 1.001)[0] > 0
        assert result.interval(result.p * 0.999)[0] < 0


@settings(deadline=None)
@given(DIFFERENCES, st.floats(1e-7, 0.5))
def test_p_is_at_most_alpha_if_and_only_if_the_interval_excludes_0(result, alpha):
    assert (result.p <= alpha) == (result.interval(alpha)[0] > 0)


def test_p_values_can_be_tiny():
    result = Difference(1e6, Sample(1e-9, 500), Sample(1e-9, 500), 1e-9, 500)
    assert 0 < result.p < 1e-200


TABLES = st.lists(
    st.lists(st.integers(-5, 5), min_size=4, max_size=6), min_size=2, max_size=5
)


@settings(deadline=None)
@given(TABLES, st.sampled_from([0.001, 0.05, 0.3]), st.integers(1, 3))
def test_ahead_p_and_interval_say_the_same(table, alpha, num_metrics):
    values = {f"n{i}": [float(v) for v in row] for i, row in enumerate(table)}
    family = [of_values(values, metric=f"m{i}") for i in range(num_metrics)]
    pairs = judge(family, alpha)
    assert len(pairs) == num_metrics * math.comb(len(values), 2)
    for pair in pairs:
        assert pair.difference.mean >= 0  # the better one is named first
        assert (pair.outcome == "ahead") == (pair.low > 0) == (pair.p <= alpha)
        assert pair.p <= 1 and pair.low <= pair.difference.mean <= pair.high
        assert pair.at_most == max(abs(pair.low), abs(pair.high))


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(4, 5, 0, 1.0, False, (1.0, 2.0, 6.0, 1.0), lead=3.0),
        Case(3, 10, 24, 0.3, True, (5.0, 1.0), num_metrics=2, lead=3.0),
        Case(2, 4, 1, 0.0, True),  # counts that may agree by chance
    ],
)
@pytest.mark.parametrize("control", [None, 0])
def test_the_simulation_gives_the_same_verdicts(case, control):
    drawn = draw_many(np.random.default_rng(1), case, 20)
    output = judge_arrays(drawn, control=control)
    for place in range(20):
        name = "" if control is None else f"n{control}"
        pairs = {
            (int(p.metric[1:]), *sorted((int(p.better[1:]), int(p.worse[1:])))): p
            for p in judge(to_results(drawn, place), control=name)
        }
        assert len(pairs) == output.half[place].size
        for (m, *names), pair in pairs.items():
            each = place, m, output.pairs.index(tuple(names))
            assert pair.difference.mean == pytest.approx(abs(output.difference[each]))
            assert (pair.outcome == "ahead") == output.ahead[each]
            if math.isfinite(output.half[each]):
                assert pair.high - pair.low == pytest.approx(2 * output.half[each])


def test_only_pairs_with_the_control_share_the_error_rate():
    values = {
        "a": [0.0, 0.1, 0.3, 0.1],
        "b": [1.0, 1.2, 1.1, 1.3],
        "c": [1.9, 2.0, 2.3, 2.0],
    }
    other = of_values({name: values[name] for name in "bc"}, metric="other")
    family = [of_values(values), other]
    every, few = judge(family), judge(family, control="a")
    assert {(p.better, p.worse) for p in few} == {("b", "a"), ("c", "a")}
    assert len(every) == 4
    by_names = {(p.better, p.worse): p for p in every if p.metric == "m"}
    for pair in few:
        assert pair.p == pytest.approx(2 * pair.difference.p)
        wide = by_names[pair.better, pair.worse]
        assert (pair.low, pair.high) == pair.difference.interval(verdicts.ALPHA / 2)
        assert wide.low < pair.low and pair.high < wide.high


@pytest.mark.parametrize("num, other", [(1, 1), (3, 3), (3, 9), (9, 2)])
def test_fewer_than_four_seeds_of_either_side_have_no_verdict(num, other):
    draw = np.random.default_rng(0)
    values = {"a": draw.normal(0, 1, num), "b": draw.normal(90, 1, other)}
    (pair,) = judge([of_values(values, higher_is_better=False)])
    assert (pair.better, pair.worse, pair.outcome) == ("a", "b", "untested")
    assert pair.seeds_needed is None and pair.p == 1.0
    assert (pair.low, pair.high) == (-math.inf, math.inf)
    # It is not in the family either.
    enough = of_values({"c": draw.normal(0, 1, 4), "d": draw.normal(1, 1, 4)})
    assert judge([enough]) == judge([enough, of_values(values)])[:1]


def test_intervals_are_within_the_range_of_the_metric():
    values = {"a": [0.0, 1.0, 0.0, 1.0], "b": [1.0, 0.0, 0.0, 1.0]}
    (wide,), (pair,) = (judge([of_values(values, span=x)]) for x in (math.inf, 1.0))
    assert wide.low < -1 and wide.high > 1
    assert (pair.low, pair.high, pair.at_most) == (-1.0, 1.0, 1.0)
    assert (pair.outcome, pair.p) == (wide.outcome, wide.p)


def test_within_the_margin_is_equivalent_and_only_there():
    close = {"a": [1.0, 1.002, 0.998, 1.001], "b": [1.001, 1.0, 0.999, 1.0]}
    (pair,) = judge([of_values(close, margin=0.02)])
    assert pair.outcome == "equivalent" and -0.02 <= pair.low < pair.high <= 0.02
    (pair,) = judge([of_values(close, margin=0.0001)])
    assert pair.outcome == "tie"


def test_as_many_seeds_as_are_asked_for_do_tell():
    """With the difference and spread that were measured, in 8 of 10 comparisons."""
    first = np.array([0.1, 0.9, 0.5, -0.4, 1.4])
    (pair,) = judge([of_values({"a": first, "b": first[::-1] / 2 - 0.3})])
    assert pair.outcome == "tie"
    draw, num = np.random.default_rng(3), pair.seeds_needed
    std = np.array([[[side.std] for side in pair.difference[1:3]]])
    values = draw.normal(0, 1, (2000, 1, 2, num)) * std
    values[:, :, 0] += pair.difference.mean
    power = judge_arrays(Drawn(values, None)).ahead.mean()
    assert 0.76 < power < 0.9
    # More seeds do not help where the examples are too few.
    stuck = pair.difference._replace(examples_error=5.0, num_groups=9)
    assert stuck.seeds_needed(0.05) is None


def assert_rate(wrong, num_draws, case=""):
    """At most 5 %, within three standard errors of the draws."""
    rate = wrong / num_draws
    print(f"{case}: {rate:.3f}")
    assert rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / num_draws)


# With Welch's interval the two with ten metrics exceed .06.
HARDEST = [
    Case(num_names=14, num_seeds=4, seed_std=0.6),
    Case(num_seeds=4, num_documents=200, seed_std=0.3, is_binary=True),
    Case(num_names=2, num_seeds=4, num_documents=200, seed_std=0.3),
    Case(2, 4, 0, 1.0, False, (5.0, 1.0), num_metrics=10),
    Case(2, 5, 0, 1.0, False, (5.0, 1.0), num_metrics=10),
    Case(2, 4, 0, 1.0, False, (5.0, 1.0)),
    Case(num_seeds=4, num_documents=0, spreads=(1.0, 2.0, 6.0, 1.0)),
    Case(num_seeds=4, num_documents=0, spreads=(0.0, 1.0)),
    Case(num_seeds=5, seed_std=0.6, spreads=(5.0, 1.0)),
    Case(num_seeds=4, num_metrics=3, seed_std=0.6),
    Case(num_seeds=4, num_documents=5, seed_std=0.6),
    Case(num_seeds=5, num_documents=0, shared=1.0),
    Case(num_seeds=5, num_documents=0, law="t2"),
]


@pytest.mark.parametrize("case", HARDEST)
def test_equal_objectives_differ_in_one_comparison_of_twenty_at_most(case):
    num_draws = 2000 if case.num_documents < 200 and case.num_names < 14 else 600
    wrong = find_rate(case, num_draws, batch=200) * num_draws
    assert_rate(wrong, num_draws, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", list_cases())
def test_every_kind_of_comparison_keeps_the_error_rate(case):
    num_draws = 1000 if case.num_names < 14 else 200
    assert_rate(find_rate(case, num_draws, batch=100) * num_draws, num_draws, case)


@pytest.mark.parametrize("num_seeds", [4, 5])
def test_the_intervals_of_a_comparison_are_simultaneous(num_seeds):
    """Of pairs with and without a difference."""
    case = Case(num_seeds=num_seeds, num_documents=0, lead=60.0)
    output = judge_arrays(draw_many(np.random.default_rng(0), case, 2000))
    lead = case.lead * case.seed_std
    truth = np.array([lead * (pair[0] == 0) for pair in output.pairs])
    missed = (np.abs(output.difference - truth) > output.half).any((1, 2))
    assert_rate(missed.sum(), 2000)


def test_the_rate_is_alphas():
    case = Case(num_names=2, num_seeds=5, num_documents=0, spreads=(5.0, 1.0))
    assert 0.36 < find_rate(case, 2000, alpha=0.4) < 0.42
    assert find_rate(case, 2000, alpha=1e-9) == 0.0


def test_what_a_seed_does_to_all_objectives_is_the_same_for_all():
    """Also if the seeds of one are noisier: it cancels in all differences."""
    case = Case(3, 50, 0, 1.0, False, (5.0, 1.0), shared=1000.0)
    values = draw_many(np.random.default_rng(0), case, 20).values
    apart = (values - values.mean(2, keepdims=True)).std()
    assert values.std() > 500 and apart < 10


def test_the_quantiles_of_few_draws_tell_equals_apart_too_often():
    """The reason for the departure, by the multi-bootstrap's own percentiles."""
    draw, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        gap = draw.normal(0, 2**0.5, 3)
        drawn = gap[draw.integers(0, 3, (500, 3))].mean(axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        wrong += not low <= 0 <= high
    assert wrong / 400 > 0.15


def test_five_seeds_find_a_lead_of_four_standard_deviations():
    """A paired t-test of each pair finds it in 0.75 of these."""
    case = Case(num_seeds=5, num_documents=0, lead=4.0)
    output = judge_arrays(draw_many(np.random.default_rng(0), case, 500))
    with_first = [0 in pair for pair in output.pairs]
    assert output.ahead[..., with_first].mean() > 0.9

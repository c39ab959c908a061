"""Cost ratios in reports: from learning curves, over budgets, in words and tables."""

import csv
import dataclasses
import io
import pathlib

import numpy as np
import pytest
from reports import make_report, make_run, vary

from jaxpt.comparison.studies import load_study
from jaxpt.judge.examples import Examples
from jaxpt.report import tables
from jaxpt.report.answer import list_conclusions
from jaxpt.report.conventions import judge_conventions
from jaxpt.report.costs import KEYS
from jaxpt.report.page import write_report
from jaxpt.report.ratio_words import (
    conclude_ratio,
    format_ratio,
    invert,
    is_apart,
    list_ratios,
    tabulate_ratios,
)
from jaxpt.report.ratios import _interpolate, add_ratios, compare_budgets
from jaxpt.report.summary import summarise
from jaxpt.report.terminal import format_table
from jaxpt.report.types import Conventions, CostRatio, Report

METRIC = "choice_bayes_accuracy"
LABEL = "multiple-choice cloze"
SPREAD = (-0.01, 0.0, 0.01, 0.005, -0.005)
FAST, SLOW, SLOWEST = (0.4, 0.6, 0.7, 0.8), (0.2, 0.3, 0.4, 0.6), (0.1, 0.1, 0.15, 0.2)
COSTS = dict.fromkeys(KEYS, 100.0)
QUICKSTART = pathlib.Path(__file__).parents[2] / "results" / "quickstart"


def make_group(name, values, costs=(), metric=METRIC):
    """Five seeds, measured at quarters of their costs."""
    total, runs = COSTS | dict(costs), []
    for seed, more in enumerate(SPREAD):
        curve = [
            {"step": i, metric: value + more if i else 0.0}
            | {key: cost * i / 4 for key, cost in total.items()}
            for i, value in enumerate([0.0, *values])
        ]
        run = make_run(name, seed, **{metric: values[-1] + more})
        columns = {KEYS[key]: cost for key, cost in total.items()} | {"curve": curve}
        runs.append(vary(run, **columns))
    return runs


def judge(runs, kind="flops", control="", examples=None, alpha=0.05):
    """The report of runs, with its verdicts and ratios."""
    examples = examples or {}
    metrics = summarise(runs, examples, alpha=alpha, control=control)
    costs, metrics = judge_conventions(
        runs, metrics, kind, examples, None, alpha, control
    )
    metrics = add_ratios(runs, metrics, costs, kind, [examples], alpha)
    conventions = Conventions(kind, costs, ("verdicts at other costs",))
    return make_report(
        runs, metrics=metrics, conventions=conventions, control=control, alpha=alpha
    )


def find_pair(report, better, worse):
    (metric,) = (each for each in report.metrics if each.metric == METRIC)
    return next(p for p in metric.pairs if p.names == (better, worse))


def test_a_ratio_is_of_costs_at_the_quality_of_the_worse_one():
    runs = make_group("clm", FAST) + make_group("mlm", SLOW)
    pair = find_pair(judge(runs), "clm", "mlm")
    for kind in KEYS:
        ratio = pair.ratios[kind]
        assert ratio.value == pytest.approx(2.0)  # clm has 0.6 after half of its run
        assert 1.7 < ratio.low < 2.0 < ratio.high < 2.3
        assert (ratio.least, ratio.most) == (0.25, 4.0) and not ratio.is_beyond
        assert ratio.basis == "curves"


def test_each_convention_has_the_ratio_at_its_equal_cost():
    """Also if the other one is better there."""
    runs = make_group("clm", FAST, {"operations": 400.0}) + make_group("mlm", SLOW)
    pair = find_pair(judge(runs), "clm", "mlm")
    assert pair.under["operations"] == "behind"
    assert pair.ratios["flops"].value == pytest.approx(2.0)
    # At 100 operations clm has 0.4, which mlm has at 75.
    assert pair.ratios["operations"].value == pytest.approx(0.75)
    assert pair.ratios["operations"].high < 1


def test_between_evaluations_a_curve_is_linear_in_the_logarithm_of_its_cost():
    grid = np.array([0.25, 0.5, 1.0])
    between = _interpolate([(0.25, 0.2), (1.0, 0.8)], grid)
    np.testing.assert_allclose(between, [0.2, 0.5, 0.8])


def test_costs_within_the_tolerance_count_as_equal():
    runs = make_group("clm", FAST, {"flops": 101.0}) + make_group("mlm", SLOW)
    report = judge(runs)
    assert find_pair(report, "clm", "mlm").ratios["flops"].value == pytest.approx(2.0)
    assert report.conventions.costs["flops"].read == {"clm": 1, "mlm": 1}


def test_lower_values_may_be_better():
    falling = [1 - value for value in FAST], [1 - value for value in SLOW]
    runs = [
        run
        for name, values in zip(("clm", "mlm"), falling, strict=True)
        for run in make_group(name, values, metric="pair_nats")
    ]
    (metric,) = judge(runs).metrics
    (pair,) = metric.pairs
    assert pair.names == ("clm", "mlm")
    assert pair.ratios["flops"].value == pytest.approx(2.0)


def test_intervals_exclude_1_exactly_where_verdicts_are_significant():
    """All pairs of a stored study under all conventions, with its test documents."""
    report = Report.from_json(load_study(QUICKSTART).report)
    outcomes = []
    for metric in report.metrics:
        for pair in metric.pairs if metric.is_common else ():
            assert pair.ratios.keys() == pair.under.keys() == KEYS.keys()
            for kind, outcome in pair.under.items():
                ratio = pair.ratios[kind]
                side = "ahead" if ratio.value > 1 else "behind"
                assert outcome == (side if is_apart(ratio) else "tie")
                outcomes.append(outcome)
    assert len(outcomes) == 56
    sentence = conclude_ratio(report)
    assert sentence.startswith("For the same bigram-matched cloze, mlm needs 4.84 [3.")
    assert sentence.endswith("times clm's FLOPs (from learning curves).")


def test_the_level_is_that_of_the_family():
    two = make_group("clm", FAST) + make_group("mlm", SLOW)
    three = two + make_group("electra", SLOWEST)
    alone = find_pair(judge(two), "clm", "mlm").ratios["flops"]
    among = find_pair(judge(three), "clm", "mlm").ratios["flops"]
    same = find_pair(judge(three, alpha=0.15), "clm", "mlm").ratios["flops"]
    assert among.low < alone.low < alone.high < among.high
    assert same == alone


def test_test_documents_widen_the_interval():
    runs = make_group("clm", FAST) + make_group("mlm", SLOW)
    ups = {"clm": (1, -1, 1, -1), "mlm": (1, 1, -1, -1)}
    examples = {}
    for run in runs:
        totals = [run.metrics[METRIC] + 0.05 * up for up in ups[run.name]]
        examples[run.name, run.seed] = {METRIC: to_examples(totals)}
    without = find_pair(judge(runs), "clm", "mlm").ratios["flops"]
    ratio = find_pair(judge(runs, examples=examples), "clm", "mlm").ratios["flops"]
    assert ratio.low < without.low < without.high < (ratio.high or ratio.most)
    assert ratio.value == without.value


def to_examples(totals):
    totals = np.array(totals, np.float64)
    return Examples(totals, np.ones(len(totals)), np.arange(len(totals)))


def test_without_curves_or_seeds_there_is_no_ratio():
    runs = make_group("clm", FAST) + make_group("mlm", SLOW)
    few = [run for run in runs if run.seed < 3]
    (pair,) = judge(few).metrics[0].pairs
    assert pair.outcome == "untested" and pair.ratios is None
    flat = [dataclasses.replace(run, curve=()) for run in runs]
    report = judge(flat)
    assert find_pair(report, "clm", "mlm").ratios is None
    assert conclude_ratio(report) == "" and list_ratios(report) == []
    assert tabulate_ratios(report) is None
    assert "ratios" not in find_pair(report, "clm", "mlm").to_json()


def test_several_budgets_replace_curves_within_runs():
    """The smaller budgets are better than the curves of the largest run there."""
    levels = []
    for share, fast, slow in ((0.25, 0.6, 0.2), (0.5, 0.7, 0.3), (1.0, 0.8, 0.6)):
        costs = {key: share * cost for key, cost in COSTS.items()}
        runs = make_group("clm", (0.0, 0.0, 0.0, fast), costs)
        levels.append(judge(runs + make_group("mlm", (0.0, 0.0, 0.0, slow), costs)))
    *smaller, largest = levels
    within = find_pair(largest, "clm", "mlm").ratios["flops"]
    assert within.value < 1.2 and within.basis == "curves"
    metrics = compare_budgets(smaller, largest, [{}, {}, {}])
    report = dataclasses.replace(largest, metrics=tuple(metrics))
    ratio = find_pair(report, "clm", "mlm").ratios["flops"]
    # clm has 0.6 at a quarter of the cost, where its curve of budgets begins.
    assert ratio.most == 4.0 and ratio.basis == "budgets" and ratio.high is None
    assert ratio.value == pytest.approx(4.0, rel=1e-6) and ratio.low > 3
    assert "(from budgets)" in conclude_ratio(report)
    (note, _) = list_ratios(report)
    assert "each a run with its own decay of the learning rate" in note


def test_the_control_is_compared_with_in_either_direction():
    runs = make_group("mlm", SLOW) + make_group("clm", FAST)
    runs += make_group("electra", SLOWEST)
    report = judge(runs, control="mlm")
    text = conclude_ratio(report)
    assert text.startswith(f"For the same {LABEL}, clm needs 0.50 [0.")
    assert "; and electra more than 4.00 [3.22 or more] times mlm's FLOPs" in text


def test_many_names_are_counted():
    runs = make_group("clm", FAST)
    for i in range(4):
        runs += make_group(f"mlm{i}", [x - 0.02 * i for x in SLOW])
    text = conclude_ratio(judge(runs))
    assert text.startswith(f"For the same {LABEL}, 4 others need 2.00 [")
    assert "(mlm0) to 2.46 [2.25" in text and "(mlm3) times clm's FLOPs" in text


def test_a_ratio_without_a_significant_difference_is_not_in_the_first_answer():
    close = [value - 0.002 for value in FAST]
    report = judge(make_group("clm", FAST) + make_group("mlm", close))
    assert conclude_ratio(report) == ""
    (_, line) = list_ratios(report)
    assert "mlm 1.0" in line and "[0." in line


def test_a_ratio_turned_round_turns_round_again():
    ratio = CostRatio(2.0, "curves", 1.25, None, 0.25, 4.0)
    assert invert(ratio) == CostRatio(0.5, "curves", None, 0.8, 0.25, 4.0)
    assert invert(invert(ratio)) == ratio
    beyond = invert(CostRatio(4.0, "curves", 4.0, None, 0.25, 4.0, True))
    assert format_ratio(beyond) == "less than 0.25"
    open_ended = CostRatio(4.0, "curves", None, None, 0.25, 4.0, True)
    assert format_ratio(open_ended) == "more than 4.00 [no bound]"


def test_reports_show_them(tmp_path):
    runs = make_group("clm", FAST) + make_group("mlm", SLOW, {"raw_tokens": 80.0})
    report = judge(runs)
    sentence = conclude_ratio(report)
    assert sentence in list_conclusions(report)
    text = " ".join(format_table(report).split())
    assert sentence in text
    assert f"{LABEL}, times the FLOPs of clm for the same quality: mlm 2.00 [" in text
    assert "(raw tokens 1.6" in text and "operations 2.00" not in text
    assert "learning rate would decay to the end" in text
    page = write_report(report, tmp_path).read_text()
    (row,) = tabulate_ratios(report).rows
    assert row[:3] == [LABEL, "mlm", "clm"]
    assert "Cost ratios" in page and row[3] in page and row[5] in page
    tables.write_tables(report, tmp_path)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "ratios.csv").read_text())))
    assert [line["cost"] for line in lines] == list(KEYS)
    assert float(lines[0]["ratio"]) == pytest.approx(2.0)
    assert Report.from_json(report.to_json()) == report

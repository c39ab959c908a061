"""Verdicts at equal FLOPs, operations, tokens and seconds, read on learning curves."""

import csv
import dataclasses
import io
import math

import pytest
from reports import make_report, make_run, vary

from jaxpt.report import tables
from jaxpt.report.conventions import TOLERANCE, judge_conventions, read_runs
from jaxpt.report.costs import KEYS, list_changes, word_conventions, word_under
from jaxpt.report.page import write_report
from jaxpt.report.summary import summarise
from jaxpt.report.terminal import format_table, tabulate_pairs
from jaxpt.report.types import Conventions, CostLevel, Verdict

METRIC = "choice_bayes_accuracy"
SPREAD = (-0.01, 0.0, 0.01, 0.005, -0.005)
RISING, FLAT = (0.2, 0.4, 0.6, 0.8), (0.7, 0.7, 0.7, 0.7)
COSTS = {"flops": 100.0, "operations": 100.0, "raw_tokens": 100.0, "seconds": 100.0}


def spread_of(name):
    """Other seeds are good for other objectives."""
    turn = ("clm", "electra", "mlm").index(name)
    return SPREAD[turn:] + SPREAD[:turn]


def make_group(name, values, costs=(), slow=(), without=()):
    """Five seeds measured at quarters of their costs.

    Args:
      costs: those of a run that are not 100.
      slow: by seed, the factor of its seconds.
    """
    total, runs = COSTS | dict(costs), []
    for seed, more in enumerate(spread_of(name)):
        factor = dict(slow).get(seed, 1.0)
        curve = []
        for i, value in enumerate([0.0, *values]):
            point = {"step": i, METRIC: value + more if i else 0.0}
            point |= {key: cost * i / 4 for key, cost in total.items()}
            point["seconds"] *= factor
            curve.append({k: x for k, x in point.items() if k not in without})
        run = make_run(name, seed, **{METRIC: values[-1] + more})
        columns = {KEYS[key]: cost for key, cost in total.items()} | {"curve": curve}
        columns["train_seconds"] = total["seconds"] * factor
        runs.append(vary(run, **columns))
    return runs


def judge(runs, kind="flops", alpha=0.05, control="", examples=None):
    """The costs, the pairs of the metric, and the lines."""
    metrics = summarise(runs, examples, alpha=alpha, control=control)
    costs, metrics = judge_conventions(
        runs, metrics, kind, examples or {}, None, alpha, control
    )
    (entry,) = (each for each in metrics if each.metric == METRIC)
    return costs, entry.pairs, word_conventions(costs, metrics)


def test_a_lead_that_more_operations_bought_is_lost_at_equal_operations():
    runs = make_group("clm", FLAT)
    runs += make_group("mlm", RISING, {"operations": 200.0, "seconds": 115.0})
    costs, (pair,), lines = judge(runs)
    assert (pair.better, pair.outcome) == ("mlm", "ahead")
    assert pair.under == {
        "flops": "ahead",
        "operations": "behind",  # after a half, at 0.4
        "raw_tokens": "ahead",
        "seconds": "tie",  # after 87 %, at 0.703
    }
    assert costs["operations"] == CostLevel(100.0, {"clm": 1, "mlm": 0.5}, num_tested=1)
    assert costs["flops"].read == {"clm": 1, "mlm": 1}
    assert "100 operations (mlm after 50%)" in lines[0]
    assert "learning rate would decay to the end" in lines[0]
    assert "0 of 1 verdicts hold under all four" in lines[1]
    words = "mlm and clm: mlm ahead at the budget, clm ahead at equal operations, no "
    assert words in lines[1]
    assert word_under(pair) == "operations: behind; seconds: no significant difference"


def test_values_are_interpolated_in_the_logarithm_of_the_cost():
    runs = make_group("mlm", RISING)
    for limit, value in (
        (25.0, 0.2),
        (40.0, 0.2 + 0.2 * math.log2(40 / 25)),
        (90.0, 0.6 + 0.2 * math.log(90 / 75) / math.log(100 / 75)),
    ):
        reading = read_runs(runs, "flops", {"mlm": limit}, 1.0)
        of_seeds = reading.by_name["mlm"].metrics
        for seed, more in enumerate(spread_of("mlm")):
            assert of_seeds[seed][METRIC] == pytest.approx(value + more)
        assert reading.by_name["mlm"].share == pytest.approx(limit / 100)
        assert [run.metrics[METRIC] for run in reading.runs] == [
            of_seeds[seed][METRIC] for seed in range(5)
        ]
    for limit in (99.0, 100.0, 1000.0):  # the end, up to the tolerance
        reading = read_runs(runs, "flops", {"mlm": limit}, 1.0)
        assert reading.by_name["mlm"].share == 1
        assert reading.by_name["mlm"].metrics[1][METRIC] == 0.8 + spread_of("mlm")[1]
    early = read_runs(runs, "flops", {"mlm": 24.0}, 1.0)  # before any evaluation
    assert early.by_name["mlm"].metrics == {} and not early.has("mlm", METRIC)
    assert all(METRIC not in run.metrics for run in early.runs)


def test_the_budgets_own_verdicts_are_those_at_the_end():
    """Also if whole calls make the costs unequal by more than the tolerance."""
    less = {"flops": 100 * (1 - 2 * TOLERANCE)}
    runs = make_group("clm", FLAT, less) + make_group("mlm", RISING)
    costs, (pair,), _ = judge(runs)
    assert costs["flops"].read == {"clm": 1, "mlm": 1}
    assert pair.under["flops"] == pair.outcome
    costs, _, _ = judge(runs, kind="raw_tokens")
    assert costs["flops"].read["mlm"] == pytest.approx(1 - 2 * TOLERANCE)


def test_seconds_of_a_loaded_machine_change_nothing():
    quiet = make_group("clm", FLAT) + make_group("mlm", RISING)
    loaded = make_group("clm", FLAT, slow={0: 3.0, 4: 1.5})
    loaded += make_group("mlm", RISING, slow={1: 2.0, 3: 9.0})
    expected, (pair,), _ = judge(quiet)
    costs, (same,), _ = judge(loaded)
    assert costs == expected
    assert costs["seconds"].per_operation == {"clm": 1.0, "mlm": 1.0}
    # Where every seed was slowed down nothing shows it but the ratio.
    slow = quiet[:5] + make_group("mlm", RISING, slow=dict.fromkeys(range(5), 2.0))
    assert "differ up to 2.0 times (mlm has the most)" in judge(slow)[2][0]
    assert "times (mlm" not in judge(quiet)[2][0]
    assert same.under == pair.under
    # With a budget of seconds each run ended by its own clock.
    costs, _, _ = judge(loaded, kind="seconds")
    assert costs["seconds"].read == {"clm": 1, "mlm": 1}
    assert costs["seconds"].amount == pytest.approx(150.0)


def test_without_values_or_costs_nothing_is_claimed():
    more = {"operations": 200.0}
    runs = make_group("clm", FLAT) + make_group("mlm", RISING, more, without=[METRIC])
    _, (pair,), lines = judge(runs)
    assert pair.under["operations"] is None and pair.under["flops"] == "ahead"
    assert "not for any pair at equal operations" in lines[1]
    for run in runs:
        del run.facts["operations"]  # the text was not found
    costs, (pair,), lines = judge(runs)
    assert "operations" not in costs and "operations" not in pair.under
    assert "not for any pair at equal operations" in lines[1]
    assert judge(make_group("clm", FLAT))[2] == []


def test_alpha_and_control_are_those_of_the_first_verdicts():
    more = {"operations": 102.5}
    runs = make_group("clm", FLAT) + make_group("mlm", (0.5, 0.6, 0.70, 0.72), more)
    outcomes = {
        alpha: judge(runs, alpha=alpha)[1][0].under["operations"]
        for alpha in (0.3, 1e-6)
    }
    assert outcomes == {0.3: "ahead", 1e-6: "tie"}
    runs += make_group("electra", RISING, {"operations": 200.0})
    _, pairs, _ = judge(runs, control="clm")
    assert len(pairs) == 2 and all("clm" in p.names for p in pairs)
    assert all(set(p.under) == set(KEYS) for p in pairs)


def test_a_tie_may_become_equivalent_without_a_change():
    under = dict.fromkeys(KEYS, "equivalent")
    assert list_changes(Verdict("a", "b", "tie", 0.0, under=under)) == {}


def test_a_line_lists_only_some_changes():
    under = dict.fromkeys(KEYS, "ahead")
    pairs = tuple(Verdict("a", f"b{i}", "tie", 0.0, under=under) for i in range(12))
    (metric,) = summarise(make_group("mlm", FLAT))
    metric = dataclasses.replace(metric, label="cloze", pairs=pairs)
    read = {f"b{i}": 0.5 for i in range(11)}
    first, line = word_conventions({"flops": CostLevel(1.0, read)}, [metric])
    assert "b7 after 50%, 3 more)" in first and "b8" not in first
    assert (
        "a and b7: no significant difference at the budget, a ahead at equal FLOPs"
        in line
    )
    assert line.endswith("4 others also change (differences.csv)")


def test_reports_show_them(tmp_path):
    runs = make_group("clm", FLAT)
    runs += make_group("mlm", RISING, {"operations": 200.0})
    costs, metrics = judge_conventions(
        runs, summarise(runs), "flops", {}, None, 0.05, ""
    )
    lines = tuple(word_conventions(costs, metrics))
    conventions = Conventions("flops", costs, lines)
    report = make_report(runs, metrics=metrics, conventions=conventions)
    text = " ".join(format_table(report).split())
    assert "at other equal costs: 0 of 1 verdicts hold" in text
    assert "clm ahead at equal operations" in text
    (row,) = tabulate_pairs(report).rows
    assert row[4] == "operations: behind"
    page = write_report(report, tmp_path).read_text()
    assert "clm ahead at equal operations" in page and row[4] in page
    (line,) = csv.DictReader(io.StringIO(tables.format_differences(report)))
    assert line["outcome"] == line["under_flops"] == "ahead"
    assert line["under_operations"] == "behind" and line["under_seconds"] == "ahead"

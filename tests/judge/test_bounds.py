"""A bound below another's value is a verdict; any other bound is none."""

import csv
import io

import pytest
from reports import make_report, make_run

from jaxpt.judge.bounds import pair_bounds
from jaxpt.judge.verdicts import Results
from jaxpt.report import tables
from jaxpt.report.answer import rank_report
from jaxpt.report.summary import summarise
from jaxpt.report.terminal import tabulate_pairs


def test_a_name_with_both_is_not_compared_with_itself():
    values = {"dual": {0: 2.0}, "clm": {0: 3.0}}
    exact = Results("bits_per_byte", False, 0.1, values, {})
    bounds = Results("bits_per_byte_bound", False, 0.1, {"dual": {0: 2.5}}, {})
    (pair,) = pair_bounds(bounds, exact)
    assert pair.values == {"dual": {0: 2.5}, "clm": {0: 3.0}} and pair.margin == 0


def make_runs(bound, *exact):
    """Five seeds of clm and others with a value, and of a diffusion with a bound."""
    runs = []
    for seed in range(5):
        shift = 0.01 * seed
        for name, value in zip(("clm", "bilm"), exact, strict=False):
            bits = value + shift * len(name)
            runs.append(make_run(name, seed, bits_per_byte=bits))
        runs.append(make_run("diffusion", seed, bits_per_byte_bound=bound - shift))
    return runs


def judge(runs):
    (entry,) = [y for y in summarise(runs) if y.metric == "bits_per_byte"]
    return entry


def test_a_bound_below_a_value_is_ahead():
    entry = judge(make_runs(2.0, 3.0))
    assert set(entry.by_name) == {"clm"} and entry.pairs == ()
    (pair,) = entry.bounds
    output = pair.better, pair.worse, pair.outcome
    assert output == ("diffusion", "clm", "ahead")
    assert pair.difference == pytest.approx(3.06 - 1.98)
    assert entry.verdict.startswith("diffusion, at most 1.980, is ahead of clm by 1.08")
    assert entry.verdict.endswith("] or more")


@pytest.mark.parametrize("bound", [4.0, 3.08])
def test_of_any_other_bound_nothing_follows(bound):
    """Above the value, or not significantly below it: the model may be better."""
    entry = judge(make_runs(bound, 3.0))
    (pair,) = entry.bounds
    assert pair.outcome == "open" and pair.seeds_needed is None
    assert entry.verdict.endswith("may be ahead of clm or not")


def test_it_stands_beside_the_values_own_verdicts():
    runs = make_runs(2.5, 2.0, 3.0)
    entry = judge(runs)
    assert [pair.outcome for pair in entry.pairs] == ["ahead"]
    outcomes = {pair.outcome for pair in entry.bounds}
    assert len(entry.bounds) == 2 and outcomes == {"ahead", "open"}
    line = rank_report(make_report(runs)).rankings[0].sentence
    assert "clm is ahead of bilm; diffusion, at most 2.480, is" in line
    assert line.endswith("may be ahead of clm or not")
    report = make_report(runs)
    rows = list(csv.DictReader(io.StringIO(tables.format_differences(report))))
    assert sum("diffusion" in (row["better"], row["worse"]) for row in rows) == 2
    assert any("open" in row for row in tabulate_pairs(report).rows)


def test_without_a_value_or_a_bound_there_is_nothing_to_judge():
    runs = [run for run in make_runs(2.0, 3.0) if run.name == "diffusion"]
    assert [y for y in summarise(runs) if y.metric == "bits_per_byte"] == []
    runs = [run for run in make_runs(2.0, 3.0) if run.name == "clm"]
    assert judge(runs).bounds == () and judge(runs).verdict == ""


def test_of_one_seed_there_is_no_verdict():
    runs = [run for run in make_runs(2.0, 3.0) if run.seed == 0]
    (pair,) = judge(runs).bounds
    assert pair.outcome == "untested" and judge(runs).verdict == ""

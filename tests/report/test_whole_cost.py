"""The second verdict: at equal cost with teachers and tuning, read along the runs."""

import math

import pytest
from reports import make_report, make_run, vary

from jaxpt.report.conventions import judge_whole_cost, list_kinds, trace_group
from jaxpt.report.costs import list_costs
from jaxpt.report.terminal import list_other_costs

COST = 100.0


def make_group(name, values, extra=0.0, cost=COST, kind="teacher"):
    """Four seeds measured four times, at a quarter of the cost each: the values."""
    runs = []
    for seed in range(4):
        at = [value + 0.001 * seed * len(name) for value in values]
        curve = [
            {"step": step, "flops": cost * step / 4, "probe_accuracy": value}
            for step, value in enumerate([0.0, *at])
        ]
        columns = {"flops": cost, "curve": curve, f"{kind}_flops": extra}
        runs.append(vary(make_run(name, seed, probe_accuracy=at[-1]), **(columns)))
    return runs


RISING = [0.2, 0.4, 0.6, 0.8]
FLAT = [0.5, 0.5, 0.5, 0.5]


def test_a_teachers_pupil_is_read_earlier():
    """At the end the pupil is ahead; at equal total cost it is behind."""
    runs = make_group("clm", FLAT) + make_group("pupil", RISING, extra=60.0)
    result = judge_whole_cost(runs, "flops")
    assert result.amount == COST and result.extra == {"clm": 0.0, "pupil": 60.0}
    # Read at the 40 that are left, between 25 and 50: log(40 / 25) / log(2) of the way.
    assert result.read == {"clm": 1, "pupil": pytest.approx(0.4)}
    (probe,) = result.metrics
    value = 0.2075 + 0.2 * math.log2(40 / 25)
    assert probe.by_name["pupil"].mean == pytest.approx(value)
    (pair,) = probe.pairs
    assert (pair.better, pair.worse, pair.outcome) == ("clm", "pupil", "ahead")
    assert pair.difference == pytest.approx(0.5045 - value)
    first, second = result.lines
    assert first.startswith(
        "with teachers and tuning, at 100 FLOPs in total: evaluated before"
    )
    assert "pupil after 40%;" in first and "learning rate would decay" in first
    assert second.endswith("clm is ahead of pupil")
    report = make_report(runs, whole_cost=result)
    assert list_other_costs(report) == list(result.lines)
    (plain,) = (y for y in report.metrics if y.metric == "probe_accuracy")
    assert plain.pairs[0].better == "pupil"


def test_where_nobody_has_another_cost_there_is_none():
    runs = make_group("clm", FLAT) + make_group("mlm", RISING)
    assert judge_whole_cost(runs, "flops") is None
    assert judge_whole_cost(make_group("pupil", RISING, extra=9.0), "flops") is None
    assert list_other_costs(make_report(runs)) == []


def test_what_all_have_spent_alike_changes_nothing():
    runs = make_group("clm", FLAT, 250.0, kind="tuning")
    runs += make_group("mlm", RISING, 254.0, cost=103.0, kind="tuning")
    result = judge_whole_cost(runs, "flops")
    assert result.amount == 350 and set(result.read.values()) == {1}
    (line,) = result.lines
    assert line.endswith("all costs are equal, and the verdicts are the same")
    assert result.metrics is None


def test_a_teacher_may_cost_more_than_all_that_others_spent():
    runs = make_group("clm", FLAT) + make_group("pupil", RISING, extra=90.0)
    result = judge_whole_cost(runs, "flops")
    assert result.read == {"clm": 1, "pupil": 0}
    assert "no verdict on pupil: it has no measurement" in result.lines[0]
    assert result.metrics == ()


def test_a_cost_that_is_not_known_is_not_taken_for_none():
    runs = make_group("clm", FLAT) + make_group("mlm", RISING)
    runs += make_group("pupil", RISING, extra=None)
    result = judge_whole_cost(runs, "flops")
    assert result.extra["pupil"] is None and set(result.read) == {"clm", "mlm"}
    unknown = "no verdict on pupil, as the cost of its teacher is unknown"
    assert unknown in result.lines[0]


def test_between_two_that_are_read_at_the_end_the_first_verdict_holds():
    runs = make_group("clm", FLAT) + make_group("mlm", RISING)
    runs += make_group("pupil", RISING, extra=30.0)
    (probe,) = judge_whole_cost(runs, "flops").metrics
    assert len(probe.pairs) == 3
    (first,) = [y for y in make_report(runs).metrics if y.pairs]
    names = {"clm", "mlm"}
    found = [
        pair
        for entry in (first, probe)
        for pair in entry.pairs
        if {*pair.names} == names
    ]
    for key in ("better", "outcome", "difference", "seeds_error"):
        assert getattr(found[0], key) == getattr(found[1], key)


def test_what_was_not_measured_on_the_way_is_said():
    runs = make_group("clm", FLAT) + make_group("pupil", RISING, extra=60.0)
    for run in runs:
        for point in run.curve:
            del point.values["probe_accuracy"]
    result = judge_whole_cost(runs, "flops")
    assert result.metrics == () and "eval.probe_every_eval" in result.lines[-1]


def test_without_a_matched_cost_there_is_no_verdict():
    runs = make_group("clm", FLAT) + make_group("pupil", RISING, extra=60.0)
    (line,) = judge_whole_cost(runs, "steps").lines
    assert "no cost is held equal (compare.budget=steps)" in line


def make_started(name, values, path, source, **more):
    """`make_group` of runs that started from another one."""
    columns = {"source": {"run": path}, "source_flops": source} | more
    runs = make_group(name, values, extra=0.0)
    return [vary(run, **columns) for run in runs]


def test_the_source_of_a_run_is_part_of_its_whole_cost():
    runs = make_group("scratch", FLAT) + make_started("pupil", RISING, "runs/a", 60.0)
    result = judge_whole_cost(runs, "flops")
    assert result.extra == {"scratch": 0.0, "pupil": 60.0}
    assert result.read == {"scratch": 1, "pupil": pytest.approx(0.4)}
    start = "with teachers, tuning and sources, at 100 FLOPs in total: "
    assert result.lines[0].startswith(start)
    (line,) = list_costs(make_report(runs))[:1]
    assert line == (
        "started from another run (train.init_from): pupil added 100 FLOPs to 60 of "
        "its source, 160 in total; costs are equal by the added cost"
    )


def test_a_source_that_all_share_changes_no_verdict():
    runs = make_started("clm", FLAT, "runs/a", 60.0)
    runs += make_started("pupil", RISING, "runs/a", 60.0)
    assert judge_whole_cost(runs, "flops") is None
    other = runs[:4] + make_started("pupil", RISING, "runs/b", None)
    lines = judge_whole_cost(other, "flops").lines
    assert lines == (
        "with teachers, tuning and sources: no verdict on pupil, as the cost of its "
        "source is unknown",
    )
    assert (
        "pupil added 100 FLOPs to a source whose cost is unknown"
        in (list_costs(make_report(other))[0])
    )


def test_total_costs_are_read_from_the_source_on():
    """No second verdict: the first one is by the total already."""
    total = {"counts_source": True}
    runs = [vary(run, **total) for run in make_group("scratch", FLAT, cost=160.0)]
    runs += make_started("pupil", RISING, "runs/a", 60.0, **total)
    assert judge_whole_cost(runs, "flops") is None
    (of_pupil, *_) = trace_group(runs[4:], "flops", True)
    assert [cost for cost, _ in of_pupil] == [85, 110, 135, 160]
    assert "equal by the total cost" in list_costs(make_report(runs))[0]
    unknown = runs[:4] + make_started("pupil", RISING, "runs/a", None, **total)
    assert set(list_kinds(runs)) - {*list_kinds(unknown)} == {"flops"}


@pytest.mark.parametrize("path, source", [("runs/a", 60.0), ("runs/b", 0.0)])
def test_sources_that_add_nothing_are_not_named(path, source):
    """One that all share, and different ones that cost nothing, next to a teacher."""
    pupil = {"teacher_flops": 60.0}
    runs = make_started("clm", FLAT, "runs/a", source)
    runs += make_started("pupil", RISING, path, source, **pupil)
    result = judge_whole_cost(runs, "flops")
    assert result.extra == {"clm": 0.0, "pupil": 60.0}
    assert result.lines[0].startswith("with teachers and tuning, at 100 FLOPs in total")

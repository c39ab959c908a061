"""The line that a comparison logs after each run."""

import logging
from types import SimpleNamespace

import pytest

from jaxpt import logs
from jaxpt.comparison.countdown import Countdown, weigh_runs
from jaxpt.distributed import processes

RUNS = [("clm", 0), ("clm", 1), ("mlm", 0), ("mlm", 1)]


def run(times, weights=(1.0, 1.0, 2.0, 2.0), finished=()):
    """The lines after runs that took these seconds each."""
    now = iter([t for total in times for t in total])
    countdown = Countdown(RUNS, weights, clock=lambda: next(now))
    for index in range(len(times)):
        with countdown.timed(index, index in finished):
            pass
    return countdown


@pytest.mark.parametrize(
    ("seconds", "weights"), [(0.0, [15.0, 15.0, 35.0, 35.0]), (60.0, [1.0] * 4)]
)
def test_a_run_weighs_its_flops_unless_all_take_equal_time(seconds, weights):
    train = SimpleNamespace(steps=5, seconds=seconds)
    costs = {
        name: SimpleNamespace(count_costs=lambda steps, num=num: {"flops": steps * num})
        for name, num in {"clm": 3, "mlm": 7}.items()
    }
    plans = dict.fromkeys(costs, SimpleNamespace(train=train))
    prepared = SimpleNamespace(plans=plans, make_task=lambda name, seed: costs[name])
    assert weigh_runs(prepared, RUNS) == weights


def test_an_objective_s_own_pace_counts_as_soon_as_it_is_known():
    countdown = run([(0, 10), (10, 30)])
    assert countdown.estimate(2) == pytest.approx(15 * 4)  # 15 s for each unit of work
    countdown = run([(0, 10), (10, 30), (30, 130)])
    assert countdown.estimate(3) == pytest.approx(100)
    assert countdown.estimate(1) == pytest.approx(15 + 200)


def test_a_line_counts_the_runs_and_the_last_has_none(caplog):
    with caplog.at_level(logging.INFO):
        run([(0, 30), (30, 60), (60, 120), (120, 180)])
    lines = [record.message for record in caplog.records]
    assert [line.partition(" more, until ")[0] for line in lines] == [
        "1 of 4 runs finished; the other 3 take about 2:30 minutes",
        "2 of 4 runs finished; the other 2 take about 2:00 minutes",
        "3 of 4 runs finished; the last one takes about 1:00 minutes",
    ]


def test_of_several_processes_one_logs_and_all_measure(caplog, monkeypatch):
    monkeypatch.setattr(processes, "is_first", lambda: False)
    with caplog.at_level(logging.INFO):
        countdown = run([(0, 30), (30, 60)])
    assert not caplog.records
    assert countdown.estimate(2) == pytest.approx(30 * 4)


def test_a_bar_shows_the_run_and_the_time_of_all_that_are_left():
    now, shown = iter([0, 30, 30, 60]), []
    countdown = Countdown(RUNS, (1.0, 1.0, 2.0, 2.0), clock=lambda: next(now))
    for index in range(2):
        with countdown.timed(index, False):
            shown.append(logs.list_wholes())
    assert shown == ["[run 1 of 4]  ", "[run 2 of 4, 2:30 minutes left for all]  "]
    assert logs.list_wholes() == ""


def test_runs_that_were_finished_before_are_not_measured(caplog):
    with caplog.at_level(logging.INFO):
        countdown = run([(0,), (1, 21)], finished=(0,))
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("2 of 4 runs finished; ")
    assert countdown.estimate(2) == pytest.approx(80)

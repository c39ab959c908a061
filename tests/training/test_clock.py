"""Runs that end by their own clock, on a clock that the tests move."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from stops import stop_after
from tiny import make_config, prepare

from jaxpt.config.plan import make_plan
from jaxpt.config.sections import TrainSpec
from jaxpt.errors import UserError
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import MAKERS, make_optimizer, set_schedule_step
from jaxpt.learn.schedules import make_schedule
from jaxpt.runs import train_calls
from jaxpt.runs.data import make_feed
from jaxpt.runs.finished_runs import load_runs
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.program import Program
from jaxpt.runs.signals import Stopped
from jaxpt.runs.train_calls import TrainCalls
from jaxpt.training import clock as clocks
from jaxpt.training import loop, setup
from jaxpt.training.clock import find_schedule_step, is_over


@pytest.fixture
def clock(monkeypatch):
    """Seconds that only calls of training steps take: `clock.call` for 8 rows."""
    state = types.SimpleNamespace(now=0.0, call=1.0)
    train_call = TrainCalls.__call__

    def timed_call(self, train_state, stack, *args):
        state.now += state.call * stack["tokens"].shape[1] / 8
        return train_call(self, train_state, stack, *args)

    monkeypatch.setattr(TrainCalls, "__call__", timed_call)
    stopped = types.SimpleNamespace(perf_counter=lambda: state.now)
    for module in (setup, train_calls, clocks):
        monkeypatch.setattr(module, "time", stopped)
    return state


@pytest.fixture(scope="module")
def made(speech):
    """A run's task, text and program: 12 steps in calls of 2, for 5 seconds."""
    config = make_config(
        speech, "mlm", train__seconds=5.0, train__eval_every=4, model__dropout=0.1
    )
    task, tokenizer, corpora = prepare(config)
    return task, tokenizer, corpora, Program(task)


def train(made, folder):
    task, tokenizer, corpora, compiled = made
    return loop.train(task, tokenizer, corpora, folder, compiled)


@pytest.mark.slow_except("2.2-2", "30.0-1")
@pytest.mark.parametrize(
    "call, num_calls", [(1.0, 5), (0.5, 10), (1.3, 4), (2.2, 2), (1.9, 3), (30.0, 1)]
)
def test_a_run_ends_nearest_to_its_seconds(call, num_calls, clock, made, tmp_path):
    """Whatever steps were planned: within half a call, or with the first."""
    clock.call = call
    result = train(made, tmp_path)
    assert result["steps"] == 2 * num_calls
    assert result["train_seconds"] == pytest.approx(num_calls * call)
    assert result["raw_tokens"] == result["steps"] * 8 * 24
    assert result["curve"][-1]["step"] == result["steps"]
    assert result["curve"][-1]["seconds"] == result["train_seconds"]
    # Its folder says that it is finished, to itself and to a report.
    before = (tmp_path / "result.json").read_bytes()
    assert train(made, tmp_path) == result
    assert (tmp_path / "result.json").read_bytes() == before
    (results,) = load_runs([tmp_path])
    assert results.result["steps"] == 2 * num_calls


@pytest.mark.slow_cases("0.5")
@pytest.mark.parametrize("call", [0.5, 1.0])
def test_the_learning_rate_follows_the_time(call, clock, made, tmp_path):
    clock.call = call
    result = train(made, tmp_path)
    task = made[0]
    schedule = make_schedule(task.plan.optim, 12)
    results = {
        line["step"]: line["lr"] for line in read_metrics(tmp_path) if "lr" in line
    }
    for step, rate in results.items():
        end = min(round(step / 2 * call / 5 * 12), 12)
        if step == 2:  # nobody knew how long a call takes
            end = 2
        begin = round((step / 2 - 1) * call / 5 * 12)
        at = begin + (end - begin) // 2  # of its second step
        assert rate == pytest.approx(float(schedule(at)), abs=1e-9), step
    evals = [point["step"] for point in result["curve"]]
    assert evals == {0.5: [0, 6, 14, 20], 1.0: [0, 4, 8, 10]}[call]
    assert len(results) == result["steps"] / 2 and results[result["steps"]] < 1e-4


def test_a_call_takes_the_rates_of_its_place_in_the_schedule(made, clock):
    """At the last step of the schedule nothing is learnt; at its middle much."""
    task, _, corpora, compiled = made
    rows = compiled.place(make_feed(task, corpora["train"]).stack(0, 2))
    params = jax.tree.map(np.asarray, compiled.init_state(0).params)
    at_half, at_end = (
        compiled.train_call(compiled.init_state(0), rows, 0, step, step)[0].params
        for step in (6, 12)
    )
    moved = [
        optax.tree.norm(jax.tree.map(jnp.subtract, result, params))
        for result in (at_half, at_end)
    ]
    assert moved[0] > 1e-2 > 1e-6 > moved[1]


def test_a_stopped_run_goes_on_with_its_seconds(clock, made, tmp_path, monkeypatch):
    whole = train(made, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(3))
        with pytest.raises(Stopped):
            train(made, tmp_path / "parts")
    assert 0 < read_metrics(tmp_path / "parts")[-1]["seconds"] < 5
    clock.now += 1000  # nobody trained
    parts = train(made, tmp_path / "parts")
    assert parts["steps"] == whole["steps"] and parts["metrics"] == whole["metrics"]
    assert parts["train_seconds"] == whole["train_seconds"]


def test_every_optimizers_rates_go_on_from_another_step():
    """Their moments' own counts of steps stay as they are."""
    params = {"encoder": {"layer_0": {"mlp": {"kernel": jnp.ones((4, 4))}}}}
    for name in MAKERS:
        optimizer = make_optimizer(OptimSpec(name=name, warmup_steps=2), 12)
        state = optimizer.init(params)
        moved = set_schedule_step(state, 7)
        changed = [
            int(new)
            for old, new in zip(*map(jax.tree.leaves, (state, moved)), strict=True)
            if not np.array_equal(old, new)
        ]
        assert changed and set(changed) == {7}, name
        assert jax.tree.structure(state) == jax.tree.structure(moved)


def test_the_schedule_does_not_go_beyond_its_end(made):
    spec = made[0].plan.train
    assert [find_schedule_step(spec, s) for s in (0.0, 2.5, 5.0, 9.0)] == [0, 6, 12, 12]
    assert not is_over(spec, 0, 0.0) and is_over(spec, 2, 30.0)


def test_what_is_due_follows_the_time_that_a_call_took():
    clock = clocks.make_clock(TrainSpec(steps=12, steps_per_call=2, seconds=5.0), 0, 0)
    assert clock.begin_call(lambda: 0.0) == (0, 2)  # as planned
    clock.end_call(2, lambda: 2.0)  # 2 of 5 seconds are 5 of 12 steps
    assert clock.is_due(4) and clock.is_due(5) and not clock.is_due(6)


def test_the_steps_of_a_call_are_spread_over_its_part_of_the_schedule():
    """A call of few steps may be a large part of the seconds, or a small one."""
    clock = clocks.make_clock(TrainSpec(steps=12, steps_per_call=4, seconds=5.0), 4, 1)
    assert clock.begin_call(lambda: 1.0) == (2, 5)
    assert clock.list_schedule_steps(8, 4) == [2, 2, 3, 4]
    clock.end_call(4, lambda: 2.5)
    assert clock.begin_call(lambda: 2.5) == (6, 12)
    assert clock.list_schedule_steps(8, 4) == [6, 7, 9, 10]


def test_a_run_of_growing_batches_ends_nearest_to_its_seconds(clock, speech, tmp_path):
    """Its phases begin at steps of `train.steps`, here 12, and the last one goes on."""
    clock.call = 0.8
    schedule = ((1 / 3, 0.25), (2 / 3, 0.5))
    config = make_config(speech, train__seconds=4.7, train__batch_schedule=schedule)
    made = prepare(config)
    result = train((*made, Program(made[0])), tmp_path)
    # Calls of 0.2, 0.2, 0.4, 0.4 seconds, then of 0.8: 4 make 4.4 seconds, 5 make 5.2.
    assert result["steps"] == 2 * 8
    assert result["train_seconds"] == pytest.approx(4.4)
    assert result["raw_tokens"] == 24 * (4 * 2 + 4 * 4 + 8 * 8)


def test_seconds_below_zero_are_refused(speech):
    with pytest.raises(UserError, match="^train.seconds=-1.0: must be at least 0"):
        make_plan(make_config(speech, train__seconds=-1.0))

"""Converts the budget of a comparison to training steps, and fits the warm-up."""

import bisect
import copy
import dataclasses
import math
import statistics
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxpt.config.needs import Filler, fill_warmup
from jaxpt.config.plan import Plan
from jaxpt.config.sections import CompareSpec, TrainSpec
from jaxpt.distributed import processes
from jaxpt.errors import ConfigError
from jaxpt.files.folder import load_measured, write_json
from jaxpt.learn.optim_spec import SCHEDULES_READING, OptimSpec
from jaxpt.runs.data import make_feed
from jaxpt.runs.earlier_costs import find_source_costs
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.xla_flops import count_operations, count_phases
from jaxpt.text.dataset import Split
from jaxpt.text.phases import split_steps
from jaxpt.text.tokens.vocab import Vocab


def without_schedule(plan: Plan) -> Plan:
    """The plan with a constant learning rate, which fits any number of steps."""
    unread = {name: getattr(OptimSpec, name) for name in SCHEDULES_READING}
    constant = {"schedule": "constant", "warmup_steps": 0, "warmup_type": "linear"}
    return plan.change({"optim": unread | constant})


def steps_for_budget(
    name: str,
    plan: Plan,
    spec: CompareSpec,
    vocab: Vocab,
    corpora: dict[str, Split],
    workdir: Path,
    share: float = 1.0,
) -> Plan:
    """The plan with the steps that a share of its budget buys, in whole calls.

    With a budget of seconds they are an estimate, for the schedule and the evaluations;
    the run ends by its own clock (`jaxpt.training.clock`).

    Args:
      name: of the file that stores the number of steps (`write_steps`).
    """
    train = plan.train
    if spec.budget == "steps" and share == 1:
        return _resteps(plan, plan.train.steps, spec.num_evals, share)
    # The speed is measured once, so a resumed comparison has the same steps.
    steps = processes.on_first(_load_steps, workdir, name)
    source = _find_source_cost(plan, spec, vocab)
    amount = train.steps if spec.budget == "steps" else spec.amount - source
    prices = [1.0]
    if steps is None:
        prices = _list_prices(plan, spec.budget, vocab, corpora)
        steps = count_steps(train, prices, share * amount)
        steps = processes.on_first(lambda: steps)
    if steps < 1:
        call = _mean_price(train, prices, train.steps_per_call) * train.steps_per_call
        least = f"{source + call / share:.3g}"
        setting = f"compare.amount={spec.amount}"
        if share < 1:
            setting = f"compare.tune_share={share} of {setting}"
        if spec.budget == "steps":
            setting = f"compare.tune_share={share} of train.steps={amount}"
        raise ConfigError(
            f"{setting}: buys {name} fewer than the {train.steps_per_call} steps of "
            f"one call; raise it to {least} or more"
        )
    seconds = amount if spec.budget == "seconds" else train.seconds
    plan = plan.change({"train": {"seconds": float(share * seconds)}})
    return _resteps(plan, steps, spec.num_evals, share)


def _find_source_cost(plan: Plan, spec: CompareSpec, vocab: Vocab) -> float:
    """What the budget spent before the run started (`compare.source_cost`)."""
    if spec.source_cost == "added" or not plan.train.init_from:
        return 0.0

    def count(source: Plan, num_steps: int) -> float:
        return count_operations(make_task(source, vocab), num_steps)

    is_counted = spec.budget == "operations"
    costs = find_source_costs(plan, count if is_counted else None)
    name = "train_seconds" if spec.budget == "seconds" else spec.budget
    cost = costs[name]
    if cost is None:
        raise ConfigError(
            f"compare.source_cost=total: must be added, because the cost of "
            f"train.init_from={plan.train.init_from} is not known; it is an imported "
            f"model or not finished"
        )
    return cost


def _list_prices(
    plan: Plan, budget: str, vocab: Vocab, corpora: dict[str, Split]
) -> list[float]:
    """The cost of a step in each phase of training."""
    if budget == "steps":
        return [1.0] * len(plan.train.phases)
    task = make_task(without_schedule(plan), vocab)
    phases = task.phases
    if budget == "seconds":
        return [_seconds_per_step(phase, corpora) for phase in phases]
    if budget == "operations":
        return count_phases(task)
    return [phase.count_costs(1)[budget] for phase in phases]


def count_steps(spec: TrainSpec, prices: Sequence[float], amount: float) -> int:
    """The most steps, in whole calls, that cost at most this amount.

    Args:
      prices: of a step in each phase.

    >>> half = TrainSpec(batch_schedule=((0.5, 0.25),), steps_per_call=1)
    >>> [count_steps(half, (1.0, 4.0), amount) for amount in (24.9, 25.0, 25.9, 26.0)]
    [9, 10, 10, 11]
    """
    size = spec.steps_per_call
    most = int(amount / min(prices)) // size

    def is_too_much(calls: int) -> bool:
        num_steps = calls * size
        return num_steps > int(amount / _mean_price(spec, prices, num_steps))

    return size * bisect.bisect_left(range(1, most + 1), True, key=is_too_much)


def _mean_price(spec: TrainSpec, prices: Sequence[float], num_steps: int) -> float:
    """The mean cost of a step in a run of this length."""
    phases = dataclasses.replace(spec, steps=num_steps).phases
    numbers = split_steps(phases, num_steps)
    return sum(p * (n / num_steps) for p, n in zip(prices, numbers, strict=True))


def fit_warmup(plan: Plan, explicit_names: Collection[str]) -> Plan:
    """The plan with a warm-up shorter than its steps, unless the user has set one."""
    filler = Filler(copy.deepcopy(plan.config), explicit_names)
    fill_warmup(filler)
    if not filler.changes:
        return plan
    changes = {name.split(".")[1]: value for name, value in filler.changes.items()}
    return plan.change({"optim": changes}).add_filled(filler.describe())


def write_steps(workdir: Path, name: str, plan: Plan) -> None:
    """Stores the number of steps, so that the speed is measured once."""
    write_json(_steps_path(workdir, name), {"steps": plan.train.steps})


def _steps_path(workdir: Path, name: str) -> Path:
    return workdir / "runs" / f"{name}-steps.json"


def _load_steps(workdir: Path, name: str) -> int | None:
    path = _steps_path(workdir, name)
    if not path.exists():
        return None
    return load_measured(path, {"steps": int})["steps"]


def _resteps(plan: Plan, steps: int, num_evals: int, share: float) -> Plan:
    train: dict[str, Any] = {"steps": steps}
    changes: dict[str, dict[str, Any]] = {"train": train}
    per_call = plan.train.steps_per_call
    if num_evals:
        train["eval_every"] = per_call * math.ceil(steps / per_call / num_evals)
        if share == 1:  # a trial has no learning curve
            changes["eval"] = {"probe_every_eval": True}
    return plan.change(changes)


def _seconds_per_step(
    task: Task, corpora: dict[str, Split], num_calls: int = 5
) -> float:
    """The median time of a step, measured on a temporary state after a warm-up call."""
    program, train_spec = processes.on_all(Program, task), task.plan.train
    feed = make_feed(task, corpora["train"], program.choose_rows)
    state = program.run_form(program.init_state(train_spec.seed))
    stack = program.place(feed.stack(0, train_spec.steps_per_call))
    state, metrics = program.train_call(state, stack, train_spec.seed)
    jax.block_until_ready(metrics)
    seconds = []
    for _ in range(num_calls):
        start = time.perf_counter()
        state, metrics = program.train_call(state, stack, train_spec.seed)
        jax.block_until_ready(metrics)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) / train_spec.steps_per_call

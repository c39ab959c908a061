"""Several budgets in one comparison (`compare.amounts`): branches of shared trunks.

    <folder>/               the comparison at the largest amount, whose runs are trunks
    <folder>/budgets/1e12/  that at a smaller one: plans, runs, report

The smaller ones have the plans of the largest with fewer steps. Each is a comparison
like any other, with its share of `compare.alpha`: verdicts and intervals are over runs.
Runs of one seed at several budgets share steps, so no verdict is over budgets; cost
ratios (`jaxpt.report.ratios`) read the runs of a seed together.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from jaxpt.config.plan import Plan, make_compare_spec
from jaxpt.config.sections import CompareSpec
from jaxpt.errors import ConfigError
from jaxpt.learn.schedules import count_decay
from jaxpt.learn.state import TrainState
from jaxpt.report.budgets import make_level
from jaxpt.report.types import Budgets, Diverged, Report, RunEntry
from jaxpt.rng import split_step, stream
from jaxpt.runs.task import Task
from jaxpt.runs.xla_flops import count_operations, shape_rows
from jaxpt.training.branches import find_branch_step, load_shared

FOLDER = "budgets"
COSTS = ("flops", "operations", "raw_tokens", "train_seconds")


def folder_of(workdir: Path, amount: float) -> Path:
    """The folder of the comparison at one of the smaller amounts.

    >>> folder_of(Path("runs"), 2e12).as_posix(), folder_of(Path("a"), 1234567.0).name
    ('runs/budgets/2e12', '1234567')
    """
    short = f"{amount:g}"
    text = short if float(short) == amount else f"{amount:.17g}"
    return workdir / FOLDER / text.replace("+", "")


def spec_at(spec: CompareSpec, amount: float) -> CompareSpec:
    """The comparison at one of its amounts, with its share of alpha."""
    alpha = spec.alpha / len(spec.amounts)
    return dataclasses.replace(spec, amount=amount, amounts=(), alpha=alpha)


def config_at(config: Mapping[str, Any], amount: float) -> dict[str, Any]:
    """The config of the comparison at one of its amounts alone."""
    spec = spec_at(make_compare_spec(config), amount)
    one = {"amount": spec.amount, "amounts": (), "alpha": spec.alpha}
    return {**config, "compare": {**config["compare"], **one}}


def check_plans(amounts: tuple[float, ...], plans: Mapping[str, Plan]) -> None:
    """Raises UserError for settings with which runs cannot share a trunk."""
    place = f"compare.amounts={amounts}"
    for name, plan in plans.items():
        schedule = plan.optim.schedule
        if schedule != "wsd":
            raise ConfigError(
                f"optim.schedule={schedule}: must be wsd with {place}, whose runs "
                f"share the steps before their decay (for {name})"
            )
        for field in ("batch_schedule", "length_schedule", "checkpoint_words"):
            if value := getattr(plan.train, field):
                raise ConfigError(
                    f"train.{field}={value}: must be () with {place}, as it depends on "
                    f"the length of a run (for {name})"
                )
        if stages := plan.text.mixture_stages:
            raise ConfigError(
                f"data.mixture_stages={stages}: must be () with {place}, as a stage "
                f"begins at a fraction of each run (for {name})"
            )


def check_progress(amounts: tuple[float, ...], task: Task) -> None:
    """Raises UserError if an objective's training depends on the length of the run."""
    if reads_progress(task):
        raise ConfigError(
            f"compare.amounts={amounts}: {task.plan.objective_name} must not "
            f"change with the progress of a run, as runs of all lengths share a trunk; "
            f"make its schedule constant, or compare each amount alone"
        )


def reads_progress(task: Task) -> bool:
    """Whether a training step depends on the fraction of the run that is done.

    Many objectives only read whether there is one, to recognise training.
    """
    if "progress" not in task.spec.READS:
        return False
    stacked = shape_rows(task).items()
    rows = {key: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for key, x in stacked}
    parts: Any = {"model": task.model, "vocab": task.vocab, "spec": task.spec}

    def step(progress: jax.Array, state: TrainState, rows: Any) -> Any:
        rows = rows | {"progress": jnp.full(rows["index"].shape, progress)}
        rngs = split_step(stream(0, state.step, "train"))
        update = task.make_update()
        return task.objective.train_step(state, rows, rngs, update=update, **parts)

    def init() -> TrainState:
        return task.make_state(task.model.init_params(stream(0, 0, "init")))

    progress = jax.ShapeDtypeStruct((), jnp.float32)
    traced = jax.jit(step).trace(progress, jax.eval_shape(init), rows).jaxpr
    _, is_used = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    return is_used[0]


def check_branch(plan: Plan) -> None:
    """Raises UserError unless a shorter run can branch from a longer one."""
    optim, steps = plan.optim, plan.train.steps
    num_decay = count_decay(optim, steps)
    has_stable = steps - num_decay > optim.warmup_steps
    if num_decay < 1 or not has_stable or not find_branch_step(plan):
        raise ConfigError(
            f"optim.decay_fraction={optim.decay_fraction}: decays in {num_decay} of "
            f"{steps} steps; must give at least 1, and leave stable steps after "
            f"optim.warmup_steps={optim.warmup_steps} and a call of "
            f"train.steps_per_call={plan.train.steps_per_call} steps before the decay"
        )


def word_share(spec: CompareSpec, plans: Mapping[str, Plan]) -> str:
    """The cost of trunks and branches compared with separate runs, before planning.

    Every budget counts as spent exactly; a run is longer by less than a call.
    """
    *small, largest = spec.amounts
    shares = [
        (largest + plan.optim.decay_fraction * sum(small)) / sum(spec.amounts)
        for plan in plans.values()
    ]
    amounts = ", ".join(f"{amount:g}" for amount in spec.amounts)
    return (
        f"budgets: {amounts} {spec.budget}, branches of one trunk for each run: "
        f"{sum(shares) / len(shares):.0%} of the cost of separate runs"
    )


def measure_spent(
    reports: Iterable[tuple[Report, Path]], tasks: Mapping[str, Task]
) -> tuple[dict[str, float], dict[str, float]]:
    """By kind of cost, what all runs have spent, and what separate runs would have.

    Args:
      reports: of each budget, with its folder.
      tasks: by name.
    """
    spent: dict[str, list[float]] = {key: [] for key in COSTS}
    separate: dict[str, list[float]] = {key: [] for key in COSTS}
    for report, folder in reports:
        entries: list[RunEntry | Diverged] = [*report.runs, *report.diverged]
        for run in entries:
            shared = load_shared(folder / run.workdir)
            task, step = tasks[run.name], int(shared["step"])
            before = task.count_costs(step) | {"train_seconds": shared["seconds"]}
            before["operations"] = count_operations(task, step) if step else 0.0
            for key in COSTS:
                cost = run.facts.get(key)
                if cost is not None:
                    separate[key].append(cost)
                    spent[key].append(cost - before[key])
    add = {key: math.fsum(values) for key, values in spent.items() if values}
    return add, {key: math.fsum(separate[key]) for key in add}


def make_budgets(
    reports: list[tuple[Report, Path]], tasks: Mapping[str, Task]
) -> Budgets:
    """The table over budgets, from the report of each, the largest last."""
    *_, (_, workdir) = reports
    levels = []
    for report, folder in reports:
        page = (folder / "report.html").relative_to(workdir).as_posix()
        levels.append(make_level(report, page))
    return Budgets(tuple(levels), *measure_spent(reports, tasks))

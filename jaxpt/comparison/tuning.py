"""Hyperparameter tuning before a comparison, with the same trials for every objective.

The learning rate can matter more than the objective. So each objective gets the same
trials: the same values of the same settings, the same fraction of the budget, a seed
that no compared run has, and a held-out part of the training text for the selection.
With `compare.tune_until=interior` a search whose best trial is at an edge goes further,
by the same rule for every objective (`comparison.extending`).

A trial must not win because its task is easier. The loss is defined by the objective's
`Spec`, except for its LOSS_FREE settings. Trials whose specs differ in other settings
are selected by a shared metric only. Rows and measurements are the same for all
objectives and are not tuned.
"""

import dataclasses
import logging
import math
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from jaxpt.comparison.extending import (
    Trial,
    extend,
    find_best,
    find_beyond,
    make_scales,
)
from jaxpt.config.plan import Plan
from jaxpt.config.sections import CompareSpec
from jaxpt.config.settings import (
    default_section,
    find_sections,
    find_types,
    list_parts,
    override,
)
from jaxpt.config.trials import has_range
from jaxpt.distributed import processes
from jaxpt.errors import ConfigError, DeviceError, DivergedError, UserError
from jaxpt.files.folder import hold
from jaxpt.objectives import find_section
from jaxpt.objectives.objective import ObjectiveSpec
from jaxpt.report.metrics import METRICS
from jaxpt.runs.task import make_task
from jaxpt.runs.xla_flops import count_operations
from jaxpt.text.dataset import Split, hold_out
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.training.loop import train

# Settings and sections that are the same for all trials and objectives, and why.
BUDGET = "the budget and the seeds decide it"
ROWS = "all objectives read the same rows of one text"
FIXED = {
    "train.steps": BUDGET,
    "train.seconds": BUDGET,
    "train.seed": BUDGET,
    "data": ROWS,
    "tokenizer": ROWS,
    "eval": "all objectives are measured on the same examples",
    "compare": "it is not a setting of a run",
}
_log = logging.getLogger(__name__)
COSTS = ("flops", "operations", "raw_tokens", "train_seconds")


def check_trials(name: str, plan: Plan, spec: CompareSpec) -> None:
    """Raises UserError for invalid trials, before anything is trained."""
    if spec.tune_by not in METRICS:
        raise ConfigError(
            f"compare.tune_by={spec.tune_by}: must be one of {', '.join(METRICS)}"
        )
    text, place = spec.find_tune(name)
    trials = spec.list_trials(name)
    for setting in dict.fromkeys(key for trial in trials for key in trial):
        reason = FIXED.get(setting) or FIXED.get(setting.partition(".")[0])
        if reason:
            raise ConfigError(f"{place}={text}: {setting} is not tuned: {reason}")
    changed = [change(plan, trial) for trial in trials]
    is_shared = METRICS[spec.tune_by].is_common
    losses = [_describe_loss(each) for each in changed]
    if not is_shared and any(loss != losses[0] for loss in losses):
        named = [key for key in trials[0] if _is_section(plan, key)] or trials[0]
        shared = ", ".join(key for key, each in METRICS.items() if each.is_common)
        raise ConfigError(
            f"compare.tune_by={spec.tune_by}: must be one of {shared} to tune "
            f"{', '.join(named)}, which {spec.tune_by} depends on: otherwise the "
            f"easiest task wins"
        )


def _describe_loss(plan: Plan) -> dict[str, Any]:
    """The settings of an objective that define its loss."""
    spec = plan.spec
    return {
        field.name: getattr(spec, field.name)
        for field in dataclasses.fields(spec)
        if field.name not in spec.LOSS_FREE
    }


def _is_section(plan: Plan, setting: str) -> bool:
    """Whether a setting, by its full name, is one of the plan's objective."""
    parts = list_parts(plan.config, plan.objective_name)
    return setting.partition(".")[0] in (find_section(plan.objective_name), *parts)


def check_choice(metrics: Collection[str], spec: CompareSpec) -> None:
    """Raises UserError if `compare.tune_by` is not measured for these runs."""
    # Trials have no held-out split: a metric of masked tokens is that of validation.
    if spec.tune_by.removeprefix("valid_") not in metrics:
        known = ", ".join(name for name in METRICS if name in metrics)
        raise ConfigError(
            f"compare.tune_by={spec.tune_by}: must be one of {known}, the metrics of "
            f"this text and objective"
        )


def change(plan: Plan, trial: dict[str, Any]) -> Plan:
    """The plan with the settings of a trial, by their full names.

    Settings of other objectives are checked and skipped: this objective does not read
    them.
    """
    changes: dict[str, dict[str, Any]] = {}
    for full_name, value in trial.items():
        section, field = full_name.split(".")
        if specs := _find_other(plan, full_name):
            dummy_config = {section: default_section(*specs)}
            override(dummy_config, {section: {field: value}}, "compare.tune")
        else:
            changes.setdefault(section, {})[field] = value
    return plan.change(changes, "compare.tune")


def _find_other(plan: Plan, setting: str) -> tuple:
    """The dataclass of a setting of another objective; () for any other setting."""
    specs = find_sections(plan.config).get(setting.partition(".")[0], ())
    is_objective = any(issubclass(spec, ObjectiveSpec) for spec in specs)
    return specs if is_objective and not _is_section(plan, setting) else ()


def list_own_trials(name: str, plan: Plan, spec: CompareSpec) -> list[dict[str, Any]]:
    """The distinct trials of a name, each with the settings that its objective reads.

    Of several trials with equal plans, the first is kept.
    """
    trials: list[dict[str, Any]] = []
    plans: list[Plan] = []
    for trial in spec.list_trials(name):
        changed = dataclasses.replace(change(plan, trial), config={}, filled="")
        if changed not in plans:
            plans.append(changed)
            trials.append({k: v for k, v in trial.items() if not _find_other(plan, k)})
    return trials


class TrainingText(NamedTuple):
    """The training text: its vocabulary, its tokenizer, and the splits by name."""

    vocab: Vocab
    tokenizer: Tokenizer
    corpora: dict[str, Split]


def tune(
    name: str,
    plan: Plan,
    spec: CompareSpec,
    fit_steps: Callable[[Plan, int], Plan],
    text: TrainingText,
    folder: Path,
) -> tuple[Plan, dict]:
    """The plan with the settings of its best trial, and a record of all trials.

    Trials with equal plans run once; if all plans are equal, none runs. If all trials
    diverge, the first is chosen: the other objectives are still compared, and the
    report warns.

    Args:
      fit_steps: (plan, index) -> the plan of a trial with the steps that its share of
        the budget buys.
      folder: of the trials' runs; finished ones are not repeated.

    Returns:
      The plan, and "by", "until", "chosen" (settings by name), "at_edge" (those whose
      value is the least or the greatest tried), "at_limit" (those of them that have no
      further value there), "trials" (each with its "settings" and "value", None if it
      diverged, and "extends", the setting that a trial beyond an edge extends),
      "drawn" (the distribution and the seed; "" for a grid), and the cost of all
      trials: "flops", "operations", "raw_tokens", "train_seconds".
    """
    rest, held_out = hold_out(text.corpora["train"], spec.tune_fraction)
    text = text._replace(corpora={"train": rest, "valid": held_out})
    settings = list_own_trials(name, plan, spec)
    tuned, place = spec.find_tune(name)
    is_drawn = has_range(tuned, place)
    record: dict[str, Any] = {
        "by": spec.tune_by,
        "until": spec.tune_until,
        "drawn": f"{tuned}, seed {spec.tune_seed}" if is_drawn else "",
    }
    if len(settings) == 1:  # nothing to choose from
        chosen = {"chosen": settings[0], "at_edge": [], "at_limit": [], "trials": []}
        return change(plan, settings[0]), record | chosen | dict.fromkeys(COSTS, 0.0)
    search = _Search(name, plan, spec, fit_steps, text, folder)
    search.run_all(settings)
    best = find_best(search.trials, METRICS[spec.tune_by].higher_is_better)
    chosen = best["settings"] if best else settings[0]
    beyond, at_limit = search.find_beyond(chosen) if best else ({}, [])
    record |= {"chosen": chosen, "at_edge": list(beyond), "at_limit": at_limit}
    record["trials"] = search.trials
    for key in COSTS:
        record[key] = math.fsum(trial[key] for trial in search.trials)
    return change(plan, chosen), record


class _Search:
    """The trials of an objective; arguments as of `tune`."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        spec: CompareSpec,
        fit_steps: Callable[[Plan, int], Plan],
        text: TrainingText,
        folder: Path,
    ) -> None:
        self.trials: list[Trial] = []
        self._name, self._plan, self._spec = name, plan, spec
        self._fit_steps, self._text, self._folder = fit_steps, text, folder
        types = find_types(plan.config)
        self._scales = make_scales(*spec.find_tune(name), types)
        self._refused: list[dict[str, Any]] = []

    def run_all(self, settings: list[dict[str, Any]]) -> None:
        """Runs the trials of these settings, and those beyond edges (`tune_until`)."""
        spec, num = self._spec, len(settings)
        with ExitStack() as locks:
            for i in range(num):
                locks.enter_context(hold(self._folder / f"{i}"))
            for i, trial in enumerate(settings, 1):
                candidate = self._fit(trial, i)
                result = self._train(candidate, i, f"trial {i} of {num}")
                self.trials.append({"settings": trial} | result)

            def run_beyond(trial: dict[str, Any]) -> dict | None:
                index = len(self.trials) + len(self._refused) + 1
                try:
                    candidate = self._fit(trial, index)
                    locks.enter_context(hold(self._folder / f"{index - 1}"))
                    return self._train(candidate, index, f"extension {index - num}")
                except (ConfigError, DeviceError) as error:
                    # A size whose steps the share does not buy, or without memory.
                    if processes.is_first():
                        _log.warning(f"{self._name}: not extended to {trial}: {error}")
                    self._refused.append(trial)
                    return None

            if spec.tune_until:
                is_better = METRICS[spec.tune_by].higher_is_better
                limits = spec.tune_extensions, is_better, self._scales
                extend(self.trials, *limits, self._allows, run_beyond)

    def find_beyond(self, best: dict[str, Any]) -> tuple[dict[str, dict], list[str]]:
        """As `extending.find_beyond`, of the trials that have run."""
        tried = [trial["settings"] for trial in self.trials]
        return find_beyond(best, tried, self._scales, self._allows)

    def _allows(self, settings: dict[str, Any]) -> bool:
        try:
            change(self._plan, settings)
        except UserError:
            return False
        return settings not in self._refused

    def _fit(self, settings: dict[str, Any], index: int) -> Plan:
        candidate = self._fit_steps(change(self._plan, settings), index)
        return candidate.change({"train": {"seed": self._spec.tune_seed}})

    def _train(self, candidate: Plan, index: int, label: str) -> dict:
        folder = self._folder / f"{index - 1}"
        label = f"{self._name} {label}"
        return _run_trial(candidate, self._spec, self._text, folder, label)


def _run_trial(
    plan: Plan, spec: CompareSpec, text: TrainingText, folder: Path, label: str
) -> dict:
    """The result of a trial; a diverged one costs its share of the budget."""
    task, steps = make_task(plan, text.vocab), plan.train.steps
    only_valid = spec.tune_by.startswith("valid_")
    try:
        data = text.tokenizer, text.corpora
        run = train(task, *data, folder, label=label, only_valid=only_valid)
    except DivergedError:
        costs = {"train_seconds": plan.train.seconds} | task.count_costs(steps)
        costs["operations"] = count_operations(task, steps)
        return {"value": None, "steps": steps} | {key: costs[key] for key in COSTS}
    value = find_value(run["metrics"], spec.tune_by)
    is_finite = value is not None and math.isfinite(value)
    result = {"value": value if is_finite else None, "steps": run["steps"]}
    operations = count_operations(task, run["steps"])
    costs = run | {"operations": operations}
    return result | {key: costs[key] for key in COSTS}


def find_value(metrics: dict[str, float], by: str) -> float | None:
    """The value that a trial is chosen by; None if it was not measured.

    The validation accuracy of an objective that only predicts masked tokens is its
    masked accuracy.

    >>> find_value({"valid_loss": 2.0, "valid_masked_accuracy": 0.5}, "valid_accuracy")
    0.5
    """
    if by == "valid_accuracy" and by not in metrics:
        by = "valid_masked_accuracy"
    return metrics.get(by)

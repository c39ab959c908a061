"""Equal tuning: every objective tries the same settings before it is compared.

Which learning rate suits it best can decide more than which objective it is. So each
gets the same trials: the same values of the same settings, the same fraction of the
budget for each, a seed that no compared run has, and text to be chosen by that no
verdict is read from.
"""

import math
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from jaxpt.config.plan import Plan
from jaxpt.config.sections import CompareSpec
from jaxpt.errors import DivergedError, UserError
from jaxpt.folder import hold
from jaxpt.report.summary import YARDSTICKS
from jaxpt.run.loop import train
from jaxpt.run.task import make_task
from jaxpt.text.dataset import Split, hold_out
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab

COSTS = ("flops", "raw_tokens", "train_seconds")


def check_trials(plan: Plan, spec: CompareSpec) -> None:
    """Raises UserError for trials that cannot be, before anything is trained."""
    if spec.tune_by not in YARDSTICKS:
        raise UserError(
            f"compare.tune_by={spec.tune_by}: must be one of {', '.join(YARDSTICKS)}"
        )
    for trial in spec.list_trials():
        fixed = {"train.steps", "train.seconds", "train.seed"} & trial.keys()
        if fixed or change(plan, trial).text != plan.text:
            name = min(fixed or trial)
            why = "the budget and the seeds decide it" if fixed else "all read one text"
            raise UserError(f"compare.tune={spec.tune}: {name} is not tuned: {why}")


def check_choice(metrics: Collection[str], spec: CompareSpec) -> None:
    """Raises UserError where nothing measures a run by what is to choose it."""
    if spec.tune_by not in metrics:
        known = ", ".join(name for name in YARDSTICKS if name in metrics)
        raise UserError(
            f"compare.tune_by={spec.tune_by}: must be one of {known}, which are what "
            f"this text and objective can be measured by"
        )


def change(plan: Plan, trial: dict[str, Any]) -> Plan:
    """The plan with the settings of a trial, by their full names.

    Raises:
      UserError: a setting that there is not, or a value that it cannot have.
    """
    changes: dict[str, dict[str, Any]] = {}
    for full_name, value in trial.items():
        section, field = full_name.split(".")
        changes.setdefault(section, {})[field] = value
    return plan.change(changes, "compare.tune")


class Text(NamedTuple):
    """What a run is trained on: ids, their tokenizer, the splits by name."""

    vocab: Vocab
    tokenizer: Tokenizer
    corpora: dict[str, Split]


def tune(
    name: str,
    plan: Plan,
    spec: CompareSpec,
    fit_steps: Callable[[Plan, int], Plan],
    text: Text,
    folder: Path,
) -> tuple[Plan, dict]:
    """The plan with the settings of its best trial, and a record of all of them.

    Args:
      fit_steps: (plan, index) -> the plan of a trial with the steps that its share of
        the budget buys.
      folder: of the trials' runs; those that are finished are not repeated.

    Returns:
      The plan, and "by", "chosen" (settings by their names), "at_edge" (those of them
      whose value is the least or the greatest that was tried), "trials" (each with its
      "settings" and "value", None where it diverged), and what all trials cost:
      "flops", "raw_tokens", "train_seconds".

    Raises:
      UserError: no trial can be chosen: each diverged, or none has the metric.
    """
    rest, held = hold_out(text.corpora["train"], spec.tune_fraction)
    text = text._replace(corpora={"train": rest, "valid": held})
    trials, settings = [], spec.list_trials()
    with ExitStack() as locks:
        folders = [folder / f"{i}" for i in range(len(settings))]
        for path in folders:
            locks.enter_context(hold(path))
        for i, (trial, path) in enumerate(zip(settings, folders, strict=True), 1):
            tried = fit_steps(change(plan, trial), i)
            tried = tried.change({"train": {"seed": spec.tune_seed}})
            label = f"{name} trial {i} of {len(settings)}"
            found = _try(tried, spec, text, path, label)
            trials.append({"settings": trial} | found)
    values = [trial["value"] for trial in trials]
    known = [value for value in values if value is not None]
    if not known:
        raise UserError(
            f"compare.tune={spec.tune}: no trial of {name} has a finite "
            f"compare.tune_by={spec.tune_by}; try other values"
        )
    best = max(known) if YARDSTICKS[spec.tune_by].higher_is_better else min(known)
    chosen = settings[values.index(best)]
    record: dict[str, Any] = {
        "by": spec.tune_by,
        "chosen": chosen,
        "at_edge": [key for key in chosen if _is_at_edge(key, chosen[key], settings)],
        "trials": trials,
    }
    for key in COSTS:
        record[key] = math.fsum(trial[key] for trial in trials)
    return change(plan, chosen), record


def _try(plan: Plan, spec: CompareSpec, text: Text, folder: Path, label: str) -> dict:
    """What a trial came to; one that diverged has cost as much as it was given."""
    task, steps = make_task(plan, text.vocab), plan.train.steps
    only_valid = spec.tune_by.startswith("valid_")
    try:
        run = train(
            task,
            text.tokenizer,
            text.corpora,
            folder,
            label=label,
            only_valid=only_valid,
        )
    except DivergedError:
        told = {"value": None, "steps": steps, "train_seconds": plan.train.seconds}
        return told | {
            key: value for key, value in task.count_costs(steps).items() if key in COSTS
        }
    value = run["metrics"].get(spec.tune_by)
    is_finite = value is not None and math.isfinite(value)
    found = {"value": value if is_finite else None, "steps": run["steps"]}
    return found | {key: run[key] for key in COSTS}


def _is_at_edge(name: str, value: Any, settings: list[dict]) -> bool:
    """Whether the best might lie beyond what was tried; of numbers alone."""
    tried = {trial[name] for trial in settings}
    if not all(type(number) in (int, float) for number in tried):
        return False
    return value in (min(tried), max(tried))

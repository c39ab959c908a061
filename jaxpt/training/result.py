"""A run's entry in a report (`result.json`), and its record of a divergence."""

import numbers
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxpt.files.folder import load_measured, write_json
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import DIVERGED, write_examples
from jaxpt.text.feed import Ranges
from jaxpt.training.machine import describe_machine, describe_versions
from jaxpt.training.measure import FROM_FEATURES, FROM_TEXT, Measured
from jaxpt.training.metrics_log import read_metrics

RESULT = "result.json"
# The metrics of an evaluation that learning curves show.
OWN = ("valid_loss", "valid_accuracy", "valid_masked_accuracy")
CURVES = (*OWN, *FROM_FEATURES, *FROM_TEXT)
_POINT = {"step": int, "raw_tokens?": float, "flops?": float, "seconds?": float}
_PROBE = {
    "layer": int,
    "num_layers": int,
    "pooling": str,
    "is_chosen": bool,
    "test_passages": int,
    "poolings": [str],
    "accuracies": ([[numbers.Real]], None),
}
# The schema of result.json; metrics may be NaN.
SCHEMA = {
    **dict.fromkeys(("objective", "device?", "workdir?"), str),
    **dict.fromkeys(("seed", "params", "steps", "row_length"), int),
    **dict.fromkeys(("raw_tokens", "flops", "train_seconds"), float),
    **dict.fromkeys(("model_tokens?", "first_step_seconds?"), float),
    **dict.fromkeys(("steps_per_second?", "ema_decay?"), float),
    "batch_size?": int,
    "machine?": {"cpu": str, "instructions": str, "cores": int},
    "versions?": {str: str},
    "metrics": {str: numbers.Real},
    "probe?": {str: _PROBE},
    "curve": [_POINT | {str: numbers.Real}],
}


class Cost(NamedTuple):
    """What a run took, and what it left out.

    Attributes:
      steps: of training.
      seconds: of training.
      first_step_seconds: from the start of the run to the end of its first call.
      skipped_updates: the number of steps that did not change the parameters.
      skipped_batches: ranges of batches that were not read.
    """

    steps: int
    seconds: float
    first_step_seconds: float
    skipped_updates: int = 0
    skipped_batches: Ranges = ()

    @property
    def left_out(self) -> dict:
        """Entries of the result on what was left out, if anything was."""
        updates, batches = self.skipped_updates, self.skipped_batches
        return ({"skipped_updates": updates} if updates else {}) | (
            {"skipped_batches": [list(pair) for pair in batches]} if batches else {}
        )


def load_result(workdir: Path) -> dict | None:
    """A finished run's entry in a report; None while it is not finished."""
    path = workdir / RESULT
    return load_measured(path, SCHEMA) if path.exists() else None


def write_result(
    workdir: Path,
    task: Task,
    program: Program,
    params: Any,
    cost: Cost,
    measured: Measured,
) -> dict:
    """Writes a run's entry in a report and its values by example; returns the entry.

    Args:
      task: the run's; that of the program may have another seed.
    """
    columns = ("step", "raw_tokens", "flops", "seconds", *CURVES)
    curve = [
        {k: line[k] for k in columns if k in line}
        for line in read_metrics(workdir)
        if "valid_loss" in line
    ]
    decay = task.plan.optim.ema_decay
    result = {
        "objective": task.plan.objective_name,
        "seed": task.plan.train.seed,
        "params": sum(x.size for x in jax.tree.leaves(params)),
        "steps": cost.steps,
        "row_length": task.spec.row_length,
        "batch_size": task.plan.train.batch_size,
        **({"ema_decay": decay} if task.has_ema else {}),
        **task.count_costs(cost.steps),
        "train_seconds": cost.seconds,
        "first_step_seconds": cost.first_step_seconds,
        **cost.left_out,
        "steps_per_second": cost.steps / max(cost.seconds, 1e-9),
        "device": f"{len(program.devices)} x {jax.devices()[0].device_kind}",
        "machine": describe_machine(),
        "versions": describe_versions(),
        "metrics": measured.metrics,
        "workdir": str(workdir),
        "curve": curve,
    }
    if measured.probes:
        result["probe"] = measured.probes
    # Written last: a run with a result is finished.
    write_examples(workdir, measured.examples)
    write_json(workdir / RESULT, result)
    return result


def write_divergence(workdir: Path, task: Task, reason: str, cost: Cost) -> None:
    """Records that a run has diverged (`workdir.load_divergence` reads it).

    Args:
      cost: until the run diverged.
    """
    record = {
        "objective": task.plan.objective_name,
        "seed": task.plan.train.seed,
        "diverged_at": cost.steps,
        "reason": reason,
        **task.count_costs(cost.steps),
        "train_seconds": cost.seconds,
        **cost.left_out,
    }
    write_json(workdir / DIVERGED, record)

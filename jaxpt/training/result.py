"""A run's entry in a report (`result.json`), and its record of a divergence."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxpt.by_name import load_place
from jaxpt.config.plan import Plan
from jaxpt.distributed import processes
from jaxpt.files.folder import write_json
from jaxpt.languages import ACCURACY, REGRETS
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.program import Program
from jaxpt.runs.result import RESULT
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import DIVERGED, write_examples
from jaxpt.text.feed import Ranges
from jaxpt.training.clock import is_evaluated
from jaxpt.training.machine import list_versions, read_machine
from jaxpt.training.measure import FROM_FEATURES, FROM_TEXT, Measured
from jaxpt.zero_shot.names import is_curve

# The metrics of an evaluation that learning curves show.
OWN = ("valid_loss", "valid_accuracy", "valid_masked_accuracy")
CURVES = (*OWN, *FROM_FEATURES, *FROM_TEXT, *REGRETS.values(), ACCURACY)


def list_curves(names: Iterable[str]) -> list[str]:
    """The metrics of an evaluation that learning curves show, of those named.

    >>> list_curves(["zero_shot_blimp_accuracy", "pair_nats", "valid_recall"])
    ['pair_nats', 'zero_shot_blimp_accuracy']
    """
    names = list(names)
    return [k for k in CURVES if k in names] + [k for k in names if is_curve(k)]


class RunCost(NamedTuple):
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


@processes.from_first
def write_result(
    workdir: Path,
    task: Task,
    program: Program,
    params: Any,
    cost: RunCost,
    measured: Measured,
) -> dict:
    """Writes a run's entry in a report and its values by example; returns the entry.

    Args:
      task: the run's; that of the program may have another seed.
    """
    columns = ("step", "raw_tokens", "flops", "seconds")
    curve = [
        {k: line[k] for k in [*columns, *list_curves(line)] if k in line}
        for line in read_metrics(workdir)
        if "valid_loss" in line and is_evaluated(task.plan.train, line["step"])
    ]
    decay = task.plan.optim.ema_decay
    result = {
        "objective": task.plan.objective_name,
        "seed": task.plan.train.seed,
        "params": sum(x.size for x in jax.tree.leaves(params)),
        "steps": cost.steps,
        "row_length": task.spec.row_length,
        "batch_size": task.plan.train.batch_size,
        **({"ema_decay": decay} if decay else {}),
        **task.count_costs(cost.steps),
        "train_seconds": cost.seconds,
        "first_step_seconds": cost.first_step_seconds,
        **cost.left_out,
        **_record_source(task.plan),
        "steps_per_second": cost.steps / max(cost.seconds, 1e-9),
        "device": f"{len(program.devices)} x {jax.devices()[0].device_kind}",
        "machine": read_machine(),
        "versions": list_versions(),
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


def _record_source(plan: Plan) -> dict:
    """The "source" of a run that started from another one."""
    if not plan.train.init_from:
        return {}
    source: dict = load_place("jaxpt.runs.earlier_costs:record_source")(plan)
    return source


@processes.from_first
def write_divergence(workdir: Path, task: Task, reason: str, cost: RunCost) -> None:
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

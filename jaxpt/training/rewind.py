"""Bad updates: a run with `train.rewind` goes back, any other has diverged."""

from pathlib import Path
from typing import NoReturn

from jaxpt.errors import DivergedError
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.task import Task
from jaxpt.text.feed import Ranges, add_range
from jaxpt.text.phases import MAX_RANGES
from jaxpt.training.result import RunCost, write_divergence
from jaxpt.training.run_log import RunLog


class Rewind(Exception):
    """Sends a run back to before a bad update.

    Attributes:
      bad_step: the step at the end of that update.
      until: the last step from which the run may continue.
      skipped: ranges of batches that it leaves out from now on.
    """

    def __init__(self, bad_step: int, until: int, skipped: Ranges):
        super().__init__(bad_step)
        self.bad_step, self.until, self.skipped = bad_step, until, skipped


class Rewinder:
    """What follows an update from which training cannot continue."""

    def __init__(
        self, task: Task, workdir: Path, checkpointer: Checkpointer, log: RunLog
    ):
        self._task, self._workdir = task, workdir
        self._checkpointer, self._log = checkpointer, log

    def refuse(self, reason: str, cost: RunCost) -> NoReturn:
        """Goes back, or records that the run has diverged; on all processes together.

        Steps between the restored state and the batches that are left out are repeated
        with the same rows, so the result does not depend on which checkpoints exist.

        Args:
          cost: up to the bad update, which `cost.steps` counts.

        Raises:
          Rewind: `train.rewind` is set, and the run has not gone back too often.
          DivergedError: otherwise.
        """
        self._checkpointer.wait()
        step, rewind = cost.steps, self._task.plan.train.rewind
        if rewind and len(cost.skipped_batches) < MAX_RANGES:
            back, num = rewind
            self._log.warn(
                f"{reason}, from step {step}: going back at least {back} steps, and "
                f"skipping {num} batches"
            )
            until = max(step - 1 - back, 0)
            raise Rewind(step, until, add_range(cost.skipped_batches, until, num))
        good = self._checkpointer.steps()
        last_good = f"step {good[-1]} is kept" if good else "there is none yet"
        write_divergence(self._workdir, self._task, reason, cost)
        raise DivergedError(
            f"{reason} at step {step} (optim.lr={self._task.plan.optim.lr}): training "
            f"stopped; last good checkpoint: {last_good} in {self._workdir}"
        )

"""Checkpoints and milestones of a run, written between two calls."""

from pathlib import Path

from jaxpt.by_name import load_place
from jaxpt.learn.state import TrainState
from jaxpt.runs.checkpoint import Checkpointer, is_finite
from jaxpt.runs.signals import Stopped
from jaxpt.runs.task import Task
from jaxpt.training.hooks import Hooks
from jaxpt.training.result import RunCost
from jaxpt.training.rewind import Rewinder
from jaxpt.training.run_log import RunLog


class Saver:
    """Writes the states of a run; all processes call it together.

    Attributes:
      steps: at which it writes something that the settings of checkpoints do not ask
        for.

    Args:
      milestones: the names of the milestones (`train.checkpoint_words`) by step.
      branch_steps: whose state is kept for branches (`jaxpt.training.branches`).
    """

    def __init__(
        self,
        task: Task,
        workdir: Path,
        checkpointer: Checkpointer,
        log: RunLog,
        milestones: dict[int, list[str]],
        rewinder: Rewinder,
        hooks: Hooks,
        branch_steps: tuple[int, ...] = (),
    ):
        self.steps = frozenset((*milestones, *branch_steps))
        self._milestones, self._branch_steps = milestones, branch_steps
        self._spec, self._workdir, self._hooks = task.plan.train, workdir, hooks
        self._checkpointer, self._log = checkpointer, log
        self._rewinder = rewinder

    def save(
        self, state: TrainState, cost: RunCost, is_due: bool, signum: int | None
    ) -> None:
        """Writes a milestone, a state for branches and a checkpoint if they are due.

        Args:
          state: in the form that is saved.
          cost: up to its step.
          is_due: whether the settings ask for a checkpoint here.
          signum: of a signal that stops the run, which needs a checkpoint, too.

        Raises:
          Rewind, DivergedError: a parameter is not finite.
          Stopped: the same, and the signal came between two checkpoints: a run that
            resumes from the last one finds out at the next.
        """
        step = cost.steps
        if not (signum or is_due or step in self.steps):
            return
        if not is_finite((state.params, state.ema)):
            if signum and not is_due:
                raise Stopped((self._checkpointer.steps() or [0])[-1], signum)
            self._rewinder.refuse("a parameter is not finite", cost)
        for name in self._milestones.get(step, []):
            write_milestone = load_place("jaxpt.training.milestones:write_milestone")
            write_milestone(self._workdir, name, step, state)
        if step in self._branch_steps:
            keep_state = load_place("jaxpt.training.branches:keep_state")
            keep_state(self._workdir, step, state, len(self._branch_steps))
        if signum or is_due:
            if self._spec.seconds:  # a resumed run continues from this reading
                self._log.write(step, {})
            self._log.record_checksum()  # a resumed run relies on the log
            self._checkpointer.save(step, state)
            self._hooks.on_checkpoint(step, state)

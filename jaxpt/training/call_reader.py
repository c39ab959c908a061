"""Reads the metrics of a training call: finds bad updates, and logs the rest."""

import math
from typing import NamedTuple

import jax
import numpy as np

from jaxpt.text.feed import merge
from jaxpt.training.clock import Clock
from jaxpt.training.measure import total_loss
from jaxpt.training.restore import Restored
from jaxpt.training.result import RunCost
from jaxpt.training.setup import Setup


class Call(NamedTuple):
    """A compiled call: the step at its end, its number of steps, and their metrics."""

    step: int
    num_steps: int
    metrics: dict

    @property
    def first(self) -> int:
        """The step before it."""
        return self.step - self.num_steps


class _Steps(NamedTuple):
    """The steps of a call, one entry each.

    Attributes:
      schedule: steps of the schedule.
      losses: as trained on; NaN for a batch without predictions.
      is_empty: no token was to be predicted.
      is_skipped: the update was skipped (`optim.max_skips`).
      in_a_row: the number of skipped updates in a row, up to here.
      num_skipped: the number of skipped updates of the run, up to here.
      norms: of the gradients.
      scales: of the loss, for the next step; None if it is not scaled.
    """

    schedule: list[int]
    losses: list[float]
    is_empty: np.ndarray
    is_skipped: np.ndarray
    in_a_row: np.ndarray
    num_skipped: np.ndarray
    norms: np.ndarray
    scales: np.ndarray | None


class CallReader:
    """Reads the calls of a run in order, from a restored state on."""

    def __init__(self, run: Setup, clock: Clock, restored: Restored):
        self.task, self.feed = run.task, restored.feed
        self._run, self._clock = run, clock
        self._logged = restored.step  # the last step whose metrics were logged
        self._num_skipped = restored.num_skipped  # updates, up to the last call read

    def read(self, call: Call | None) -> None:
        """Fetches the metrics of a call, if any, and logs them if they are due.

        Raises:
          Rewind, DivergedError: a loss is not finite, or too many updates in a row
            were skipped.
        """
        if call is None:
            return
        metrics = jax.tree.map(np.asarray, call.metrics)
        steps = self._list_steps(call, metrics)
        self._warn_empty(call, steps.is_empty)
        self._refuse_bad(call, steps)
        self._refuse_low(call, metrics)
        self._warn_skipped(call, steps)
        if steps.is_skipped.any():
            self._num_skipped = int(steps.num_skipped[-1])
        self._log(call, steps, metrics)
        if self._is_due(call, steps):
            self._logged = call.step

    def count_cost(self, step: int) -> RunCost:
        """The cost of the run up to a step, and the skipped updates and batches."""
        watch = self._run.watch
        seconds = watch.seconds, watch.first_step_seconds
        return RunCost(step, *seconds, self._num_skipped, self.feed.skipped)

    def _list_steps(self, call: Call, metrics: dict) -> _Steps:
        """The steps of a call; takes their skips and scales out of its metrics."""
        num = call.num_steps
        num_skipped, in_a_row = metrics.pop("skips", np.zeros((2, num), int))
        scales, _ = metrics.pop("loss_scale", (None, None))
        schedule = self._clock.list_schedule_steps(call.step, num)
        total = self.task.plan.train.steps
        losses = [
            total_loss(
                self._run.program,
                {k: (a[i], b[i]) for k, (a, b) in metrics.items()},
                at / total,
            )
            for i, at in enumerate(schedule)
        ]
        names = self.task.spec.coefficients
        is_empty = sum(metrics[name][1] for name in names) == 0
        norms = metrics["grad_norm"][0]
        skips = in_a_row > 0, in_a_row, num_skipped
        return _Steps(schedule, losses, is_empty, *skips, norms, scales)

    def _warn_empty(self, call: Call, is_empty: np.ndarray) -> None:
        """Warns of batches that have nothing to predict.

        Their sums and weights are 0, so they change no mean and are not a divergence.
        """
        if num := int(np.count_nonzero(is_empty)):
            self._run.log.warn(
                f"steps {call.first + 1} to {call.step}: {num} batches have "
                f"no token to predict under {self.task.plan.objective_name}, so they "
                "have no loss"
            )

    def _refuse_bad(self, call: Call, steps: _Steps) -> None:
        """Refuses the first bad update of a call, if there is one."""
        rule = self.task.skip_rule
        limit = rule.max_skips if rule else 0
        for i, loss in enumerate(steps.losses):
            cost = self.count_cost(call.first + i + 1)
            if steps.is_skipped[i] and steps.in_a_row[i] == limit:
                self._run.rewinder.refuse(
                    f"{limit} updates in a row were skipped, the last with loss "
                    f"{loss} and gradient norm {steps.norms[i]}"
                    f"{_describe_scale(steps, i)}",
                    cost._replace(
                        steps=cost.steps + 1 - limit,
                        skipped_updates=int(steps.num_skipped[i]),
                    ),
                )
            is_counted = not (steps.is_skipped[i] or steps.is_empty[i])
            if is_counted and not math.isfinite(loss):
                self._run.rewinder.refuse(f"the loss is {loss}", cost)

    def _refuse_low(self, call: Call, metrics: dict) -> None:
        """Refuses the first step with a metric below its floor, if there is one."""
        spec = self.task.spec
        for name, setting in spec.floors.items():
            values, weights = metrics.get(name, np.zeros((2, 0)))
            floor = getattr(spec, setting)
            for i in np.flatnonzero(values < floor * weights)[:1].tolist():
                self._run.rewinder.refuse(
                    f"{name} is {values[i] / weights[i]:.4g}, below "
                    f"{spec.full_name(setting)}={floor}",
                    self.count_cost(call.first + i + 1),
                )

    def _warn_skipped(self, call: Call, steps: _Steps) -> None:
        for i in np.flatnonzero(steps.is_skipped).tolist():
            self._run.log.warn(
                f"step {call.first + i + 1}: update skipped, loss "
                f"{steps.losses[i]:.4g}, gradient norm {steps.norms[i]:.4g}"
                f"{_describe_scale(steps, i)}"
            )

    def _is_due(self, call: Call, steps: _Steps) -> bool:
        every = self.task.plan.train.log_every
        is_due = call.step // every > self._logged // every
        return is_due and not steps.is_empty.all()

    def _log(self, call: Call, steps: _Steps, metrics: dict) -> None:
        """Logs the means over the updates that were made."""
        losses, log = steps.losses, self._run.log
        left_out = steps.is_skipped | steps.is_empty
        if not left_out.all():  # else the log shows why
            kept = np.flatnonzero(~left_out)
            losses = [losses[i] for i in kept]
            metrics = {k: (a[kept], b[kept]) for k, (a, b) in metrics.items()}
        log.check_overflow(metrics)
        if not self._is_due(call, steps):
            return
        scale = {} if steps.scales is None else {"loss_scale": steps.scales[-1]}
        skipped = {
            "skipped_updates": self._num_skipped,
            "skipped_batches": sum(b - a for a, b in merge(self.feed.skipped)),
        }
        values = log.log_call(
            call.step,
            steps.schedule[-1],
            metrics,
            sum(losses) / len(losses),
            {name: num for name, num in skipped.items() if num} | scale,
        )
        self._run.hooks.on_log(call.step, values)


def _describe_scale(steps: _Steps, index: int) -> str:
    """The scale of the loss after a step, for a message."""
    if steps.scales is None:
        return ""
    return f", then loss scale {steps.scales[index]:g}"

"""When a training run ends, and its position in the learning-rate schedule.

A run has a budget of steps (`train.steps`) or of seconds (`train.seconds`). Both clocks
answer the same questions, so the loop is the same for both.

With a budget of seconds, a run trains in whole calls until its training time is used
up. Compilation, evaluations and checkpoints do not count. The number of steps is known
only at the end, so the learning rate, and everything else that depends on the progress
of the run, follows the time. `train.steps` is then the length of the schedule, which is
spread over the seconds, and evaluations and checkpoints come at its multiples:

    schedule step = train.steps * seconds spent / train.seconds

It is fixed before each call, from the time that earlier calls took. The rows and random
draws of a step depend on its number only; so phases (`jaxpt.text.phases`) begin at
steps of `train.steps`, which should be the expected number, and the last one continues
to the end. A resumed run reads its seconds from its log.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from jaxpt.config.sections import TrainSpec
from jaxpt.distributed import processes
from jaxpt.text.phases import count_rows


@dataclasses.dataclass(frozen=True)
class Branching:
    """The states that a run shares with runs of other lengths (`training.branches`).

    Attributes:
      kept: the steps whose states it keeps for its branches.
      evaluated: the steps at which it is also evaluated, for its branches' curves.
      trunk: the folder of the run that it branches from; None for no run.
      until: the last step that it shares with it.
    """

    kept: tuple[int, ...] = ()
    evaluated: frozenset[int] = frozenset()
    trunk: Path | None = None
    until: int = 0


ALONE = Branching()


class Clock(Protocol):
    """The budget of a run.

    Attributes:
      is_over: whether the budget is used up.
      waits_for_calls: whether each call is waited for, because its duration decides
        what follows.
      reading: the seconds by which the end of the last call was judged, the same on
        all processes; None where seconds decide nothing.
    """

    is_over: bool
    waits_for_calls: bool
    reading: float | None

    def list_calls(self, step: int) -> Iterable[int]:
        """The number of steps of each call after `step`; may be infinite."""

    def begin_call(self, seconds: Callable[[], float]) -> tuple[int, ...]:
        """The first and last schedule step of the next call; () if they are its own."""

    def end_call(self, step: int, seconds: Callable[[], float]) -> None:
        """Updates `is_over` after a call that ended at `step`."""

    def is_due(self, *every: int) -> bool:
        """Whether the last call reached a multiple of one of these, or the end."""

    def list_schedule_steps(self, step: int, count: int) -> list[int]:
        """The schedule steps of the call of `count` steps that ended at `step`."""


def make_clock(spec: TrainSpec, step: int, seconds: float) -> Clock:
    """The clock of a run that starts or resumes at `step`, after `seconds`."""
    return (SecondsClock if spec.seconds else StepsClock)(spec, step, seconds)


class StepsClock:
    """A budget of `train.steps`."""

    waits_for_calls = False
    reading: float | None = None

    def __init__(self, spec: TrainSpec, step: int, seconds: float):
        self._spec, self._step = spec, step
        self.is_over = step >= spec.steps

    def list_calls(self, step: int) -> Iterable[int]:
        total, size = self._spec.steps, self._spec.steps_per_call
        return [min(size, total - s) for s in range(step, total, size)]

    def begin_call(self, seconds: Callable[[], float]) -> tuple[int, ...]:
        return ()

    def end_call(self, step: int, seconds: Callable[[], float]) -> None:
        self._step, self.is_over = step, step >= self._spec.steps

    def is_due(self, *every: int) -> bool:
        return self.is_over or any(n and self._step % n == 0 for n in every)

    def list_schedule_steps(self, step: int, count: int) -> list[int]:
        return list(range(step - count, step))


class SecondsClock:
    """A budget of `train.seconds`."""

    waits_for_calls = True

    def __init__(self, spec: TrainSpec, step: int, seconds: float):
        self._spec, self._step = spec, step
        self.reading: float | None = seconds
        self.is_over = is_over(spec, step, seconds)
        self._reached = find_schedule_step(spec, seconds)
        self._planned = self._reached, self._reached

    def list_calls(self, step: int) -> Iterable[int]:
        return () if self.is_over else itertools.repeat(self._spec.steps_per_call)

    def begin_call(self, seconds: Callable[[], float]) -> tuple[int, ...]:
        self._planned = plan_call(self._spec, self._step, seconds())
        return self._planned

    def end_call(self, step: int, seconds: Callable[[], float]) -> None:
        self._step, elapsed = step, seconds()
        self.is_over, self.reading = is_over(self._spec, step, elapsed), elapsed
        self._reached = find_schedule_step(self._spec, elapsed)

    def is_due(self, *every: int) -> bool:
        begin, end = self._planned[0], self._reached
        return self.is_over or any(n and end // n > begin // n for n in every)

    def list_schedule_steps(self, step: int, count: int) -> list[int]:
        begin, end = self._planned
        return [begin + i * (end - begin) // count for i in range(count)]


def is_evaluated(spec: TrainSpec, step: int) -> bool:
    """Whether a run's own settings ask for an evaluation at a step that it reached.

    The trunk of other runs is evaluated at further steps (`training.branches`).

    >>> spec = TrainSpec(steps=100, steps_per_call=10, eval_every=40)
    >>> [step for step in range(0, 101, 10) if is_evaluated(spec, step)]
    [0, 40, 80, 100]
    """
    every = spec.eval_every
    is_due = step in (0, spec.steps) or (every > 0 and step % every == 0)
    return bool(spec.seconds) or is_due


def is_over(spec: TrainSpec, step: int, seconds: float) -> bool:
    """Whether a budget of seconds is used up.

    A run ends where one more call would end further from the budget than it is now.

    >>> spec = TrainSpec(steps=100, steps_per_call=10, seconds=5.0)
    >>> [is_over(spec, *at) for at in ((0, 0.0), (40, 4.0), (40, 4.4), (40, 4.5))]
    [False, False, False, True]
    """
    if not step:
        return False
    return seconds + _expect(spec, step, seconds) / 2 >= spec.seconds


def _expect(spec: TrainSpec, step: int, seconds: float) -> float:
    """The expected seconds of a call: of its rows, as so far; at first, as planned.

    >>> spec = TrainSpec(steps=100, batch_size=8, batch_schedule=((0.5, 0.25),))
    >>> [_expect(spec, step, 4.0) for step in (40, 50)]
    [1.0, 3.2]
    """
    ends = step, step + spec.steps_per_call
    before, after = (count_rows(spec.phases, end) for end in ends)
    if not step:
        return spec.seconds * min(after / count_rows(spec.phases, spec.steps), 1.0)
    return seconds / before * (after - before)


def find_schedule_step(spec: TrainSpec, seconds: float) -> int:
    """The schedule step after a number of seconds of training.

    >>> find_schedule_step(TrainSpec(steps=100, seconds=5.0), 1.25)
    25
    """
    return min(round(seconds / spec.seconds * spec.steps), spec.steps)


def plan_call(spec: TrainSpec, step: int, seconds: float) -> tuple[int, int]:
    """The schedule steps at which the next call begins and is expected to end.

    >>> spec = TrainSpec(steps=100, steps_per_call=10, seconds=5.0)
    >>> plan_call(spec, 0, 0.0), plan_call(spec, 10, 1.0)
    ((0, 10), (20, 40))
    """
    end = seconds + _expect(spec, step, seconds)
    return find_schedule_step(spec, seconds), find_schedule_step(spec, end)


class Stopwatch:
    """The seconds of training: without compilation, evaluations and checkpoints.

    Args:
      begun: when the process began the run, by `time.perf_counter`.

    Attributes:
      first_step_seconds: from the start of the run to the end of its first call.
    """

    def __init__(self, begun: float = 0.0):
        self._begun, self._before = begun, 0.0
        self._started: float | None = None
        self.first_step_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Training time so far, by this process's clock."""
        if self._started is None:
            return self._before
        return self._before + time.perf_counter() - self._started

    def agree(self) -> float:
        """Training time so far by the clock of process 0, on all."""
        return processes.on_first(lambda: self.seconds)

    def resume(self, seconds: float, first_step_seconds: float) -> None:
        """Continues from the readings of an earlier process."""
        self._before, self.first_step_seconds = seconds, first_step_seconds

    def end_first_call(self) -> None:
        """Reads `first_step_seconds`, unless an earlier process did."""
        if not self.first_step_seconds:
            self.first_step_seconds = time.perf_counter() - self._begun

    def run(self, compile_seconds: float = 0.0) -> None:
        """Starts the watch; while it runs, excludes a compilation that just ended."""
        if self._started is None:
            self._started = time.perf_counter()
        else:
            self._started += compile_seconds

    def pause(self, seconds: float | None = None) -> None:
        """Stops the watch at a reading, or now."""
        self._before = self.seconds if seconds is None else seconds
        self._started = None

"""Measures training speed, without compilation and evaluation, and logs progress."""

import time
from collections.abc import Callable
from typing import Any

import jax


class Meter:
    """A clock of training time, paused during everything else.

    Args:
      log: gets the step and a line of progress.
      num_steps: of the run.
      every: seconds between two lines.
      seconds, rate: of the run before it was resumed.
    """

    def __init__(
        self,
        log: Callable[[int, str], None],
        num_steps: int,
        every: float,
        seconds: float = 0.0,
        rate: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log, self.num_steps, self.every, self.clock = log, num_steps, every, clock
        self.seconds, self.rate = seconds, rate
        self.last: Any = None
        self.since: float | None = clock()  # None while paused
        self.last_line = clock()
        self.examples = self.steps = 0  # that were timed
        self.marked = seconds, 0, 0  # seconds, examples, steps at the last line
        self.begun = 0  # examples when the clock was resumed

    def add(self, step: int, num: int, loss: Any) -> None:
        """Counts a step, which may still be running, unless the clock is paused."""
        self.last = loss
        if self.since is not None:
            self.examples += num
            self.steps += 1
        if self.clock() - self.last_line < self.every:
            return
        line = f"step {step}/{self.num_steps}: loss {float(loss):.4f}"  # waits for it
        now = self._busy(), self.examples, self.steps
        seconds, examples, steps = (
            a - b for a, b in zip(now, self.marked, strict=True)
        )
        if seconds > 0 and steps:
            left = (self.num_steps - step) * seconds / steps
            line += f", {examples / seconds:.0f} examples/s, {show_seconds(left)} left"
        self.log(step, line)
        self.last_line, self.marked = self.clock(), now

    def _busy(self) -> float:
        """Seconds of training so far."""
        return self.seconds + (0 if self.since is None else self.clock() - self.since)

    def pause(self) -> None:
        """Waits for the last step, then stops the clock."""
        jax.block_until_ready(self.last)
        passed = self._busy() - self.seconds
        self.seconds += passed
        if self.examples > self.begun:
            done = self.examples - self.begun
            self.rate = max(self.rate, done / max(passed, 1e-9))
        self.since = None

    def resume(self) -> None:
        """Waits for the last step, then starts the clock again."""
        jax.block_until_ready(self.last)
        self.since, self.begun = self.clock(), self.examples

    def rates(self) -> dict[str, float]:
        """Seconds of training, and the highest number of examples per second."""
        return {"seconds": self.seconds, "examples_per_second": self.rate}


def show_seconds(seconds: float) -> str:
    """Seconds as minutes or hours.

    >>> show_seconds(75), show_seconds(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

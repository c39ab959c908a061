"""How fast a run goes, and lines that say so; what is compiled does not count."""

import time
from collections.abc import Callable
from typing import Any

import jax


class Meter:
    """A clock of training alone, which is paused while something else is done.

    Args:
      say: gets a line now and then.
      num_steps: of the run.
      every: seconds between two lines.
      seconds, rate: where the run goes on from.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        num_steps: int,
        every: float,
        seconds: float = 0.0,
        rate: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.say, self.num_steps, self.every, self.clock = say, num_steps, every, clock
        self.seconds, self.rate = seconds, rate
        self.last: Any = None
        self.since: float | None = clock()  # None while it stands still
        self.told = clock()
        self.examples = self.steps = 0  # that were timed
        self.marked = seconds, 0, 0  # seconds, examples, steps at the last line
        self.begun = 0  # examples when the clock went on

    def add(self, step: int, num: int, loss: Any) -> None:
        """A step is done, or is being done; it is timed unless the clock is paused."""
        self.last = loss
        if self.since is not None:
            self.examples += num
            self.steps += 1
        if self.clock() - self.told < self.every:
            return
        line = f"step {step}/{self.num_steps}: loss {float(loss):.4f}"  # waits for it
        now = self._busy(), self.examples, self.steps
        seconds, examples, steps = (
            a - b for a, b in zip(now, self.marked, strict=True)
        )
        if seconds > 0 and steps:
            left = (self.num_steps - step) * seconds / steps
            line += f", {examples / seconds:.0f} examples/s, {show_seconds(left)} left"
        self.say(line)
        self.told, self.marked = self.clock(), now

    def _busy(self) -> float:
        """Seconds of training so far."""
        return self.seconds + (0 if self.since is None else self.clock() - self.since)

    def pause(self) -> None:
        """Stops the clock when the last step is done."""
        jax.block_until_ready(self.last)
        passed = self._busy() - self.seconds
        self.seconds += passed
        if self.examples > self.begun:
            done = self.examples - self.begun
            self.rate = max(self.rate, done / max(passed, 1e-9))
        self.since = None

    def go_on(self) -> None:
        """Starts it again when what was done meanwhile is done."""
        jax.block_until_ready(self.last)
        self.since, self.begun = self.clock(), self.examples

    def rates(self) -> dict[str, float]:
        """Seconds of training, and examples a second where it was fastest."""
        return {"seconds": self.seconds, "examples_per_second": self.rate}


def show_seconds(seconds: float) -> str:
    """As a clock has it.

    >>> show_seconds(75), show_seconds(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

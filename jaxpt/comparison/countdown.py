"""How many runs of a comparison are finished, and how long the others will take."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from jaxpt import logs
from jaxpt.comparison.plan_runs import ComparisonPlan
from jaxpt.distributed import processes
from jaxpt.training.run_log import format_duration, format_end

_log = logging.getLogger(__name__)
Run = tuple[str, int]  # name and seed


def weigh_runs(prepared: ComparisonPlan, runs: Sequence[Run]) -> list[float]:
    """Each run's share of the work: its FLOPs, or 1 for a budget of seconds."""
    if any(plan.train.seconds for plan in prepared.plans.values()):
        return [1.0] * len(runs)
    flops = {
        name: prepared.make_task(name, 0).count_costs(plan.train.steps)["flops"]
        for name, plan in prepared.plans.items()
    }
    return [float(flops[name]) for name, _ in runs]


class Countdown:
    """Logs a line after each run that was trained, and counts them in progress bars.

    The time of the remaining runs is estimated from the FLOPs per second of those that
    were trained, including compilation and evaluation: of the same name if there are
    any, else of all.

    Args:
      runs: in the order in which they are trained.
      weights: of `weigh_runs`.
      clock: seconds.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        weights: Sequence[float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs, self._weights, self._clock = list(runs), list(weights), clock
        self._trained: list[tuple[int, float]] = []  # index and seconds

    @contextlib.contextmanager
    def timed(self, index: int, is_finished: bool) -> Iterator[None]:
        """Measures run `index`, unless it was finished before."""
        start, position = self._clock(), f"run {index + 1} of {len(self._runs)}"
        if self._trained:
            position += f", {format_duration(self.estimate(index))} left for all"
        with logs.part_of(position):
            yield
        if is_finished:
            return
        self._trained.append((index, self._clock() - start))
        if processes.is_first() and (rest := len(self._runs) - index - 1):
            others = f"the other {rest} take" if rest > 1 else "the last one takes"
            num = f"{index + 1} of {len(self._runs)}"
            end = format_end(self.estimate(index + 1), datetime.now().astimezone())
            _log.info(f"{num} runs finished; {others} about {end}")

    def estimate(self, index: int) -> float:
        """The seconds that the runs from `index` on take."""
        rest = range(index, len(self._runs))
        return sum(self._weights[i] * self._find_pace(self._runs[i][0]) for i in rest)

    def _find_pace(self, name: str) -> float:
        """Seconds per unit of work."""
        own = [pair for pair in self._trained if self._runs[pair[0]][0] == name]
        measured = own or self._trained
        work = sum(self._weights[i] for i, _ in measured)
        return sum(seconds for _, seconds in measured) / work

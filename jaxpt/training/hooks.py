"""Callables that a training run calls, for users of the Python API."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxpt.learn.state import TrainState


def _ignore(*args) -> None:
    """A hook that does nothing."""


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Callables for users of the Python API; each runs on every process.

    The next training call reuses the memory of parameters and states: a hook that keeps
    them must copy them.

    Attributes:
      on_log: (step, metrics) where training metrics are logged.
      on_evaluation: (step, metrics, params) after an evaluation; of the EMA, if any.
      on_checkpoint: (step, state) when a checkpoint is written.
      on_end: (result) once, with the run's entry in a report.
    """

    on_log: Callable[[int, dict[str, float]], Any] = _ignore
    on_evaluation: Callable[[int, dict[str, float], Any], Any] = _ignore
    on_checkpoint: Callable[[int, TrainState], Any] = _ignore
    on_end: Callable[[dict], Any] = _ignore


NO_HOOKS = Hooks()

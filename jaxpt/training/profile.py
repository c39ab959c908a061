"""A trace of some training steps, for TensorBoard's profiler and for Perfetto."""

import contextlib
from pathlib import Path

import jax

from jaxpt.errors import CheckpointError

FOLDER = "profile"


class Profiler:
    """Traces the calls after the first one, which compiles.

    Every process traces its own devices, to a file named after its host.

    Args:
      num_steps: number of steps to trace, in whole calls; 0 for none.
    """

    def __init__(self, workdir: Path, num_steps: int):
        self._folder, self._left = workdir / FOLDER, num_steps
        self._is_open, self._has_begun = False, False

    def begin(self, step: int) -> contextlib.AbstractContextManager:
        """A context for the call that begins at a step, with its name in the trace."""
        if self._has_begun and self._left > 0 and not self._is_open:
            try:
                jax.profiler.start_trace(str(self._folder))
            except OSError as error:
                raise CheckpointError(
                    f"{self._folder}: cannot be written: {error.strerror}"
                ) from error
            self._is_open = True
        self._has_begun = True
        return jax.profiler.StepTraceAnnotation("train", step_num=step)

    def end(self, num_steps: int, outputs) -> None:
        """Called after each call, with its number of steps and its metrics."""
        if self._is_open:
            self._left -= num_steps
            if self._left <= 0:
                jax.block_until_ready(outputs)
                self.close()

    def close(self) -> None:
        """Writes an open trace."""
        if self._is_open:
            jax.profiler.stop_trace()
            self._is_open = False
            self._left = 0

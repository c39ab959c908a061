"""The writer of metrics.jsonl and trackers; progress on the terminal."""

import collections
import contextlib
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jaxpt import logs
from jaxpt.by_name import load_place
from jaxpt.errors import CheckpointError, UserError
from jaxpt.files import checksums, disk
from jaxpt.runs.metrics_file import METRICS_FILE, keep_until
from jaxpt.runs.progress_bars import StepBar

if TYPE_CHECKING:
    from jaxpt.training.trackers import Tracker

_log = logging.getLogger(__name__)
FLUSH_SECONDS = 10.0
RECENT_UPDATES = 10


class MetricWriter:
    """Adds each step's scalars to `metrics.jsonl` and trackers; a context manager.

    Lines after `resume_step` are dropped first. If each step is logged before its
    checkpoint is written, the file of a resumed run equals that of an uninterrupted
    one. A tracker gets the earlier lines that it lacks.

    Args:
      workdir: created if missing.
      resume_step: the restored step; 0 starts a new file.
      trackers: names of trackers (`jaxpt.training.trackers`).
      config: the run's settings by full name, for trackers.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        resume_step: int = 0,
        trackers: tuple[str, ...] = ("tensorboard",),
        config: Mapping[str, Any] = MappingProxyType({}),
    ):
        self._path = Path(workdir) / METRICS_FILE
        self._is_finished = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A run that restored nothing writes its line of step 0 again.
            lines = keep_until(self._path, resume_step) if resume_step > 0 else []
            self._trackers: list[Tracker] = []
            if trackers:
                make_trackers = load_place("jaxpt.training.trackers:make_trackers")
                tracker_args = Path(workdir), resume_step, config
                self._trackers = make_trackers(trackers, *tracker_args)
            prefix = b"".join(line + b"\n" for line, _ in lines)
            self._num_bytes, self._digest = len(prefix), hashlib.sha256(prefix)
            # First: the existing files begin with it, too.
            checksums.record_prefix(
                self._path, self._num_bytes, self._digest.hexdigest()
            )
            disk.replace(self._path, prefix)
            self._file = disk.open_append(self._path)
            self._tracker_steps = [tracker.last for tracker in self._trackers]
            for _, row in lines:
                values = {k: v for k, v in row.items() if k != "step"}
                texts = {k: v for k, v in values.items() if isinstance(v, str)}
                numbers = {k: v for k, v in values.items() if k not in texts}
                self._track(row["step"], numbers, texts)
            self.flush()
        except OSError as error:
            raise self._user_error(error) from error

    def __enter__(self) -> "MetricWriter":
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._is_finished = error is None
        try:
            self.close()
        except UserError:
            if error is None:  # otherwise the error that ended the run matters more
                raise

    def write(
        self,
        step: int,
        values: Mapping[str, float],
        texts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Adds one line, which `tail -f` shows when this returns.

        Args:
          texts: further fields of the line; none has the name of a metric.
        """
        numbers = {key: float(value) for key, value in values.items()}
        if "step" in numbers:
            raise ValueError("'step' is the name of the line's own number")
        plain = {key: _to_json(value) for key, value in numbers.items()}
        line = (json.dumps({"step": int(step), **plain, **texts}) + "\n").encode()
        try:
            self._file.write(line)
            self._file.flush()
            self._num_bytes += len(line)
            self._digest.update(line)
            self._track(int(step), numbers, texts)
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self.flush()
        except OSError as error:
            raise self._user_error(error) from error

    def _track(self, step: int, numbers: Mapping, texts: Mapping) -> None:
        for tracker, last in zip(self._trackers, self._tracker_steps, strict=True):
            if step > last:
                tracker.write(step, numbers, texts)

    def record_checksum(self) -> None:
        """Flushes the log to the disk, and records its checksum to detect damage."""
        try:
            os.fsync(self._file.fileno())
            checksums.record_prefix(
                self._path, self._num_bytes, self._digest.hexdigest()
            )
        except OSError as error:
            raise self._user_error(error) from error

    def flush(self) -> None:
        """Flushes the trackers, too."""
        try:
            for tracker in self._trackers:
                tracker.flush()
        except OSError as error:
            raise self._user_error(error) from error
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flushes and closes all."""
        try:
            with contextlib.ExitStack() as open_:
                open_.callback(self._file.close)
                for tracker in self._trackers:
                    open_.callback(tracker.close, self._is_finished)
        except OSError as error:
            raise self._user_error(error) from error

    def _user_error(self, error: OSError) -> UserError:
        where = error.filename or self._path.parent
        return CheckpointError(f"metrics: {where} cannot be written: {error.strerror}")


class Progress:
    """A progress bar on a terminal, else a logged line per update; a context manager.

    Args:
      total_steps: of the whole run.
      start_step: the step resumed from.
      prefix: opens every update, "mlm seed 1".
      clock: seconds, from any origin.
      work: the cost of the first steps, to which the time left is in proportion.
    """

    def __init__(
        self,
        total_steps: int,
        start_step: int = 0,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[int], float] = float,
    ):
        self._total_steps = total_steps
        self._prefix = prefix
        self._clock, self._work = clock, work
        self._recent = collections.deque([(start_step, clock())], maxlen=RECENT_UPDATES)
        self._bar = StepBar(total_steps, start_step, prefix)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def update(
        self,
        step: int,
        metrics: Mapping[str, float],
        tokens_per_second: float,
        mfu: float | None = None,
    ) -> None:
        """Shows `step 1200/6000  loss 2.3112  41.2k tokens/s  mfu 37.1%  ETA 01:23`.

        Args:
          step: number of finished steps.
          metrics: shown by name, in order.
          tokens_per_second: as measured by the caller.
          mfu: model FLOPs utilisation in [0, 1]; None if the peak is unknown.
        """
        parts = [self._prefix] if self._prefix else []
        parts.append(f"step {step}/{self._total_steps}")
        parts += [f"{name} {_show(value)}" for name, value in metrics.items()]
        parts.append(f"{_abbreviate(tokens_per_second)} tokens/s")
        if mfu is not None:
            parts.append(f"mfu {100 * mfu:.1f}%")
        parts.append(f"ETA {self._estimate(step)}")
        text = "  ".join(parts)
        _log.info(text, extra=logs.UPDATE)
        self._bar.update(step, text)

    def close(self) -> None:
        """Leaves the bar in its last state."""
        self._bar.close()

    def _estimate(self, step: int) -> str:
        """Time left at the rate of recent updates, which excludes compilation."""
        now = self._clock()
        if step < self._recent[-1][0]:
            self._recent.clear()  # the run went back to an earlier step
        self._recent.append((step, now))
        first_step, first_time = self._recent[0]
        if step == first_step:
            return "--:--"
        done, last = self._work(step), self._work(max(self._total_steps, step))
        rate = (now - first_time) / (done - self._work(first_step))
        seconds = round(rate * (last - done))
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        tail = f"{minutes:02}:{seconds:02}"
        return f"{hours}:{tail}" if hours else tail


def _to_json(value: float) -> float | str:
    # JSON has no NaN or infinity; Python would write one that other parsers refuse.
    return value if math.isfinite(value) else str(value)


def _show(value: float) -> str:
    is_readable = value == 0 or 1e-3 <= abs(value) < 1e5
    return f"{value:.4f}" if is_readable else f"{value:.3g}"


def _abbreviate(value: float) -> str:
    for unit, size in [("G", 1e9), ("M", 1e6), ("k", 1e3)]:
        if value >= 0.9995 * size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}"

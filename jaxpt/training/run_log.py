"""The log of a training run: metrics.jsonl, trackers, and progress on the terminal."""

import contextlib
import datetime
import logging
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from jaxpt.distributed import processes
from jaxpt.learn.schedules import make_schedules
from jaxpt.ops import metrics as sums
from jaxpt.runs import log_file
from jaxpt.runs.data import describe_rows
from jaxpt.runs.program import MFU_NOTE, Program, device_peak
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import flatten
from jaxpt.text.dataset import Split
from jaxpt.text.feed import Feed
from jaxpt.text.phases import find_phase, split_steps
from jaxpt.training.clock import Stopwatch
from jaxpt.training.measure import explain_no_pairs
from jaxpt.training.metrics_log import MetricWriter, Progress

_log = logging.getLogger(__name__)
WARN_SECONDS = 2 * 3600.0  # a run that trains longer is warned of when it begins
MAX_LEFT_OUT = 1e-3  # of the predictions, without a slot (`jaxpt.ops.packing`)


class RunLog:
    """A run's metrics.jsonl, its trackers and its lines of progress.

    Its methods write nothing on other processes than the first.

    Args:
      watch: the training time, which every line of the log has.
    """

    def __init__(
        self,
        program: Program,
        feed: Feed,
        corpora: dict[str, Split],
        workdir: Path,
        label: str = "",
        watch: Stopwatch | None = None,
    ):
        self.program, self.task, self.feed = program, program.task, feed
        self.corpora, self.workdir, self.label = corpora, workdir, label
        self.spec = self.task.plan.train
        self.watch = watch or Stopwatch()
        self._rates: list[dict[str, np.ndarray]] = [{}] * len(self.spec.phases)
        self._writer: MetricWriter | None = None
        self._progress: Progress | None = None
        self._opened = 0  # the step of `open`
        self._last_speed = (0, 0.0)  # step and seconds at the last `_measure_speed`
        self._overflow = np.zeros(2)  # predictions without a slot, and all predictions
        self._has_warned = False

    @contextlib.contextmanager
    def open(self, step: int) -> Iterator[None]:
        """Appends to the log after a step, until the run ends or goes back."""
        self._opened, self._last_speed = step, (step, self.watch.seconds)
        with contextlib.ExitStack() as open_:
            if processes.is_first():
                self._rates = [self._list_rates(task) for task in self.task.phases]
                tracker_args = self.spec.trackers, flatten(self.task.plan.config)
                writer = MetricWriter(self.workdir, step, *tracker_args)
                self._writer = open_.enter_context(writer)
                open_.enter_context(log_file.run_log(self.workdir))
                self._progress = open_.enter_context(
                    Progress(
                        self.spec.steps, step, prefix=self.label, work=self._count_flops
                    )
                )
            yield

    def info(self, text: str) -> None:
        """Logs a line of progress."""
        self._add_line(logging.INFO, text)

    def warn(self, text: str) -> None:
        """Logs a warning."""
        self._add_line(logging.WARNING, text)

    def announce(self, text: str) -> None:
        """Logs that a long phase begins; not for each run of a comparison."""
        if not self.label:
            self.info(text)

    def _add_line(self, level: int, text: str) -> None:
        if self._progress is not None:
            _log.log(level, f"{self.label}  {text}" if self.label else text)

    def introduce(self) -> None:
        """Logs the header."""
        for line in self.list_header():
            self.info(line)

    def list_header(self) -> list[str]:
        """Lines on the model, the budget, the device and the text."""
        shapes = jax.tree.leaves(self.program.abstract_state().params)
        plan, spec = self.task.plan, self.spec
        costs = self.task.count_costs(spec.steps)
        device = jax.devices()[0]
        steps = f"{spec.steps} steps"
        if spec.seconds:
            steps = f"{spec.seconds:g} seconds (about {steps})"
        lines = [
            f"{plan.objective_name}: {sum(x.size for x in shapes):,} parameters, "
            f"{steps} of {spec.batch_size} rows of "
            f"{self.task.spec.row_length} tokens, {costs['flops']:.3g} FLOPs, "
            f"{len(self.program.devices)} x {device.device_kind}, "
            f"{self.task.model_spec.dtype}",
            *self._describe_phases(),
            *self.program.describe_mesh(),
        ]
        if plan.filled:
            lines.append(f"filled in for {plan.objective_name}: {plan.filled}")
        if self.task.has_ema:
            kind = f"average of {plan.optim.name}"
            if decay := plan.optim.ema_decay:
                kind = f"moving mean (EMA), optim.ema_decay={decay}"
            lines.append(
                f"evaluated, exported and generated from: the parameters' {kind}"
            )
        # Without a fused kernel training is slow, and no metric shows why.
        lines += [
            f"attention without the fused kernel: {kernel}"
            for kernel in self.task.list_kernels()
            if ", as " in kernel
        ]
        if device_peak():
            lines.append(MFU_NOTE)
        if not self.label:  # a comparison prints this once for all runs
            lines += [
                f"{name}: {split.num_documents:,} "
                f"document{'s' * (split.num_documents != 1)}, {split.num_tokens:,} "
                "tokens"
                for name, split in self.corpora.items()
            ]
            lines += describe_rows(self.task, self.feed)
            why = explain_no_pairs(self.program, self.corpora)
            if why and plan.eval.pair_questions:
                lines.append(f"bigram-matched cloze: not measured: {why}")
        return lines

    def _describe_phases(self) -> list[str]:
        """A line for each phase of training; none without schedules."""
        phases, tasks = self.spec.phases, self.task.phases
        if tasks[0] is self.task:
            return []
        numbers = split_steps(phases, self.spec.steps)
        return [
            f"from step {phase.start}: {num} steps of {phase.batch_size} rows of "
            f"{task.spec.row_length} tokens"
            for phase, task, num in zip(phases, tasks, numbers, strict=True)
            if num
        ]

    def time_first_call(self, step: int, num_steps: int, metrics: dict) -> None:
        """Waits for the first call after `open`, and logs when training will end.

        Args:
          step: the last step of any call.
          num_steps: its number of steps.
          metrics: its arrays.
        """
        if step - num_steps != self._opened:
            return
        jax.block_until_ready(metrics)
        self.watch.end_first_call()
        seconds = self.watch.seconds
        self.log_end_time(step, seconds, seconds - self._last_speed[1], num_steps)

    def log_end_time(
        self, step: int, seconds: float, call_seconds: float, count: int
    ) -> None:
        """Prints the expected end of training, from the duration of one call.

        Args:
          step: the last step that was trained.
          seconds: training time so far.
          call_seconds: duration of the call.
          count: its number of steps.
        """
        if self.spec.seconds:
            seconds_left = max(self.spec.seconds - seconds, 0.0)
        else:
            before, done = self._count_flops(step - count), self._count_flops(step)
            rest = self._count_flops(self.spec.steps) - done
            seconds_left = call_seconds / (done - before) * rest
        if not seconds_left:
            return
        for line in describe_end(seconds_left, datetime.datetime.now().astimezone()):
            self.info(line)

    def check_overflow(self, metrics: dict) -> None:
        """Warns once if more than `MAX_LEFT_OUT` of the predictions had no slot.

        Args:
          metrics: {metric: (sums, weights)} over a call's steps.
        """
        self._overflow += [x.sum() for x in metrics.get("overflow", np.zeros((2, 1)))]
        left_out, total = self._overflow
        if self._has_warned or left_out <= MAX_LEFT_OUT * total:
            return
        self._has_warned = True
        name = self.task.plan.objective_name
        self.warn(
            f"{name} leaves {left_out / total:.2%} of its predictions out of "
            f"the loss (more than {MAX_LEFT_OUT:.1%}), because batches have more of "
            f"them than slots; lower train.num_microbatches or raise train.batch_size, "
            f"or correct `predictions` in your objective's Spec"
        )

    def log_call(
        self,
        step: int,
        schedule_step: int,
        metrics: dict,
        loss: float,
        left_out: dict[str, int],
    ) -> dict[str, float]:
        """Logs and shows the metrics of a call; returns what is logged.

        Args:
          step: the call's last step.
          schedule_step: the step of the schedule whose learning rates are logged.
          metrics: {metric: (sums, weights)} over its steps.
          loss: mean over its steps.
          left_out: the numbers of skipped updates and batches so far, if any.
        """
        metrics = {k: (a.sum(), b.sum()) for k, (a, b) in metrics.items()}
        means = sums.divide(sums.counted(metrics))
        seconds = self.watch.seconds
        speed, peak = self._measure_speed(step, seconds), device_peak()
        mfu = speed["network_flops"] / peak if peak else None
        tokens_per_second = speed["raw_tokens"]
        rates = self._rates[find_phase(self.spec.phases, step - 1)]
        values = means | {
            "loss": loss,
            **{name: float(lr[schedule_step]) for name, lr in rates.items()},
            "tokens_per_second": tokens_per_second,
            **left_out,
        }
        if mfu is not None:
            values["mfu"] = mfu
        self._write(step, values, seconds)
        if self._progress is not None:
            self._progress.update(
                step,
                {"loss": loss, "grad_norm": means["grad_norm"]},
                tokens_per_second=tokens_per_second,
                mfu=mfu,
            )
        return values

    def _list_rates(self, task: Task) -> dict[str, np.ndarray]:
        """Each learning rate at every step.

        Computed before training begins: a computation during training would wait for
        the running call and would delay the next one.
        """
        num_steps = self.spec.steps
        steps = np.arange(num_steps + 1)
        schedules = make_schedules(task.plan.optim, num_steps)
        return {
            name: np.broadcast_to(schedule(steps), steps.shape)
            for name, schedule in schedules.items()
        }

    def _count_flops(self, num_steps: int) -> float:
        return self.task.count_costs(num_steps)["flops"]

    def _count_work(self, num_steps: int) -> dict[str, float]:
        network_flops = self.task.count_network_flops(num_steps)
        return self.task.count_costs(num_steps) | {"network_flops": network_flops}

    def _measure_speed(self, step: int, seconds: float) -> dict[str, float]:
        """Costs per second since the last call of this method, or since `open`."""
        last_step, last_seconds = self._last_speed
        self._last_speed = step, seconds
        costs, before = map(self._count_work, (step, last_step))
        if seconds <= last_seconds:
            last_seconds, before = 0.0, dict.fromkeys(before, 0)
        elapsed = seconds - last_seconds
        return {k: (costs[k] - before[k]) / elapsed if elapsed else 0.0 for k in costs}

    def write(self, step: int, values: dict, sample: str = "") -> None:
        """Adds a line to the log, with the run's cost up to its step."""
        self._write(step, values, self.watch.seconds, sample)

    def _write(self, step: int, values: dict, seconds: float, sample: str = "") -> None:
        if self._writer is None:
            return
        first = self.watch.first_step_seconds
        clock = {"seconds": seconds, "first_step_seconds": first}
        texts = {"sample": sample} if sample else {}
        self._writer.write(step, values | self.task.count_costs(step) | clock, texts)

    def record_checksum(self) -> None:
        """Flushes the log to the disk, before a checkpoint relies on it."""
        if self._writer is not None:
            self._writer.record_checksum()


def format_end(seconds: float, now: datetime.datetime) -> str:
    """A duration and the time of its end.

    >>> format_end(90.0, datetime.datetime(2025, 1, 31, 23, 59, 0))
    '1:30 minutes more, until 00:00'
    """
    end = now + datetime.timedelta(seconds=seconds)
    day = f"{end.day} {end:%b} " if seconds >= 3600 and end.date() != now.date() else ""
    return f"{format_duration(seconds)} more, until {day}{end:%H:%M}"


def format_duration(seconds: float) -> str:
    """A duration with its unit.

    >>> format_duration(9.0), format_duration(90.0), format_duration(5400.0)
    ('9 seconds', '1:30 minutes', '1:30 hours')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02} hours"
    return f"{minutes}:{rest:02} minutes" if minutes else f"{rest} seconds"


def describe_end(seconds: float, now: datetime.datetime) -> list[str]:
    """Lines with the expected end of training; a warning if that is hours away.

    >>> now = datetime.datetime(2025, 1, 31, 23, 59, 0)
    >>> describe_end(90.0, now)
    ['training takes 1:30 minutes more, until 00:00, without evaluations']
    >>> describe_end(3 * 3600.0, now)[0]
    'training takes 3:00 hours more, until 1 Feb 02:59, without evaluations'
    """
    lines = [f"training takes {format_end(seconds, now)}, without evaluations"]
    if seconds > WARN_SECONDS:
        lines.append(
            "warning: that is hours; fewer train.steps, a smaller model or another "
            "device take less, and jaxpt train --dry_run estimates the time"
        )
    return lines

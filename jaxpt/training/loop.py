"""The training loop: compiled calls, logs, evaluations, checkpoints, resume."""

import contextlib
import dataclasses
import itertools
import math
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxpt.distributed import processes
from jaxpt.errors import DivergedError
from jaxpt.files.folder import CHECKPOINTS, hold
from jaxpt.judge.examples import means
from jaxpt.learn.state import TrainState
from jaxpt.runs.checkpoint import Checkpointer, is_finite
from jaxpt.runs.initial_state import make_start
from jaxpt.runs.metrics_file import read_last_line
from jaxpt.runs.passage_samples import make_lines
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import check_networks, read_random_parts
from jaxpt.runs.result import load_result
from jaxpt.runs.signals import SignalWatch, Stopped
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import (
    check_shared,
    fingerprint,
    load_divergence,
    lock_workdir,
)
from jaxpt.text.dataset import Split
from jaxpt.text.feed import (
    MAX_RANGES,
    add_range,
    merge,
    pad_ranges,
    prefetch,
    unpad_ranges,
)
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.check import check_run
from jaxpt.training.clock import Stopwatch, make_clock
from jaxpt.training.hooks import NO_HOOKS, Hooks
from jaxpt.training.measure import (
    NO_RESULTS,
    Measured,
    measure,
    measure_frozen,
    measure_text,
    measure_valid,
    total_loss,
)
from jaxpt.training.milestones import (
    count_words_of_row,
    plan_milestones,
    write_milestone,
)
from jaxpt.training.profile import Profiler
from jaxpt.training.result import (
    CURVES,
    Cost,
    write_divergence,
    write_result,
)
from jaxpt.training.run_log import RunLog


def train(
    task: Task,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    workdir: Path,
    program: Program | None = None,
    label: str = "",
    only_valid: bool = False,
    hooks: Hooks = NO_HOOKS,
) -> dict:
    """Trains a run to its end, from its last checkpoint if there is one.

    Args:
      program: a compiled one of the same task, whose seed may differ.
      label: shown before each line of progress.
      only_valid: the final metrics are only the objective's own validation metrics.

    A run that diverges writes `diverged.json` (`workdir.load_divergence`). It is not
    trained again while its folder has that record.

    Returns:
      the run's entry in a report, which is also written to `result.json`.

    Raises:
      UserError: the folder holds another run, or no good checkpoint among several; its
        files were altered; or another process writes there.
      DivergedError: a loss or parameter is not finite, now or at an earlier start; on
        all processes.
      Stopped: a signal came; the state is saved.
    """
    workdir = Path(workdir)
    divergence = None
    with hold(workdir):
        run = _Run(task, tokenizer, corpora, workdir, program, label, hooks)
        with run.checkpointer, SignalWatch() as watch:
            try:
                result = run.go(watch, only_valid)
            except DivergedError as error:
                divergence = error
            signum = processes.greatest(watch.signum or 0)
    if signum:  # too late to stop this run; the caller must stop
        signal.raise_signal(signum)
    if divergence is not None:
        raise divergence
    hooks.on_end(result)
    return result


class _Call(NamedTuple):
    """A compiled call: the step at its end, its number of steps, and their metrics."""

    step: int
    num_steps: int
    metrics: dict


class _BadUpdate(Exception):
    """An update from which a run with `train.rewind` goes back; `step` is its end."""

    def __init__(self, step: int):
        super().__init__(step)
        self.step = step


class _Run:
    def __init__(
        self,
        task: Task,
        tokenizer: Tokenizer,
        corpora: dict[str, Split],
        workdir: Path,
        program: Program | None,
        label: str,
        hooks: Hooks,
    ):
        self.start = time.perf_counter()
        self.task, self.corpora, self.workdir = task, corpora, workdir
        self.label, self.hooks = label, hooks
        self.spec = task.plan.train
        parts = processes.on_first(read_random_parts, workdir)
        with_parts = dataclasses.replace(task, random_parts=parts)
        processes.on_all(check_networks, with_parts, "train")
        # A run that has begun no longer needs the checkpoint it was initialised from.
        has_begun = processes.on_first((workdir / CHECKPOINTS).is_dir)
        self.program, self.feed = processes.on_all(
            check_run, task, tokenizer, corpora, program, has_begun
        )
        self.milestones: dict[int, list[str]] = {}
        if self.spec.checkpoint_words:
            self.milestones = processes.on_all(
                lambda: plan_milestones(
                    self.spec,
                    count_words_of_row(
                        corpora["train"], self.feed, tokenizer, task.spec.row_length
                    ),
                )
            )
        digest = fingerprint(task.plan, tokenizer, corpora)
        processes.check_same("config or text", digest)
        processes.on_first(lock_workdir, workdir, task.plan, tokenizer, corpora)
        processes.on_all(check_shared, workdir)
        self.checkpointer = Checkpointer(
            workdir / CHECKPOINTS, keep=self.spec.keep_checkpoints
        )
        num = 0 if label else task.plan.eval.samples  # a comparison's report has them
        self.take_samples = make_lines(self.program, tokenizer, corpora["valid"], num)
        self.measured: dict[int, Measured] = {}  # by step, in this process
        decay = task.plan.optim.ema_decay
        self._ema = {"ema_decay": decay} if task.has_ema else {}
        self.log = RunLog(self.program, self.feed, corpora, workdir, label)
        self.profiler = Profiler(workdir, self.spec.profile_steps)
        self.watch = Stopwatch()
        self.clock = make_clock(self.spec, 0, 0.0)
        self._pauses = self.spec.eval_every, self.spec.checkpoint_every
        self._logged = 0  # the last step whose metrics were logged
        self._skipped = 0  # updates, up to the last call whose metrics were fetched

    def go(self, signals: SignalWatch, only_valid: bool) -> dict:
        """Restores, trains and measures the run; returns its result."""
        if record := processes.on_first(load_divergence, self.workdir):
            raise DivergedError(
                f"{record['reason']} at step {record['diverged_at']} "
                f"(optim.lr={self.task.plan.optim.lr}): the run has diverged; remove "
                f"{self.workdir} to train it again, or use other settings"
            )
        restored = self.checkpointer.restore(self.program.abstract_state())
        state, step = restored or (None, 0)
        if state is not None:
            self._continue(state)
        last = processes.on_first(read_last_line, self.workdir, step)
        self.watch = Stopwatch(last.get("seconds", 0.0))
        self.clock = make_clock(self.spec, step, self.watch.seconds)
        if self.clock.is_over and (
            result := processes.on_first(load_result, self.workdir)
        ):
            return result
        self.log.first_step_seconds = last.get("first_step_seconds", 0.0)
        for count in itertools.islice(self.clock.list_calls(step), 1):
            # Compiles while the start and its evaluation are prepared.
            self.program.train_call.begin(self.feed[step], count)
        if state is None:
            state = make_start(self.program, self.spec)
        introduction = *self.log.describe_run(), *self.hooks.describe(self.task)
        while True:
            try:
                with self.log.open(step, self.watch.seconds):
                    for line in introduction:
                        self.log.info(line)
                    if step:
                        self.log.info(f"resuming from step {step} in {self.workdir}")
                    state, step = self._advance(state, step, signals)
                    self._log_phase(f"measuring the run after step {step}")
                    measured = self._measure(state.eval_params, step, only_valid)
                break
            except _BadUpdate as bad:
                state, step = self._rewind(bad.step)
                introduction = ()
        cost = self._count_cost(step)
        trained = self.task, self.program, state.params
        self.checkpointer.wait()  # a run with a result has its last checkpoint
        return processes.on_first(write_result, self.workdir, *trained, cost, measured)

    def _count_cost(self, step: int) -> Cost:
        seconds = self.watch.seconds, self.log.first_step_seconds
        return Cost(step, *seconds, self._skipped, self.feed.skipped)

    def _continue(self, state: TrainState) -> None:
        """Takes over what a restored state says of skipped updates and batches."""
        if state.skips is not None:
            self._skipped = int(np.asarray(state.skips.total))
        if state.skipped_batches is not None:
            ranges = unpad_ranges(np.asarray(state.skipped_batches))
            self.feed = self.feed.without(ranges)

    def _rewind(self, bad_step: int) -> tuple[TrainState, int]:
        """A state before a bad update; batches up to and after its own are skipped.

        Steps between the state and the skipped batches are repeated with the same
        rows, so the result does not depend on which checkpoints there are.
        """
        steps, num = self.spec.rewind
        until = max(bad_step - 1 - steps, 0)
        ranges = add_range(self.feed.skipped, until, num)
        template = self.program.abstract_state()
        restored = self.checkpointer.restore(template, until=until)
        state, step = restored or (make_start(self.program, self.spec), 0)
        self._skipped = 0
        self._continue(state)
        self.feed = self.feed.without(ranges)
        padded = pad_ranges(ranges)
        batches = jax.make_array_from_callback(
            padded.shape, template.skipped_batches.sharding, lambda at: padded[at]
        )
        self.watch.pause(self.watch.seconds)
        self.clock = make_clock(self.spec, step, self.watch.seconds)
        self.measured = {at: x for at, x in self.measured.items() if at <= step}
        return dataclasses.replace(state, skipped_batches=batches), step

    def _advance(
        self, state: TrainState, step: int, signals: SignalWatch
    ) -> tuple[TrainState, int]:
        """Trains to the end: the state in the form that is saved, and the last step."""
        if step == 0:
            self._log_phase("evaluating the initial parameters")
            self._evaluate(state, 0)
        state, pending = self.program.run_form(state), None
        first = self._logged = step
        counts = self.clock.list_calls(step)
        rows = prefetch(self.feed, step, counts, place=self.program.place)
        with contextlib.closing(rows), contextlib.closing(self.profiler):
            for count, stack in zip(counts, rows, strict=True):
                self._compile(state, stack, count)
                schedule = self.clock.begin_call(self._agreed_seconds)
                start = time.perf_counter()
                with self.profiler.begin(step):
                    state, metrics = self.program.train_call(
                        state, stack, self.spec.seed, *schedule
                    )
                self.profiler.end(count, metrics)
                self._finish_call(pending)  # fetched while this call runs
                is_first, step = step == first, step + count
                pending = _Call(step, count, metrics)
                if is_first:
                    self._time_first_call(pending, start)
                if self.clock.waits_for_calls:
                    jax.block_until_ready(metrics)
                    self._finish_call(pending)
                    pending = None
                self.clock.end_call(step, self._agreed_seconds)
                signum = signals.ask()
                is_due = self.clock.is_due(*self._pauses) or step in self.milestones
                if signum or is_due:
                    self._finish_call(pending)
                    pending = None
                    self._pause(state, step, signum)
                if self.clock.is_over:
                    break
        return self.program.save_form(state), step

    def _compile(self, state: TrainState, stack: Any, count: int) -> None:
        """Compiles the next call if needed, outside the training time."""
        if stack not in self.program.train_call:
            self.log.info(f"compiling a call of {count} steps")
        self.watch.run(self.program.train_call.compile(state, stack))

    def _time_first_call(self, call: _Call, start: float) -> None:
        """Waits for the first call, and says when the run is expected to end."""
        jax.block_until_ready(call.metrics)
        now = time.perf_counter()
        if not self.log.first_step_seconds:
            self.log.first_step_seconds = now - self.start
        self.log.log_end_time(
            call.step, self.watch.seconds, now - start, call.num_steps
        )

    def _agreed_seconds(self) -> float:
        """Training time by the clock of process 0, on all."""
        return processes.on_first(lambda: self.watch.seconds)

    def _finish_call(self, call: _Call | None) -> None:
        """Fetches a call's metrics: stops at a loss that is not finite, else logs."""
        if call is None:
            return
        metrics = jax.tree.map(np.asarray, call.metrics)
        totals, in_a_row = metrics.pop("skips", np.zeros((2, call.num_steps), int))
        is_skipped = in_a_row > 0
        schedule_steps = self.clock.list_schedule_steps(call.step, call.num_steps)
        losses = [
            total_loss(
                self.program,
                {k: (a[i], b[i]) for k, (a, b) in metrics.items()},
                at / self.spec.steps,
            )
            for i, at in enumerate(schedule_steps)
        ]
        before = call.step - call.num_steps
        limit = min(self.task.plan.optim.max_skips, self.spec.steps)
        names = self.task.spec.coefficients
        is_empty = sum(metrics[name][1] for name in names) == 0
        self._log_empty(before, is_empty)
        for i, loss in enumerate(losses):
            if not is_skipped[i] and not is_empty[i] and not math.isfinite(loss):
                self._diverged(f"the loss is {loss}", before + i + 1)
            if is_skipped[i] and in_a_row[i] == limit:
                norm = metrics["grad_norm"][0][i]
                reason = f"{limit} updates in a row were skipped, the last with loss "
                self._skipped = int(totals[i])
                first = before + i + 2 - limit
                self._diverged(f"{reason}{loss} and gradient norm {norm}", first)
        if is_skipped.any():
            self._log_skips(before, is_skipped, losses, metrics["grad_norm"][0])
            self._skipped = int(totals[-1])
        if not (left_out := is_skipped | is_empty).all():  # else the log shows why
            kept = np.flatnonzero(~left_out)
            losses = [losses[i] for i in kept]
            metrics = {k: (a[kept], b[kept]) for k, (a, b) in metrics.items()}
        self.log.check_overflow(metrics)
        is_due = call.step // self.spec.log_every > self._logged // self.spec.log_every
        if is_due and not is_empty.all():
            skipped = {
                "skipped_updates": self._skipped,
                "skipped_batches": sum(b - a for a, b in merge(self.feed.skipped)),
            }
            values = self.log.log_call(
                call.step,
                schedule_steps[-1],
                metrics,
                sum(losses) / len(losses),
                self.watch.seconds,
                {name: num for name, num in skipped.items() if num},
            )
            self.hooks.on_log(call.step, values)
            self._logged = call.step

    def _log_empty(self, before: int, is_empty: np.ndarray) -> None:
        """Warns of the batches of a call, after a step, that have nothing to predict.

        Their sums and weights are 0, so they change no mean and are not a divergence.
        """
        if num := int(np.count_nonzero(is_empty)):
            self.log.warn(
                f"steps {before + 1} to {before + len(is_empty)}: {num} batches have "
                f"no token to predict under {self.task.plan.objective_name}, so they "
                "have no loss"
            )

    def _log_skips(
        self, before: int, is_skipped: np.ndarray, losses: list, norms: np.ndarray
    ) -> None:
        """Warns of the skipped updates of a call that began after a step."""
        for i in np.flatnonzero(is_skipped).tolist():
            self.log.warn(
                f"step {before + i + 1}: update skipped, loss {losses[i]:.4g}, "
                f"gradient norm {norms[i]:.4g}"
            )

    def _diverged(self, reason: str, step: int) -> None:
        """Rewinds, or records that the run has diverged.

        All processes come here together.
        """
        self.checkpointer.wait()
        if self.spec.rewind and len(self.feed.skipped) < MAX_RANGES:
            back, num = self.spec.rewind
            self.log.warn(
                f"{reason}, from step {step}: going back at least {back} steps, and "
                f"skipping {num} batches"
            )
            raise _BadUpdate(step)
        good = self.checkpointer.steps()
        last_good = f"step {good[-1]} is kept" if good else "there is none yet"
        cost = self._count_cost(step)
        processes.on_first(write_divergence, self.workdir, self.task, reason, cost)
        raise DivergedError(
            f"{reason} at step {step} (optim.lr={self.task.plan.optim.lr}): training "
            f"stopped; last good checkpoint: {last_good} in {self.workdir}"
        )

    def _pause(self, state: TrainState, step: int, signum: int | None) -> None:
        """Between two calls: an evaluation, a checkpoint, the end."""
        reading = self.clock.reading
        self.watch.pause(self.watch.seconds if reading is None else reading)
        saved = self.program.save_form(state)
        if self.clock.is_due(self.spec.eval_every):
            self._evaluate(saved, step)
        is_due = self.clock.is_due(self.spec.checkpoint_every)
        names = self.milestones.get(step, [])
        if signum or is_due or names:
            if not is_finite((saved.params, saved.ema)):
                if signum and not is_due:  # it will diverge again when it is resumed
                    raise Stopped((self.checkpointer.steps() or [0])[-1], signum)
                self._diverged("a parameter is not finite", step)
        for name in names:
            write_milestone(self.workdir, name, step, saved)
        if signum or is_due:
            if reading is not None:  # a resumed run continues from it
                self.log.write(step, {}, self.watch.seconds)
            self.log.record_checksum()  # a resumed run relies on the log
            self.checkpointer.save(step, saved)
            self.hooks.on_checkpoint(step, saved)
        if signum and not self.clock.is_over:
            self.checkpointer.wait()
            raise Stopped(step, signum)

    def _evaluate(self, saved: TrainState, step: int) -> None:
        params = saved.eval_params
        values = measure_valid(self.program, params, self.corpora)
        frozen = NO_RESULTS
        if self.task.plan.eval.probe_every_eval:
            frozen = measure_frozen(self.program, params, self.corpora)
            values |= means(measure_text(self.program, params, self.corpora["valid"]))
        values |= frozen.metrics
        self.measured[step] = frozen._replace(metrics=values)
        samples = self.take_samples(params)
        self.log.write(step, values | self._ema, self.watch.seconds, "\n".join(samples))
        curves = "  ".join(f"{k} {values[k]:.4f}" for k in CURVES if k in values)
        ema_note = " (EMA)" if self._ema else ""
        for line in (curves, *samples):
            self.log.info(f"step {step}{ema_note}  {line}")
        self.hooks.on_evaluation(step, values, params)

    def _measure(self, params: Any, step: int, only_valid: bool) -> Measured:
        """The run's final metrics, without measuring again what evaluations did."""
        known, control = (self.measured.get(at, NO_RESULTS) for at in (step, 0))
        if not only_valid:
            seed = self.spec.seed
            return measure(self.program, params, self.corpora, seed, known, control)
        if known.metrics:
            return known
        return Measured(measure_valid(self.program, params, self.corpora), {}, {})

    def _log_phase(self, text: str) -> None:
        """Announces a long phase; not for each run of a comparison."""
        if not self.label:
            self.log.info(text)

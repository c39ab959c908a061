"""The training loop: compiled calls, metrics fetched late, checkpoints, resume."""

import contextlib
import itertools
import math
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.distributed import processes
from jaxpt.errors import DivergedError
from jaxpt.files.folder import CHECKPOINTS, hold, load_measured, write_json
from jaxpt.learn.state import TrainState
from jaxpt.statistics.examples import Examples, means
from jaxpt.text.dataset import Split
from jaxpt.text.feed import prefetch
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.check import check_run
from jaxpt.training.checkpoint import Checkpointer
from jaxpt.training.clock import find_schedule_step, is_over, plan_call
from jaxpt.training.initial_state import make_start
from jaxpt.training.measure import (
    FROM_FEATURES,
    measure,
    measure_frozen,
    measure_valid,
    total_loss,
)
from jaxpt.training.metrics_log import read_metrics
from jaxpt.training.passage_samples import make_lines
from jaxpt.training.profile import Profiler
from jaxpt.training.program import Program
from jaxpt.training.run_log import RunLog
from jaxpt.training.signals import SignalWatch, Stopped
from jaxpt.training.task import Task
from jaxpt.training.workdir import (
    DIVERGED,
    check_shared,
    fingerprint,
    load_divergence,
    lock_workdir,
    write_examples,
)

# Of what is evaluated along a run, what its learning curves show.
CURVES = ("valid_loss", "valid_accuracy", *FROM_FEATURES)


def train(
    task: Task,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    workdir: Path,
    program: Program | None = None,
    label: str = "",
    only_valid: bool = False,
) -> dict:
    """Trains a run to its end, from wherever its folder says it stands.

    Args:
      program: a compiled one of the same task but for the seed.
      label: shown before each line of progress.
      only_valid: at its end the run is measured by its objective's own validation
        metrics alone, as at its other evaluations.

    A run that diverges writes `diverged.json` (`workdir.load_divergence`); it is not
    trained again while its folder has that record.

    Returns:
      the run's entry in a report, which is also written to `result.json`.

    Raises:
      UserError: the folder holds another run, or checkpoints of which none is good; its
        files were altered; or another process writes there.
      DivergedError: a loss or parameter is not finite, now or at an earlier start; on
        all processes.
      Stopped: a signal came; the state is saved.
    """
    workdir = Path(workdir)
    divergence = None
    with hold(workdir):
        run = _Run(task, tokenizer, corpora, workdir, program, label)
        run.only_valid = only_valid
        with run.checkpointer, SignalWatch() as watch:
            try:
                result = run.go(watch)
            except DivergedError as error:
                divergence = error
            signum = processes.greatest(watch.signum or 0)
    if signum:  # it came too late to stop this run; whoever called must stop
        signal.raise_signal(signum)
    if divergence is not None:
        raise divergence
    return result


class _Run:
    def __init__(self, task, tokenizer, corpora, workdir, program, label):
        self.start = time.perf_counter()
        self.task, self.corpora, self.workdir = task, corpora, workdir
        self.result_path = workdir / "result.json"
        self.label, self.spec = label, task.plan.train
        self.only_valid = False
        # Once it has begun, a run is whole without what it began with.
        has_begun = processes.on_first((workdir / CHECKPOINTS).is_dir)
        self.program, self.feed = processes.on_all(
            lambda: check_run(task, tokenizer, corpora, program, has_begun)
        )
        whole = fingerprint(task.plan, tokenizer, corpora)
        processes.check_same("config or text", whole)
        # The first thing written.
        processes.on_first(lambda: lock_workdir(workdir, task.plan, tokenizer, corpora))
        processes.on_all(lambda: check_shared(workdir))
        self.checkpointer = Checkpointer(
            workdir / CHECKPOINTS, keep=self.spec.keep_checkpoints
        )
        num = 0 if label else task.plan.eval.samples  # of many, the report shows them
        valid = corpora["valid"]
        self.show = make_lines(self.program, tokenizer, valid, num)
        self.measured = {}  # step -> what this process has evaluated there
        self.examples = {}  # step -> of measures that are kept by example
        self.probes = {}  # step -> which states labels were read from
        decay = task.plan.optim.ema_decay
        # Said beside what was measured on the mean of the parameters.
        self._ema = {"ema_decay": decay} if task.has_ema else {}
        self.log = RunLog(self.program, self.feed, corpora, workdir, label)

    def go(self, watch: SignalWatch) -> dict:
        if record := processes.on_first(lambda: load_divergence(self.workdir)):
            raise DivergedError(
                f"{record['reason']} at step {record['diverged_at']} "
                f"(optim.lr={self.task.plan.optim.lr}): the run has diverged; remove "
                f"{self.workdir} to train it again, or use other settings"
            )
        restored = self.checkpointer.restore(self.program.abstract_state())
        state, step = restored or (None, 0)
        last = processes.on_first(lambda: self._last_line(step))
        self.seconds = last.get("seconds", 0.0)
        self._is_last = is_over(self.spec, step, self.seconds)
        if self._is_last and (result := processes.on_first(self._load_result)):
            return result
        self.log.first_step_seconds = last.get("first_step_seconds", 0.0)
        for count in itertools.islice(self._list_counts(step), 1):
            # Beside what comes before the first call: the start and its evaluation.
            self.program.train_call.begin(self.feed[step], count)
        if state is None:
            state = make_start(self.program, self.spec)
        with self.log.open(step):
            for line in self.log.describe_run():
                self.log.say(line)
            if step:
                self.log.say(f"resuming from step {step} in {self.workdir}")
            state, self.total = self._advance(state, step, watch)
            examples = self._measured_examples(self.total)
            probes = self._measured_probes(self.total)
            self._say_phase(f"measuring the run after step {self.total}")
            metrics = self._measure(state, examples, probes)
        num_params = sum(x.size for x in jax.tree.leaves(state.params))

        def conclude():
            result = self._describe(metrics, num_params)
            result |= {"probe": probes} if probes else {}
            # First: a run with a result is finished.
            write_examples(self.workdir, examples)
            write_json(self.result_path, result)
            return result

        return processes.on_first(conclude)

    def _measure(
        self, state: TrainState, examples: dict[str, Examples], probes: dict[str, dict]
    ) -> dict:
        """The run's metrics; `examples` and `probes` are filled."""
        params, known = state.eval_params, self.measured.get(self.total)
        if self.only_valid:
            return known or measure_valid(self.program, params, self.corpora)
        return measure(
            self.program,
            params,
            self.corpora,
            self.spec.seed,
            known=known,
            control=self.measured.get(0),
            examples=examples,
            probes=probes,
        )

    def _load_result(self) -> dict | None:
        if self.result_path.exists():
            return load_measured(self.result_path)
        return None

    def _last_line(self, step: int) -> dict:
        """What was logged last up to the step that is resumed from."""
        if not step:
            return {}
        lines = [line for line in read_metrics(self.workdir) if line["step"] <= step]
        return lines[-1] if lines else {}

    def _list_counts(self, step: int) -> Iterable[int]:
        """The steps of each call; by the clock it is not known how many there are."""
        total, size = self.spec.steps, self.spec.steps_per_call
        if self.spec.seconds:
            return () if self._is_last else itertools.repeat(size)
        return [min(size, total - s) for s in range(step, total, size)]

    def _advance(
        self, state: TrainState, step: int, watch: SignalWatch
    ) -> tuple[TrainState, int]:
        """Runs to the last step; returns the state as it is saved, and that step."""
        counts, by_clock = self._list_counts(step), bool(self.spec.seconds)
        is_timed = False
        if step == 0:
            self._say_phase("evaluating the fresh parameters")
            self._evaluate(state, 0)
        state = self.program.run_form(state)
        pending, self._marked, self._logged = None, None, step
        rows = prefetch(self.feed, step, counts, place=self.program.place)
        profiler = Profiler(self.workdir, self.spec.profile_steps)
        with contextlib.closing(rows), contextlib.closing(profiler):
            for count, stack in zip(counts, rows, strict=True):
                if stack not in self.program.train_call:
                    self.log.say(f"compiling a call of {count} steps")
                compile_seconds = self.program.train_call.compile(state, stack)
                if self._marked is None:
                    self._marked = time.perf_counter()
                else:
                    self._marked += compile_seconds  # no part of training
                numbers = [self.spec.seed]
                if by_clock:
                    spent = processes.on_first(self._tell_seconds)
                    self._planned = plan_call(self.spec, step, spent)
                    numbers += self._planned
                begun = time.perf_counter()
                with profiler.begin(step):
                    state, found = self.program.train_call(state, stack, *numbers)
                profiler.end(count, found)
                if pending is not None:
                    self._finish_call(*pending)  # fetched while the next call runs
                step, pending = step + count, (step + count, count, found)
                if not is_timed:  # fetched at once, to tell when the run will end
                    jax.block_until_ready(found)
                    is_timed, now = True, time.perf_counter()
                    if not self.log.first_step_seconds:
                        self.log.first_step_seconds = now - self.start
                    self.log.say_end(step, self._tell_seconds(), now - begun, count)
                if by_clock:  # else it would count the calls before this one
                    jax.block_until_ready(found)
                    self._finish_call(*pending)
                    pending = None
                spent = processes.on_first(self._tell_seconds) if by_clock else 0.0
                self._is_last = is_over(self.spec, step, spent)
                signum = watch.ask()
                self._reached = step
                if by_clock:
                    self._reached = find_schedule_step(self.spec, spent)
                if self._is_boundary() or signum:
                    if pending is not None:
                        self._finish_call(*pending)
                        pending = None
                    # What is logged decides where a resumed run ends.
                    self.seconds = spent if by_clock else self._tell_seconds()
                    self._pause(state, step, signum)
                    self._marked = None
                    if self._is_last:
                        break
        return self.program.save_form(state), step

    def _tell_seconds(self) -> float:
        """Seconds of training so far, as this process's clock has them."""
        if self._marked is None:
            return self.seconds
        return self.seconds + time.perf_counter() - self._marked

    def _is_boundary(self) -> bool:
        every = (self.spec.eval_every, self.spec.checkpoint_every)
        return self._is_last or any(map(self._is_due, every))

    def _is_due(self, every: int) -> bool:
        """Whether the last call has reached a multiple of so many steps, or passed."""
        if not every:
            return False
        if not self.spec.seconds:
            return self._reached % every == 0
        return self._reached // every > self._planned[0] // every

    def _finish_call(self, step: int, count: int, found: dict) -> None:
        """Fetches a call's metrics: stops at a loss that is not finite, else logs."""
        found = jax.tree.map(np.asarray, found)
        losses = [
            total_loss(self.program, {k: (a[i], b[i]) for k, (a, b) in found.items()})
            for i in range(count)
        ]
        for i, loss in enumerate(losses):
            if not math.isfinite(loss):
                self._diverged(f"the loss is {loss}", step - count + i + 1)
        self.log.check_overflow(found)
        self._mean_loss = sum(losses) / count
        if step // self.spec.log_every > self._logged // self.spec.log_every:
            self._log(step, found)
            self._logged = step

    def _diverged(self, what: str, step: int) -> None:
        """Records that the run has diverged; all processes come here together."""
        self.checkpointer.wait()
        good = self.checkpointer.steps()
        kept = f"step {good[-1]} is kept" if good else "there is none yet"
        record = {
            "objective": self.task.plan.objective_name,
            "seed": self.spec.seed,
            "diverged_at": step,
            "reason": what,
            **self.task.count_costs(step),
            "train_seconds": self._tell_seconds(),
        }
        processes.on_first(lambda: write_json(self.workdir / DIVERGED, record))
        raise DivergedError(
            f"{what} at step {step} (optim.lr={self.task.plan.optim.lr}): training "
            f"stopped; last good checkpoint: {kept} in {self.workdir}"
        )

    def _log(self, step: int, found: dict) -> None:
        at = step - 1  # in the schedule, of the last step
        if self.spec.seconds:
            begin, end = self._planned
            num = self.spec.steps_per_call
            at = begin + (num - 1) * (end - begin) // num
        self.log.log_call(step, at, found, self._mean_loss, self._tell_seconds())

    def _pause(self, state: TrainState, step: int, signum: int | None) -> None:
        """What happens between calls: evaluation, a checkpoint, the end."""
        is_last = self._is_last
        saved = self.program.save_form(state)
        if is_last or self._is_due(self.spec.eval_every):
            self._evaluate(saved, step)
        is_due = is_last or self._is_due(self.spec.checkpoint_every)
        if signum or is_due:
            if not _is_finite((saved.params, saved.ema)):
                if (
                    signum and not is_due
                ):  # it resumes earlier, and diverges as without the signal
                    raise Stopped((self.checkpointer.steps() or [0])[-1], signum)
                self._diverged("a parameter is not finite", step)
            if self.spec.seconds:  # a resumed run goes on from here
                self.log.write(step, {}, self.seconds)
            self.log.vouch()  # the run resumes here by what the log says
            self.checkpointer.save(step, saved)
        if signum and not is_last:
            self.checkpointer.wait()
            raise Stopped(step, signum)

    def _measured_examples(self, total: int) -> dict[str, Examples]:
        """What evaluations before the first and after the last step have found."""
        last, first = (self.examples.get(step, {}) for step in (total, 0))
        of_first = {f"{name}_random": e for name, e in first.items()}
        of_first.pop("probe_majority_random", None)
        return last | of_first

    def _measured_probes(self, total: int) -> dict[str, dict]:
        """Which states evaluations after the last and before the first step have read.

        Of an evaluation that was measured in another process there is none: `measure`
        fills it in.
        """
        steps = {"trained": total, "untrained": 0}
        return {name: self.probes[n] for name, n in steps.items() if n in self.probes}

    def _evaluate(self, saved: TrainState, step: int) -> None:
        params = saved.eval_params
        values = measure_valid(self.program, params, self.corpora)
        if self.task.plan.eval.probe_every_eval:
            read: list[dict] = []
            found = measure_frozen(self.program, params, self.corpora, read)
            values |= means(found)
            self.examples[step] = found
            if read:
                self.probes[step] = read[0]
        self.measured[step] = values
        lines = self.show(params)
        self.log.write(step, values | self._ema, self.seconds, "\n".join(lines))
        shown = {name: values[name] for name in CURVES if name in values}
        whose = " (EMA)" if self._ema else ""
        named = "  ".join(f"{k} {v:.4f}" for k, v in shown.items())
        for line in (named, *lines):
            self.log.say(f"step {step}{whose}  {line}")

    def _say_phase(self, text: str) -> None:
        """Says what takes long; of a run of a comparison its lines say enough."""
        if not self.label:
            self.log.say(text)

    def _describe(self, metrics: dict, num_params: int) -> dict:
        """The run's entry in a report."""
        costs = self.task.count_costs(self.total)
        kept = ("step", "raw_tokens", "flops", "seconds")
        curve = [
            {k: line[k] for k in (*kept, *CURVES) if k in line}
            for line in read_metrics(self.workdir)
            if "valid_loss" in line
        ]
        return {
            "objective": self.task.plan.objective_name,
            "seed": self.spec.seed,
            "params": num_params,
            "steps": self.total,
            "row_length": self.task.spec.row_length,
            "batch_size": self.spec.batch_size,
            **self._ema,
            **costs,
            "train_seconds": self.seconds,
            "first_step_seconds": self.log.first_step_seconds,
            "steps_per_second": self.total / max(self.seconds, 1e-9),
            "device": f"{len(self.program.devices)} x {jax.devices()[0].device_kind}",
            "metrics": metrics,
            "workdir": str(self.workdir),
            "curve": curve,
        }


@jax.jit
def _all_finite(params):
    return jnp.all(
        jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)])
    )


def _is_finite(params) -> bool:
    return bool(_all_finite(params))

"""One run of the grid: trains, evaluates and saves; it resumes after a kill.

cells/NAME/history.json         the evaluations so far
cells/NAME/checkpoints          trained parameters, the optimizer's state
cells/NAME/predictions.jsonl    a line for each dev and test example, at the end
cells/NAME/result.json          written last
"""

import dataclasses
import math
import numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.errors import DivergedError
from jaxpt.files.folder import load_measured, write_json
from jaxpt.finetuning.evaluation import (
    LabelledRows,
    TaskMeasured,
    check_generator,
    make_batch,
    measure,
)
from jaxpt.finetuning.meter import Meter
from jaxpt.finetuning.program import TuneProgram, TuneState
from jaxpt.finetuning.summary import show_rate
from jaxpt.judge.examples import Examples
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.progress_bars import StepBar
from jaxpt.runs.signals import SignalWatch, Stopped
from jaxpt.tasks.batches import (
    TaskBatch,
    choose_lengths,
    count_lengths,
    cut_all,
    cut_epoch,
)

# The schema of history.json; metrics and losses may be NaN.
METRICS = {str: numbers.Real}
HISTORY = {"history": [{"step": int, "loss": (numbers.Real, None), "dev": METRICS}]}
BAR_SECONDS = 0.5  # between two updates of a bar; each waits for a loss
MIN_BATCHES = 32  # batches that justify compiling one more length


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of the grid: its settings and its seed."""

    lr: float
    batch_size: int
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        """The unique name of its folder.

        >>> Cell(2e-5, 32, 3, 0).name, Cell(1.0000001e-3, 32, 3, 0).name
        ('lr2e-05-b32-e3-s0', 'lr0.0010000001-b32-e3-s0')
        """
        rate = show_rate(self.lr)
        return f"lr{rate}-b{self.batch_size}-e{self.epochs}-s{self.seed}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A finished cell.

    Attributes:
      result: the content of result.json; if it diverged, with "diverged", the reason,
        and without "dev" and "test".
      params: the trained parameters by path; None if it diverged.
      records: of the examples of each split.
      scores: by "SPLIT/METRIC", the scores of the examples (`Task.item_scores`).
    """

    result: dict
    params: Any = None
    records: dict[str, list[dict]] = dataclasses.field(default_factory=dict)
    scores: dict[str, Examples] = dataclasses.field(default_factory=dict)


def conclude(
    program: TuneProgram,
    params: Any,
    splits: dict[str, LabelledRows],
    result: dict,
    dev: TaskMeasured | None = None,
) -> Trained:
    """Evaluates the final parameters of a cell on the dev and the test split.

    Args:
      result: the entries of the result so far.
      dev: the measurements on the dev split; None measures them.

    Raises:
      DivergedError: an output is not finite.
    """
    measured = {"dev": dev or measure(program, params, splits["dev"], splits["dev"])}
    if "test" in splits:
        measured["test"] = measure(program, params, splits["test"], splits["dev"])
    metrics = {name: each.metrics for name, each in measured.items()}
    reports = {name: each.report for name, each in measured.items() if each.report}
    result = result | metrics | ({"report": reports} if reports else {})
    records = {name: each.records for name, each in measured.items()}
    scores = {
        f"{name}/{metric}": items
        for name, each in measured.items()
        for metric, items in each.scores.items()
    }
    return Trained(result, program.split(params)[0], records, scores)


@dataclasses.dataclass
class CellRun:
    """The training of a cell.

    Attributes:
      log: gets lines of progress.
    """

    program: TuneProgram
    cell: Cell
    splits: dict[str, LabelledRows]
    folder: Path
    log: Callable[[str], None]

    def __post_init__(self) -> None:
        train = self.program.plan.train
        rows = len(self.splits["train"].rows)
        self.epoch_steps = math.ceil(rows / self.cell.batch_size)
        self.num_steps = max(self.epoch_steps * self.cell.epochs, train.min_steps)
        self.lengths = self.splits["train"].lengths
        self.allowed = choose_lengths(
            self.lengths.tolist(),
            train.num_lengths or count_lengths(self.num_steps, MIN_BATCHES),
            self.program.base.encoder.max_len,
        )
        if train.evals:
            shares = np.arange(1, train.evals + 1) / train.evals
            at = np.ceil(shares * self.num_steps).astype(int).tolist()
        else:
            at = list(range(self.epoch_steps, self.num_steps, self.epoch_steps))
        self.measured_at = sorted({*at, self.num_steps})
        # With 0 epochs nothing is trained, and the initial parameters are measured.
        steps = max(self.num_steps, 1)
        self.sizes = {"num_steps": steps, "epoch_steps": self.epoch_steps}
        self.history: list[dict] = []
        self.best: tuple[float, Any] | None = None  # metric, trained parameters
        # Of the chosen parameters; None if they were restored.
        self.measured: TaskMeasured | None = None
        # Sum and number of the steps' losses since the last measurement.
        self.losses = jnp.zeros(()), jnp.zeros((), jnp.int32)

    def run(self, watch: SignalWatch) -> Trained:
        """Trains the cell until it is finished or diverges.

        Raises:
          Stopped: a signal arrived; the state is saved.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        result = dataclasses.asdict(self.cell) | {"steps": self.num_steps}
        try:
            with Checkpointer(self.folder / "checkpoints", keep=1) as checkpointer:
                state = self._restore(checkpointer)
                with StepBar(self.num_steps, state.step, self.cell.name) as bar:
                    state = self._train(state, checkpointer, watch, bar)
            chosen, trained = self.history[-1], self.program.split(state.params)[0]
            if self.best is not None:
                metric, trained = self.best
                main = self.program.spec.main_metric
                chosen = next(x for x in self.history if x["dev"][main] == metric)
            params = self.program.join(trained, self.program.split(state.params)[1])
            result |= {"measured_at": chosen["step"]} | self._describe_past()
            return conclude(self.program, params, self.splits, result, self.measured)
        except DivergedError as error:
            return Trained(result | self._describe_past() | {"diverged": str(error)})

    def _describe_past(self) -> dict:
        last = self.history[-1] if self.history else {}
        names = "seconds", "examples_per_second"
        past = {name: last.get(name, 0.0) for name in names} | {"history": self.history}
        skipped = last.get("skipped_updates", 0)
        return past | ({"skipped_updates": skipped} if skipped else {})

    def _restore(self, checkpointer: Checkpointer) -> TuneState:
        sizes = self.sizes
        state = self.program.init_state(self.cell.seed, **sizes)
        restored = checkpointer.restore(self._pack(state, is_template=True))
        if restored is None:
            return state
        packed, step = restored
        _, frozen = self.program.split(state.params)
        path = self.folder / "history.json"
        history = load_measured(path, HISTORY)["history"] if path.exists() else []
        self.history = [entry for entry in history if entry["step"] <= step]
        if "best" in packed and self.history:
            main = self.program.spec.main_metric
            metric = max(entry["dev"][main] for entry in self.history)
            self.best = metric, packed["best"]
        self.losses = packed["losses"]
        params = self.program.join(packed["trained"], frozen)
        return TuneState(params, packed["opt_state"], step, packed.get("skips"))

    def _pack(self, state: TuneState, is_template: bool = False) -> dict:
        """The content of a checkpoint; frozen parameters are those of the base."""
        trained, _ = self.program.split(state.params)
        packed = {"trained": trained, "opt_state": state.opt_state}
        packed["losses"] = self.losses
        if state.skips is not None:
            packed["skips"] = state.skips
        if self.program.plan.train.keep == "best":
            best = trained if is_template or self.best is None else self.best[1]
            packed["best"] = best
        return packed

    def _train(
        self,
        state: TuneState,
        checkpointer: Checkpointer,
        watch: SignalWatch,
        bar: StepBar,
    ) -> TuneState:
        cell, rows = self.cell, self.splits["train"].rows
        every = self.program.plan.train.checkpoint_every
        meter = self._make_meter(bar)
        batches: list[TaskBatch] = []
        compiled: set[int] = set()  # lengths
        epoch = -1
        if not self.num_steps and not self.history:
            self._measure(state, meter)
        while state.step < self.num_steps:
            if epoch != state.step // self.epoch_steps:
                epoch = state.step // self.epoch_steps
                batches = cut_epoch(
                    self.lengths, cell.batch_size, self.allowed, cell.seed, epoch
                )
            batch = batches[state.step % self.epoch_steps]
            arrays = make_batch(self.program, rows, batch, cell.batch_size)
            is_new = batch.length not in compiled
            compiled.add(batch.length)
            if is_new:
                meter.pause()
            state, loss = self.program.train(
                state, arrays, cell.lr, cell.seed, self.sizes
            )
            num = 1 if state.skips is None else 1 - state.skips.is_last
            self.losses = self.losses[0] + loss, self.losses[1] + num
            meter.add(state.step, len(batch.rows), loss)
            if is_new:  # its time was mostly compilation
                meter.resume()
            is_measured = state.step in self.measured_at
            if is_measured:
                self._measure(state, meter)
            signum = watch.ask()
            if signum or is_measured or (every and state.step % every == 0):
                checkpointer.save(state.step, self._pack(state))
            if signum:
                checkpointer.wait()
                raise Stopped(state.step, signum)
        bar.update(state.step, f"{cell.name} step {state.step}/{self.num_steps}")
        return state

    def _make_meter(self, bar: StepBar) -> Meter:
        def log(step: int, line: str) -> None:
            line = f"{self.cell.name} {line}"
            if bar.is_shown:
                bar.update(step, line)
            else:
                self.log(line)

        every = self.program.plan.train.log_seconds
        before = self.history[-1] if self.history else {}
        return Meter(
            log=log,
            num_steps=self.num_steps,
            every=min(every, BAR_SECONDS) if bar.is_shown else every,
            seconds=before.get("seconds", 0.0),
            rate=before.get("examples_per_second", 0.0),
        )

    def _measure(self, state: TuneState, meter: Meter) -> None:
        """Measures and stores the dev metrics, before the state is saved.

        Raises:
          DivergedError: a loss, a parameter or an output is not finite.
        """
        meter.pause()
        total, num = map(float, self.losses)
        split = self.splits["dev"]
        try:
            self._check(state, total)
            measured = measure(self.program, state.params, split, split)
        except DivergedError as error:
            raise DivergedError(f"{error} after step {state.step}") from error
        dev = measured.metrics
        main = self.program.spec.main_metric
        loss = total / num if num else None
        self.losses = jax.tree.map(jnp.zeros_like, self.losses)
        entry = {"step": state.step, "dev": dev, "loss": loss}
        if state.skips is not None and (skipped := int(state.skips.total)):
            entry["skipped_updates"] = skipped
            self.log(f"{self.cell.name} skipped {skipped} updates so far")
        if self.program.plan.train.keep == "last":
            self.measured = measured
        elif self.best is None or dev[main] > self.best[0]:
            trained, _ = self.program.split(state.params)
            self.best = dev[main], jax.tree.map(jnp.copy, trained)
            self.measured = measured
        self.history.append(entry | meter.rates())
        write_json(self.folder / "history.json", {"history": self.history})
        values = ", ".join(f"{name} {value:.4f}" for name, value in dev.items())
        self.log(f"{self.cell.name} step {state.step}/{self.num_steps}: dev {values}")
        meter.resume()

    def _check(self, state: TuneState, loss: float) -> None:
        """Raises DivergedError if the loss or a parameter is not finite.

        Or if the last `optim.max_skips` updates were skipped.
        """
        skips, rule = state.skips, self.program.make_rule(self.sizes["num_steps"])
        if rule and skips is not None and int(skips.in_a_row) >= rule.max_skips:
            raise DivergedError(f"{rule.max_skips} updates in a row were skipped")
        if not math.isfinite(loss):
            raise DivergedError("the loss is not finite")
        trained, _ = self.program.split(state.params)
        if not all(jnp.isfinite(x).all() for x in jax.tree.leaves(trained)):
            raise DivergedError("a parameter is not finite")
        if self.program.model.head is None:
            batch = cut_all(self.lengths, self.cell.batch_size, self.allowed)[0]
            rows = self.splits["train"].rows
            arrays = make_batch(self.program, rows, batch, self.cell.batch_size)
            check_generator(self.program, state.params, arrays)

"""One run of a grid: trained, evaluated and saved; it resumes after a kill.

cells/NAME/history.json         the evaluations so far
cells/NAME/checkpoints          trained parameters, the optimizer's state
cells/NAME/predictions.jsonl    a line for each dev and test example, at the end
cells/NAME/result.json          written last
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.errors import DivergedError
from jaxpt.files import disk
from jaxpt.files.folder import load_measured, write_json
from jaxpt.finetuning.batches import (
    Batch,
    choose_lengths,
    count_lengths,
    cut_all,
    cut_epoch,
)
from jaxpt.finetuning.evaluation import (
    Examples,
    Measured,
    check_written,
    make_batch,
    measure,
)
from jaxpt.finetuning.meter import Meter
from jaxpt.finetuning.program import TuneProgram, TuneState
from jaxpt.finetuning.summary import show_rate
from jaxpt.training.checkpoint import Checkpointer
from jaxpt.training.signals import SignalWatch, Stopped

WORTH_TRAINING = 32  # batches for which another length is worth compiling


@dataclasses.dataclass(frozen=True)
class Cell:
    """A point of the grid."""

    lr: float
    batch_size: int
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder, which no other cell has.

        >>> Cell(2e-5, 32, 3, 0).name, Cell(1.0000001e-3, 32, 3, 0).name
        ('lr2e-05-b32-e3-s0', 'lr0.0010000001-b32-e3-s0')
        """
        return f"lr{show_rate(self.lr)}{self._rest}"

    @property
    def old_name(self) -> str:
        """The name in earlier versions, which several learning rates shared."""
        return f"lr{self.lr:g}{self._rest}"

    @property
    def _rest(self) -> str:
        return f"-b{self.batch_size}-e{self.epochs}-s{self.seed}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A finished cell.

    Attributes:
      result: as its result.json has it; with "diverged", the reason, and without "dev"
        and "test" if it diverged.
      params: the trained parameters by path; None if it diverged.
      records: of each split, of each example.
    """

    result: dict
    params: Any = None
    records: dict[str, list[dict]] = dataclasses.field(default_factory=dict)


def conclude(
    program: TuneProgram,
    params: Any,
    splits: dict[str, Examples],
    result: dict,
    dev: Measured | None = None,
) -> Trained:
    """A finished cell whose parameters are final, with all that they are measured by.

    Args:
      result: what is known of it already.
      dev: what was measured on the dev split; None measures it again.

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
    return Trained(result, program.split(params)[0], records)


@dataclasses.dataclass
class CellRun:
    """A cell that is being trained.

    Attributes:
      say: gets a line of progress now and then.
    """

    program: TuneProgram
    cell: Cell
    splits: dict[str, Examples]
    folder: Path
    say: Callable[[str], None]

    def __post_init__(self):
        train = self.program.plan.train
        rows = len(self.splits["train"].rows)
        self.epoch_steps = math.ceil(rows / self.cell.batch_size)
        self.num_steps = max(self.epoch_steps * self.cell.epochs, train.min_steps)
        self.lengths = self.splits["train"].lengths
        self.allowed = choose_lengths(
            self.lengths.tolist(),
            train.num_lengths or count_lengths(self.num_steps, WORTH_TRAINING),
            self.program.base.encoder.max_len,
        )
        if train.evals:
            shares = np.arange(1, train.evals + 1) / train.evals
            at = np.ceil(shares * self.num_steps).astype(int).tolist()
        else:
            at = list(range(self.epoch_steps, self.num_steps, self.epoch_steps))
        self.measured_at = sorted({*at, self.num_steps})
        # Without an epoch nothing is trained, and what there is is measured.
        steps = max(self.num_steps, 1)
        self.sizes = {"num_steps": steps, "epoch_steps": self.epoch_steps}
        self.history: list[dict] = []
        self.best: tuple[float, Any] | None = None  # metric, trained parameters
        # Of the parameters that count; None where they were restored.
        self.measured: Measured | None = None
        # Sum and number of the steps' losses since the last measurement.
        self.losses = jnp.zeros(()), jnp.zeros((), jnp.int32)

    def run(self, watch: SignalWatch) -> Trained:
        """The finished cell; training that diverges ends there.

        Raises:
          Stopped: a signal came; the state is saved.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        result = dataclasses.asdict(self.cell) | {"steps": self.num_steps}
        try:
            with Checkpointer(self.folder / "checkpoints", keep=1) as checkpointer:
                state = self._restore(checkpointer)
                state = self._train(state, checkpointer, watch)
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
        return {name: last.get(name, 0.0) for name in names} | {"history": self.history}

    def _restore(self, checkpointer: Checkpointer) -> TuneState:
        sizes = self.sizes
        state = self.program.init_state(self.cell.seed, **sizes)
        restored = checkpointer.restore(self._pack(state, is_template=True))
        if restored is None:
            return state
        packed, step = restored
        _, kept = self.program.split(state.params)
        path = self.folder / "history.json"
        held = load_measured(path)["history"] if path.exists() else []
        self.history = [entry for entry in held if entry["step"] <= step]
        if "best" in packed and self.history:
            main = self.program.spec.main_metric
            metric = max(entry["dev"][main] for entry in self.history)
            self.best = metric, packed["best"]
        self.losses = packed["losses"]
        params = self.program.join(packed["trained"], kept)
        return TuneState(params, packed["opt_state"], step)

    def _pack(self, state: TuneState, is_template: bool = False) -> dict:
        """What is saved: frozen parameters are not, they are the base's."""
        trained, _ = self.program.split(state.params)
        packed = {
            "trained": trained,
            "opt_state": state.opt_state,
            "losses": self.losses,
        }
        if self.program.plan.train.keep == "best":
            best = trained if is_template or self.best is None else self.best[1]
            packed["best"] = best
        return packed

    def _train(
        self, state: TuneState, checkpointer: Checkpointer, watch: SignalWatch
    ) -> TuneState:
        plan, cell, rows = self.program.plan, self.cell, self.splits["train"].rows
        sizes = self.sizes
        meter = self._make_meter()
        batches: list[Batch] = []
        seen: set[int] = set()  # lengths whose step is compiled
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
            is_new = batch.length not in seen
            seen.add(batch.length)
            if is_new:
                meter.pause()
            state, loss = self.program.train(state, arrays, cell.lr, cell.seed, sizes)
            self.losses = self.losses[0] + loss, self.losses[1] + 1
            meter.add(state.step, len(batch.rows), loss)
            if is_new:  # to compile it took most of the time
                meter.go_on()
            is_measured = state.step in self.measured_at
            if is_measured:
                self._measure(state, meter)
            every = plan.train.checkpoint_every
            signum = watch.ask()
            if signum or is_measured or (every and state.step % every == 0):
                checkpointer.save(state.step, self._pack(state))
            if signum:
                checkpointer.wait()
                raise Stopped(state.step, signum)
        return state

    def _make_meter(self) -> Meter:
        before = self.history[-1] if self.history else {}
        return Meter(
            say=lambda line: self.say(f"{self.cell.name} {line}"),
            num_steps=self.num_steps,
            every=self.program.plan.train.log_seconds,
            seconds=before.get("seconds", 0.0),
            rate=before.get("examples_per_second", 0.0),
        )

    def _measure(self, state: TuneState, meter: Meter) -> None:
        """Metrics on dev, kept before the state that they are of is saved.

        Raises:
          DivergedError: a loss, a parameter or an output is not finite.
        """
        meter.pause()
        total, num = map(float, self.losses)
        held = self.splits["dev"]
        try:
            self._check(state, total)
            measured = measure(self.program, state.params, held, held)
        except DivergedError as error:
            raise DivergedError(f"{error} after step {state.step}") from error
        dev = measured.metrics
        main = self.program.spec.main_metric
        loss = total / num if num else None
        self.losses = jax.tree.map(jnp.zeros_like, self.losses)
        entry = {"step": state.step, "dev": dev, "loss": loss}
        if self.program.plan.train.keep == "last":
            self.measured = measured
        elif self.best is None or dev[main] > self.best[0]:
            trained, _ = self.program.split(state.params)
            self.best = dev[main], jax.tree.map(jnp.copy, trained)
            self.measured = measured
        self.history.append(entry | meter.rates())
        write_json(self.folder / "history.json", {"history": self.history})
        told = ", ".join(f"{name} {value:.4f}" for name, value in dev.items())
        self.say(f"{self.cell.name} step {state.step}/{self.num_steps}: dev {told}")
        meter.go_on()

    def _check(self, state: TuneState, loss: float) -> None:
        """Raises DivergedError where the loss or a parameter is not finite."""
        if not math.isfinite(loss):
            raise DivergedError("the loss is not finite")
        trained, _ = self.program.split(state.params)
        if not all(jnp.isfinite(x).all() for x in jax.tree.leaves(trained)):
            raise DivergedError("a parameter is not finite")
        if self.program.model.head is None:
            batch = cut_all(self.lengths, self.cell.batch_size, self.allowed)[0]
            rows = self.splits["train"].rows
            arrays = make_batch(self.program, rows, batch, self.cell.batch_size)
            check_written(self.program, state.params, arrays)


def drop_checkpoints(folder: Path) -> None:
    """Removes a finished cell's state, which nothing reads again."""
    disk.remove(folder / "checkpoints")

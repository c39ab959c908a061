"""One run of a grid: trained, measured and saved, and gone on with after a kill.

cells/NAME/history.json    what was measured so far
cells/NAME/checkpoints     what is trained, and the optimizer's state
cells/NAME/result.json     when it is finished
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt import disk
from jaxpt.finetuning.batches import (
    Batch,
    choose_lengths,
    collate,
    count_lengths,
    cut_all,
    cut_epoch,
    row_length,
)
from jaxpt.finetuning.meter import Meter
from jaxpt.finetuning.program import TuneProgram, TuneState
from jaxpt.folder import load_measured, write_json
from jaxpt.run.checkpoint import Checkpointer
from jaxpt.run.signals import SignalWatch, Stopped
from jaxpt.tasks.task import Row

# Batches for which another length is worth the seconds that compiling it takes.
WORTH_TRAINING, WORTH_READING = 32, 16


@dataclasses.dataclass(frozen=True)
class Cell:
    """A point of the grid."""

    lr: float
    batch_size: int
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        """As folders have it.

        >>> Cell(2e-5, 32, 3, 0).name
        'lr2e-05-b32-e3-s0'
        """
        return f"lr{self.lr:g}-b{self.batch_size}-e{self.epochs}-s{self.seed}"

    @property
    def setting(self) -> tuple[float, int, int]:
        """All but the seed."""
        return self.lr, self.batch_size, self.epochs


@dataclasses.dataclass(frozen=True)
class Examples:
    """A split's examples and their rows."""

    items: list[Any]
    rows: list[Row]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row."""
        return np.array([row_length(row) for row in self.rows])


def read_outputs(
    program: TuneProgram, params, split: Examples, read: Callable | None = None
) -> list[Any]:
    """What the network says of every row, in the rows' order, as NumPy trees.

    Args:
      read: (params, batch) -> arrays [B, ...]; None is the task's outputs.
    """
    spec = program.plan.train
    read = read or program.outputs
    num_batches = len(split.rows) // spec.eval_batch_size
    allowed = choose_lengths(
        split.lengths.tolist(),
        spec.num_lengths or count_lengths(num_batches, WORTH_READING),
        program.base.encoder.max_len,
    )
    found: list[Any] = [None] * len(split.rows)
    for batch in cut_all(split.lengths, spec.eval_batch_size, allowed):
        arrays = make_batch(program, split.rows, batch, spec.eval_batch_size)
        outputs = jax.device_get(read(params, arrays))
        for place, row in enumerate(batch.rows):
            found[row] = jax.tree.map(lambda x, place=place: x[place], outputs)
    return found


def make_batch(
    program: TuneProgram, rows: list[Row], batch: Batch, batch_size: int
) -> dict[str, np.ndarray]:
    """The arrays of a batch, without what is only known on the host."""
    pad, pads = program.base.encoder.pad, program.task.PADS
    chosen = [rows[i] for i in batch.rows]
    arrays = collate(chosen, batch.length, batch_size, pads, pad)
    del arrays["example"]
    return arrays


def predict(program: TuneProgram, params, split: Examples) -> list[Any]:
    """The task's prediction for each example of a split."""
    outputs = read_outputs(program, params, split)
    if program.model.head is None:  # answers that were written
        answer = program.base.encoder.answer
        outputs = [answer(x["tokens"][: x["counts"]]) for x in outputs]
    return program.task.predict(outputs, split.rows, split.items, program.spec)


def measure(
    program: TuneProgram, params, split: Examples, dev: Examples
) -> dict[str, float]:
    """The task's metrics on a split; what a task tunes is tuned on `dev`."""
    spec, predictions = program.spec, predict(program, params, split)
    if spec.TUNES:
        told = predictions if split is dev else predict(program, params, dev)
        spec = spec.tune(told, dev.items)
    return program.task.metrics(predictions, split.items, spec)


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
        # Sum and number of the steps' losses since the last measurement.
        self.losses = jnp.zeros(()), jnp.zeros((), jnp.int32)

    def run(self, watch: SignalWatch) -> tuple[dict, Any]:
        """The finished cell's result, and what it has trained.

        Raises:
          Stopped: a signal came; the state is saved.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with Checkpointer(self.folder / "checkpoints", keep=1) as checkpointer:
            state = self._restore(checkpointer)
            state = self._train(state, checkpointer, watch)
        trained, _ = self.program.split(state.params)
        chosen = self.history[-1]
        if self.best is not None:
            metric, trained = self.best
            main = self.program.spec.main_metric
            chosen = next(x for x in self.history if x["dev"][main] == metric)
        params = self.program.join(trained, self.program.split(state.params)[1])
        result = dataclasses.asdict(self.cell) | {
            "steps": self.num_steps,
            "measured_at": chosen["step"],
            "dev": chosen["dev"],
            "seconds": self.history[-1]["seconds"],
            "examples_per_second": self.history[-1]["examples_per_second"],
            "history": self.history,
        }
        if "test" in self.splits:
            result["test"] = measure(
                self.program, params, self.splits["test"], self.splits["dev"]
            )
        return result, trained

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
        """Metrics on dev, kept before the state that they are of is saved."""
        meter.pause()
        held = self.splits["dev"]
        dev = measure(self.program, state.params, held, held)
        main = self.program.spec.main_metric
        total, num = map(float, self.losses)
        loss = total / num if num else None
        self.losses = jax.tree.map(jnp.zeros_like, self.losses)
        entry = {"step": state.step, "dev": dev, "loss": loss}
        if self.program.plan.train.keep == "best":
            if self.best is None or dev[main] > self.best[0]:
                trained, _ = self.program.split(state.params)
                self.best = dev[main], jax.tree.map(jnp.copy, trained)
        self.history.append(entry | meter.rates())
        write_json(self.folder / "history.json", {"history": self.history})
        told = ", ".join(f"{name} {value:.4f}" for name, value in dev.items())
        self.say(f"{self.cell.name} step {state.step}/{self.num_steps}: dev {told}")
        meter.go_on()


def drop_checkpoints(folder: Path) -> None:
    """Removes a finished cell's state, which nothing reads again."""
    disk.remove(folder / "checkpoints")

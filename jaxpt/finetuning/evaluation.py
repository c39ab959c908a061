"""Evaluation of a network on a split: outputs, predictions, metrics and records."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxpt.errors import DivergedError
from jaxpt.finetuning.batches import (
    Batch,
    choose_lengths,
    collate,
    count_lengths,
    cut_all,
    row_length,
)
from jaxpt.finetuning.program import TuneProgram
from jaxpt.tasks.task import Described, Row

WORTH_READING = 16  # batches for which another length is worth compiling


@dataclasses.dataclass(frozen=True)
class Examples:
    """A split's examples and their rows.

    Attributes:
      numbers: of each example its number in the file, from 0; None where that is its
        place in `items`.
    """

    items: list[Any]
    rows: list[Row]
    numbers: Sequence[int] | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row."""
        return np.array([row_length(row) for row in self.rows])


@dataclasses.dataclass(frozen=True)
class Measured:
    """The metrics of a split, a record of each example, and the task's report."""

    metrics: dict[str, float]
    records: list[dict]
    report: dict


def read_outputs(
    program: TuneProgram, params, split: Examples, read: Callable | None = None
) -> list[Any]:
    """The network's outputs of every row, in the rows' order, as NumPy trees.

    Args:
      read: (params, batch) -> arrays [B, ...]; None is the task's outputs.

    Raises:
      DivergedError: an output is not finite.
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
            if not all(np.isfinite(x).all() for x in jax.tree.leaves(found[row])):
                raise DivergedError("an output is not finite")
    return found


def make_batch(
    program: TuneProgram, rows: list[Row], batch: Batch, batch_size: int
) -> dict[str, np.ndarray]:
    """The arrays of a batch, without what is only known on the host."""
    pad, pads = program.base.encoder.pad, program.spec.PADS
    chosen = [rows[i] for i in batch.rows]
    arrays = collate(chosen, batch.length, batch_size, pads, pad)
    del arrays["example"]
    return arrays


def measure(program: TuneProgram, params, split: Examples, dev: Examples) -> Measured:
    """The task's metrics and records of a split; a task is tuned on `dev`.

    Raises:
      DivergedError: an output is not finite.
    """
    spec, task = program.spec, program.task
    outputs, predictions = _predict(program, params, split)
    if spec.TUNES:
        told = predictions if split is dev else _predict(program, params, dev)[1]
        spec = spec.tune(told, dev.items)
    described: Described = task.describe(
        outputs, predictions, split.items, spec, program.labels
    )
    numbers = split.numbers or range(len(split.items))
    records = [
        {"row": number} | record
        for number, record in zip(numbers, described.records, strict=True)
    ]
    metrics = task.metrics(predictions, split.items, spec)
    return Measured(metrics, records, described.report)


def _predict(program: TuneProgram, params, split: Examples) -> tuple[list, list]:
    """The outputs of each row, or the texts that were written, and the predictions."""
    outputs = read_outputs(program, params, split)
    if program.model.head is None:  # answers that were written
        answer = program.base.encoder.answer
        outputs = [answer(x["tokens"][: x["counts"]]) for x in outputs]
    items = split.items
    return outputs, program.task.predict(outputs, split.rows, items, program.spec)


def check_written(program: TuneProgram, params, arrays: dict) -> None:
    """Raises DivergedError where the loss of a training batch is not finite.

    A network that writes its answers gives tokens, which are always finite.
    """
    total, _ = jax.device_get(program.outputs(params, arrays))
    if not math.isfinite(total):
        raise DivergedError("the loss is not finite")

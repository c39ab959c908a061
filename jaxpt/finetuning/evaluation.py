"""Evaluates a fine-tuned network on a split: outputs, predictions, metrics."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxpt.errors import DivergedError
from jaxpt.finetuning.program import TuneProgram
from jaxpt.judge.examples import Examples
from jaxpt.tasks.batches import (
    TaskBatch,
    choose_lengths,
    collate,
    count_lengths,
    cut_all,
    row_length,
)
from jaxpt.tasks.task import Described, Row

MIN_BATCHES = 16  # batches that justify compiling one more length


@dataclasses.dataclass(frozen=True)
class LabelledRows:
    """A split's examples and their rows.

    Attributes:
      numbers: the number of each example in its file, from 0; None if it is the index
        in `items`.
    """

    items: list[Any]
    rows: list[Row]
    numbers: Sequence[int] | None = None

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each row."""
        return np.array([row_length(row) for row in self.rows])


@dataclasses.dataclass(frozen=True)
class TaskMeasured:
    """The metrics of a split, a record for each example, and the task's report.

    Attributes:
      scores: by metric that is a mean over examples, the score of each.
    """

    metrics: dict[str, float]
    records: list[dict]
    report: dict
    scores: dict[str, Examples]


def read_outputs(
    program: TuneProgram, params: Any, split: LabelledRows, read: Callable | None = None
) -> list[Any]:
    """The network's outputs for every row, in order, as NumPy trees.

    Args:
      read: (params, batch) -> arrays [B, ...]; None computes the task's outputs.

    Raises:
      DivergedError: an output is not finite.
    """
    spec = program.plan.train
    read = read or program.outputs
    num_batches = len(split.rows) // spec.eval_batch_size
    allowed = choose_lengths(
        split.lengths.tolist(),
        spec.num_lengths or count_lengths(num_batches, MIN_BATCHES),
        program.base.encoder.max_len,
    )
    result: list[Any] = [None] * len(split.rows)
    for batch in cut_all(split.lengths, spec.eval_batch_size, allowed):
        arrays = make_batch(program, split.rows, batch, spec.eval_batch_size)
        outputs = jax.device_get(read(params, arrays))
        for place, row in enumerate(batch.rows):
            result[row] = jax.tree.map(lambda x, place=place: x[place], outputs)
            if not all(np.isfinite(x).all() for x in jax.tree.leaves(result[row])):
                raise DivergedError("an output is not finite")
    return result


def make_batch(
    program: TuneProgram, rows: list[Row], batch: TaskBatch, batch_size: int
) -> dict[str, np.ndarray]:
    """The arrays of a batch, without those that only the host needs."""
    pad, pads = program.base.encoder.pad, program.spec.PADS
    chosen = [rows[i] for i in batch.rows]
    arrays = collate(chosen, batch.length, batch_size, pads, pad)
    del arrays["example"]
    return arrays


def measure(
    program: TuneProgram, params: Any, split: LabelledRows, dev: LabelledRows
) -> TaskMeasured:
    """The task's metrics and records of a split; a threshold is tuned on `dev`.

    Raises:
      DivergedError: an output is not finite.
    """
    spec, task = program.spec, program.task
    outputs, predictions = _predict(program, params, split)
    if spec.TUNES:
        tuned_on = predictions if split is dev else _predict(program, params, dev)[1]
        spec = spec.tune(tuned_on, dev.items)
    described: Described = task.make_records(
        outputs, predictions, split.items, spec, program.labels
    )
    numbers = split.numbers or range(len(split.items))
    records = [
        {"row": number} | record
        for number, record in zip(numbers, described.records, strict=True)
    ]
    metrics = task.metrics(predictions, split.items, spec)
    scores = task.item_scores(predictions, split.items, spec)
    return TaskMeasured(metrics, records, described.report, scores)


def _predict(
    program: TuneProgram, params: Any, split: LabelledRows
) -> tuple[list, list]:
    """The outputs of each row, or the generated texts, and the predictions."""
    outputs = read_outputs(program, params, split)
    if program.model.head is None:  # generated answers
        answer = program.base.encoder.answer
        outputs = [answer(x["tokens"][: x["counts"]]) for x in outputs]
    items = split.items
    return outputs, program.task.predict(outputs, split.rows, items, program.spec)


def check_generator(program: TuneProgram, params: Any, arrays: dict) -> None:
    """Raises DivergedError if the loss of a training batch is not finite.

    Generated tokens do not show it: they are always finite.
    """
    total, _ = jax.device_get(program.outputs(params, arrays))
    if not math.isfinite(total):
        raise DivergedError("the loss is not finite")

"""Regression: predicts a number from a text or a pair, by squared error (STS-B).

"A plane is taking off." "An air plane is taking off." | 5.0  ->  one output
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.errors import DataError
from jaxpt.judge.examples import Examples
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.metrics import number_metrics
from jaxpt.tasks.model import TaskModel
from jaxpt.tasks.task import Described, Labels, Row, Sums, TaskSpec, pair_records
from jaxpt.text.labelled.tables import HOW_TO_DROP, Table
from jaxpt.text.sources.missing import is_missing


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read.

    Attributes:
      text, pair: the columns of the texts; without `pair` there is one text.
      label: the column of the number.
      metric: selects the best run, "pearson" or "spearman".
      low, high: the range of the number; both 0 allows all.
      both_orders: trains on each pair in both orders, as ELECTRA does on STS-B.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("text", "pair", "label")
    OPTIONAL: ClassVar[tuple[str, ...]] = ("pair",)
    METRICS: ClassVar[tuple[str, ...]] = ("pearson", "spearman")
    NUM_OUTPUTS: ClassVar[int | None] = 1
    EXPORT: ClassVar[str] = "SequenceClassification"

    text: str = "sentence1"
    pair: str = "sentence2"
    label: str = "score"
    low: float = 0.0
    high: float = 0.0
    both_orders: bool = False
    metric: str = "spearman"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_good = self.low == self.high == 0 or self.low < self.high
        self.check("high", is_good, f"above task.low={self.low}, or both 0")
        is_good = not self.both_orders or bool(self.pair)
        self.check("both_orders", is_good, "False without task.pair")

    @property
    def problem_type(self) -> str:
        return "regression"


@dataclasses.dataclass(frozen=True)
class Example:
    """A text or a pair, and the number to predict."""

    text: str
    pair: str | None
    value: float


def read(
    table: Table, spec: Spec, labels: Labels | None
) -> tuple[list[Example], Labels]:
    """See `Task.read`; there are no labels."""
    texts = table.texts(spec.text)
    pairs = table.texts(spec.pair) if spec.pair else [None] * len(texts)
    examples = []
    for row, cell in enumerate(table.columns[spec.label]):
        value = _read_number(cell)
        is_free = spec.low == spec.high
        if value is None or not (is_free or spec.low <= value <= spec.high):
            allowed = "a number" if is_free else f"from {spec.low} to {spec.high}"
            hint = f"; {HOW_TO_DROP}" if is_missing(cell) else ""
            raise DataError(
                f"{table.where(row)}: {spec.label}={cell!r}: must be {allowed}{hint}"
            )
        examples.append(Example(texts[row], pairs[row], value))
    return examples, ()


def _read_number(cell: Any) -> float | None:
    if isinstance(cell, bool):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value if np.isfinite(value) else None


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; "targets" are float32 []."""
    targets = [np.asarray(example.value, np.float32) for example in examples]
    return encoder.rows(examples, targets, spec.both_orders and is_training)


def outputs(
    model: TaskModel, params: dict, batch: dict, rngs: dict | None
) -> jax.Array:
    """The numbers [B]."""
    return model.outputs(params, batch, rngs)[:, 0]


def loss(outputs: jax.Array, batch: dict, spec: Spec) -> Sums:
    """The squared error."""
    weights = batch["row_weights"]
    squares = jnp.square(outputs - batch["targets"]) * weights
    return {"loss": (squares.sum(), weights.sum())}


def predict(
    outputs: list, rows: Sequence[Row], examples: list[Example], spec: Spec
) -> list[float]:
    """The outputs, unchanged."""
    return [float(value) for value in outputs]


def metrics(
    predictions: list[float], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """See `jaxpt.tasks.metrics.number_metrics`."""
    return number_metrics(predictions, [example.value for example in examples])


def item_scores(
    predictions: list[float], examples: list[Example], spec: Spec
) -> dict[str, Examples]:
    """None: no metric is a mean over examples."""
    return {}


def make_records(
    outputs: Any, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """The numbers."""
    return Described(pair_records((x.value for x in examples), predictions))


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list[float]:
    """The mean of the training data, which minimises the squared error."""
    return [float(np.mean([example.value for example in train]))] * len(examples)

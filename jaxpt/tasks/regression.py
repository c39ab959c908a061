"""Regression: a number of a text or of a pair, by the squared error (STS-B).

"A plane is taking off." "An air plane is taking off." | 5.0  ->  one output
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxpt.errors import UserError
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.metrics import number_metrics
from jaxpt.tasks.task import Described, Labels, Row, TaskSpec
from jaxpt.text.labelled.tables import Table

PADS: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read.

    Attributes:
      text, pair: the columns of the texts; without `pair` there is one text.
      label: the column of the number.
      metric: that chooses between runs, "pearson" or "spearman".
      low, high: the numbers that the column may hold; both 0 allows all.
      both_orders: trains on each pair in both orders, as ELECTRA does on STS-B.
    """

    METRICS: ClassVar[tuple[str, ...]] = ("pearson", "spearman")

    EXPORT: ClassVar[str] = "SequenceClassification"

    text: str = "sentence1"
    pair: str = "sentence2"
    label: str = "score"
    low: float = 0.0
    high: float = 0.0
    both_orders: bool = False
    metric: str = "spearman"

    def __post_init__(self):
        super().__post_init__()
        self.check("text", bool(self.text), "a column")
        self.check("label", bool(self.label), "a column")
        is_good = self.low == self.high == 0 or self.low < self.high
        self.check("high", is_good, f"above task.low={self.low}, or both 0")
        is_good = not self.both_orders or bool(self.pair)
        self.check("both_orders", is_good, "False without task.pair")
        is_good = self.metric in self.METRICS
        self.check("metric", is_good, f"one of {', '.join(self.METRICS)}")

    @property
    def columns(self):
        return [name for name in (self.text, self.pair, self.label) if name]

    @property
    def problem_type(self):
        return "regression"

    @property
    def main_metric(self):
        return self.metric


@dataclasses.dataclass(frozen=True)
class Example:
    """A text or two, and the number to predict."""

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
    for row, told in enumerate(table.columns[spec.label]):
        value = _read_number(told)
        is_free = spec.low == spec.high
        if value is None or not (is_free or spec.low <= value <= spec.high):
            allowed = "a number" if is_free else f"from {spec.low} to {spec.high}"
            raise UserError(
                f"{table.where(row)}: {spec.label}={told!r}: must be {allowed}"
            )
        examples.append(Example(texts[row], pairs[row], value))
    return examples, ()


def _read_number(told: Any) -> float | None:
    try:
        value = float(told)
    except (TypeError, ValueError):
        return None
    return value if np.isfinite(value) else None


def num_outputs(spec: Spec, labels: Labels) -> int:
    """One."""
    return 1


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; "targets" are float32 []."""
    targets = [np.asarray(example.value, np.float32) for example in examples]
    both = spec.both_orders and is_training
    return encoder.rows(examples, targets, both)


def outputs(model, params, batch, rngs):
    """The numbers [B]."""
    return model.outputs(params, batch, rngs)[:, 0]


def loss(outputs, batch: dict, spec: Spec):
    """The squared error."""
    weights = batch["row_weights"]
    squares = jnp.square(outputs - batch["targets"]) * weights
    return {"loss": (squares.sum(), weights.sum())}


def predict(outputs, rows, examples: list[Example], spec: Spec) -> list[float]:
    """The outputs as they are."""
    return [float(value) for value in outputs]


def metrics(
    predictions: list[float], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """See `jaxpt.tasks.metrics`."""
    return number_metrics(predictions, [example.value for example in examples])


def describe(
    outputs,
    predictions: list[float],
    examples: list[Example],
    spec: Spec,
    labels: Labels,
) -> Described:
    """The numbers."""
    pairs = zip(predictions, examples, strict=True)
    return Described([{"gold": x.value, "prediction": said} for said, x in pairs])


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list[float]:
    """The mean of the training data, which has the least squared error."""
    return [float(np.mean([example.value for example in train]))] * len(examples)

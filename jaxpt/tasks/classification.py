"""Text classification of a text or a pair: one label of several, or a set of labels.

    "It works ." | 1  ->  [CLS] it works . [SEP]  ->  logits [C]  ->  argmax

BERT's, section 4.1 of Devlin et al. 2019. In multi-label classification each label has
its own sigmoid.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, softmax

from jaxpt.errors import ConfigError, DataError
from jaxpt.judge.examples import Examples
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.metrics import class_metrics, class_report, label_set_metrics
from jaxpt.tasks.model import apply_head, class_loss
from jaxpt.tasks.task import (
    Described,
    LabelNames,
    Labels,
    Row,
    Sums,
    TaskSpec,
    check_label,
    check_labels,
    most_common,
    number_labels,
    read_labels,
    score_items,
)
from jaxpt.text.labelled.tables import Table
from jaxpt.text.labelled.templates import list_slots, read_texts


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read, and what the labels are.

    Attributes:
      text, pair: the columns of the texts, or templates with columns in braces
        ("Question: {question} Answer: {answer}"); without `pair` there is one text.
      label: the column of the label.
      labels: the labels in the order of their outputs, as the column has them; () finds
        them in the training data, sorted.
      label_names: names for the labels in exports, if they differ from the column's
        values; one for each label.
      positive: the one of `labels` that binary F1 is computed for; "" is the second.
      separator: separates the labels of an example in the column, such as ","; with it
        an example has any number of labels, "" has one.
      both_orders: trains on each pair in both orders, as ELECTRA does on MRPC.
      metric: selects the best run.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("text", "pair", "label")
    OPTIONAL: ClassVar[tuple[str, ...]] = ("pair",)
    EXPORT: ClassVar[str] = "SequenceClassification"

    text: str = "sentence"
    pair: str = ""
    label: str = "label"
    labels: LabelNames = ()
    label_names: tuple[str, ...] = ()
    positive: str = ""
    separator: str = ""
    both_orders: bool = False
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_good = not self.both_orders or bool(self.pair)
        self.check("both_orders", is_good, "False without task.pair")
        is_good = len(self.label_names) in (0, len(self.labels))
        self.check("label_names", is_good, "one for each of task.labels, or ()")
        is_good = self.positive in ("", *self.labels)
        self.check("positive", is_good, f'one of task.labels={self.labels}, or ""')
        several = ("accuracy", "micro_f1", "macro_f1")
        one = ("accuracy", "mcc", "f1", "macro_f1")
        allowed = several if self.separator else one
        self.check("metric", self.metric in allowed, f"one of {', '.join(allowed)}")

    @property
    def columns(self) -> Collection[str]:
        """The columns that are read, those of templates included."""
        names = super().columns
        return [column for name in names for column in list_slots(name) or [name]]

    @property
    def problem_type(self) -> str:
        kind = "multi_label" if self.separator else "single_label"
        return f"{kind}_classification"


@dataclasses.dataclass(frozen=True)
class Example:
    """A text or a pair, and the numbers of its labels (one, unless multi-label)."""

    text: str
    pair: str | None
    labels: tuple[int, ...]
    num_labels: int


def read(
    table: Table, spec: Spec, labels: Labels | None
) -> tuple[list[Example], Labels]:
    """See `Task.read`."""
    texts = read_texts(table, spec.text)
    pairs = read_texts(table, spec.pair) if spec.pair else [None] * len(texts)
    names = _read_names(table, spec)
    known = labels or spec.labels or tuple(sorted({x for each in names for x in each}))
    if labels is None:
        _check_training(table, spec, known, names)
    numbers = number_labels(table, spec.label, names, known, spec)
    return [
        Example(text, pair, tuple(sorted(label_ids)), len(known))
        for text, pair, label_ids in zip(texts, pairs, numbers, strict=True)
    ], known


def _read_names(table: Table, spec: Spec) -> list[list[str]]:
    """Each row's labels as strings; whole numbers keep their spelling.

    With a separator, an empty text is an example without labels.
    """
    if not spec.separator:
        return [[label] for label in read_labels(table, spec.label, spec.labels)]
    rows = []
    for row, value in enumerate(table.columns[spec.label]):
        parts = [value]
        if isinstance(value, str):
            parts = [part for part in value.split(spec.separator) if part.strip()]
        rows.append(
            [check_label(table, spec.label, row, x, spec.labels) for x in parts]
        )
    return rows


def _check_training(table: Table, spec: Spec, known: Labels, names: list) -> None:
    """Raises UserError if some label does not occur in the training data."""
    present = {name for each in names for name in each}
    check_labels(table, spec.label, known, "label")
    for name in known:
        if name not in present:
            raise DataError(
                f"{table.name}: no example has the label {name!r} of task.labels, so "
                f"it cannot be learned"
            )
    if spec.metric == "f1" and len(known) != 2:
        raise ConfigError(
            f"task.metric=f1: must be macro_f1 or another with {len(known)} labels"
        )


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; "targets" are int32 [], or float32 [C] of several labels."""
    targets: list[np.ndarray] = [
        _as_set(x.labels, x.num_labels).astype(np.float32)
        if spec.separator
        else np.asarray(x.labels[0], np.int32)
        for x in examples
    ]
    return encoder.rows(examples, targets, spec.both_orders and is_training)


def _as_set(labels: tuple[int, ...], num_labels: int) -> np.ndarray:
    return np.isin(np.arange(num_labels), labels)


outputs = apply_head  # logits [B, C]


def loss(outputs: jax.Array, batch: dict, spec: Spec) -> Sums:
    """Cross-entropy; with several labels, the mean of their binary cross-entropies."""
    targets, weights = batch["targets"], batch["row_weights"]
    if not spec.separator:
        return {"loss": class_loss(outputs, targets, weights)}
    # -log sigmoid(z) = softplus(-z)
    each = jax.nn.softplus(outputs) - targets * outputs
    return {"loss": (jnp.sum(each.mean(axis=1) * weights), weights.sum())}


def predict(
    outputs: list, rows: Sequence[Row], examples: list[Example], spec: Spec
) -> list:
    """The best label of each; of several, the tuple of those above one half."""
    if not spec.separator:
        return [int(np.argmax(logits)) for logits in outputs]
    return [tuple(np.flatnonzero(logits > 0).tolist()) for logits in outputs]


def metrics(predictions: list, examples: list[Example], spec: Spec) -> dict[str, float]:
    """See `jaxpt.tasks.metrics`."""
    num_labels = examples[0].num_labels
    if spec.separator:
        predicted, right = (
            np.array([_as_set(each, num_labels) for each in label_sets])
            for label_sets in (predictions, [example.labels for example in examples])
        )
        return label_set_metrics(predicted, right)
    answers = [example.labels[0] for example in examples]
    positive = spec.labels.index(spec.positive) if spec.positive else 1
    return class_metrics(predictions, answers, num_labels, positive)


def item_scores(
    predictions: list, examples: list[Example], spec: Spec
) -> dict[str, Examples]:
    """Whether the label, or each of several, is right."""
    is_set = bool(spec.separator)
    hits = [
        float((tuple(guess) if is_set else (guess,)) == example.labels)
        for guess, example in zip(predictions, examples, strict=True)
    ]
    return {"accuracy": score_items(hits)}


def make_records(
    outputs: Any, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """Labels as the column has them, as lists if there may be several.

    "probabilities" are in the order of the labels, rounded to eight digits. The report
    is `jaxpt.tasks.metrics.class_report`.
    """
    logits, is_set = np.asarray(outputs, np.float64), bool(spec.separator)
    right = [example.labels for example in examples]
    predicted = predictions if is_set else [(number,) for number in predictions]

    def name(numbers: tuple[int, ...]) -> Any:
        names = [labels[i] for i in numbers]
        return names if is_set else names[0]

    probabilities = expit(logits) if is_set else softmax(logits, axis=-1)
    records = [
        {
            "gold": name(gold),
            "prediction": name(guess),
            "score": float(gold == guess),
            "probabilities": each.round(8).tolist(),
        }
        for gold, guess, each in zip(right, predicted, probabilities, strict=True)
    ]
    predicted_array, gold_array = (
        np.array([_as_set(x, len(labels)) if is_set else x[0] for x in label_sets])
        for label_sets in (predicted, right)
    )
    return Described(
        records, class_report(probabilities, predicted_array, gold_array, labels)
    )


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list:
    """The most frequent label; of several, those that most examples have."""
    if not spec.separator:
        return [most_common(x.labels[0] for x in train)] * len(examples)
    shares = np.mean([_as_set(x.labels, x.num_labels) for x in train], axis=0)
    return [tuple(np.flatnonzero(shares > 0.5).tolist())] * len(examples)

"""Classification of a text or of a pair: one label of several, or any number of them.

    "It works ." | 1  ->  [CLS] it works . [SEP]  ->  logits [C]  ->  argmax

BERT's, section 4.1 of Devlin et al. 2019; with several labels to an example each has a
sigmoid of its own.
"""

import dataclasses
from collections import Counter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, softmax

from jaxpt.errors import UserError
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.metrics import class_metrics, class_report, label_set_metrics
from jaxpt.tasks.model import class_loss
from jaxpt.tasks.task import Described, Labels, Row, TaskSpec
from jaxpt.text.labelled.tables import Table

PADS: dict[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read, and what the labels are.

    Attributes:
      text, pair: the columns of the texts; without `pair` there is one text.
      label: the column of the label.
      labels: the labels in the order of their outputs, as the column has them; () finds
        them in the training data, sorted.
      label_names: what the labels are called where that is not what the column has
        (exports carry it); as many as there are labels.
      positive: the one of `labels` that binary F1 is of; "" is the second.
      separator: what parts an example's labels in the column, such as ","; with it an
        example has any number of labels, "" has one.
      both_orders: trains on each pair in both orders, as ELECTRA does on MRPC.
      metric: what chooses between runs.
    """

    EXPORT: ClassVar[str] = "SequenceClassification"

    text: str = "sentence"
    pair: str = ""
    label: str = "label"
    labels: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    positive: str = ""
    separator: str = ""
    both_orders: bool = False
    metric: str = "accuracy"

    def __post_init__(self):
        super().__post_init__()
        self.check("text", bool(self.text), "a column")
        self.check("label", bool(self.label), "a column")
        is_good = not self.both_orders or bool(self.pair)
        self.check("both_orders", is_good, "False without task.pair")
        is_good = len(set(self.labels)) == len(self.labels) != 1
        self.check("labels", is_good, "two labels or more, each once; or ()")
        is_good = len(self.label_names) in (0, len(self.labels))
        self.check("label_names", is_good, "as many as task.labels, or ()")
        is_good = self.positive in ("", *self.labels)
        self.check("positive", is_good, f'one of task.labels={self.labels}, or ""')
        several = ("accuracy", "micro_f1", "macro_f1")
        one = ("accuracy", "mcc", "f1", "macro_f1")
        allowed = several if self.separator else one
        self.check("metric", self.metric in allowed, f"one of {', '.join(allowed)}")

    @property
    def columns(self):
        return [name for name in (self.text, self.pair, self.label) if name]

    @property
    def problem_type(self):
        kind = "multi_label" if self.separator else "single_label"
        return f"{kind}_classification"

    @property
    def main_metric(self):
        return self.metric


@dataclasses.dataclass(frozen=True)
class Example:
    """A text or two, and the labels' numbers (one, unless there may be several)."""

    text: str
    pair: str | None
    labels: tuple[int, ...]
    num_labels: int


def read(
    table: Table, spec: Spec, labels: Labels | None
) -> tuple[list[Example], Labels]:
    """See `Task.read`."""
    texts = table.texts(spec.text)
    pairs = table.texts(spec.pair) if spec.pair else [None] * len(texts)
    told = [_split_labels(value, spec) for value in table.columns[spec.label]]
    known = labels or spec.labels or tuple(sorted({x for each in told for x in each}))
    if labels is None:
        _check_labels(table, spec, known, told)
    number = {name: i for i, name in enumerate(known)}
    examples = []
    for row, (text, pair, names) in enumerate(zip(texts, pairs, told, strict=True)):
        for name in names:
            if name not in number:
                listed = ", ".join(map(repr, known))
                whose = "task.labels has" if spec.labels else "the training data has"
                raise UserError(
                    f"{table.where(row)}: {spec.label}={name!r}: {whose} {listed}"
                )
        mine = tuple(sorted(number[name] for name in names))
        examples.append(Example(text, pair, mine, len(known)))
    return examples, known


def _split_labels(value: Any, spec: Spec) -> list[str]:
    """An example's labels, as strings; whole numbers as they are written."""
    if isinstance(value, bool):
        value = str(value).lower()
    text = str(value).strip()
    if not spec.separator:
        return [text]
    return [part.strip() for part in text.split(spec.separator) if part.strip()]


def _check_labels(table: Table, spec: Spec, known: Labels, told: list) -> None:
    """Raises UserError for training data in which some label does not occur."""
    found = {name for each in told for name in each}
    if len(known) < 2:
        raise UserError(
            f"{table.name}: {spec.label} has the one label {', '.join(known)!r}; must "
            f"have two at least"
        )
    for name in known:
        if name not in found:
            raise UserError(
                f"{table.name}: no example has the label {name!r} of task.labels, so "
                f"it cannot be learned"
            )
    if spec.metric == "f1" and len(known) != 2:
        raise UserError(
            f"task.metric=f1: must be macro_f1 or another with {len(known)} labels"
        )


def num_outputs(spec: Spec, labels: Labels) -> int:
    """One for each label."""
    return len(labels)


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; "targets" are int32 [], or float32 [C] of several labels."""
    targets = [_target(example, spec) for example in examples]
    both = spec.both_orders and is_training
    return encoder.rows(examples, targets, both)


def _target(example: Example, spec: Spec) -> Any:
    if not spec.separator:
        return np.asarray(example.labels[0], np.int32)
    return _as_set(example.labels, example.num_labels).astype(np.float32)


def _as_set(labels: tuple[int, ...], num_labels: int) -> np.ndarray:
    return np.isin(np.arange(num_labels), labels)


def outputs(model, params, batch, rngs):
    """Logits [B, C]."""
    return model.outputs(params, batch, rngs)


def loss(outputs, batch: dict, spec: Spec):
    """Cross-entropy; of several labels, the mean of each one's binary one."""
    targets, weights = batch["targets"], batch["row_weights"]
    if not spec.separator:
        return {"loss": class_loss(outputs, targets, weights)}
    # -log sigmoid(z) = softplus(-z)
    each = jax.nn.softplus(outputs) - targets * outputs
    return {"loss": (jnp.sum(each.mean(axis=1) * weights), weights.sum())}


def predict(outputs, rows, examples: list[Example], spec: Spec) -> list:
    """The best label of each; of several, the tuple of those above one half."""
    if not spec.separator:
        return [int(np.argmax(logits)) for logits in outputs]
    return [tuple(np.flatnonzero(logits > 0).tolist()) for logits in outputs]


def metrics(predictions: list, examples: list[Example], spec: Spec) -> dict[str, float]:
    """See `jaxpt.tasks.metrics`."""
    num_labels = examples[0].num_labels
    if spec.separator:
        said, right = (
            np.array([_as_set(each, num_labels) for each in them])
            for them in (predictions, [example.labels for example in examples])
        )
        return label_set_metrics(said, right)
    answers = [example.labels[0] for example in examples]
    return class_metrics(predictions, answers, num_labels, _positive(spec))


def describe(
    outputs, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """Labels as the column has them, lists of them if there may be several.

    "probabilities" are in the order of the labels, rounded to eight digits. The report
    is `jaxpt.tasks.metrics.class_report`.
    """
    logits, is_set = np.asarray(outputs, np.float64), bool(spec.separator)
    right = [example.labels for example in examples]
    said = predictions if is_set else [(number,) for number in predictions]

    def name(numbers: tuple[int, ...]) -> Any:
        names = [labels[i] for i in numbers]
        return names if is_set else names[0]

    probabilities = expit(logits) if is_set else softmax(logits, axis=-1)
    records = [
        {
            "gold": name(gold),
            "prediction": name(own),
            "score": float(gold == own),
            "probabilities": each.round(8).tolist(),
        }
        for gold, own, each in zip(right, said, probabilities, strict=True)
    ]
    ours, theirs = (
        np.array([_as_set(x, len(labels)) if is_set else x[0] for x in them])
        for them in (said, right)
    )
    return Described(records, class_report(probabilities, ours, theirs, labels))


def _positive(spec: Spec) -> int:
    """The number of the label that binary F1 is of."""
    return spec.labels.index(spec.positive) if spec.positive else 1


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list:
    """The commonest label; of several, each one that most examples have."""
    if not spec.separator:
        counts = Counter(example.labels[0] for example in train)
        best = min(counts, key=lambda label: (-counts[label], label))
        return [best] * len(examples)
    shares = np.mean(
        [_as_set(example.labels, example.num_labels) for example in train], axis=0
    )
    return [tuple(np.flatnonzero(shares > 0.5).tolist())] * len(examples)

"""Multiple choice: each option is read with its question, and has one logit.

    question q, options a b c  ->  [CLS] q [SEP] a [SEP], ... ->  3 logits  ->  softmax

Radford et al. 2018 and BERT's SWAG (Devlin et al. 2019, section 4.4).
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.judge.examples import Examples
from jaxpt.setting_types import Length
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.model import TaskModel, class_loss
from jaxpt.tasks.task import (
    Described,
    Labels,
    Row,
    Sums,
    TaskSpec,
    most_common,
    pair_records,
    score_items,
)
from jaxpt.text.labelled.options import find_right, read_options
from jaxpt.text.labelled.tables import Table

# The logit of a padding option, which is never the best.
PAD_LOGIT = -1e9


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read.

    Attributes:
      question: the column of the text that all options follow.
      context: a column that is read before the question; "" for none.
      options: the columns of the options, in order, at least two; or the one column
        that holds a list of them, or ARC's {"text": [...], "label": [...]}.
      answer: the column of the right one: its number, from `first` on, its letter, or
        one of ARC's labels.
      first: the number of the first option, if the column has numbers.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("context", "question", "answer")
    OPTIONAL: ClassVar[tuple[str, ...]] = ("context",)
    NUM_OUTPUTS: ClassVar[int | None] = 1
    EXPORT: ClassVar[str] = "MultipleChoice"

    question: str = "question"
    context: str = ""
    options: Annotated[tuple[str, ...], Length(1)] = ("choices",)
    answer: str = "answer"
    first: int = 0

    @property
    def columns(self) -> list[str]:
        return [*super().columns, *filter(None, self.options)]


@dataclasses.dataclass(frozen=True)
class Example:
    """A question, its options, and the number of the right one."""

    question: str
    options: tuple[str, ...]
    right: int


def read(
    table: Table, spec: Spec, labels: Labels | None
) -> tuple[list[Example], Labels]:
    """See `Task.read`; there are no labels."""
    questions = table.texts(spec.question)
    if spec.context:
        contexts = table.texts(spec.context, may_be_blank=True)
        questions = [" ".join(x) for x in zip(contexts, questions, strict=True)]
    examples = []
    for row, question in enumerate(questions):
        options = read_options(table, spec.options, row)
        right = find_right(table, spec.answer, row, options, spec.first)
        examples.append(Example(question, options.texts, right))
    return examples, ()


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; a row is [k, n], k the most options of any example."""
    most = max(len(example.options) for example in examples)
    rows = []
    for number, example in enumerate(examples):
        question = encoder.ids(example.question)
        framed = [encoder.row(question, encoder.ids(x)) for x in example.options]
        length = max(len(each.tokens) for each in framed)
        row = {
            name: np.zeros((most, length), np.int32)
            for name in ("tokens", "type_ids", "segment_ids")
        }
        row["tokens"][:] = encoder.pad
        for i, each in enumerate(framed):
            size = len(each.tokens)
            row["tokens"][i, :size] = each.tokens
            row["type_ids"][i, :size] = each.type_ids
            row["segment_ids"][i, :size] = 1
        row["targets"] = np.asarray(example.right, np.int32)
        row["example"] = np.asarray(number, np.int32)
        rows.append(row)
    return rows


def outputs(
    model: TaskModel, params: dict, batch: dict, rngs: dict | None
) -> jax.Array:
    """Logits [B, K]; a padding option has `PAD_LOGIT`."""
    logits = model.outputs(params, batch, rngs)[..., 0]
    return jnp.where(batch["segment_ids"].any(-1), logits, PAD_LOGIT)


def loss(outputs: jax.Array, batch: dict, spec: Spec) -> Sums:
    """Cross-entropy over the options."""
    return {"loss": class_loss(outputs, batch["targets"], batch["row_weights"])}


def predict(
    outputs: list, rows: Sequence[Row], examples: list[Example], spec: Spec
) -> list[int]:
    """The best option of each question."""
    return [int(np.argmax(logits)) for logits in outputs]


def metrics(
    predictions: list[int], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """The share of right answers."""
    right = [example.right for example in examples]
    return {"accuracy": float(np.mean(np.equal(predictions, right)))}


def item_scores(
    predictions: list[int], examples: list[Example], spec: Spec
) -> dict[str, Examples]:
    """Whether each answer is right."""
    pairs = zip(predictions, examples, strict=True)
    return {"accuracy": score_items([float(p == x.right) for p, x in pairs])}


def make_records(
    outputs: Any, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """The numbers of the options from 0, and the score 1 or 0."""
    records = pair_records((example.right for example in examples), predictions)
    return Described(
        [x | {"score": float(x["gold"] == x["prediction"])} for x in records]
    )


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list[int]:
    """The most frequent position of the right answer in the training data."""
    return [most_common(example.right for example in train)] * len(examples)

"""Text to text: the network generates the answer to any task (T5, Raffel et al. 2020).

    cola sentence: The cat sat.   ->  acceptable
    stsb sentence1: ... sentence2: ...  ->  3.8
    summarize: #Person1#: Hello ...  ->  #Person1# greets #Person2#.

Training uses teacher forcing, evaluation greedy or beam search. Each class is a word;
any other answer is wrong. Words are compared without case and white space, which some
tokenizers do not preserve (T5 compares them exactly).
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxpt.errors import ConfigError, DataError
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.judge.examples import Examples
from jaxpt.tasks.answers import KINDS, Example, Spec
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.model import TaskModel, answer_loss, write_answers
from jaxpt.tasks.task import (
    Described,
    Labels,
    Row,
    Sums,
)
from jaxpt.tasks.writing import pad_answers
from jaxpt.text.labelled.tables import HOW_TO_DROP, Table
from jaxpt.text.sources.missing import is_empty

STEP = 8  # answers are padded to a multiple of it


def join_source(spec: Spec, texts: Sequence[str]) -> str:
    """The input, joined from its columns as in T5.

    >>> join_source(Spec(prefix="cola"), ["A cat ."])
    'cola sentence: A cat .'
    >>> join_source(Spec(prefix="summarize:", inputs=("a",), keys=("",)), ["Hi"])
    'summarize: Hi'
    """
    parts = [spec.prefix] if spec.prefix else []
    for key, text in zip(spec.keys or spec.inputs, texts, strict=True):
        parts += [f"{key}:", text] if key else [text]
    return " ".join(parts)


def read(
    table: Table, spec: Spec, labels: Labels | None
) -> tuple[list[Example], Labels]:
    """See `Task.read`."""
    for column in filter(None, (*spec.inputs, spec.group)):
        if column not in table.columns:
            listed = ", ".join(map(repr, table.columns))
            raise DataError(f"{table.name}: no column {column!r}; it has {listed}")
    columns = [table.texts(column, may_be_blank=True) for column in spec.inputs]
    inputs = list(zip(*columns, strict=True))
    for row, texts in enumerate(inputs):
        if all(map(is_empty, texts)):
            raise DataError(
                f"{table.where(row)}: {', '.join(spec.inputs)}: must have text, is "
                f"blank; {HOW_TO_DROP}"
            )
    sources = [join_source(spec, texts) for texts in inputs]
    return KINDS[spec.kind].read(table, spec, labels, sources)


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; for the arrays of a row see `jaxpt.tasks.writing`.

    Training and evaluation truncate texts to the same length.
    """
    writing = encoder.writing
    if writing is None:
        raise ConfigError(
            "task.name=text_to_text: needs a network that generates from left to "
            "right: a causal LM, a prefix LM or an encoder with a decoder"
        )
    room = writing.room(encoder.max_len, spec.max_target)
    num_extra = 1 + (writing.has_decoder and writing.form.first is not None)
    rows: list[Row] = []
    longest = 0
    for number, example in enumerate(examples):
        ids = encoder.ids(example.source)
        if is_training:
            target = encoder.ids(example.target)[: spec.max_target - num_extra]
            row = writing.train_row(ids, target, room)
            longest = max(longest, len(target) + num_extra)
        else:
            row = writing.read_row(ids, room)
        rows.append(row | {"example": np.array(number, np.int32)})
    if is_training and writing.has_decoder:
        rows = pad_answers(rows, min(spec.max_target, -(-longest // STEP) * STEP))
    return rows


def outputs(
    model: TaskModel, params: dict, batch: dict, rngs: dict | None
) -> tuple[jax.Array, jax.Array] | dict[str, jax.Array]:
    """The loss of training rows, (sum, weight); the generated answers of other rows."""
    writing, spec = model.writing, model.spec
    assert writing is not None, "encode refuses a network that cannot generate"
    if "answer" in batch or "targets" in batch:
        return answer_loss(model, params, batch, writing, rngs)
    sampling = SampleSpec(
        temperature=0.0, num_beams=spec.num_beams, length_penalty=spec.length_penalty
    )
    longest = writing.longest(spec.max_len, spec.max_target)
    return write_answers(
        model, params, batch, writing, spec.max_target, longest, sampling
    )


def loss(outputs: tuple[jax.Array, jax.Array], batch: dict, spec: Spec) -> Sums:
    """Cross-entropy over the tokens of all answers, their ends included."""
    return {"loss": outputs}


def predict(
    outputs: list, rows: Sequence[Row], examples: list[Example], spec: Spec
) -> list[Any]:
    """The number of the class, a float (-1 if it is not one, as in T5), or the text."""
    texts: list[str] = [""] * len(examples)
    for text, row in zip(outputs, rows, strict=True):
        texts[int(row["example"])] = text
    return KINDS[spec.kind].predict(texts, examples)


def metrics(
    predictions: list[Any], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """See `jaxpt.tasks.text_metrics`, `.metrics` and `.span_metrics`."""
    return KINDS[spec.kind].metrics(predictions, examples, spec)


def item_scores(
    predictions: list[Any], examples: list[Example], spec: Spec
) -> dict[str, Examples]:
    """Accuracy of classes, exact match and F1 of answers, ROUGE of texts."""
    return KINDS[spec.kind].item_scores(predictions, examples, spec)


def make_records(
    outputs: Any, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """Answers; for classes and numbers also the generated "text".

    The prediction is None if the text is not a label or a number. The score is 1 or 0
    for a class, F1 for an answer and ROUGE-L for a text.
    """
    record = KINDS[spec.kind].record
    triples = zip(outputs, predictions, examples, strict=True)
    return Described([record(*each, spec, labels) for each in triples])


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list[Any]:
    """The most frequent answer of the training data; for numbers, their mean."""
    return [KINDS[spec.kind].constant(train)] * len(examples)

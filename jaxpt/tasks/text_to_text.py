"""Text to text: the network generates the answer to any task (T5, Raffel et al. 2020).

    cola sentence: The cat sat.   ->  acceptable
    stsb sentence1: ... sentence2: ...  ->  3.8
    summarize: #Person1#: Hello ...  ->  #Person1# greets #Person2#.

Training uses teacher forcing, evaluation greedy or beam search. Each class is a word;
any other answer is wrong. Words are compared without case and white space, which some
tokenizers do not preserve (T5 compares them exactly).
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax
import numpy as np

from jaxpt.errors import ConfigError, DataError
from jaxpt.evaluation.scores import NumBeams, SampleSpec
from jaxpt.judge.examples import Examples
from jaxpt.setting_types import Length, Limits, NonNegativeInt, OneOf
from jaxpt.tasks.answers import KINDS, Example
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.model import TaskModel, answer_loss, write_answers
from jaxpt.tasks.task import (
    Described,
    LabelNames,
    Labels,
    Row,
    Sums,
    TaskSpec,
)
from jaxpt.tasks.text_metrics import (
    OVER_REFERENCES,
)
from jaxpt.tasks.writing import IGNORED, pad_answers
from jaxpt.text.labelled.tables import HOW_TO_DROP, Table
from jaxpt.text.sources.missing import is_empty

MAX_TARGET = 2**20
STEP = 8  # answers are padded to a multiple of it


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """The inputs, the target, and the metrics.

    Attributes:
      kind: the form of an answer: the word of a label ("classes"), a "number", a "text"
        scored by ROUGE and BLEU, or an "answer" scored as in SQuAD.
      prefix: the start of the input, as "cola" or "summarize:".
      inputs: the columns of the input, in this order; T5 sorts them by name.
      keys: the name of each column in the input, as "sentence" in "sentence: ..."; ()
        takes the columns' names, "" omits the name.
      target: the column of the target. For a "text", a pattern such as "summary*" takes
        all columns that match as references; the first is trained on. A value may be a
        list, and rows may differ in their number of references. For an "answer", the
        values may be SQuAD's {"text": [...], ...}.
      group: a column; rows of development and test data with the same value are one
        text with several references. Training data are not grouped.
      labels, words: the labels, and the word for each; () takes the labels of the
        training data, and the labels themselves as words.
      positive: the label that F1 is computed for; "" is the second.
      drop: a string that is removed from the target, as a mark between sentences.
      max_target: the maximum number of tokens in an answer, its end included.
      num_beams: beams of the search; 1 is greedy.
      length_penalty: as in `jaxpt generate`.
      over_references: "max" or "mean" of ROUGE over several references; BLEU matches
        any of them.
      bleu_tokenize: sacrebleu's; T5's is "intl".
      metric: selects the best run; "" is the first of its kind, rougeL for a "text".
    """

    NUM_OUTPUTS: ClassVar[int | None] = 0
    READS: ClassVar[str] = ""
    PADS: ClassVar[dict[str, int]] = {"is_prefix": 0, "targets": IGNORED}

    max_len: NonNegativeInt = 512
    kind: Annotated[str, OneOf(*KINDS)] = "classes"
    prefix: str = ""
    inputs: Annotated[tuple[str, ...], Length(1)] = ("sentence",)
    keys: tuple[str, ...] = ()
    target: str = "label"
    group: str = ""
    labels: LabelNames = ()
    words: tuple[str, ...] = ()
    positive: str = ""
    drop: str = ""
    max_target: Annotated[int, Limits(least=2, most=MAX_TARGET)] = 32
    num_beams: NumBeams = 1
    length_penalty: float = 1.0
    over_references: Annotated[str, OneOf(*OVER_REFERENCES)] = "max"
    bleu_tokenize: str = "13a"
    metric: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("inputs", all(self.inputs), "columns")
        is_good = len(self.keys) in (0, len(self.inputs))
        self.check("keys", is_good, "one for each of task.inputs, or ()")
        self.check("target", bool(self.target), "a column")
        is_good = KINDS[self.kind].HAS_PATTERNS or "*" not in self.target
        self.check("target", is_good, "one column without task.kind=text")
        for kind, each in KINDS.items():
            for name in each.SETTINGS:
                is_good = self.kind == kind or not getattr(self, name)
                self.check(name, is_good, f"empty without task.kind={kind}")
        is_good = len(self.words) in (0, len(self.labels))
        self.check("words", is_good, "one for each of task.labels, or ()")
        is_good = self.positive in ("", *self.labels)
        self.check("positive", is_good, "one of task.labels, or ''")
        allowed = KINDS[self.kind].METRICS
        is_good = self.metric in ("", *allowed)
        self.check("metric", is_good, f"one of {', '.join(allowed)}, or ''")

    @property
    def columns(self) -> list[str]:
        named = [*self.inputs, self.target, self.group]
        return [] if "*" in self.target else list(filter(None, dict.fromkeys(named)))

    @property
    def main_metric(self) -> str:
        return self.metric or KINDS[self.kind].MAIN


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


def describe(
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

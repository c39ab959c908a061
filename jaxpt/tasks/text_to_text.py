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

from jaxpt import optional
from jaxpt.errors import ConfigError, DataError
from jaxpt.evaluation.scores import NumBeams, SampleSpec
from jaxpt.judge.examples import Examples
from jaxpt.setting_types import Length, Limits, NonNegativeInt, OneOf
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.metrics import number_metrics
from jaxpt.tasks.model import TaskModel, answer_loss, write_answers
from jaxpt.tasks.references import join_groups, read_references
from jaxpt.tasks.span_metrics import answer_metrics, answer_scores, score_answers
from jaxpt.tasks.task import (
    Described,
    LabelNames,
    Labels,
    Row,
    Sums,
    TaskSpec,
    check_labels,
    most_common,
    number_labels,
    read_labels,
    score_items,
)
from jaxpt.tasks.text_metrics import (
    BLEU,
    INVALID,
    OVER_REFERENCES,
    ROUGE,
    bleu_metrics,
    rouge_metrics,
    written_class_metrics,
)
from jaxpt.tasks.writing import IGNORED, pad_answers
from jaxpt.text.labelled.tables import HOW_TO_DROP, Table
from jaxpt.text.sources.missing import is_empty

CLASSES = ("accuracy", "mcc", "f1", "macro_f1")
NUMBERS = ("pearson", "spearman")
TEXTS = ("rouge1", "rouge2", "rougeL", "rougeLsum", "bleu")
ANSWERS = ("f1", "exact_match")
KINDS = {"classes": CLASSES, "number": NUMBERS, "text": TEXTS, "answer": ANSWERS}
# Settings that only one kind has.
KIND_OF_SETTING = {
    **dict.fromkeys(("labels", "words", "positive"), "classes"),
    **dict.fromkeys(("group", "drop"), "text"),
}
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
        is_good = self.kind == "text" or "*" not in self.target
        self.check("target", is_good, "one column without task.kind=text")
        for name, kind in KIND_OF_SETTING.items():
            is_good = self.kind == kind or not getattr(self, name)
            self.check(name, is_good, f"empty without task.kind={kind}")
        is_good = len(self.words) in (0, len(self.labels))
        self.check("words", is_good, "one for each of task.labels, or ()")
        is_good = self.positive in ("", *self.labels)
        self.check("positive", is_good, "one of task.labels, or ''")
        allowed = KINDS[self.kind]
        is_good = self.metric in ("", *allowed)
        self.check("metric", is_good, f"one of {', '.join(allowed)}, or ''")

    @property
    def columns(self) -> list[str]:
        named = [*self.inputs, self.target, self.group]
        return [] if "*" in self.target else list(filter(None, dict.fromkeys(named)))

    @property
    def main_metric(self) -> str:
        first = "rougeL" if self.kind == "text" else KINDS[self.kind][0]
        return self.metric or first


@dataclasses.dataclass(frozen=True)
class Example:
    """The input, the target, and the accepted answers.

    Attributes:
      golds: references or answers; for a class or a number the one text.
      label: the number of a class; -1 for other kinds.
      value: of a number.
      words: the word for each class.
    """

    source: str
    target: str
    golds: tuple[str, ...]
    label: int = INVALID
    value: float = 0.0
    words: tuple[str, ...] = ()


def round_fifth(value: float) -> str:
    """A number rounded to 0.2, halves to even, as T5 writes those of STS-B.

    >>> [round_fifth(x) for x in (2.57, 0.5, 2.5, 3.5, 4.5)]
    ['2.6', '0.4', '2.4', '3.6', '4.4']
    """
    return f"{round(value * 5) / 5:.1f}"


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
    if spec.kind == "classes":
        return _read_classes(table, spec, labels, sources)
    if spec.kind == "number":
        return _read_numbers(table, spec, sources), ()
    if spec.kind == "text":
        optional.need(*ROUGE), optional.need(*BLEU)
        return _read_texts(table, spec, sources, is_training=labels is None), ()
    answers = [_read_golds(table, spec, row) for row in range(len(table))]
    pairs = zip(sources, answers, strict=True)
    return [Example(source, golds[0], golds) for source, golds in pairs], ()


def _read_classes(
    table: Table, spec: Spec, labels: Labels | None, sources: list[str]
) -> tuple[list[Example], Labels]:
    names = read_labels(table, spec.target, spec.labels)
    known = labels or spec.labels or tuple(sorted(set(names)))
    check_labels(table, spec.target, known, "label")
    words = spec.words or known
    if len(set(map(_squeeze, words))) < len(words):
        raise ConfigError(
            f"task.words={words}: must differ in more than case and space"
        )
    numbers = number_labels(table, spec.target, [[x] for x in names], known, spec)
    return [
        Example(source, words[label], (words[label],), label, words=words)
        for (label,), source in zip(numbers, sources, strict=True)
    ], known


def _read_numbers(table: Table, spec: Spec, sources: list[str]) -> list[Example]:
    examples = []
    for row, cell in enumerate(table.columns[spec.target]):
        value = read_number(str(cell))
        if value is None:
            raise DataError(
                f"{table.where(row)}: {spec.target}={cell!r}: must be a number"
            )
        text = round_fifth(value)
        examples.append(Example(sources[row], text, (text,), value=value))
    return examples


def _read_texts(
    table: Table, spec: Spec, sources: list[str], *, is_training: bool
) -> list[Example]:
    excluded = {*spec.inputs, spec.group}
    references = read_references(table, spec.target, excluded, spec.drop)
    if spec.group and not is_training:
        pairs = join_groups(table, spec.group, sources, references)
    else:
        pairs = list(zip(sources, references, strict=True))
    return [Example(source, golds[0], golds) for source, golds in pairs]


def _read_golds(table: Table, spec: Spec, row: int) -> tuple[str, ...]:
    cell = table.columns[spec.target][row]
    golds = cell.get("text") if isinstance(cell, dict) else cell
    golds = [golds] if isinstance(golds, str) else golds
    is_good = isinstance(golds, list) and all(isinstance(x, str) for x in golds)
    if not is_good or not golds or any(map(is_empty, golds)):
        raise DataError(
            f"{table.where(row)}: {spec.target} must be an answer, or several, is "
            f"{cell!r:.40}"
        )
    return tuple(golds)


def read_number(text: str) -> float | None:
    """The finite number that a text spells, ignoring white space; else None.

    >>> read_number("2 . 6"), read_number("about 2"), read_number("nan")
    (2.6, None, None)
    """
    try:
        value = float("".join(text.split()))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _squeeze(text: str) -> str:
    return "".join(text.lower().split())


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
    if spec.kind == "classes":
        known = [_squeeze(word) for word in examples[0].words] if examples else []
        answers = map(_squeeze, texts)
        return [known.index(x) if x in known else INVALID for x in answers]
    if spec.kind == "number":
        values = map(read_number, texts)
        return [-1.0 if value is None else value for value in values]
    return texts


def metrics(
    predictions: list[Any], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """See `jaxpt.tasks.text_metrics`, `.metrics` and `.span_metrics`."""
    if spec.kind == "classes":
        positive = spec.labels.index(spec.positive) if spec.positive else 1
        right = [example.label for example in examples]
        num_labels = len(examples[0].words)
        return written_class_metrics(predictions, right, num_labels, positive)
    if spec.kind == "number":
        return number_metrics(predictions, [example.value for example in examples])
    golds = [example.golds for example in examples]
    if spec.kind == "answer":
        return answer_metrics(predictions, golds)
    scores = rouge_metrics(predictions, golds, spec.over_references)
    return scores | bleu_metrics(predictions, golds, spec.bleu_tokenize)


def item_scores(
    predictions: list[Any], examples: list[Example], spec: Spec
) -> dict[str, Examples]:
    """Accuracy of classes, exact match and F1 of answers, ROUGE of texts."""
    pairs = list(zip(predictions, examples, strict=True))
    if spec.kind == "classes":
        return {"accuracy": score_items([float(p == x.label) for p, x in pairs])}
    if spec.kind == "answer":
        return score_answers(predictions, [example.golds for example in examples])
    if spec.kind == "number":
        return {}
    each = [rouge_metrics([p], [x.golds], spec.over_references) for p, x in pairs]
    return {name: score_items([scores[name] for scores in each]) for name in each[0]}


def describe(
    outputs: Any, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """Answers; for classes and numbers also the generated "text".

    The prediction is None if the text is not a label or a number. The score is 1 or 0
    for a class, F1 for an answer and ROUGE-L for a text.
    """
    records = []
    for text, predicted, example in zip(outputs, predictions, examples, strict=True):
        golds = list(example.golds)
        if spec.kind == "classes":
            name = None if predicted == INVALID else labels[predicted]
            record = {"gold": labels[example.label], "prediction": name, "text": text}
            record["score"] = float(predicted == example.label)
        elif spec.kind == "number":
            record = {"gold": example.value, "prediction": read_number(text)}
            record["text"] = text
        elif spec.kind == "answer":
            _, score = answer_scores(predicted, golds)
            record = {"gold": golds, "prediction": predicted, "score": score}
        else:
            score = rouge_metrics([predicted], [golds], spec.over_references)["rougeL"]
            record = {"gold": golds, "prediction": predicted, "score": score}
        records.append(record)
    return Described(records)


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list[Any]:
    """The most frequent answer of the training data; for numbers, their mean."""
    if spec.kind == "number":
        return [float(np.mean([x.value for x in train]))] * len(examples)
    answers = (x.label if spec.kind == "classes" else x.target for x in train)
    return [most_common(answers, key=str)] * len(examples)

"""Text to text: the answer is written out, whatever the task is (Raffel et al. 2020).

    cola sentence: The cat sat.   ->  acceptable
    stsb sentence1: ... sentence2: ...  ->  3.8
    summarize: #Person1#: Hello ...  ->  #Person1# greets #Person2#.

Trained with teacher forcing, read by greedy search or beams. A class is told by its
word; any other answer is wrong. Words are compared without regard to case and white
space, which some tokenizers do not keep (T5 compares them as they are).
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jaxpt.errors import UserError
from jaxpt.generation.sampling import SampleSpec
from jaxpt.tasks.answers import answer_loss, write_answers
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.metrics import number_metrics
from jaxpt.tasks.references import join_groups, read_references
from jaxpt.tasks.span_metrics import answer_metrics, answer_scores
from jaxpt.tasks.task import Described, Labels, Row, TaskSpec
from jaxpt.tasks.text_metrics import (
    INVALID,
    OVER_REFERENCES,
    bleu_metrics,
    need_rouge,
    need_sacrebleu,
    rouge_metrics,
    told_class_metrics,
)
from jaxpt.tasks.writing import IGNORED, pad_answers
from jaxpt.text.labelled.tables import Table

PADS: dict[str, int] = {"is_prefix": 0, "targets": IGNORED}
CLASSES = ("accuracy", "mcc", "f1", "macro_f1")
NUMBERS = ("pearson", "spearman")
TEXTS = ("rouge1", "rouge2", "rougeL", "rougeLsum", "bleu")
ANSWERS = ("f1", "exact_match")
KINDS = {"classes": CLASSES, "number": NUMBERS, "text": TEXTS, "answer": ANSWERS}
STEP = 8  # answers are padded to a multiple of it


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """What is read, what is written, and how it is scored.

    Attributes:
      kind: what an answer is: one of the labels' words ("classes"), a "number", a
        "text" scored by ROUGE and BLEU, or an "answer" scored as SQuAD's.
      prefix: what a text begins with, as "cola" or "summarize:".
      inputs: the columns that are read, in this order; T5's is that of their names.
      keys: how a text calls each column, as "sentence" in "sentence: ..."; () is the
        columns' names, "" leaves the name out.
      target: the column of what is to be written; of a "text" a pattern such as
        "summary*" takes all columns that match as references, the first to learn from.
        A value may be a list, and rows may differ in their number of references. Of an
        "answer" the values may be SQuAD's {"text": [...], ...}.
      group: a column; rows of development and test data with the same value are one
        text with several references. Training data are not grouped.
      labels, words: the labels, and what is written for each; () are those of the
        training data, and the labels themselves.
      positive: the label that F1 is of; "" is the second.
      drop: what is cut out of the text to be written, as a mark between sentences.
      max_target: the most tokens of an answer, its end included.
      num_beams: beams of the search; 1 is greedy.
      length_penalty: as of `jaxpt generate`.
      over_references: of several references, ROUGE's "max" or "mean"; BLEU matches any.
      bleu_tokenize: sacrebleu's; T5's is "intl".
      metric: what chooses between runs; "" is the first of its kind, of "text" rougeL.
    """

    READS: ClassVar[str] = ""

    max_len: int = 512
    kind: str = "classes"
    prefix: str = ""
    inputs: tuple[str, ...] = ("sentence",)
    keys: tuple[str, ...] = ()
    target: str = "label"
    group: str = ""
    labels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    positive: str = ""
    drop: str = ""
    max_target: int = 32
    num_beams: int = 1
    length_penalty: float = 1.0
    over_references: str = "max"
    bleu_tokenize: str = "13a"
    metric: str = ""

    def __post_init__(self):
        super().__post_init__()
        self.check("kind", self.kind in KINDS, f"one of {', '.join(KINDS)}")
        self.check("inputs", all(self.inputs) and len(self.inputs) > 0, "columns")
        is_good = len(self.keys) in (0, len(self.inputs))
        self.check("keys", is_good, "as many as task.inputs, or ()")
        self.check("target", bool(self.target), "a column")
        is_good = self.kind == "text" or "*" not in self.target
        self.check("target", is_good, "one column, but with task.kind=text")
        is_good = self.kind == "text" or not self.group
        self.check("group", is_good, "'' but with task.kind=text")
        for name in ("labels", "words", "positive"):
            is_good = self.kind == "classes" or not getattr(self, name)
            self.check(name, is_good, "left out but with task.kind=classes")
        is_good = len(set(self.labels)) == len(self.labels) != 1
        self.check("labels", is_good, "two labels or more, each once; or ()")
        is_good = len(self.words) in (0, len(self.labels))
        self.check("words", is_good, "as many as task.labels, or ()")
        is_good = self.positive in ("", *self.labels)
        self.check("positive", is_good, "one of task.labels, or ''")
        is_good = self.kind == "text" or not self.drop
        self.check("drop", is_good, "'' but with task.kind=text")
        self.check("max_target", self.max_target >= 2, "at least 2")
        self.check("num_beams", self.num_beams >= 1, "at least 1")
        is_good = self.over_references in OVER_REFERENCES
        self.check("over_references", is_good, "max or mean")
        allowed = KINDS[self.kind]
        is_good = self.metric in ("", *allowed)
        self.check("metric", is_good, f"one of {', '.join(allowed)}, or ''")

    @property
    def columns(self):
        named = [*self.inputs, self.target, self.group]
        return [] if "*" in self.target else list(filter(None, dict.fromkeys(named)))

    @property
    def main_metric(self):
        first = "rougeL" if self.kind == "text" else KINDS[self.kind][0]
        return self.metric or first


@dataclasses.dataclass(frozen=True)
class Example:
    """What is read and written, and what is right.

    Attributes:
      golds: references or answers; of a class and a number the one text.
      label: the number of a class; -1 elsewhere.
      value: of a number.
      words: what is written for each class.
    """

    source: str
    target: str
    golds: tuple[str, ...]
    label: int = INVALID
    value: float = 0.0
    words: tuple[str, ...] = ()


def round_fifth(value: float) -> str:
    """A number as T5 writes STS-B's: to the next 0.2, halves to the even one.

    >>> [round_fifth(x) for x in (2.57, 0.5, 2.5, 3.5, 4.5)]
    ['2.6', '0.4', '2.4', '3.6', '4.4']
    """
    return f"{round(value * 5) / 5:.1f}"


def join_source(spec: Spec, texts: Sequence[str]) -> str:
    """What is read, as T5 joins it.

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
            raise UserError(f"{table.name}: no column {column!r}; it has {listed}")
    inputs = zip(*(table.texts(column) for column in spec.inputs), strict=True)
    sources = [join_source(spec, texts) for texts in inputs]
    if spec.kind == "classes":
        return _read_classes(table, spec, labels, sources)
    if spec.kind == "number":
        return _read_numbers(table, spec, sources), ()
    if spec.kind == "text":
        need_rouge(), need_sacrebleu()
        return _read_texts(table, spec, sources, is_training=labels is None), ()
    told = [_read_golds(table, spec, row) for row in range(len(table))]
    pairs = zip(sources, told, strict=True)
    return [Example(source, golds[0], golds) for source, golds in pairs], ()


def _read_classes(table: Table, spec: Spec, labels: Labels | None, sources: list):
    values = [_name_label(value) for value in table.columns[spec.target]]
    known = labels or spec.labels or tuple(sorted(set(values)))
    if len(known) < 2:
        raise UserError(
            f"{table.name}: {spec.target} has the one label {known[0]!r}; must have "
            f"two at least"
        )
    words = spec.words or known
    if len(set(map(_squeeze, words))) < len(words):
        raise UserError(f"task.words={words}: must differ in more than case and space")
    examples = []
    for row, (value, source) in enumerate(zip(values, sources, strict=True)):
        if value not in known:
            whose = "task.labels has" if spec.labels else "the training data has"
            raise UserError(
                f"{table.where(row)}: {spec.target}={value!r}: {whose} "
                f"{', '.join(known)}"
            )
        label = known.index(value)
        word = words[label]
        examples.append(Example(source, word, (word,), label, words=words))
    return examples, known


def _name_label(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _read_numbers(table: Table, spec: Spec, sources: list[str]) -> list[Example]:
    examples = []
    for row, told in enumerate(table.columns[spec.target]):
        value = read_number(str(told))
        if value is None:
            raise UserError(
                f"{table.where(row)}: {spec.target}={told!r}: must be a number"
            )
        text = round_fifth(value)
        examples.append(Example(sources[row], text, (text,), value=value))
    return examples


def _read_texts(
    table: Table, spec: Spec, sources: list[str], *, is_training: bool
) -> list[Example]:
    others = {*spec.inputs, spec.group}
    references = read_references(table, spec.target, others, spec.drop)
    if spec.group and not is_training:
        pairs = join_groups(table, spec.group, sources, references)
    else:
        pairs = list(zip(sources, references, strict=True))
    return [Example(source, golds[0], golds) for source, golds in pairs]


def _read_golds(table: Table, spec: Spec, row: int) -> tuple[str, ...]:
    told = table.columns[spec.target][row]
    golds = told.get("text") if isinstance(told, dict) else told
    golds = [golds] if isinstance(golds, str) else golds
    is_good = isinstance(golds, list) and all(isinstance(x, str) for x in golds)
    if not is_good or not golds:
        raise UserError(
            f"{table.where(row)}: {spec.target} must be an answer, or several, is "
            f"{told!r:.40}"
        )
    return tuple(golds)


def read_number(text: str) -> float | None:
    """A finite number that a text is, white space left out; None if it is none.

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


def num_outputs(spec: Spec, labels: Labels) -> int:
    """None: the network's own vocabulary is asked."""
    return 0


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; `jaxpt.tasks.writing` says what a row holds.

    Training and evaluation cut texts to the same length.

    Raises:
      UserError: the network does not write from left to right, or answers of
        `task.max_target` tokens do not fit.
    """
    writing = encoder.writing
    if writing is None:
        raise UserError(
            "task.name=text_to_text: needs a network that writes from left to right: "
            "a causal one, a prefix LM or an encoder with a decoder"
        )
    room = writing.room(encoder.max_len, spec.max_target)
    num_extra = 1 + (writing.has_decoder and writing.first is not None)
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


def outputs(model, params, batch, rngs):
    """Of training rows their loss, (sum, weight); of others what is written.

    Raises:
      ValueError: the model was made for no writing.
    """
    if model.writing is None:
        raise ValueError("no writing")
    writing, spec = model.writing, model.spec
    if "answer" in batch or "targets" in batch:
        return answer_loss(model, params, batch, writing, rngs)
    sampling = SampleSpec(
        temperature=0.0, num_beams=spec.num_beams, length_penalty=spec.length_penalty
    )
    longest = writing.longest(spec.max_len, spec.max_target)
    return write_answers(
        model, params, batch, writing, spec.max_target, longest, sampling
    )


def loss(outputs, batch: dict, spec: Spec):
    """Cross-entropy over the tokens of all answers, their ends included."""
    return {"loss": outputs}


def predict(outputs, rows, examples: list[Example], spec: Spec) -> list[Any]:
    """The number of the class, a float (-1 if it is none, as T5's), or the text."""
    texts: list[str] = [""] * len(examples)
    for text, row in zip(outputs, rows, strict=True):
        texts[int(row["example"])] = text
    if spec.kind == "classes":
        known = [_squeeze(word) for word in examples[0].words] if examples else []
        said = map(_squeeze, texts)
        return [known.index(t) if t in known else INVALID for t in said]
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
        return told_class_metrics(predictions, right, num_labels, positive)
    if spec.kind == "number":
        return number_metrics(predictions, [example.value for example in examples])
    golds = [example.golds for example in examples]
    if spec.kind == "answer":
        return answer_metrics(predictions, golds)
    scores = rouge_metrics(predictions, golds, spec.over_references)
    return scores | bleu_metrics(predictions, golds, spec.bleu_tokenize)


def describe(
    outputs: list[str],
    predictions: list[Any],
    examples: list[Example],
    spec: Spec,
    labels: Labels,
) -> Described:
    """Answers, and of classes and numbers also the "text" that was written.

    The prediction is None where the text is no label or no number. The score is 1 or 0
    of a class, F1 of an answer and ROUGE-L of a text.
    """
    records = []
    for text, said, example in zip(outputs, predictions, examples, strict=True):
        golds = list(example.golds)
        if spec.kind == "classes":
            name = None if said == INVALID else labels[said]
            record = {"gold": labels[example.label], "prediction": name, "text": text}
            record["score"] = float(said == example.label)
        elif spec.kind == "number":
            record = {"gold": example.value, "prediction": read_number(text)}
            record["text"] = text
        elif spec.kind == "answer":
            _, score = answer_scores(said, golds)
            record = {"gold": golds, "prediction": said, "score": score}
        else:
            score = rouge_metrics([said], [golds], spec.over_references)["rougeL"]
            record = {"gold": golds, "prediction": said, "score": score}
        records.append(record)
    return Described(records)


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list[Any]:
    """The commonest answer of the training data; of numbers, their mean."""
    if spec.kind == "number":
        return [float(np.mean([x.value for x in train]))] * len(examples)
    counts = Counter(x.label if spec.kind == "classes" else x.target for x in train)
    best = min(counts, key=lambda said: (-counts[said], str(said)))
    return [best] * len(examples)

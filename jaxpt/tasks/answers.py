"""The settings of text to text, and its four kinds of answers.

    classes   "acceptable"          the number of the class
    number    "3.8"                 a float
    text      "A cat sits."         the text, by ROUGE and BLEU
    answer    "in 1888"             the text, as in SQuAD

Each kind reads its examples from a table, reads a generated text, and scores what it
says. `KINDS` has one of each, by its name.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from jaxpt import optional
from jaxpt.errors import ConfigError, DataError
from jaxpt.evaluation.scores import NumBeams
from jaxpt.judge.examples import Examples
from jaxpt.setting_types import Length, Limits, NonNegativeInt, OneOf
from jaxpt.tasks.metrics import number_metrics
from jaxpt.tasks.references import join_groups, read_references
from jaxpt.tasks.span_metrics import answer_metrics, answer_scores, score_answers
from jaxpt.tasks.task import (
    LabelNames,
    Labels,
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
from jaxpt.tasks.writing import IGNORED
from jaxpt.text.labelled.tables import Table
from jaxpt.text.sources.missing import is_empty

MAX_TARGET = 2**20


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


class AnswerKind:
    """A kind of answer. The methods are those of `jaxpt.tasks.task.Task`.

    Attributes:
      METRICS: names of all.
      MAIN: the metric that selects the best run, unless `task.metric` does.
      SETTINGS: that only this kind has.
      HAS_PATTERNS: whether `task.target` may be a pattern of several columns.
    """

    METRICS: ClassVar[tuple[str, ...]]
    MAIN: ClassVar[str]
    SETTINGS: ClassVar[tuple[str, ...]] = ()
    HAS_PATTERNS: ClassVar[bool] = False

    def read(
        self, table: Table, spec: "Spec", labels: Labels | None, sources: list[str]
    ) -> tuple[list[Example], Labels]:
        """The examples of a table whose inputs are `sources`, and the labels.

        Args:
          labels: those of the training data; None if the table is the training data.
        """
        raise NotImplementedError

    def predict(self, texts: list[str], examples: list[Example]) -> list[Any]:
        """What each generated text says: here the text itself."""
        return texts

    def metrics(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, float]:
        """The values of `METRICS`, and of those that are only reported."""
        raise NotImplementedError

    def item_scores(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, Examples]:
        """The metrics that are a mean over examples, for each of these: here none."""
        return {}

    def record(
        self, text: str, predicted: Any, example: Example, spec: "Spec", labels: Labels
    ) -> dict[str, Any]:
        """The stored fields of an answer (`jaxpt.tasks.text_to_text.make_records`)."""
        raise NotImplementedError

    def constant(self, train: list[Example]) -> Any:
        """The answer of the baseline without a network: here the most frequent."""
        return most_common((example.target for example in train), key=str)


class ClassWord(AnswerKind):
    """The word of a label; any other word is wrong."""

    METRICS = ("accuracy", "mcc", "f1", "macro_f1")
    MAIN = "accuracy"
    SETTINGS = ("labels", "words", "positive")

    def read(
        self, table: Table, spec: "Spec", labels: Labels | None, sources: list[str]
    ) -> tuple[list[Example], Labels]:
        names = read_labels(table, spec.target, spec.labels)
        known = labels or spec.labels or tuple(sorted(set(names)))
        check_labels(table, spec.target, known, "label")
        words = spec.words or known
        if len(set(map(_squeeze, words))) < len(words):
            raise ConfigError(
                f"task.words={words}: must differ in more than case and space"
            )
        columns = [[name] for name in names]
        numbers = number_labels(table, spec.target, columns, known, spec)
        return [
            Example(source, words[label], (words[label],), label, words=words)
            for (label,), source in zip(numbers, sources, strict=True)
        ], known

    def predict(self, texts: list[str], examples: list[Example]) -> list[Any]:
        known = [_squeeze(word) for word in examples[0].words] if examples else []
        answers = map(_squeeze, texts)
        return [known.index(x) if x in known else INVALID for x in answers]

    def metrics(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, float]:
        positive = spec.labels.index(spec.positive) if spec.positive else 1
        right = [example.label for example in examples]
        num_labels = len(examples[0].words)
        return written_class_metrics(predictions, right, num_labels, positive)

    def item_scores(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, Examples]:
        pairs = zip(predictions, examples, strict=True)
        return {"accuracy": score_items([float(p == x.label) for p, x in pairs])}

    def record(
        self, text: str, predicted: Any, example: Example, spec: "Spec", labels: Labels
    ) -> dict[str, Any]:
        return {
            "gold": labels[example.label],
            "prediction": None if predicted == INVALID else labels[predicted],
            "text": text,
            "score": float(predicted == example.label),
        }

    def constant(self, train: list[Example]) -> Any:
        return most_common((example.label for example in train), key=str)


class WrittenNumber(AnswerKind):
    """A number; any other text is -1, as in T5."""

    METRICS = ("pearson", "spearman")
    MAIN = "pearson"

    def read(
        self, table: Table, spec: "Spec", labels: Labels | None, sources: list[str]
    ) -> tuple[list[Example], Labels]:
        examples = []
        for row, cell in enumerate(table.columns[spec.target]):
            value = read_number(str(cell))
            if value is None:
                raise DataError(
                    f"{table.where(row)}: {spec.target}={cell!r}: must be a number"
                )
            text = round_fifth(value)
            examples.append(Example(sources[row], text, (text,), value=value))
        return examples, ()

    def predict(self, texts: list[str], examples: list[Example]) -> list[Any]:
        values = map(read_number, texts)
        return [-1.0 if value is None else value for value in values]

    def metrics(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, float]:
        return number_metrics(predictions, [example.value for example in examples])

    def record(
        self, text: str, predicted: Any, example: Example, spec: "Spec", labels: Labels
    ) -> dict[str, Any]:
        return {"gold": example.value, "prediction": read_number(text), "text": text}

    def constant(self, train: list[Example]) -> Any:
        return float(np.mean([example.value for example in train]))


class ReferencedText(AnswerKind):
    """A text with one or several references."""

    METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum", "bleu")
    MAIN = "rougeL"
    SETTINGS = ("group", "drop")
    HAS_PATTERNS = True

    def read(
        self, table: Table, spec: "Spec", labels: Labels | None, sources: list[str]
    ) -> tuple[list[Example], Labels]:
        optional.need(*ROUGE), optional.need(*BLEU)
        excluded = {*spec.inputs, spec.group}
        references = read_references(table, spec.target, excluded, spec.drop)
        is_training = labels is None
        if spec.group and not is_training:
            pairs = join_groups(table, spec.group, sources, references)
        else:
            pairs = list(zip(sources, references, strict=True))
        return _with_golds(pairs), ()

    def metrics(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, float]:
        golds = [example.golds for example in examples]
        scores = rouge_metrics(predictions, golds, spec.over_references)
        return scores | bleu_metrics(predictions, golds, spec.bleu_tokenize)

    def item_scores(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, Examples]:
        pairs = zip(predictions, examples, strict=True)
        each = [rouge_metrics([p], [x.golds], spec.over_references) for p, x in pairs]
        return {
            name: score_items([scores[name] for scores in each]) for name in each[0]
        }

    def record(
        self, text: str, predicted: Any, example: Example, spec: "Spec", labels: Labels
    ) -> dict[str, Any]:
        golds = list(example.golds)
        scores = rouge_metrics([predicted], [golds], spec.over_references)
        return {"gold": golds, "prediction": predicted, "score": scores["rougeL"]}


class ShortAnswer(AnswerKind):
    """An answer of which one or several spellings are accepted."""

    METRICS = ("f1", "exact_match")
    MAIN = "f1"

    def read(
        self, table: Table, spec: "Spec", labels: Labels | None, sources: list[str]
    ) -> tuple[list[Example], Labels]:
        golds = [_read_golds(table, spec, row) for row in range(len(table))]
        return _with_golds(zip(sources, golds, strict=True)), ()

    def metrics(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, float]:
        return answer_metrics(predictions, [example.golds for example in examples])

    def item_scores(
        self, predictions: list[Any], examples: list[Example], spec: "Spec"
    ) -> dict[str, Examples]:
        return score_answers(predictions, [example.golds for example in examples])

    def record(
        self, text: str, predicted: Any, example: Example, spec: "Spec", labels: Labels
    ) -> dict[str, Any]:
        golds = list(example.golds)
        _, score = answer_scores(predicted, golds)
        return {"gold": golds, "prediction": predicted, "score": score}


def _with_golds(pairs: Iterable[tuple[str, Sequence[str]]]) -> list[Example]:
    """Examples of inputs and accepted texts; the first is trained on."""
    return [Example(source, golds[0], tuple(golds)) for source, golds in pairs]


def _read_golds(table: Table, spec: "Spec", row: int) -> tuple[str, ...]:
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


KINDS: dict[str, AnswerKind] = {
    "classes": ClassWord(),
    "number": WrittenNumber(),
    "text": ReferencedText(),
    "answer": ShortAnswer(),
}


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

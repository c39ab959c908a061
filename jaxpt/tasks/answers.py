"""The four kinds of answers in a text: a class's word, a number, a text, an answer.

    classes   "acceptable"          the number of the class
    number    "3.8"                 a float
    text      "A cat sits."         the text, by ROUGE and BLEU
    answer    "in 1888"             the text, as in SQuAD

Each kind reads its examples from a table, what it makes of a generated text, and scores
that. `KINDS` has one of each, by its name.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jaxpt import optional
from jaxpt.errors import ConfigError, DataError
from jaxpt.judge.examples import Examples
from jaxpt.tasks.metrics import number_metrics
from jaxpt.tasks.references import join_groups, read_references
from jaxpt.tasks.span_metrics import answer_metrics, answer_scores, score_answers
from jaxpt.tasks.task import (
    Labels,
    check_labels,
    most_common,
    number_labels,
    read_labels,
    score_items,
)
from jaxpt.tasks.text_metrics import (
    BLEU,
    INVALID,
    ROUGE,
    bleu_metrics,
    rouge_metrics,
    written_class_metrics,
)
from jaxpt.text.labelled.tables import Table
from jaxpt.text.sources.missing import is_empty

if TYPE_CHECKING:
    from jaxpt.tasks.text_to_text import Spec


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


class Kind:
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
        """What is stored of an answer, as `jaxpt.tasks.text_to_text.describe` says."""
        raise NotImplementedError

    def constant(self, train: list[Example]) -> Any:
        """The answer of the baseline without a network: here the most frequent."""
        return most_common((example.target for example in train), key=str)


class Classes(Kind):
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


class Number(Kind):
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


class Text(Kind):
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


class Answer(Kind):
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


KINDS: dict[str, Kind] = {
    "classes": Classes(),
    "number": Number(),
    "text": Text(),
    "answer": Answer(),
}

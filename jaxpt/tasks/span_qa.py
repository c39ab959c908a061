"""Extractive question answering: the answer is a span of the text that is read.

    [CLS] question [SEP] a window of the text [SEP]   ->   a start and an end logit each

A text longer than the network reads is read in windows that overlap. In training a
window without the answer points at its first token, and so does a question without an
answer (Devlin et al. 2019, sections 4.2 and 4.3). An answer begins only in the window
in which its first token has the most text to both sides; that no answer was found is
the least likely of what the windows say (google-research/electra:
finetune/qa/qa_tasks.py, qa_metrics.py).

Departures: the end is not conditioned on the start, as ELECTRA's is; the best starts
and ends are taken among the text's tokens, where BERT takes them among all and drops
the rest. A causal network's first state has read nothing, so its score of no answer is
a constant that the threshold stands against.
"""

import dataclasses
import re
from collections import Counter
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from jaxpt.errors import UserError
from jaxpt.ops import losses
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.span_metrics import (
    answer_metrics,
    answer_scores,
    best_null_threshold,
    normalize_answer,
)
from jaxpt.tasks.task import Described, Labels, Row, TaskSpec
from jaxpt.text.labelled.tables import Table

PADS: dict[str, int] = {"begins": -1, "ends": -1, "can_start": 0}
FAR = -1e9  # the logit of padding
_PAIR = re.compile(r"\s*[(\[]?\s*(\d+)\s*,\s*(\d+)\s*[)\]]?\s*\Z")


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read, and how answers are found.

    Attributes:
      question, context: columns of texts.
      answers: the column of answers as SQuAD has them, {"text": [...],
        "answer_start": [...]}; "" where `spans` is given.
      spans: the column of one answer's begin and end in characters, "(287, 338)", as
        SubjQA has it; the answer is what stands there.
      null_mark: what the text ends with only so that spans can point at it where there
        is no answer; it is cut off.
      group: a column; rows of development and test data with the same value are one
        question with several answers, of which the best match counts. It has no answer
        if none of them is one.
      has_null: whether some questions have no answer.
      null_threshold: "no answer" is said where its score is this much above the best
        span's. Fine-tuning chooses it on the development data.
      stride: tokens from a window's begin to the next one's.
      max_question: tokens of a question that are read.
      max_answer: the most tokens of an answer that is predicted.
      num_best: starts and ends of each window that are tried.
      metric: "f1" or "exact_match" chooses between runs.
    """

    READS: ClassVar[str] = "tokens"
    EXPORT: ClassVar[str] = "QuestionAnswering"
    CUTS: ClassVar[bool] = False
    TUNES: ClassVar[bool] = True
    METRICS: ClassVar[tuple[str, ...]] = ("f1", "exact_match")

    max_len: int = 384
    dropout: float = 0.0  # BERT's, and all after it, have none before the outputs
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    spans: str = ""
    null_mark: str = ""
    group: str = ""
    has_null: bool = False
    null_threshold: float = 0.0
    stride: int = 128
    max_question: int = 64
    max_answer: int = 30
    num_best: int = 20
    metric: str = "f1"

    def __post_init__(self):
        super().__post_init__()
        for name in ("question", "context"):
            self.check(name, bool(getattr(self, name)), "a column")
        is_good = bool(self.answers) != bool(self.spans)
        self.check("answers", is_good, "a column, or '' with task.spans")
        is_good = not self.null_mark or (bool(self.spans) and self.has_null)
        self.check("null_mark", is_good, "'' without task.spans and task.has_null")
        for name in ("stride", "max_question", "max_answer", "num_best"):
            self.check(name, getattr(self, name) >= 1, "at least 1")
        is_good = self.metric in self.METRICS
        self.check("metric", is_good, f"one of {', '.join(self.METRICS)}")

    @property
    def columns(self):
        named = (self.question, self.context, self.answers, self.spans, self.group)
        return [name for name in named if name]

    @property
    def main_metric(self):
        return self.metric

    def tune(self, predictions, examples):
        """The threshold that is best on development data."""
        if not self.has_null:
            return self
        kind = ("exact_match", "f1").index(self.metric)
        pairs = zip(predictions, examples, strict=True)
        scores = [answer_scores(p.text, example.golds)[kind] for p, example in pairs]
        odds = [p.null_score - p.score for p in predictions]
        is_null = [not any(map(normalize_answer, each.golds)) for each in examples]
        threshold, _ = best_null_threshold(odds, scores, is_null)
        return dataclasses.replace(self, null_threshold=threshold)


@dataclasses.dataclass(frozen=True)
class Example:
    """A question, the text that answers it, and where: character spans, or none.

    Attributes:
      golds: the answers' texts, as they are scored.
      spans: begin and end of each in the context, in characters.
    """

    question: str
    context: str
    golds: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The best span of a text, and the scores of it and of no answer."""

    text: str
    score: float
    null_score: float


def read(
    table: Table, spec: Spec, labels: Labels | None
) -> tuple[list[Example], Labels]:
    """See `Task.read`; there are no labels. Training data are not grouped."""
    questions, contexts = table.texts(spec.question), table.texts(spec.context)
    examples = []
    for row, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        told = table.columns[spec.spans or spec.answers][row]
        where = f"{table.where(row)}: {spec.spans or spec.answers}"
        text, spans = context, _read_answers(told, context, where)
        if spec.spans:
            text, spans = _read_span(told, context, spec.null_mark, where)
        if not spans and not spec.has_null:
            raise UserError(f"{where}: has no answer; set task.has_null=True")
        golds = tuple(text[start:stop] for start, stop in spans)
        examples.append(Example(question, text, golds, spans))
    if not spec.group or labels is None:
        return examples, ()
    return _join_groups(table, spec.group, examples), ()


def _read_answers(told: Any, context: str, where: str) -> tuple[tuple[int, int], ...]:
    """The spans of SQuAD's answers, each once and in their order."""
    if not isinstance(told, dict):
        return ()
    texts, starts = told.get("text"), told.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list):
        raise UserError(f"{where}: must have the lists text and answer_start")
    spans = []
    for text, start in zip(texts, starts, strict=True):
        found = context[start : start + len(text)]
        if found != text or not text:
            raise UserError(
                f"{where}: {text!r:.40} does not stand at {start} of the text, which "
                f"has {found!r:.40} there"
            )
        spans.append((start, start + len(text)))
    return tuple(dict.fromkeys(spans))


def _read_span(
    told: Any, context: str, mark: str, where: str
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text without the mark, and the span if it is not at the mark."""
    found = _PAIR.match(str(told))
    start, stop = map(int, found.groups()) if found else (0, 0)
    if not 0 <= start < stop <= len(context):
        raise UserError(
            f"{where}={told!r}: must be (begin, end) of the text, which has "
            f"{len(context)} characters"
        )
    text = context
    if mark and context.endswith(mark):
        text = context.removesuffix(mark).rstrip()
    if start >= len(text):
        return text, ()
    return text, ((start, min(stop, len(text))),)


def _join_groups(table: Table, group: str, examples: list[Example]) -> list[Example]:
    """One example for all rows of a question, with the answers of all of them."""
    rows_of: dict[Any, list[int]] = {}
    for row, value in enumerate(table.columns[group]):
        rows_of.setdefault(value, []).append(row)
    joined = []
    for value, rows in rows_of.items():
        own = [examples[row] for row in rows]
        if len({(each.question, each.context) for each in own}) > 1:
            raise UserError(
                f"{table.where(rows[0])}: {group}={value!r}: rows of one group must "
                f"have one question and one text"
            )
        spans = tuple(dict.fromkeys(span for each in own for span in each.spans))
        golds = tuple(own[0].context[start:stop] for start, stop in spans)
        joined.append(dataclasses.replace(own[0], spans=spans, golds=golds))
    return joined


def num_outputs(spec: Spec, labels: Labels) -> int:
    """A start's logit and an end's."""
    return 2


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; a row for each window.

    "targets" int32 [2] are the places of the first answer's first and last token, 0 if
    the window does not hold both; "begins" and "ends" [n] the characters of each token
    of the text (-1 at others), "can_start" [n] is 1 in a token's best window.
    """
    rows = []
    for number, example in enumerate(examples):
        question = encoder.ids(example.question)[: spec.max_question]
        ids, begins, ends = encoder.spans(example.context)
        room = encoder.max_len - encoder.frame.num_special(is_pair=True) - len(question)
        if room < 1:
            raise UserError(
                f"task.max_len={encoder.max_len}: must be above "
                f"{encoder.max_len - room}, a question and the special tokens; or set "
                f"task.max_question below {spec.max_question}"
            )
        answer = None
        if example.spans:
            answer = find_tokens(begins, ends, *example.spans[0])
        windows = cut_windows(len(ids), room, spec.stride)
        best = best_windows(windows, len(ids))
        for window, (start, stop) in enumerate(windows):
            framed = encoder.row(question, ids[start:stop])
            inside = framed.sources == 2
            place = np.where(inside, framed.places + start, 0)
            rows.append(
                {
                    "tokens": framed.tokens,
                    "type_ids": framed.type_ids,
                    "targets": _locate(answer, place, inside),
                    "begins": _pick(begins, place, inside, -1),
                    "ends": _pick(ends, place, inside, -1),
                    "can_start": _pick(best == window, place, inside, 0),
                    "example": np.array(number, np.int32),
                }
            )
    return rows


def _pick(values: np.ndarray, place: np.ndarray, inside: np.ndarray, fill: int):
    held = values[place] if len(values) else np.zeros(len(place))
    return np.where(inside, held, fill).astype(np.int32)


def _locate(answer, place: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Where in a row the answer's first and last token are; 0 and 0 if not both."""
    if answer is None:
        return np.zeros(2, np.int32)
    found = [np.flatnonzero(inside & (place == token)) for token in answer]
    if not all(map(len, found)):
        return np.zeros(2, np.int32)
    return np.array([each[0] for each in found], np.int32)


def find_tokens(
    begins: Int[np.ndarray, "n"], ends: Int[np.ndarray, "n"], start: int, stop: int
) -> tuple[int, int] | None:
    """The first and the last token that have a character of a span; None if none has.

    >>> find_tokens(np.array([0, 4, 8]), np.array([3, 7, 9]), 5, 9)
    (1, 2)
    """
    found = np.flatnonzero((ends > start) & (begins < stop) & (ends > begins))
    return (int(found[0]), int(found[-1])) if len(found) else None


def cut_windows(num: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Windows of at most `room` tokens, `stride` apart, that skip none.

    >>> cut_windows(11, 5, 3)
    [(0, 5), (3, 8), (6, 11)]
    """
    windows, start = [], 0
    while True:
        length = min(room, num - start)
        windows.append((start, start + length))
        if start + length >= num:
            return windows
        start += min(length, stride)


def best_windows(windows: list[tuple[int, int]], num: int) -> Int[np.ndarray, "n"]:
    """Of each token the window with the most text on its poorer side, the first of two.

    >>> best_windows([(0, 5), (3, 8), (6, 11)], 11).tolist()
    [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    """
    place = np.arange(num)
    scores = [
        np.where(
            (start <= place) & (place < stop),
            np.minimum(place - start, stop - 1 - place) + 0.01 * (stop - start),
            -1.0,
        )
        for start, stop in windows
    ]
    return np.argmax(scores, axis=0)


def outputs(model, params, batch, rngs):
    """Logits [B, T, 2] of starts and ends."""
    return model.outputs(params, batch, rngs)


def loss(outputs, batch: dict, spec: Spec):
    """The mean of the cross-entropies of start and end, over a row's tokens."""
    is_text = batch["segment_ids"] > 0
    logits = jnp.where(is_text[..., None], outputs, FAR)
    weights = jnp.broadcast_to(batch["row_weights"][:, None] / 2, (len(logits), 2))
    logits = jnp.swapaxes(logits, 1, 2)  # [B, 2, T]
    return {"loss": losses.cross_entropy(logits, batch["targets"], weights)}


def predict(outputs, rows, examples: list[Example], spec: Spec) -> list[Prediction]:
    """The best span over all windows of each text; see `find_best`."""
    best: list[tuple[float, str]] = [(-np.inf, "")] * len(examples)
    nulls = [np.inf] * len(examples)
    for logits, row in zip(outputs, rows, strict=True):
        number, begins = int(row["example"]), row["begins"]
        starts, ends = np.asarray(logits[: len(begins)], np.float64).T
        nulls[number] = min(nulls[number], starts[0] + ends[0])
        is_text = begins >= 0
        found = find_best(starts, ends, is_text, row["can_start"] > 0, spec)
        if found and found[0] > best[number][0]:
            score, first, last = found
            text = examples[number].context[begins[first] : row["ends"][last]]
            best[number] = (score, text)
    return [
        Prediction(text, float(score), float(null))
        for (score, text), null in zip(best, nulls, strict=True)
    ]


def find_best(
    starts: np.ndarray,
    ends: np.ndarray,
    is_text: Bool[np.ndarray, "n"],
    can_start: Bool[np.ndarray, "n"],
    spec: Spec,
) -> tuple[float, int, int] | None:
    """Score, first and last token of a window's best span, if there is one.

    Of the `num_best` best starts and the `num_best` best ends those pairs are tried
    whose end is not before the start and that have at most `max_answer` tokens.
    """
    first, last = (
        np.flatnonzero(allowed)[np.argsort(-logits[allowed], kind="stable")]
        for logits, allowed in ((starts, is_text & can_start), (ends, is_text))
    )
    first, last = first[: spec.num_best, None], last[None, : spec.num_best]
    is_span = (first <= last) & (last - first < spec.max_answer)
    if not is_span.any():
        return None
    scores = np.where(is_span, starts[first] + ends[last], -np.inf)
    i, j = np.unravel_index(int(np.argmax(scores)), scores.shape)
    return float(scores[i, j]), int(first[i, 0]), int(last[0, j])


def answer(prediction: Prediction, spec: Spec) -> str:
    """The text that is answered; "" is no answer."""
    odds = prediction.null_score - prediction.score
    return "" if spec.has_null and odds > spec.null_threshold else prediction.text


def metrics(
    predictions: list[Prediction], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """See `jaxpt.tasks.span_metrics.answer_metrics`."""
    said = [answer(prediction, spec) for prediction in predictions]
    return answer_metrics(said, [example.golds for example in examples])


def describe(
    outputs,
    predictions: list[Prediction],
    examples: list[Example],
    spec: Spec,
    labels: Labels,
) -> Described:
    """The answers, "" for none, and the score F1."""
    records = []
    for prediction, example in zip(predictions, examples, strict=True):
        said, golds = answer(prediction, spec), list(example.golds)
        _, score = answer_scores(said, golds)
        records.append({"gold": golds, "prediction": said, "score": score})
    return Described(records)


def constant(
    train: list[Example], examples: list[Example], spec: Spec
) -> list[Prediction]:
    """The commonest answer of the training data, which may be none."""
    counts = Counter(next(iter(example.golds), "") for example in train)
    best = min(counts, key=lambda text: (-counts[text], text))
    never = float("inf") if not best else -float("inf")
    return [Prediction(best, 0.0, never)] * len(examples)

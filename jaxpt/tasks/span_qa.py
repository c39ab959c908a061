"""Extractive question answering: the answer is a span of the text (SQuAD).

    [CLS] question [SEP] a window of the text [SEP]   ->   a start and an end logit each

A long text is read in overlapping windows. In training, the target of a window without
the answer, and of a question without an answer, is the first token (Devlin et al. 2019,
sections 4.2 and 4.3). An answer starts only in the window in which its first token has
the most context on both sides; the score of "no answer" is the minimum over windows
(google-research/electra: finetune/qa/qa_tasks.py, qa_metrics.py).

Departures: the end is not conditioned on the start, as ELECTRA's is; the best starts
and ends are taken among the text's tokens, while BERT takes them among all tokens and
drops the others. The first state of a causal network has read nothing, so its score of
"no answer" is a constant, to which the threshold is compared.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from jaxpt.errors import ConfigError, DataError
from jaxpt.judge.examples import Examples
from jaxpt.ops import losses
from jaxpt.setting_types import NonNegativeInt, PositiveInt
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.model import apply_head
from jaxpt.tasks.span_metrics import (
    answer_metrics,
    answer_scores,
    best_null_threshold,
    normalize_answer,
    score_answers,
)
from jaxpt.tasks.task import (
    Described,
    Labels,
    OwnDropout,
    Row,
    Sums,
    TaskSpec,
    most_common,
)
from jaxpt.text.labelled.tables import Table

PAD_LOGIT = -1e9  # the logit of padding
_PAIR = re.compile(r"\s*[(\[]?\s*(\d+)\s*,\s*(\d+)\s*[)\]]?\s*\Z")


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read, and how answers are predicted.

    Attributes:
      question, context: columns of texts.
      answers: the column of answers as SQuAD has them, {"text": [...],
        "answer_start": [...]}; "" with `spans`.
      spans: the column of the answer's start and end in characters, "(287, 338)", as in
        SubjQA.
      null_mark: the end of the text to which spans point if there is no answer; it is
        removed.
      group: a column; rows of development and test data with the same value are one
        question with several answers, of which the best match counts. The question has
        no answer if no row has one.
      has_null: whether some questions have no answer.
      null_threshold: "no answer" is predicted if its score exceeds the best span's by
        more than this. Fine-tuning chooses it on the development data.
      stride: tokens between the starts of two windows.
      max_question: the maximum number of tokens that are read of a question.
      max_answer: the maximum number of tokens of a predicted answer.
      num_best: the number of best starts and ends of each window that are combined.
      metric: selects the best run, "f1" or "exact_match".
    """

    NUM_OUTPUTS: ClassVar[int | None] = 2
    READS: ClassVar[str] = "tokens"
    PADS: ClassVar[dict[str, int]] = {"begins": -1, "ends": -1, "can_start": 0}
    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("question", "context", "answers", "spans", "group"),
    )
    OPTIONAL: ClassVar[tuple[str, ...]] = ("answers", "spans", "group")
    EXPORT: ClassVar[str] = "QuestionAnswering"
    CUTS: ClassVar[bool] = False
    TUNES: ClassVar[bool] = True
    METRICS: ClassVar[tuple[str, ...]] = ("f1", "exact_match")

    max_len: NonNegativeInt = 384
    dropout: OwnDropout = 0.0  # as in BERT and all later models
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    spans: str = ""
    null_mark: str = ""
    group: str = ""
    has_null: bool = False
    null_threshold: float = 0.0
    stride: PositiveInt = 128
    max_question: PositiveInt = 64
    max_answer: PositiveInt = 30
    num_best: PositiveInt = 20
    metric: str = "f1"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_good = bool(self.answers) != bool(self.spans)
        self.check("answers", is_good, "a column, or '' with task.spans")
        is_good = not self.null_mark or (bool(self.spans) and self.has_null)
        self.check("null_mark", is_good, "'' without task.spans and task.has_null")

    def tune(
        self, predictions: "list[Prediction]", examples: "list[Example]"
    ) -> "Spec":
        """The settings with the `null_threshold` that is best on development data."""
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
    """A question, its context, and the spans of the answers, if any.

    Attributes:
      golds: the answers' texts, for the metrics.
      spans: start and end of each in the context, in characters.
    """

    question: str
    context: str
    golds: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The best span of a text, its score, and the score of "no answer"."""

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
        cell = table.columns[spec.spans or spec.answers][row]
        where = f"{table.where(row)}: {spec.spans or spec.answers}"
        if spec.spans:
            text, spans = _read_span(cell, context, spec.null_mark, where)
        else:
            text, spans = context, _read_answers(cell, context, where)
        if not spans and not spec.has_null:
            raise DataError(f"{where}: has no answer; set task.has_null=True")
        golds = tuple(text[start:stop] for start, stop in spans)
        examples.append(Example(question, text, golds, spans))
    if not spec.group or labels is None:
        return examples, ()
    return _join_groups(table, spec.group, examples), ()


def _read_answers(cell: Any, context: str, where: str) -> tuple[tuple[int, int], ...]:
    """The spans of SQuAD's answers, without duplicates."""
    values = cell if isinstance(cell, dict) else {}
    texts, starts = values.get("text"), values.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list):
        raise DataError(
            f"{where}={cell!r:.40}: must have the lists text and answer_start, empty "
            f"without an answer"
        )
    spans = []
    for text, start in zip(texts, starts, strict=True):
        actual = context[start : start + len(text)]
        if actual != text or not text:
            raise DataError(
                f"{where}: {text!r:.40} is not at {start} of the text, which has "
                f"{actual!r:.40} there"
            )
        spans.append((start, start + len(text)))
    return tuple(dict.fromkeys(spans))


def _read_span(
    cell: Any, context: str, mark: str, where: str
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text without the mark, and the span unless it is the mark's."""
    match = _PAIR.match(str(cell))
    start, stop = map(int, match.groups()) if match else (0, 0)
    if not 0 <= start < stop <= len(context):
        raise DataError(
            f"{where}={cell!r}: must be (begin, end) of the text, which has "
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
        same_question = [examples[row] for row in rows]
        if len({(each.question, each.context) for each in same_question}) > 1:
            raise DataError(
                f"{table.where(rows[0])}: {group}={value!r}: rows of one group must "
                f"have one question and one text"
            )
        spans = tuple(
            dict.fromkeys(span for each in same_question for span in each.spans)
        )
        golds = tuple(same_question[0].context[start:stop] for start, stop in spans)
        joined.append(dataclasses.replace(same_question[0], spans=spans, golds=golds))
    return joined


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`; a row for each window.

    "targets" int32 [2] are the positions of the first answer's first and last token, 0
    if the window does not contain both; "begins" and "ends" [n] are the characters of
    each token of the text (-1 elsewhere); "can_start" [n] is 1 in its best window.
    """
    rows = []
    for number, example in enumerate(examples):
        question = encoder.ids(example.question)[: spec.max_question]
        ids, begins, ends = encoder.spans(example.context)
        room = encoder.max_len - encoder.form.num_special(is_pair=True) - len(question)
        if room < 1:
            raise ConfigError(
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
            row = framed.row(
                number,
                targets=_locate(answer, place, inside),
                begins=_pick(begins, place, inside, -1),
                ends=_pick(ends, place, inside, -1),
                can_start=_pick(best == window, place, inside, 0),
            )
            rows.append(row)
    return rows


def _pick(
    values: np.ndarray, place: np.ndarray, inside: np.ndarray, fill: int
) -> np.ndarray:
    picked = values[place] if len(values) else np.zeros(len(place))
    return np.where(inside, picked, fill).astype(np.int32)


def _locate(
    answer: tuple[int, int] | None, place: np.ndarray, inside: np.ndarray
) -> np.ndarray:
    """The positions of the answer's first and last token; 0 and 0 unless both are."""
    positions = [np.flatnonzero(inside & (place == token)) for token in answer or ()]
    if not positions or not all(map(len, positions)):
        return np.zeros(2, np.int32)
    return np.array([each[0] for each in positions], np.int32)


def find_tokens(
    begins: Int[np.ndarray, "n"], ends: Int[np.ndarray, "n"], start: int, stop: int
) -> tuple[int, int] | None:
    """The first and last token that overlap a span of characters, if any does.

    >>> find_tokens(np.array([0, 4, 8]), np.array([3, 7, 9]), 5, 9)
    (1, 2)
    """
    tokens = np.flatnonzero((ends > start) & (begins < stop) & (ends > begins))
    return (int(tokens[0]), int(tokens[-1])) if len(tokens) else None


def cut_windows(num: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Windows of at most `room` tokens, `stride` apart, that cover all tokens.

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
    """The window in which each token has the most context on its shorter side.

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


outputs = apply_head  # logits [B, T, 2] of starts and ends


def loss(outputs: jax.Array, batch: dict, spec: Spec) -> Sums:
    """The mean of the cross-entropies of start and end, over the tokens of a row."""
    is_text = batch["segment_ids"] > 0
    logits = jnp.where(is_text[..., None], outputs, PAD_LOGIT)
    weights = jnp.broadcast_to(batch["row_weights"][:, None] / 2, (len(logits), 2))
    logits = jnp.swapaxes(logits, 1, 2)  # [B, 2, T]
    return {"loss": losses.cross_entropy(logits, batch["targets"], weights)}


def predict(
    outputs: list, rows: Sequence[Row], examples: list[Example], spec: Spec
) -> list[Prediction]:
    """The best span over all windows of each text; see `find_best`."""
    best: list[tuple[float, str]] = [(-np.inf, "")] * len(examples)
    nulls = [np.inf] * len(examples)
    for logits, row in zip(outputs, rows, strict=True):
        number, begins = int(row["example"]), row["begins"]
        starts, ends = np.asarray(logits[: len(begins)], np.float64).T
        nulls[number] = min(nulls[number], starts[0] + ends[0])
        is_text = begins >= 0
        span = find_best(starts, ends, is_text, row["can_start"] > 0, spec)
        if span and span[0] > best[number][0]:
            score, first, last = span
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

    Spans combine the `num_best` best starts with the `num_best` best ends; the end is
    not before the start, and a span has at most `max_answer` tokens.
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
    """The predicted answer; "" for no answer."""
    odds = prediction.null_score - prediction.score
    return "" if spec.has_null and odds > spec.null_threshold else prediction.text


def metrics(
    predictions: list[Prediction], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """See `jaxpt.tasks.span_metrics.answer_metrics`."""
    answers = [answer(prediction, spec) for prediction in predictions]
    return answer_metrics(answers, [example.golds for example in examples])


def item_scores(
    predictions: list[Prediction], examples: list[Example], spec: Spec
) -> dict[str, Examples]:
    """Exact match and F1 of each question."""
    answers = [answer(prediction, spec) for prediction in predictions]
    return score_answers(answers, [example.golds for example in examples])


def make_records(
    outputs: Any, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """The answers, "" for none, and the score F1."""
    records = []
    for prediction, example in zip(predictions, examples, strict=True):
        text, golds = answer(prediction, spec), list(example.golds)
        _, score = answer_scores(text, golds)
        records.append({"gold": golds, "prediction": text, "score": score})
    return Described(records)


def constant(
    train: list[Example], examples: list[Example], spec: Spec
) -> list[Prediction]:
    """The most frequent answer of the training data, which may be no answer."""
    best = most_common(next(iter(example.golds), "") for example in train)
    never = float("inf") if not best else -float("inf")
    return [Prediction(best, 0.0, never)] * len(examples)

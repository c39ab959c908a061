"""Token tagging: a label for each word, read at the word's first token.

    words   Angela  Merkel  spoke      [CLS] an ##gel ##a merk ##el spoke [SEP]
    tags    B-PER   I-PER   O            -   B    -    -   I    -     O     -

Devlin et al. 2019, section 5.3. A sentence that is longer than a row is split between
words into several rows, so every word is trained and scored.
"""

import dataclasses
from collections.abc import Sequence
from operator import eq
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt import optional
from jaxpt.errors import ConfigError, DataError
from jaxpt.judge.examples import Examples
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.model import apply_head, class_loss
from jaxpt.tasks.span_metrics import SCHEMES, SEQEVAL, entity_metrics, find_scheme
from jaxpt.tasks.task import (
    Described,
    LabelNames,
    Labels,
    Row,
    Sums,
    TaskSpec,
    check_label,
    check_labels,
    most_common,
    number_labels,
    pair_records,
    score_items,
)
from jaxpt.text.labelled.tables import HOW_TO_DROP, Table
from jaxpt.text.sources.missing import is_empty

IGNORED = -100  # the target of a token that is not the first of a word
OUTSIDE = "O"


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read.

    Attributes:
      words: the column of a sentence's words, each value a list.
      tags: the column of their tags, one for each word.
      labels: all tags; () takes those of the training data.
      metric: selects the best run: "entity_f1" as conlleval computes it,
        "entity_f1_strict", or "accuracy" over words, the only one for tags other than
        IOB, IOE, IOBES and BILOU.
    """

    READS: ClassVar[str] = "tokens"
    PADS: ClassVar[dict[str, int]] = {"targets": IGNORED, "words": -1}
    COLUMNS: ClassVar[tuple[str, ...]] = ("words", "tags")
    EXPORT: ClassVar[str] = "TokenClassification"
    CUTS: ClassVar[bool] = False
    METRICS: ClassVar[tuple[str, ...]] = ("entity_f1", "entity_f1_strict", "accuracy")

    words: str = "0"
    tags: str = "1"
    labels: LabelNames = ()
    metric: str = "entity_f1"


@dataclasses.dataclass(frozen=True)
class Example:
    """The words of a sentence, their tags, and all tags of the task."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    labels: Labels


def read(
    table: Table, spec: Spec, labels: Labels | None
) -> tuple[list[Example], Labels]:
    """See `Task.read`."""
    pairs = []
    for row in range(len(table)):
        words, tags = table.columns[spec.words][row], table.columns[spec.tags][row]
        for column, value in ((spec.words, words), (spec.tags, tags)):
            if not isinstance(value, list) or not value:
                raise DataError(
                    f"{table.where(row)}: {column!r} must be a list of strings, is "
                    f"{value!r:.40}"
                )
            for i, text in enumerate(value):
                if is_empty(text):
                    raise DataError(
                        f"{table.where(row)}: {column!r} has no value for word {i + 1}"
                        f" of {len(value)}, {text!r}; {HOW_TO_DROP}"
                    )
                if not isinstance(text, str):
                    raise DataError(
                        f"{table.where(row)}: {column!r} must be a list of strings, "
                        f"has {text!r:.40}"
                    )
        for tag in tags:
            check_label(table, spec.tags, row, tag, spec.labels)
        if len(words) != len(tags):
            raise DataError(
                f"{table.where(row)}: {len(words)} words ({spec.words!r}) have "
                f"{len(tags)} tags ({spec.tags!r})"
            )
        pairs.append((tuple(words), tuple(tags)))
    known = labels or spec.labels or _list_tags(pairs)
    if labels is None:
        _check_training(table, spec, known)
    number_labels(table, spec.tags, [tags for _, tags in pairs], known, spec)
    return [Example(words, tags, known) for words, tags in pairs], known


def _list_tags(pairs: list[tuple]) -> Labels:
    """All tags, "O" first."""
    tags = {tag for _, word_tags in pairs for tag in word_tags}
    return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag)))


def _check_training(table: Table, spec: Spec, known: Labels) -> None:
    check_labels(table, spec.tags, known, "tag")
    if find_scheme(known):
        optional.need(*SEQEVAL)
    elif spec.metric != "accuracy":
        listed = ", ".join(map(repr, known[:8]))
        raise ConfigError(
            f"task.metric={spec.metric}: must be accuracy, because the tags {listed} "
            f"are not entities of one scheme: {', '.join(SCHEMES)}"
        )


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`.

    "targets" int32 [n] is the tag's number at the first token of each word, -100
    elsewhere; "words" int32 [n] is the word's number there, -1 elsewhere.
    """
    rows = []
    for number, example in enumerate(examples):
        index = {label: i for i, label in enumerate(example.labels)}
        tags = np.array([index[tag] for tag in example.tags], np.int32)
        words = encoder.words(example.words)
        room = encoder.max_len - encoder.form.num_special(is_pair=False)
        for start, stop in cut_words(words.word_ids, room):
            framed = encoder.row(words.ids[start:stop])
            place = np.where(framed.sources > 0, framed.places + start, 0)
            is_word = (framed.sources > 0) & words.is_first[place]
            word_ids = words.word_ids[place]
            targets = np.where(is_word, tags[word_ids], IGNORED).astype(np.int32)
            words_at = np.where(is_word, word_ids, -1).astype(np.int32)
            rows.append(framed.row(number, targets=targets, words=words_at))
    return rows


def cut_words(word_ids: np.ndarray, room: int) -> list[tuple[int, int]]:
    """Splits ids into pieces of at most `room`, between words if possible.

    >>> cut_words(np.array([0, 0, 1, 1, 1, 2]), 4)
    [(0, 2), (2, 6)]
    >>> cut_words(np.array([0, 0, 0, 0, 0, 1]), 4)
    [(0, 4), (4, 6)]
    """
    pieces, start = [], 0
    while len(word_ids) - start > room:
        stop = start + room
        begin = int(np.searchsorted(word_ids, word_ids[stop]))  # of the cut word
        stop = begin if begin > start else stop
        pieces.append((start, stop))
        start = stop
    return [*pieces, (start, len(word_ids))]


outputs = apply_head  # logits [B, T, C]


def loss(outputs: jax.Array, batch: dict, spec: Spec) -> Sums:
    """Cross-entropy over the words of all rows, with equal weights."""
    targets = batch["targets"]
    weights = jnp.broadcast_to(batch["row_weights"][:, None], targets.shape)
    return {"loss": class_loss(outputs, targets, weights)}


def predict(
    outputs: list, rows: Sequence[Row], examples: list[Example], spec: Spec
) -> list[list[str]]:
    """The best tag of each word.

    A word without any token has "O", or the first label if there is no "O".
    """
    predictions = []
    for example in examples:
        outside = OUTSIDE if OUTSIDE in example.labels else example.labels[0]
        predictions.append([outside] * len(example.words))
    for logits, row in zip(outputs, rows, strict=True):
        number, words = int(row["example"]), row["words"]
        best = np.argmax(logits[: len(words)], axis=-1)
        for place in np.flatnonzero(words >= 0):
            tag = examples[number].labels[best[place]]
            predictions[number][words[place]] = tag
    return predictions


def metrics(
    predictions: list[list[str]], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """Accuracy over words; of entities, `jaxpt.tasks.span_metrics.entity_metrics`."""
    is_right = [
        predicted == right
        for tags, example in zip(predictions, examples, strict=True)
        for predicted, right in zip(tags, example.tags, strict=True)
    ]
    values = {"accuracy": float(np.mean(is_right))}
    if scheme := find_scheme(examples[0].labels):
        right = [example.tags for example in examples]
        values |= entity_metrics(predictions, right, scheme)
    return values


def item_scores(
    predictions: list[list[str]], examples: list[Example], spec: Spec
) -> dict[str, Examples]:
    """The right tags of each sentence, with its number of words."""
    pairs = list(zip(predictions, examples, strict=True))
    hits = [float(sum(map(eq, tags, example.tags))) for tags, example in pairs]
    return {"accuracy": score_items(hits, [float(len(x.tags)) for _, x in pairs])}


def constant(
    train: list[Example], examples: list[Example], spec: Spec
) -> list[list[str]]:
    """The most frequent tag, for every word."""
    best = most_common(tag for example in train for tag in example.tags)
    return [[best] * len(example.words) for example in examples]


def make_records(
    outputs: Any, predictions: list, examples: list[Example], spec: Spec, labels: Labels
) -> Described:
    """The tags of each word."""
    return Described(pair_records((list(x.tags) for x in examples), predictions))

"""Token tagging: a label for each word, read at the word's first token.

    words   Angela  Merkel  spoke      [CLS] an ##gel ##a merk ##el spoke [SEP]
    tags    B-PER   I-PER   O            -   B    -    -   I    -     O     -

Devlin et al. 2019, section 5.3. A sentence that is longer than the network reads is cut
between words into rows, so that every word is trained and scored.
"""

import dataclasses
from collections import Counter
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxpt.errors import UserError
from jaxpt.tasks.encoder import TextEncoder, Words
from jaxpt.tasks.model import class_loss
from jaxpt.tasks.span_metrics import (
    SCHEMES,
    entity_metrics,
    find_scheme,
    need_seqeval,
)
from jaxpt.tasks.task import Described, Labels, Row, TaskSpec
from jaxpt.text.labelled.tables import Table

IGNORED = -100  # the target of what is no word's first token
PADS: dict[str, int] = {"targets": IGNORED, "words": -1}
OUTSIDE = "O"


@dataclasses.dataclass(frozen=True)
class Spec(TaskSpec):
    """Which columns are read.

    Attributes:
      words: the column of a sentence's words, each value a list.
      tags: the column of as many tags.
      labels: the tags that there are; () are those of the training data.
      metric: selects between runs: "entity_f1" as conlleval computes it,
        "entity_f1_strict", or "accuracy" over words, the only one for tags other than
        IOB, IOE, IOBES and BILOU.
    """

    READS: ClassVar[str] = "tokens"
    EXPORT: ClassVar[str] = "TokenClassification"
    CUTS: ClassVar[bool] = False
    METRICS: ClassVar[tuple[str, ...]] = ("entity_f1", "entity_f1_strict", "accuracy")

    words: str = "0"
    tags: str = "1"
    labels: tuple[str, ...] = ()
    metric: str = "entity_f1"

    def __post_init__(self):
        super().__post_init__()
        self.check("words", bool(self.words), "a column")
        self.check("tags", bool(self.tags), "a column")
        is_good = len(set(self.labels)) == len(self.labels) != 1
        self.check("labels", is_good, "two tags or more, each once; or ()")
        is_good = self.metric in self.METRICS
        self.check("metric", is_good, f"one of {', '.join(self.METRICS)}")

    @property
    def columns(self):
        return [self.words, self.tags]

    @property
    def main_metric(self):
        return self.metric


@dataclasses.dataclass(frozen=True)
class Example:
    """A sentence's words and their tags, and all tags that there are."""

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
            is_list = isinstance(value, list) and value
            if not is_list or not all(isinstance(text, str) for text in value):
                raise UserError(
                    f"{table.where(row)}: {column!r} must be a list of strings, is "
                    f"{value!r:.40}"
                )
        if len(words) != len(tags):
            raise UserError(
                f"{table.where(row)}: {len(words)} words ({spec.words!r}) have "
                f"{len(tags)} tags ({spec.tags!r})"
            )
        pairs.append((tuple(words), tuple(tags)))
    known = labels or spec.labels or _list_tags(pairs)
    if labels is None:
        _check_labels(table, spec, known)
    for row, (_, tags) in enumerate(pairs):
        for tag in tags:
            if tag not in known:
                whose = "task.labels has" if spec.labels else "the training data has"
                raise UserError(
                    f"{table.where(row)}: {spec.tags}={tag!r}: {whose} "
                    f"{', '.join(known)}"
                )
    return [Example(words, tags, known) for words, tags in pairs], known


def _list_tags(pairs: list[tuple]) -> Labels:
    """All tags, those of no entity first."""
    found = {tag for _, tags in pairs for tag in tags}
    return tuple(sorted(found, key=lambda tag: (tag != OUTSIDE, tag)))


def _check_labels(table: Table, spec: Spec, known: Labels) -> None:
    if len(known) < 2:
        raise UserError(
            f"{table.name}: {spec.tags} has the one tag {known[0]!r}; must have two at "
            f"least"
        )
    if find_scheme(known):
        need_seqeval()
    elif spec.metric != "accuracy":
        shown = ", ".join(map(repr, known[:8]))
        raise UserError(
            f"task.metric={spec.metric}: must be accuracy, because the tags {shown} "
            f"are not entities of one scheme: {', '.join(SCHEMES)}"
        )


def num_outputs(spec: Spec, labels: Labels) -> int:
    """One for each tag."""
    return len(labels)


def encode(
    examples: list[Example], encoder: TextEncoder, spec: Spec, *, is_training: bool
) -> list[Row]:
    """See `Task.encode`.

    "targets" int32 [n] are the tags' numbers at the first token of each word, -100
    elsewhere; "words" int32 [n] the words' numbers there, -1 elsewhere.
    """
    rows = []
    for number, example in enumerate(examples):
        index = {label: i for i, label in enumerate(example.labels)}
        tags = np.array([index[tag] for tag in example.tags], np.int32)
        words = encoder.words(example.words)
        is_first = find_first(words, encoder)
        room = encoder.max_len - encoder.frame.num_special(is_pair=False)
        for start, stop in cut_words(words.word_ids, room):
            framed = encoder.row(words.ids[start:stop])
            place = np.where(framed.sources > 0, framed.places + start, 0)
            is_word = (framed.sources > 0) & is_first[place]
            own = words.word_ids[place]
            rows.append(
                {
                    "tokens": framed.tokens,
                    "type_ids": framed.type_ids,
                    "targets": np.where(is_word, tags[own], IGNORED).astype(np.int32),
                    "words": np.where(is_word, own, -1).astype(np.int32),
                    "example": np.array(number, np.int32),
                }
            )
    return rows


def find_first(words: Words, encoder: TextEncoder) -> np.ndarray:
    """Which ids are their word's first, bool [n].

    Of a tokenizer of characters or bytes the first id of a word is the space before it,
    which stands for no word; there it is the one after.
    """
    is_first = np.diff(words.word_ids, prepend=-1) != 0
    if encoder.tokenizer.kind in ("char", "byte"):
        later = is_first & (words.word_ids > 0)
        return (is_first & ~later) | np.append(False, later[:-1])
    return is_first


def cut_words(word_ids: np.ndarray, room: int) -> list[tuple[int, int]]:
    """Where to cut ids into pieces of at most `room`, if possible between words.

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


def outputs(model, params, batch, rngs):
    """Logits [B, T, C]."""
    return model.outputs(params, batch, rngs)


def loss(outputs, batch: dict, spec: Spec):
    """Cross-entropy over the words of all rows, each counting alike."""
    targets = batch["targets"]
    weights = jnp.broadcast_to(batch["row_weights"][:, None], targets.shape)
    return {"loss": class_loss(outputs, targets, weights)}


def predict(outputs, rows, examples: list[Example], spec: Spec) -> list[list[str]]:
    """The best tag of each word; a word that has no token is in no entity.

    Its tag is "O" then, or the first of the labels where these have no "O".
    """
    found = []
    for example in examples:
        outside = OUTSIDE if OUTSIDE in example.labels else example.labels[0]
        found.append([outside] * len(example.words))
    for logits, row in zip(outputs, rows, strict=True):
        number, words = int(row["example"]), row["words"]
        best = np.argmax(logits[: len(words)], axis=-1)
        for place in np.flatnonzero(words >= 0):
            found[number][words[place]] = examples[number].labels[best[place]]
    return found


def metrics(
    predictions: list[list[str]], examples: list[Example], spec: Spec
) -> dict[str, float]:
    """Accuracy over words; of entities, `jaxpt.tasks.span_metrics.entity_metrics`."""
    pairs = [
        (said, right)
        for tags, example in zip(predictions, examples, strict=True)
        for said, right in zip(tags, example.tags, strict=True)
    ]
    found = {"accuracy": float(np.mean([said == right for said, right in pairs]))}
    if scheme := find_scheme(examples[0].labels):
        right = [example.tags for example in examples]
        found |= entity_metrics(predictions, right, scheme)
    return found


def constant(train: list[Example], examples: list[Example], spec: Spec) -> list[Any]:
    """The commonest tag, for every word."""
    counts = Counter(tag for example in train for tag in example.tags)
    best = min(counts, key=lambda tag: (-counts[tag], tag))
    return [[best] * len(example.words) for example in examples]


def describe(
    outputs,
    predictions: list[list[str]],
    examples: list[Example],
    spec: Spec,
    labels: Labels,
) -> Described:
    """The tags of each word."""
    pairs = zip(predictions, examples, strict=True)
    return Described([{"gold": list(x.tags), "prediction": said} for said, x in pairs])

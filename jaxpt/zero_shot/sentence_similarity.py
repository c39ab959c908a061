"""Sentence similarity: cosines of embeddings against the scores that people gave.

    sentence1             sentence2                 score
    A man plays a flute.  A man is playing a flute. 5.0
    A man plays a flute.  A cat eats.               0.2

The metric of SentEval, MTEB and sentence-transformers: Spearman's correlation of the
cosine similarities with the scores, whose scale does not matter. Pearson's is also
reported. Intervals are by the bootstrap over pairs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.errors import DataError
from jaxpt.evaluation.rank_correlation import (
    correlation_interval,
    pair_values,
    spearman,
)
from jaxpt.zero_shot.embedded import POOLINGS, Embed, embed_distinct, weigh_words
from jaxpt.zero_shot.outcomes import STATES, Outcome, ZeroShotTask, make_figures
from jaxpt.zero_shot.pairs import read_rows

SENTENCES = ("sentence1", "sentence2")
SCORE = "score"


class ScoredPair(NamedTuple):
    """Two sentences and how similar people find them, on any scale."""

    first: str
    second: str
    score: float


def read_scored_pairs(path: str) -> list[ScoredPair]:
    """The pairs of a file, a glob, a folder, an archive, or a data set.

    The formats are those of `pairs.read_pairs`; the columns are those of MTEB and of
    GLUE's STS-B: `sentence1`, `sentence2`, `score`.
    """
    pairs = [
        _make_pair(fields, where)
        for fields, _, where in read_rows(path, "pair of sentences")
    ]
    if len({pair.score for pair in pairs}) < 2:
        raise DataError(
            f"{path}: {SCORE} must have two values at least, for a correlation"
        )
    return pairs


def _make_pair(fields: Mapping[str, Any], where: str) -> ScoredPair:
    names = (*SENTENCES, SCORE)
    if missing := [name for name in names if name not in fields]:
        listed = ", ".join(map(str, fields))
        raise DataError(
            f"{where}: has no column {missing[0]}; must have {', '.join(names)}; the "
            f"columns are {listed}"
        )
    for name in SENTENCES:
        if not isinstance(fields[name], str) or not fields[name].strip():
            raise DataError(
                f"{where}: {name}={fields[name]!r:.40}: must be a text that is not "
                "blank"
            )
    score = read_number(fields[SCORE])
    if not math.isfinite(score):
        raise DataError(
            f"{where}: {SCORE}={fields[SCORE]!r:.40}: must be a finite number"
        )
    return ScoredPair(fields[SENTENCES[0]], fields[SENTENCES[1]], score)


def read_number(value: Any) -> float:
    """A number of a table, which may be a text; NaN if it is none.

    >>> read_number("4.5"), read_number(3), read_number("high"), read_number(None)
    (4.5, 3.0, nan, nan)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def cosines(
    first: Float[np.ndarray, "N D"], second: Float[np.ndarray, "N D"]
) -> Float[np.ndarray, "N"]:
    """The products of vectors of length 1, in float64."""
    return np.einsum("nd,nd->n", first.astype(np.float64), second.astype(np.float64))


def pearson(
    first: Float[np.ndarray, "*B N"], second: Float[np.ndarray, "*B N"]
) -> Float[np.ndarray, "*B"]:
    """The linear correlation of two columns, or of each draw of them; 0 for a constant.

    >>> round(float(pearson(np.array([1.0, 2, 3]), np.array([1.0, 2, 4]))), 6)
    0.981981
    """
    is_constant = (np.ptp(first, -1) == 0) | (np.ptp(second, -1) == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = (each - each.mean(-1, keepdims=True) for each in (first, second))
        value = (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.where(is_constant, 0.0, value)


def evaluate_similarity(
    embed: Embed, items: Sequence[ScoredPair], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Spearman's and Pearson's correlation of cosines and scores, by pool."""
    texts = [pair.first for pair in items] + [pair.second for pair in items]
    scores = np.array([pair.score for pair in items])
    words, num = weigh_words(texts), len(items)
    overlap = np.asarray(words[:num].multiply(words[num:]).sum(1)).ravel()
    trivial = {"spearman_of_tfidf": float(spearman(overlap, scores))}
    vectors = embed_distinct(embed, texts, rules)
    return {
        rule: _judge(cosines(vectors[rule][:num], vectors[rule][num:]), scores, trivial)
        for rule in rules
    }


def _judge(
    similarities: Float[np.ndarray, "N"],
    scores: Float[np.ndarray, "N"],
    trivial: dict[str, float],
) -> Outcome:
    figures = make_figures(
        {
            "spearman": (
                float(spearman(similarities, scores)),
                correlation_interval(spearman, similarities, scores),
            ),
            "pearson": (
                float(pearson(similarities, scores)),
                correlation_interval(pearson, similarities, scores),
            ),
        }
    )
    columns = {
        "spearman": pair_values(similarities, scores),
        "cosine": similarities,
        "score": scores,
    }
    notes = []
    if np.ptp(similarities) == 0:
        notes.append("All similarities are equal: both correlations are set to 0.")
    return Outcome(figures, trivial, {}, columns, notes)


TASK = ZeroShotTask(
    read_scored_pairs, evaluate_similarity, reads=STATES, own_rules=POOLINGS
)

"""Metrics of spans: entities among tagged words, and answers in a text.

Entities are scored by seqeval in both of its modes, which differ for invalid tag
sequences: "default" is conlleval's, in which an I- can begin an entity; "strict"
accepts only the sequences of the tagging scheme. Answers are scored as in SQuAD 2.0
(`evaluate-v2.0.py`).
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpt import optional
from jaxpt.judge.examples import Examples
from jaxpt.tasks.task import score_items

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The prefixes of each tagging scheme, by seqeval's name: Beginning, Inside, End or
# Last, Single or Unit. IOB1 has a B- only between two entities of one type.
SCHEMES = {"IOB1": "I", "IOB2": "BI", "IOE2": "IE", "IOBES": "BIES", "BILOU": "BILU"}
SEQEVAL = "seqeval.metrics", "eval", "entity F1"  # as `optional.need` reads it


def find_scheme(labels: Sequence[str]) -> str:
    """The tagging scheme of labels: the first of `SCHEMES` that has all prefixes.

    Args:
      labels: all tags of the training data, not of one sentence: IOBES without any E-
        and S- is indistinguishable from IOB2.

    Returns:
      Its name, or "" if the labels are not entity tags of one scheme.

    >>> find_scheme(["O", "B-PER", "I-PER"]), find_scheme(["O", "U-PER"])
    ('IOB2', 'BILOU')
    >>> find_scheme(["NN", "VB"]), find_scheme(["B-PER", "E-PER", "L-PER"])
    ('', '')
    """
    parts = [tag.partition("-") for tag in labels if tag != "O"]
    prefixes = {prefix if dash else "" for prefix, dash, _ in parts}
    schemes = (name for name, allowed in SCHEMES.items() if prefixes <= set(allowed))
    return next(schemes, "")


def entity_metrics(
    predicted: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
    scheme: str = "IOB2",
) -> dict[str, float]:
    """Precision, recall and F1 over the entities of all sentences (micro average).

    An entity is correct if its first word, its last word and its type are.

    Args:
      scheme: the tagging scheme, from `find_scheme`.

    Returns:
      entity_precision, entity_recall and entity_f1 in seqeval's default mode, which is
      conlleval's; entity_f1_strict with mode="strict" and the scheme. Each is 0 if no
      entity is predicted or none exists.

    >>> right = [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> values = entity_metrics([["I-PER", "I-PER", "O", "B-LOC"]], right)
    >>> round(values["entity_f1"], 4), round(values["entity_f1_strict"], 4)
    (1.0, 0.6667)
    >>> values = entity_metrics([["U-PER", "U-PER"]], [["U-PER", "U-PER"]], "BILOU")
    >>> values["entity_f1"], values["entity_f1_strict"]
    (1.0, 1.0)
    """
    seqeval = optional.need(*SEQEVAL)
    metrics = seqeval.metrics
    tags_of = [[list(tags) for tags in each] for each in (right, predicted)]
    if scheme == "BILOU":
        # Another spelling of IOBES; seqeval's default mode knows only the latter.
        tags_of = [[[_to_iobes(tag) for tag in tags] for tags in x] for x in tags_of]
        scheme = "IOBES"
    more: dict[str, Any] = {"average": "micro", "zero_division": 0}
    rules = {"mode": "strict", "scheme": getattr(seqeval.scheme, scheme)}
    return {
        "entity_precision": float(metrics.precision_score(*tags_of, **more)),
        "entity_recall": float(metrics.recall_score(*tags_of, **more)),
        "entity_f1": float(metrics.f1_score(*tags_of, **more)),
        "entity_f1_strict": float(metrics.f1_score(*tags_of, **rules, **more)),
    }


def _to_iobes(tag: str) -> str:
    """A tag of BILOU in IOBES: L- is E-, U- is S-."""
    prefix, dash, kind = tag.partition("-")
    return {"L": "E", "U": "S"}.get(prefix, prefix) + dash + kind


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, spaces squeezed.

    >>> normalize_answer("The  Denver-Broncos!")
    'denverbroncos'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, right: str) -> float:
    """1 if two normalised answers are equal, else 0."""
    return float(normalize_answer(predicted) == normalize_answer(right))


def word_f1(predicted: str, right: str) -> float:
    """F1 of the words of two normalised answers; equality if either has no words.

    >>> round(word_f1("cat on mat", "the cat sat on a mat"), 6)
    0.857143
    """
    words, golds = normalize_answer(predicted).split(), normalize_answer(right).split()
    if not words or not golds:
        return float(words == golds)
    num_same = sum((Counter(words) & Counter(golds)).values())
    if not num_same:
        return 0.0
    precision, recall = num_same / len(words), num_same / len(golds)
    return 2 * precision * recall / (precision + recall)


def answer_scores(predicted: str, right: Sequence[str]) -> tuple[float, float]:
    """The best exact match and the best F1 over the right answers.

    Args:
      predicted: "" for no answer.
      right: answers that normalise to nothing are skipped; without any, "" is right.
    """
    golds = [text for text in right if normalize_answer(text)] or [""]
    exact = max(exact_match(predicted, gold) for gold in golds)
    return exact, max(word_f1(predicted, gold) for gold in golds)


def answer_metrics(
    predicted: Sequence[str], right: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Mean scores over questions.

    Returns:
      exact_match and f1; if some questions have no answer, also has_answer_f1 and
      no_answer_f1.
    """
    scores = np.array(
        [answer_scores(p, golds) for p, golds in zip(predicted, right, strict=True)]
    )
    values = dict(zip(("exact_match", "f1"), scores.mean(axis=0).tolist(), strict=True))
    has_answer = np.array([any(map(normalize_answer, golds)) for golds in right])
    if not has_answer.all():
        for name, chosen in (("has", has_answer), ("no", ~has_answer)):
            if chosen.any():
                values[f"{name}_answer_f1"] = float(scores[chosen, 1].mean())
    return values


def score_answers(
    predicted: Sequence[str], right: Sequence[Sequence[str]]
) -> dict[str, Examples]:
    """exact_match and f1 of each question."""
    pairs = zip(predicted, right, strict=True)
    exact, f1 = zip(*(answer_scores(p, golds) for p, golds in pairs), strict=True)
    return {"exact_match": score_items(exact), "f1": score_items(f1)}


def best_null_threshold(
    null_odds: Sequence[float], scores: Sequence[float], is_null: Sequence[bool]
) -> tuple[float, float]:
    """The best threshold for predicting "no answer", and the mean score with it.

    As in SQuAD 2.0's script: all questions begin as unanswered and are answered one by
    one, the most certain first. Of equal means the first wins, with the fewest answers.

    Args:
      null_odds: for each question, the score of "no answer" minus the best span's.
      scores: for each question, the metric of its best span.
      is_null: which questions have no answer.

    Returns:
      A threshold: no answer if the odds are above it. It is -inf if it is best to
      answer nothing.

    >>> best_null_threshold([-2.0, 0.0, 1.0], [1.0, 0.0, 1.0], [False, True, False])
    (-2.0, 0.6666666666666666)
    """
    odds, nulls = np.asarray(null_odds, np.float64), np.asarray(is_null, bool)
    order = np.argsort(odds, kind="stable")
    gains = np.where(nulls, -1.0, np.asarray(scores, np.float64))[order]
    totals = nulls.sum() + np.concatenate([[0.0], np.cumsum(gains)])
    # Questions of equal odds are answered together.
    ordered = odds[order]
    can_end = np.append(True, np.append(ordered[1:] != ordered[:-1], True)[: len(odds)])
    best = int(np.argmax(np.where(can_end, totals, -np.inf)))
    threshold = float(ordered[best - 1]) if best else float("-inf")
    return threshold, float(totals[best] / len(odds))

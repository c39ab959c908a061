"""Metrics of spans: entities among tagged words, and answers in a text.

Entities are seqeval's in both of its modes, which differ for invalid tag sequences:
"default" is conlleval's, in which an I- can begin an entity; "strict" accepts only the
sequences of the tagging scheme. Answers are scored as SQuAD's scripts do (version 2.0:
`evaluate-v2.0.py`).
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpt.errors import UserError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The prefixes of each tagging scheme, by seqeval's name: Beginning, Inside, End or
# Last, Single or Unit. IOB1 has a B- only between two entities of one type.
SCHEMES = {"IOB1": "I", "IOB2": "BI", "IOE2": "IE", "IOBES": "BIES", "BILOU": "BILU"}


def need_seqeval() -> Any:
    """The package seqeval's metrics, imported only when asked for.

    Raises:
      UserError: it is not installed.
    """
    try:
        import seqeval.metrics
        import seqeval.scheme
    except ImportError as error:
        raise UserError("entity F1 needs seqeval: pip install 'jaxpt[eval]'") from error
    return seqeval


def find_scheme(labels: Sequence[str]) -> str:
    """The tagging scheme of labels: the first of `SCHEMES` that has all prefixes.

    Args:
      labels: all tags of the training data, not those of one sentence: IOBES without
        any E- and S- is indistinguishable from IOB2.

    Returns:
      Its name, or "" if the labels are not entity tags of one scheme.

    >>> find_scheme(["O", "B-PER", "I-PER"]), find_scheme(["O", "U-PER"])
    ('IOB2', 'BILOU')
    >>> find_scheme(["NN", "VB"]), find_scheme(["B-PER", "E-PER", "L-PER"])
    ('', '')
    """
    parts = [tag.partition("-") for tag in labels if tag != "O"]
    prefixes = {prefix if dash else "" for prefix, dash, _ in parts}
    found = (name for name, allowed in SCHEMES.items() if prefixes <= set(allowed))
    return next(found, "")


def entity_metrics(
    predicted: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
    scheme: str = "IOB2",
) -> dict[str, float]:
    """Precision, recall and F1 over the entities of all sentences (micro average).

    An entity is correct if its first word, its last word and its type are.

    Args:
      scheme: of the tags, from `find_scheme`.

    Returns:
      entity_precision, entity_recall and entity_f1 in seqeval's default mode, which is
      conlleval's; entity_f1_strict with mode="strict" and the scheme. Each is 0 if no
      entity is predicted or none exists.

    >>> right = [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> found = entity_metrics([["I-PER", "I-PER", "O", "B-LOC"]], right)
    >>> round(found["entity_f1"], 4), round(found["entity_f1_strict"], 4)
    (1.0, 0.6667)
    >>> found = entity_metrics([["U-PER", "U-PER"]], [["U-PER", "U-PER"]], "BILOU")
    >>> found["entity_f1"], found["entity_f1_strict"]
    (1.0, 1.0)
    """
    seqeval = need_seqeval()
    metrics = seqeval.metrics
    given = [[list(tags) for tags in each] for each in (right, predicted)]
    if scheme == "BILOU":
        # Another spelling of IOBES; seqeval's default mode knows only the latter.
        given = [[[_to_iobes(tag) for tag in tags] for tags in x] for x in given]
        scheme = "IOBES"
    more: dict[str, Any] = {"average": "micro", "zero_division": 0}
    rules = {"mode": "strict", "scheme": getattr(seqeval.scheme, scheme)}
    return {
        "entity_precision": float(metrics.precision_score(*given, **more)),
        "entity_recall": float(metrics.recall_score(*given, **more)),
        "entity_f1": float(metrics.f1_score(*given, **more)),
        "entity_f1_strict": float(metrics.f1_score(*given, **rules, **more)),
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
    """1 where two answers are the same once normalised."""
    return float(normalize_answer(predicted) == normalize_answer(right))


def word_f1(predicted: str, right: str) -> float:
    """F1 of the words of two normalised answers; where one has none, their equality.

    >>> round(word_f1("cat on mat", "the cat sat on a mat"), 6)
    0.857143
    """
    said, wanted = normalize_answer(predicted).split(), normalize_answer(right).split()
    if not said or not wanted:
        return float(said == wanted)
    num_same = sum((Counter(said) & Counter(wanted)).values())
    if not num_same:
        return 0.0
    precision, recall = num_same / len(said), num_same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def answer_scores(predicted: str, right: Sequence[str]) -> tuple[float, float]:
    """The best exact match and the best F1 over the right answers.

    Args:
      predicted: "" says that there is no answer.
      right: answers that normalise to nothing are left out; with none, "" is right.
    """
    golds = [text for text in right if normalize_answer(text)] or [""]
    exact = max(exact_match(predicted, gold) for gold in golds)
    return exact, max(word_f1(predicted, gold) for gold in golds)


def answer_metrics(
    predicted: Sequence[str], right: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Means over questions; where some have no answer, those of both kinds apart too.

    Returns:
      exact_match and f1; and where some of the questions have no answer has_answer_f1
      and no_answer_f1.
    """
    scores = np.array(
        [answer_scores(p, golds) for p, golds in zip(predicted, right, strict=True)]
    )
    found = dict(zip(("exact_match", "f1"), scores.mean(axis=0).tolist(), strict=True))
    has_answer = np.array([any(map(normalize_answer, golds)) for golds in right])
    if not has_answer.all():
        for name, chosen in (("has", has_answer), ("no", ~has_answer)):
            if chosen.any():
                found[f"{name}_answer_f1"] = float(scores[chosen, 1].mean())
    return found


def best_null_threshold(
    null_odds: Sequence[float], scores: Sequence[float], is_null: Sequence[bool]
) -> tuple[float, float]:
    """The threshold above which "no answer" is said, and the mean score with it.

    As SQuAD 2.0's script looks for it: all questions begin as unanswered and are
    answered one by one, the surest first. Of equal means the first is taken, that with
    the fewest answers.

    Args:
      null_odds: of each question, the score of no answer less that of the best span.
      scores: of each question, the metric of its best span.
      is_null: which questions have no answer.

    Returns:
      A threshold: no answer where the odds are above it. It is -inf where it is best to
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

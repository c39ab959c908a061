"""Multiple choice by likelihood: the accuracy of the likeliest option.

    acc               the option of the largest sum of log p
    acc_norm          ... divided by the option's characters
    acc_bytes         ... by its bytes of UTF-8
    acc_mutual_info   the largest log p(option | context) - log p(option)

Names and definitions are those of EleutherAI/lm-evaluation-harness
(lm_eval/api/task.py); lengths exclude the space before an option. `acc_norm` is by
characters there and here; "normalised" in papers often means by bytes or tokens.

Departure: if k options share the best score, the correct one counts 1 / k. The harness
takes the first of them, so that constant scores have 0 % on SciQ, whose correct answer
is the last, and 100 % if it is the first.

Baselines: `chance`; `majority`, the most frequent class, if all questions have the same
options; and `acc_empty` and `acc_norm_empty`, the scores of the options without
context.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.errors import DataError
from jaxpt.zero_shot.continuations import ContinuationScores, Score, SplitText
from jaxpt.zero_shot.questions import Question


class QuestionResults(NamedTuple):
    """The results on questions.

    Attributes:
      hits: by metric, the credit of each question, from 0 to 1.
      trivial: the accuracies of the baselines.
      evaluated: the indices of the evaluated questions; the others do not fit.
      num_ties: the number of ties of `acc`.
      num_cut: the number of questions with a truncated context.
    """

    hits: dict[str, Float[np.ndarray, "Q"]]
    trivial: dict[str, float]
    evaluated: list[int]
    num_ties: int
    num_cut: int


def evaluate(
    questions: Sequence[Question], score: Score, has_empty: bool
) -> QuestionResults:
    """Evaluates all questions that fit the model's window.

    Args:
      has_empty: whether a text can be scored without context.
    """
    scores = score_options(questions, score, is_empty=False)
    evaluated = [i for i, answers in enumerate(scores) if None not in answers]
    if not evaluated:
        raise DataError(
            "no question has options that fit the model's window (model.max_len)"
        )
    fitting, answers = [questions[i] for i in evaluated], [scores[i] for i in evaluated]
    sums = [sum_options(each) for each in answers]
    empty = None
    if has_empty:
        empty = [
            sum_options(each) for each in score_options(fitting, score, is_empty=True)
        ]
    hits, num_ties = judge(fitting, sums, empty)
    num_cut = sum(any(answer.is_cut for answer in each) for each in answers)
    return QuestionResults(hits, trivial_answers(fitting), evaluated, num_ties, num_cut)


def score_options(
    questions: Sequence[Question], score: Score, is_empty: bool
) -> list[list]:
    """The answers to each question's options."""
    pairs = [
        SplitText("" if is_empty else context, option, question.after)
        for question in questions
        for context, option in zip(question.contexts, question.options, strict=True)
    ]
    answers = iter(score(pairs))
    return [[next(answers) for _ in question.options] for question in questions]


def sum_options(answers: Sequence[ContinuationScores]) -> Float[np.ndarray, "N"]:
    """The sum of log p of each option, in nats, float64."""
    return np.array([answer.total for answer in answers], np.float64)


def find_hits(
    scores: Sequence[Float[np.ndarray, "N"]], answers: Sequence[int]
) -> Float[np.ndarray, "Q"]:
    """1 if the correct option has the best score, 1 / k if it shares it with others.

    >>> find_hits([np.array([-1.0, -2.0]), np.array([-3.0, -3.0])], [1, 1]).tolist()
    [0.0, 0.5]
    """
    hits = []
    for values, answer in zip(scores, answers, strict=True):
        is_best = values == values.max()
        hits.append(is_best[answer] / is_best.sum())
    return np.array(hits, np.float64)


def count_ties(scores: Sequence[Float[np.ndarray, "N"]]) -> int:
    """The number of questions with several best options."""
    return sum(int((values == values.max()).sum() > 1) for values in scores)


def judge(
    questions: Sequence[Question],
    sums: Sequence[Float[np.ndarray, "N"]],
    empty_sums: Sequence[Float[np.ndarray, "N"]] | None = None,
) -> tuple[dict[str, Float[np.ndarray, "Q"]], int]:
    """The credit of each question by metric, and the ties of `acc`.

    Args:
      sums: for each question, log p of its options in nats.
      empty_sums: the same without context; None omits the metrics that need it.
    """
    answers = [question.answer for question in questions]
    chars = [_lengths(q, lambda text: len(text)) for q in questions]
    sizes = [_lengths(q, lambda text: len(text.encode())) for q in questions]
    rules = {
        "acc": list(sums),
        "acc_norm": _divide(sums, chars),
        "acc_bytes": _divide(sums, sizes),
    }
    if empty_sums is not None:
        rules["acc_mutual_info"] = [
            total - empty for total, empty in zip(sums, empty_sums, strict=True)
        ]
        rules["acc_empty"] = list(empty_sums)
        rules["acc_norm_empty"] = _divide(empty_sums, chars)
    hits = {name: find_hits(scores, answers) for name, scores in rules.items()}
    return hits, count_ties(sums)


def _lengths(
    question: Question, measure: Callable[[str], int]
) -> Float[np.ndarray, "N"]:
    """The lengths of the options, at least 1."""
    lengths = [max(1, measure(text)) for text in question.bare_options]
    return np.array(lengths, np.float64)


def _divide(
    sums: Sequence[np.ndarray], lengths: Sequence[np.ndarray]
) -> list[np.ndarray]:
    return [values / size for values, size in zip(sums, lengths, strict=True)]


def trivial_answers(questions: Sequence[Question]) -> dict[str, float]:
    """The accuracies of random answers and, with classes, of the most frequent one."""
    baselines = {"chance": float(np.mean([1 / len(q.options) for q in questions]))}
    if len({question.options for question in questions}) == 1:
        places = Counter(question.answer for question in questions)
        baselines["majority"] = places.most_common(1)[0][1] / len(questions)
    return baselines

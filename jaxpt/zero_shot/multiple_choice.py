"""Multiple choice by likelihood: which option the model finds likeliest.

    acc               the option of the largest sum of log p
    acc_norm          ... divided by the option's characters
    acc_bytes         ... by its bytes of UTF-8
    acc_mutual_info   the largest log p(option | context) - log p(option)

Names and definitions are those of EleutherAI/lm-evaluation-harness
(lm_eval/api/task.py); lengths do not count the space before an option. `acc_norm` is by
characters there and here; papers that say "normalised" often mean bytes or tokens.

A departure: where several options share the best score, the right one counts for its
part. The harness takes the first of them, so that a model which scores all options the
same has 0 % of SciQ, whose right answer stands last, and 100 % where it stands first.

Trivial answers stand beside: `chance`; where all questions have the same options
`majority`, the commonest class; and what the options tell alone, `acc_empty` and
`acc_norm_empty`: as above, without any context.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.errors import UserError
from jaxpt.zero_shot.continuations import Pair, Score
from jaxpt.zero_shot.questions import Question


class Asked(NamedTuple):
    """What came of asking questions.

    Attributes:
      hits: by rule, what each question counts, from 0 to 1.
      trivial: the trivial answers' accuracies.
      kept: the indices of the questions that were asked; the others do not fit.
      num_ties: of `acc`.
      num_cut: questions that lost the beginning of a context.
    """

    hits: dict[str, Float[np.ndarray, "Q"]]
    trivial: dict[str, float]
    kept: list[int]
    num_ties: int
    num_cut: int


def ask(questions: Sequence[Question], score: Score, has_empty: bool) -> Asked:
    """Asks all questions that fit the model's window.

    Args:
      has_empty: whether a text can be scored with nothing before it.

    Raises:
      UserError: none of them fits.
    """
    found = _score_options(questions, score, is_empty=False)
    kept = [i for i, answers in enumerate(found) if None not in answers]
    if not kept:
        raise UserError(
            "no question has options that fit the model's window (model.max_len)"
        )
    held, answers = [questions[i] for i in kept], [found[i] for i in kept]
    sums = [_sum(each) for each in answers]
    empty = None
    if has_empty:
        empty = [_sum(each) for each in _score_options(held, score, is_empty=True)]
    hits, num_ties = judge(held, sums, empty)
    num_cut = sum(any(answer.is_cut for answer in each) for each in answers)
    return Asked(hits, trivial_answers(held), kept, num_ties, num_cut)


def _score_options(questions, score: Score, is_empty: bool) -> list[list]:
    """The answers to each question's options."""
    pairs = [
        Pair("" if is_empty else context, option, question.after)
        for question in questions
        for context, option in zip(question.contexts, question.options, strict=True)
    ]
    answers = iter(score(pairs))
    return [[next(answers) for _ in question.options] for question in questions]


def _sum(answers) -> Float[np.ndarray, "N"]:
    return np.array([answer.total for answer in answers], np.float64)


def find_hits(
    scores: Sequence[Float[np.ndarray, "N"]], answers: Sequence[int]
) -> Float[np.ndarray, "Q"]:
    """1 where the right option has the best score, its share where it is a tie.

    >>> find_hits([np.array([-1.0, -2.0]), np.array([-3.0, -3.0])], [1, 1]).tolist()
    [0.0, 0.5]
    """
    hits = []
    for values, answer in zip(scores, answers, strict=True):
        is_best = values == values.max()
        hits.append(is_best[answer] / is_best.sum())
    return np.array(hits, np.float64)


def count_ties(scores: Sequence[Float[np.ndarray, "N"]]) -> int:
    """In how many questions several options share the best score."""
    return sum(int((values == values.max()).sum() > 1) for values in scores)


def judge(
    questions: Sequence[Question],
    sums: Sequence[Float[np.ndarray, "N"]],
    empty_sums: Sequence[Float[np.ndarray, "N"]] | None = None,
) -> tuple[dict[str, Float[np.ndarray, "Q"]], int]:
    """What each question counts, by each rule, and the ties of `acc`.

    Args:
      sums: of each question, log p of its options in nats.
      empty_sums: the same without any context; None leaves out what needs it.
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
            ours - empty for ours, empty in zip(sums, empty_sums, strict=True)
        ]
        rules["acc_empty"] = list(empty_sums)
        rules["acc_norm_empty"] = _divide(empty_sums, chars)
    found = {name: find_hits(scores, answers) for name, scores in rules.items()}
    return found, count_ties(sums)


def _lengths(question: Question, measure) -> Float[np.ndarray, "N"]:
    """The options' lengths, of an empty one 1."""
    lengths = [max(1, measure(text)) for text in question.bare_options]
    return np.array(lengths, np.float64)


def _divide(sums, lengths) -> list[np.ndarray]:
    return [values / size for values, size in zip(sums, lengths, strict=True)]


def trivial_answers(questions: Sequence[Question]) -> dict[str, float]:
    """The accuracies of guessing, and of always answering with the commonest class."""
    found = {"chance": float(np.mean([1 / len(q.options) for q in questions]))}
    if len({question.options for question in questions}) == 1:
        places = Counter(question.answer for question in questions)
        found["majority"] = places.most_common(1)[0][1] / len(questions)
    return found

"""Whole answers of a task: the share that a model writes without an error.

A document of a task (`jaxpt.languages`: star, facts, recall) asks for answers, runs of
positions that its prefix determines. Decoding is greedy:

    left to right    each token given the true ones before it: the same as free writing
                     until the first error, after which the answer is wrong anyway
    by confidence    all answers are masked, and the most probable token of any position
                     is written, one at a time (a model that fills masks)

The first token of a path is its source, which is given, and each later one is a look-up
of an edge. Only the second needs the whole path, so its accuracy is a separate metric.
"""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float, Int

from jaxpt.evaluation.regret import ExactQuestions
from jaxpt.judge.examples import Examples
from jaxpt.languages import ACCURACY, LEFT, SECOND

# (symbols [N, T], hidden [N, T]) -> log q [N, P, V] at the questions' positions.
Fill = Callable[[np.ndarray, np.ndarray], np.ndarray]


def score_left_to_right(
    questions: ExactQuestions, log_q: Float[np.ndarray, "N P V"]
) -> dict[str, Examples]:
    """Accuracy of whole answers, and of their second tokens, of each document.

    Args:
      questions: at all positions of the answers.
      log_q: the model's answers, each given the true tokens before it.
    """
    return _score(questions, log_q.argmax(-1))


def score_by_confidence(questions: ExactQuestions, fill: Fill) -> dict[str, Examples]:
    """The same of a model that fills masks, decoded by confidence."""
    rows = questions.rows.copy()
    num = len(rows)
    is_open = np.zeros(rows.shape, bool)
    index = np.arange(num)[:, None], questions.positions
    is_open[index] = questions.counts
    written = np.zeros(questions.positions.shape, int)
    left = questions.counts.copy()
    for _ in range(questions.positions.shape[1]):
        log_q = fill(rows, is_open)
        best = np.where(left, log_q.max(-1), -np.inf).argmax(1)
        each = np.arange(num)
        chosen = log_q[each, best].argmax(-1)
        is_left = left[each, best]
        place = questions.positions[each, best]
        written[each, best] = np.where(is_left, chosen, written[each, best])
        rows[each, place] = np.where(is_left, chosen, rows[each, place])
        is_open[each, place] &= ~is_left
        left[each, best] = False
    return _score(questions, written)


def best_accuracy(questions: ExactQuestions) -> tuple[float, int]:
    """The accuracy of whole answers that exact answers reach, and their number.

    Below 1 if the prefix does not determine the answers: no model can do better in
    expectation, unless the answers leak.
    """
    most = questions.truth[LEFT].max(-1)
    total, num = 0.0, 0
    for row, run in _list_runs(questions):
        total += most[row, run].prod()
        num += 1
    return (total / num if num else 1.0), num


def _score(
    questions: ExactQuestions, written: Int[np.ndarray, "N P"]
) -> dict[str, Examples]:
    is_right = written == questions.symbols
    hits, numbers, seconds, longer = (np.zeros(len(written)) for _ in range(4))
    for row, run in _list_runs(questions):
        hits[row] += is_right[row, run].all()
        numbers[row] += 1
        if len(run) > 1:
            seconds[row] += is_right[row, run[1]]
            longer[row] += 1
    examples = {ACCURACY: Examples(hits, numbers, questions.documents)}
    if longer.any():
        examples[SECOND] = Examples(seconds, longer, questions.documents)
    return examples


def _list_runs(
    questions: ExactQuestions,
) -> Iterator[tuple[int, Int[np.ndarray, "R"]]]:
    """Each answer: its row, and the indices of its adjacent positions."""
    for row, counts in enumerate(questions.counts):
        asked = np.flatnonzero(counts)
        gaps = np.diff(questions.positions[row, asked]) > 1
        for run in np.split(asked, np.flatnonzero(gaps) + 1):
            if len(run):
                yield row, run

"""Regret: how far a network's answers are from the exact ones, in nats.

Text of a language (`jaxpt.languages`) has exact conditionals p. Every network that can
answers two questions about a token x_i of a held-out document:

    left to right    p(x_i | x_<i)
    two-sided        p(x_i | all other tokens)

    regret = mean over documents and positions of KL(p || q)
           = mean of sum_v p(v) (ln p(v) - ln q(v))

q is the network's answer, divided by its sum over the symbols of the language; what it
gives to other ids (special tokens) is reported separately. A regret of 0 means that the
network has learned all there is, and a nat is worth the same for every objective.

`sampled_regret` is the other estimator, ln p(x) - ln q(x) of the tokens x of the
documents. It has the same mean and a larger variance.

Baselines need no training: the exact answers that read fewer tokens (`ANCHORS`), and
the uniform distribution. A network above the trigram has not used its memory, and one
above the uniform distribution is broken.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxpt.judge.examples import Examples
from jaxpt.languages import BOTH, LEFT
from jaxpt.languages.anchors import divergence, entropy
from jaxpt.languages.language import Language

SEED = 0  # the same positions for every run
# By question, the baselines: the offsets of the tokens that each reads. "left to right"
# reads all tokens before the position.
ANCHORS: dict[str, dict[str, tuple[int, ...]]] = {
    LEFT: {"unigram": (), "bigram": (-1,), "trigram": (-2, -1)},
    BOTH: {"unigram": (), "two neighbours": (-1, 1)},
}
EXACT_LEFT, UNIFORM = "exact left to right", "uniform"
# The table of each question that a network must beat: otherwise it has no memory.
TABLES = {LEFT: "trigram", BOTH: "two neighbours"}
MAX_FLOATS = 1 << 24  # of exact answers in memory at once


class ExactQuestions(NamedTuple):
    """Positions of held-out documents, with their exact answers.

    Attributes:
      rows: the symbols of each document.
      ids: the id of each symbol.
      positions: P of each document, above 0.
      counts: whether each counts: some documents have fewer positions.
      truth: by question, the exact probabilities of the symbols.
      documents: the number of each document.
    """

    rows: Int[np.ndarray, "N T"]
    ids: Int[np.ndarray, "V"]
    positions: Int[np.ndarray, "N P"]
    counts: Bool[np.ndarray, "N P"]
    truth: Mapping[str, Float[np.ndarray, "N P V"]]
    documents: Int[np.ndarray, "N"]

    def pick(self, num: int) -> "ExactQuestions":
        """Those of the first `num` documents."""
        return ExactQuestions(
            self.rows[:num],
            self.ids,
            self.positions[:num],
            self.counts[:num],
            {name: values[:num] for name, values in self.truth.items()},
            self.documents[:num],
        )

    @property
    def tokens(self) -> Int[np.ndarray, "N T"]:
        """The ids of each document, int32, without special tokens."""
        return np.asarray(self.ids, np.int32)[self.rows]

    @property
    def symbols(self) -> Int[np.ndarray, "N P"]:
        """The true symbol at each position."""
        return np.take_along_axis(self.rows, self.positions, 1)

    def average(self, values: Float[np.ndarray, "N P"]) -> Examples:
        """The values of each document's positions, those that count."""
        totals = np.where(self.counts, values, 0).sum(1)
        return Examples(totals, self.counts.sum(1).astype(np.float64), self.documents)


def find_questions(
    language: Language,
    rows: Int[np.ndarray, "N T"],
    ids: Int[np.ndarray, "V"],
    documents: Int[np.ndarray, "N"],
    num_positions: int,
) -> ExactQuestions | None:
    """Random positions of each document, the same for every run.

    The first position is left out: a network that predicts a token from the position
    before has no prediction for it.

    Args:
      rows: symbols.
      ids: the id of each symbol.
      num_positions: P, or fewer if no document has that many.

    Returns:
      None if no position has an exact answer.
    """
    is_asked = language.asked(rows).copy()
    is_asked[:, :1] = False
    num = min(num_positions, int(is_asked.sum(1).max(initial=0)))
    if not num:
        return None
    order = np.random.default_rng(SEED).random(rows.shape)
    positions = np.argsort(np.where(is_asked, order, 2), axis=1, kind="stable")
    positions = np.sort(positions[:, :num], axis=1)
    truth = {
        LEFT: _in_parts(language.left_to_right, rows, positions, language.num_symbols),
        BOTH: _in_parts(language.given_others, rows, positions, language.num_symbols),
    }
    counts = np.take_along_axis(is_asked, positions, 1)
    return ExactQuestions(rows, ids, positions, counts, truth, documents)


def _in_parts(
    answer: Callable, rows: np.ndarray, positions: np.ndarray, size: int
) -> Float[np.ndarray, "N P V"]:
    """The answers [N, T, V] of a language at positions, for some rows at a time."""
    step = max(1, MAX_FLOATS // (rows.shape[1] * size))
    parts = []
    for start in range(0, len(rows), step):
        places = positions[start : start + step, :, None]
        answers = answer(rows[start : start + step])
        parts.append(np.take_along_axis(answers, places, 1))
    return np.concatenate(parts)


def list_anchors(
    language: Language, questions: ExactQuestions
) -> dict[str, dict[str, Examples]]:
    """By question, the regret of each baseline; one without an answer is left out."""
    anchors: dict[str, dict[str, Examples]] = {LEFT: {}, BOTH: {}}
    for question, tables in ANCHORS.items():
        truth = questions.truth[question]
        for name, offsets in tables.items():
            answers = _answer_table(language, questions, offsets)
            anchors[question][name] = questions.average(divergence(truth, answers))
        if question == BOTH:
            answers = questions.truth[LEFT]
            anchors[question][EXACT_LEFT] = questions.average(
                divergence(truth, answers)
            )
        uniform = np.full_like(truth, 1 / truth.shape[-1])
        anchors[question][UNIFORM] = questions.average(divergence(truth, uniform))
    return {
        question: {n: x for n, x in of.items() if np.isfinite(x.mean)}
        for question, of in anchors.items()
    }


def list_floors(questions: ExactQuestions) -> dict[str, float]:
    """By question, the mean entropy of the exact answers, in nats."""
    return {
        question: questions.average(entropy(truth)).mean
        for question, truth in questions.truth.items()
    }


def _answer_table(
    language: Language, questions: ExactQuestions, offsets: tuple[int, ...]
) -> Float[np.ndarray, "N P V"]:
    """The exact answers that read only the tokens at some offsets."""
    rows, positions = questions.rows, questions.positions
    num, width = positions.shape
    owners = np.repeat(np.arange(num), width)
    visible = np.zeros((num * width, rows.shape[1]), bool)
    for offset in offsets:
        places = positions.ravel() + offset
        inside = (places >= 0) & (places < rows.shape[1])
        visible[np.flatnonzero(inside), places[inside]] = True
    step = max(1, MAX_FLOATS // (rows.shape[1] * language.num_symbols))
    parts = []
    for start in range(0, len(owners), step):
        part = slice(start, start + step)
        answers = language.given_visible(rows[owners[part]], visible[part])
        places = positions.ravel()[part, None, None]
        parts.append(np.take_along_axis(answers, places, 1)[:, 0])
    return np.concatenate(parts).reshape(num, width, -1)


def renormalise(
    log_q: Float[np.ndarray, "*N A"], ids: Int[np.ndarray, "V"]
) -> tuple[Float[np.ndarray, "*N V"], Float[np.ndarray, "*N"]]:
    """Scores of all ids as log q of the symbols, and the mass of the other ids.

    Args:
      log_q: log q of each id, up to a constant for each position.

    >>> log_q, mass = renormalise(np.log([0.5, 0.25, 0.25]), np.array([0, 2]))
    >>> np.exp(log_q).round(6).tolist(), float(mass)
    ([0.666667, 0.333333], 0.25)
    """
    scores = np.asarray(log_q, np.float64)
    scores = scores - scores.max(-1, keepdims=True)
    chosen = scores[..., ids]
    with np.errstate(divide="ignore"):
        log_sum = np.log(np.exp(chosen).sum(-1))
    mass = 1 - np.exp(log_sum) / np.exp(scores).sum(-1)
    return chosen - log_sum[..., None], np.maximum(mass, 0.0)


def exact_regret(
    truth: Float[np.ndarray, "*N V"], log_q: Float[np.ndarray, "*N V"]
) -> Float[np.ndarray, "*N"]:
    """KL(p || q) in nats; infinite where q is 0 and p is not.

    >>> p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25])
    >>> round(float(exact_regret(p, np.log(q))), 6)
    0.346574
    """
    is_possible = truth > 0
    cross = np.where(is_possible, truth, 0) * np.where(is_possible, log_q, 0)
    return -cross.sum(-1) - entropy(truth)


def sampled_regret(
    truth: Float[np.ndarray, "*N V"],
    log_q: Float[np.ndarray, "*N V"],
    symbols: Int[np.ndarray, "*N"],
) -> Float[np.ndarray, "*N"]:
    """ln p(x) - ln q(x) in nats of the symbols x of the documents."""
    log_p = np.log(np.take_along_axis(truth, symbols[..., None], -1))
    return (log_p - np.take_along_axis(log_q, symbols[..., None], -1))[..., 0]

"""Baselines of a language that need no training: entropies and n-gram tables.

    unigram     p(x_i)
    bigram      p(x_i | x_{i-1})
    trigram     p(x_i | x_{i-2}, x_{i-1})
    neighbours  p(x_i | x_{i-1}, x_{i+1})

A network whose regret is above the trigram's has not used its memory. Where a document
has fewer neighbours, a table of fewer is read. The exact left-to-right answer is also a
baseline of the question of all others: `divergence(given_others, left_to_right)`.

Tables are exact for a hidden Markov model (`tables_of`), or counted in sampled rows.

>>> from jaxpt.languages.hmm import Hmm
>>> tiny = Hmm([[.9, .1], [.2, .8]], [[.7, .2, .1], [.1, .3, .6]])
>>> rows = np.stack(np.meshgrid(*[range(3)] * 5, indexing="ij"), -1).reshape(-1, 5)
>>> p = np.exp(tiny.log_probability(rows))
>>> truth, both = tiny.left_to_right(rows), tiny.given_others(rows)
>>> [round(float(p @ entropy(each).mean(1)), 6) for each in (truth, both)]
[1.003932, 0.976161]
>>> tables = tables_of(tiny)
>>> round(float(-(tables.unigram * np.log(tables.unigram)).sum()), 6)
1.038609
>>> bigram = divergence(truth, tables.answer_bigram(rows))
>>> round(float(p @ bigram[:, 1:].mean(1)), 6)
0.008012
>>> neighbours = divergence(both, tables.answer_neighbours(rows))
>>> round(float(p @ neighbours[:, 1:4].mean(1)), 6)
0.010125
>>> round(float(p @ divergence(both, truth).mean(1)), 6)
0.027771
"""

from dataclasses import dataclass

import numpy as np

from jaxpt.languages.hmm import Hmm
from jaxpt.languages.language import normalise


def entropy(answers: np.ndarray) -> np.ndarray:
    """In nats, of probabilities [..., V]: float64 [...].

    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(6).tolist()
    [0.693147, 0.0]
    """
    logs = np.log(np.where(answers > 0, answers, 1.0))
    return -(answers * logs).sum(-1) + 0.0


def divergence(truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """KL(truth || answers) in nats, of probabilities [..., V]: float64 [...].

    Infinite where an answer is 0 and the truth is not; NaN where the truth is.

    >>> divergence(np.array([0.5, 0.5, 0]), np.array([0.25, 0.5, 0.25])).round(6)
    np.float64(0.346574)
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(truth > 0, answers, 1.0))
    return -(np.where(truth > 0, truth, 0.0) * logs).sum(-1) - entropy(truth)


@dataclass(frozen=True, eq=False)
class NGramTables:
    """The probabilities of a symbol given at most two neighbours.

    Attributes:
      unigram: [V].
      bigram: [V, V], p(x_i = v | x_{i-1} = u) at [u, v].
      backward: [V, V], p(x_i = v | x_{i+1} = u) at [u, v].
      trigram: [V, V, V], p(x_i = v | x_{i-2} = t, x_{i-1} = u) at [t, u, v].
      neighbours: [V, V, V], p(x_i = v | x_{i-1} = t, x_{i+1} = u) at [t, u, v].
    """

    unigram: np.ndarray
    bigram: np.ndarray
    backward: np.ndarray
    trigram: np.ndarray
    neighbours: np.ndarray

    def answer_unigram(self, rows: np.ndarray) -> np.ndarray:
        """Of each position, float64 [N, T, V]."""
        return np.broadcast_to(self.unigram, (*rows.shape, len(self.unigram)))

    def answer_bigram(self, rows: np.ndarray) -> np.ndarray:
        """Of each position, float64 [N, T, V]; the first one's is the unigram's."""
        answers = self.answer_unigram(rows).copy()
        answers[:, 1:] = self.bigram[rows[:, :-1]]
        return answers

    def answer_trigram(self, rows: np.ndarray) -> np.ndarray:
        """Of each position, float64 [N, T, V]; the second one's is the bigram's."""
        answers = self.answer_bigram(rows)
        answers[:, 2:] = self.trigram[rows[:, :-2], rows[:, 1:-1]]
        return answers

    def answer_neighbours(self, rows: np.ndarray) -> np.ndarray:
        """Of each position, float64 [N, T, V]; the ends have one neighbour."""
        answers = self.answer_bigram(rows)
        if rows.shape[1] > 1:
            answers[:, 0] = self.backward[rows[:, 1]]
        answers[:, 1:-1] = self.neighbours[rows[:, :-2], rows[:, 2:]]
        return answers


def tables_of(language: Hmm) -> NGramTables:
    """The exact tables of a stationary hidden Markov model.

    The best tables of positions that are far from the start, if it is not stationary.
    """
    emissions, transitions = language.emissions, language.transitions
    first = language.initial[:, None] * emissions  # p(state, x_0) [S, V]
    pairs = np.einsum("su,st,tv->uv", first, transitions, emissions, optimize=True)
    middle = np.einsum(
        "su,st,tv,tr,rw->uvw",
        *(first, transitions, emissions, transitions, emissions),
        optimize=True,
    )
    return _from_joints(first.sum(0), pairs, middle)


def count_tables(rows: np.ndarray, num_symbols: int, prior: float = 1.0) -> NGramTables:
    """The tables of counted rows [N, T].

    Args:
      prior: the weight of the table of fewer neighbours, in observations: each table is
        (counts + prior * that table) / (total + prior), so that it is nowhere 0 where
        that one is not. Added to the unigram: `prior` in all.
    """
    size = num_symbols
    ones = np.bincount(rows.ravel(), minlength=size).astype(float)
    pairs = _count([rows[:, :-1], rows[:, 1:]], size)
    triples = _count([rows[:, :-2], rows[:, 1:-1], rows[:, 2:]], size)
    unigram = _smooth(ones, np.full(size, 1 / size), prior)
    bigram, backward = (_smooth(p, unigram, prior) for p in (pairs, pairs.T))
    return NGramTables(
        unigram,
        bigram,
        backward,
        _smooth(triples, bigram[None], prior),
        _smooth(triples.swapaxes(1, 2), bigram[:, None], prior),
    )


def _count(columns: list[np.ndarray], size: int) -> np.ndarray:
    """How often each combination of symbols occurs, [V] * len(columns)."""
    shape = (size,) * len(columns)
    flat = np.ravel_multi_index([column.ravel() for column in columns], shape)
    counts = np.bincount(flat, minlength=size ** len(columns))
    return counts.reshape(shape).astype(float)


def _smooth(counts: np.ndarray, fewer: np.ndarray, prior: float) -> np.ndarray:
    return (counts + prior * fewer) / (counts.sum(-1, keepdims=True) + prior)


def _from_joints(
    unigram: np.ndarray, pairs: np.ndarray, triples: np.ndarray
) -> NGramTables:
    """Tables from p(x_i), p(x_i, x_i+1) and p(x_i, x_i+1, x_i+2)."""
    return NGramTables(
        unigram,
        normalise(pairs),
        normalise(pairs.T),
        normalise(triples),
        normalise(triples.swapaxes(1, 2)),
    )

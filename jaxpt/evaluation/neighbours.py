"""Nearest neighbours of words in each sentence, for contextual and static vectors.

word2vec has one vector per word, so that the nearest neighbours are the same in every
sentence; a contextual model has one vector per occurrence (Peters et al. 2018, table 4;
Ethayarajh 2019).
"""

import string
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree

from jaxpt.evaluation.likelihood import map_batches

MARKS = string.punctuation + string.whitespace + "“”‘’—–▁"


class Word(NamedTuple):
    """One word of a row: its text without punctuation; tokens `start` to `stop`."""

    text: str
    row: int
    start: int
    stop: int


class Neighbours(NamedTuple):
    """A word's nearest neighbours, each a (text, cosine), the nearest first.

    Attributes:
      occurrences: (context, neighbours) of some occurrences of the word.
      overall: the neighbours of its mean vector among the mean vectors of all words.
      num_occurrences: the number of occurrences of the word.
    """

    occurrences: list[tuple[str, list[tuple[str, float]]]]
    overall: list[tuple[str, float]]
    num_occurrences: int


def cut_words(
    tokens: np.ndarray, word_starts: np.ndarray, decode: Callable
) -> list[Word]:
    """The words of rows [n, R], except those at the ends of rows, which may be cut.

    Args:
      word_starts: by id, whether a token begins a word (`Vocab.word_starts`).
      decode: ids -> text.

    >>> starts = np.array([True, False, False])  # a space, a, b
    >>> decode = lambda ids: "".join(" ab"[i] for i in ids)
    >>> cut_words(np.array([[1, 0, 1, 2, 0, 2, 0, 1]]), starts, decode)
    [Word(text='ab', row=0, start=1, stop=4), Word(text='b', row=0, start=4, stop=6)]
    """
    words = []
    for i, row in enumerate(tokens):
        starts = np.flatnonzero(word_starts[row])
        for start, stop in zip(starts[:-1], starts[1:], strict=True):
            text = decode(row[start:stop]).strip(MARKS)
            if text:
                words.append(Word(text, i, int(start), int(stop)))
    return words


def word_vectors(
    features: Callable,
    params: PyTree,
    tokens: np.ndarray,
    words: list[Word],
    batch_size: int,
) -> np.ndarray:
    """The mean features of each word's tokens, scaled to length 1: float32 [w, C]."""
    vectors: list[np.ndarray] = []
    start = 0
    states_of = map_batches(
        lambda batch: features(params, batch["tokens"]), {"tokens": tokens}, batch_size
    )
    for states in states_of:
        while len(vectors) < len(words) and words[len(vectors)].row < start + len(
            states
        ):
            _, row, begin, end = words[len(vectors)]
            vectors.append(states[row - start, begin:end].mean(0))
        start += len(states)
    return _unit(np.stack(vectors))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def rank(
    vector: np.ndarray, vectors: np.ndarray, texts: list[str], word: str, k: int
) -> list[tuple[str, float]]:
    """The k other words that are nearest to a vector, by their highest cosine.

    >>> vectors = np.eye(3)[[0, 1, 1, 2]] + [0.0, 0.5, 0.0]
    >>> rank(np.array([0.0, 1.0, 0.0]), _unit(vectors), list("abbc"), "a", 2)
    [('b', 1.0), ('c', 0.447)]
    """
    cosines, best = vectors @ vector, {}
    for i in np.argsort(-cosines, kind="stable"):
        text = texts[i]
        if text.lower() != word.lower() and text not in best:
            best[text] = round(float(cosines[i]), 3)
            if len(best) == k:
                break
    return list(best.items())


def find_neighbours(
    words: list[Word],
    vectors: np.ndarray,
    word: str,
    num_occurrences: int,
    k: int,
    around: Callable,
) -> Neighbours:
    """The neighbours of evenly spaced occurrences of a word, and of its mean vector.

    Args:
      vectors: the `word_vectors` of the words.
      around: a Word -> its context as text.

    Raises:
      ValueError: the word does not occur.
    """
    texts = [each.text for each in words]
    matches = [i for i, text in enumerate(texts) if text.lower() == word.lower()]
    if not matches:
        raise ValueError(f"{word!r} does not occur")
    num = min(num_occurrences, len(matches))
    picked = [matches[i * (len(matches) - 1) // max(num - 1, 1)] for i in range(num)]
    occurrences = [
        (around(words[i]), rank(vectors[i], vectors, texts, word, k)) for i in picked
    ]
    names, which = np.unique(np.array(texts), return_inverse=True)
    sums = np.zeros((len(names), vectors.shape[1]), np.float32)
    np.add.at(sums, which, vectors)
    mean = _unit(vectors[matches].sum(0))
    overall = rank(mean, _unit(sums), names.tolist(), word, k)
    return Neighbours(occurrences, overall, len(matches))

"""Contextual and static word vectors: a word's nearest neighbours in each sentence.

word2vec has one vector per word, so its nearest neighbours are the same in every
sentence; a contextual model has one per occurrence (Peters et al. 2018, table 4;
Ethayarajh 2019).
"""

import string
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

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
      occurrences: (the text around it, its neighbours) of some occurrences of the word.
      overall: neighbours of its mean vector among the mean vectors of all words.
      num_occurrences: how many occurrences its mean vector is of.
    """

    occurrences: list[tuple[str, list[tuple[str, float]]]]
    overall: list[tuple[str, float]]
    num_occurrences: int


def cut_words(
    tokens: np.ndarray, word_starts: np.ndarray, decode: Callable
) -> list[Word]:
    """The words of rows [n, R], except those that a row's ends may have cut.

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
    features: Callable, params, tokens: np.ndarray, words: list[Word], batch_size: int
) -> np.ndarray:
    """The mean features of each word's tokens, scaled to length 1: float32 [w, C]."""
    found, first = [], 0
    for start in range(0, len(tokens), batch_size):
        piece = tokens[start : start + batch_size]
        missing = batch_size - len(piece)
        full = np.concatenate([piece, np.repeat(piece[:1], missing, axis=0)])
        hidden_states = np.asarray(features(params, full), np.float32)
        while first < len(words) and words[first].row < start + len(piece):
            _, row, begin, end = words[first]
            found.append(hidden_states[row - start, begin:end].mean(0))
            first += 1
    return _unit(np.stack(found))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def rank(
    vector: np.ndarray, vectors: np.ndarray, texts: list[str], own: str, k: int
) -> list[tuple[str, float]]:
    """The k other words nearest to a vector, by each word's highest cosine.

    >>> vectors = np.eye(3)[[0, 1, 1, 2]] + [0.0, 0.5, 0.0]
    >>> rank(np.array([0.0, 1.0, 0.0]), _unit(vectors), list("abbc"), "a", 2)
    [('b', 1.0), ('c', 0.447)]
    """
    cosines, best = vectors @ vector, {}
    for i in np.argsort(-cosines, kind="stable"):
        text = texts[i]
        if text.lower() != own.lower() and text not in best:
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
    """A word's neighbours at evenly spaced occurrences, and those of its mean vector.

    Args:
      vectors: the `word_vectors` of the words.
      around: a Word -> the text around it.

    Raises:
      ValueError: the word does not occur.
    """
    texts = [found.text for found in words]
    own = [i for i, text in enumerate(texts) if text.lower() == word.lower()]
    if not own:
        raise ValueError(f"{word!r} does not occur")
    num = min(num_occurrences, len(own))
    picked = [own[i * (len(own) - 1) // max(num - 1, 1)] for i in range(num)]
    occurrences = [
        (around(words[i]), rank(vectors[i], vectors, texts, word, k)) for i in picked
    ]
    names, which = np.unique(np.array(texts), return_inverse=True)
    sums = np.zeros((len(names), vectors.shape[1]), np.float32)
    np.add.at(sums, which, vectors)
    mean = _unit(vectors[own].sum(0))
    overall = rank(mean, _unit(sums), names.tolist(), word, k)
    return Neighbours(occurrences, overall, len(own))

"""Measures of texts as token ids: distinct n-grams, repetition, unigram entropy."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

Ids = Int[np.ndarray, "T"]


def list_ngrams(ids: Ids, n: int) -> list[tuple[int, ...]]:
    """All n-grams in their order; [] for a text with fewer than n tokens.

    >>> list_ngrams(np.array([5, 6, 7]), 2)
    [(5, 6), (6, 7)]
    """
    tokens = ids.tolist()
    return list(zip(*(tokens[i:] for i in range(n)), strict=False))


def distinct(texts: Iterable[Ids], n: int) -> float:
    """distinct-n: different n-grams of all texts by all n-grams (Li et al. 2016).

    n-grams do not cross texts. NaN if there is none. It falls with the number of
    tokens, so only equal numbers compare.

    >>> distinct([np.array([1, 2, 1, 2]), np.array([1, 2])], 2)
    0.5
    """
    grams = [gram for ids in texts for gram in list_ngrams(ids, n)]
    return len(set(grams)) / len(grams) if grams else math.nan


def repetition(ids: Ids, n: int) -> float:
    """seq-rep-n: the share of a text's n-grams that occurred before in it.

    1 - different n-grams / n-grams (Welleck et al. 2020); NaN for a text
    with fewer than n tokens.

    >>> repetition(np.array([1, 2, 1, 2, 1, 2]), 4).__round__(4)
    0.3333
    """
    grams = list_ngrams(ids, n)
    return 1 - len(set(grams)) / len(grams) if grams else math.nan


def entropy(ids: Ids) -> float:
    """The entropy in nats of the frequencies of a text's tokens; 0 for none.

    At most ln of the number of tokens. Text of few words has little, however likely it
    is (Zheng et al. 2024).

    >>> round(entropy(np.array([1, 1, 2, 2])) / math.log(2), 6)
    1.0
    """
    if not len(ids):
        return 0.0
    _, counts = np.unique(ids, return_counts=True)
    shares = counts / len(ids)
    return float(abs(-(shares * np.log(shares)).sum()))


def repeated_lines(text: str) -> float:
    """The share of lines that occurred before in a text; blank lines do not count.

    >>> repeated_lines("a\\nb\\n\\na\\na\\n")
    0.5
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    repeats: Sequence[int] = [num - 1 for num in Counter(lines).values()]
    return sum(repeats) / len(lines) if lines else 0.0

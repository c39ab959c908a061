"""Similarity of two layers' states (CKA), and contextuality of a layer's states.

Linear CKA of states X [n, C] and Y [n, D] of the same n tokens, columns centred
(Kornblith et al. 2019): |Y'X|^2 / (|X'X| |Y'Y|), with Frobenius's norms. It does not
change with a rotation, a scale or a shift of either. With few tokens for the widths it
is near 1 for any states; the debiased form (Nguyen et al. 2021), with Song et al.'s
unbiased estimate of HSIC, is near 0 for independent states, and may be below 0.

Contextuality (Ethayarajh 2019, kawine/contextual:analyze.py): the similarity of a
token's states in different contexts, minus that of any states (anisotropy).

Departures from that source: token ids instead of words; all pairs, whose mean has a
closed form, instead of sampled pairs; the explained variance has no baseline
subtracted.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

MIN_OCCURRENCES = 5  # of a token that counts, each in another row
MAX_OCCURRENCES = 100  # of a token that are used
TINY = 1e-12


def linear_cka(
    x: Float[np.ndarray, "T C"],
    y: Float[np.ndarray, "T D"],
    *,
    is_debiased: bool = False,
) -> float:
    """The linear CKA of two sets of states of the same tokens, at most 1.

    NaN if one of them is constant.

    Raises:
      ValueError: their numbers of tokens differ, or are below 4 if debiased.

    >>> x = np.array([[1.0, 0], [0, 1], [1, 1], [2, -1]])
    >>> y = np.array([[2.0, 1], [0, 1], [1, 3], [4, 0]])
    >>> round(linear_cka(x, y), 6)
    0.944518
    """
    if len(x) != len(y):
        raise ValueError(f"{len(x)} and {len(y)} tokens: must be the same")
    if is_debiased and len(x) < 4:
        raise ValueError(f"{len(x)} tokens: a debiased estimate needs at least 4")
    measure = unbiased_hsic if is_debiased else biased_hsic
    x, y = (np.asarray(each, np.float64) - each.mean(axis=0) for each in (x, y))
    norms = measure(x, x) * measure(y, y)
    return float(measure(x, y) / np.sqrt(norms)) if norms > 0 else float("nan")


def biased_hsic(x: Float[np.ndarray, "T C"], y: Float[np.ndarray, "T D"]) -> float:
    """|Y'X|^2 of centred columns, which is (T - 1)^2 times HSIC."""
    return float(np.square(y.T @ x).sum())


def unbiased_hsic(x: Float[np.ndarray, "T C"], y: Float[np.ndarray, "T D"]) -> float:
    """Song et al.'s (2012) estimate of HSIC with linear kernels.

    [tr(K L) + (1'K 1)(1'L 1) / (n - 1)(n - 2) - 2 / (n - 2) 1'K L 1] / n(n - 3), where
    K = XX' and L = YY' have zeros on their diagonals. Neither of them is built.
    """
    num = len(x)
    own_x, own_y = (np.square(each).sum(axis=1) for each in (x, y))
    trace = np.square(y.T @ x).sum() - own_x @ own_y
    rows_x, rows_y = x @ x.sum(axis=0) - own_x, y @ y.sum(axis=0) - own_y
    both = rows_x.sum() * rows_y.sum() / ((num - 1) * (num - 2))
    total = trace + both - 2 / (num - 2) * (rows_x @ rows_y)
    return float(total / (num * (num - 3)))


def cka_matrix(
    states: list[Float[np.ndarray, "T ?C"]], *, is_debiased: bool = False
) -> Float[np.ndarray, "L L"]:
    """`linear_cka` of every pair; symmetric."""
    matrix = np.ones((len(states), len(states)))
    for i, x in enumerate(states):
        for j in range(i + 1):
            value = linear_cka(x, states[j], is_debiased=is_debiased)
            matrix[i, j] = matrix[j, i] = value
    return matrix


class Contextuality(NamedTuple):
    """How strongly a layer's states depend on their context.

    Attributes:
      self_similarity: the mean cosine of a token's states in different rows.
      anisotropy: the mean cosine of any states of different rows.
      max_explained_variance: the share of a token's states that its first uncentred
        principal component explains: 1 if one static vector would suffice.
      num_tokens: the number of different tokens in the means.
    """

    self_similarity: float
    anisotropy: float
    max_explained_variance: float
    num_tokens: int

    @property
    def adjusted(self) -> float:
        """Self-similarity minus anisotropy: 0 if states depend on context alone."""
        return self.self_similarity - self.anisotropy


def measure_contextuality(
    states: Float[np.ndarray, "N T D"],
    tokens: Int[np.ndarray, "N T"],
    *,
    least: int = MIN_OCCURRENCES,
) -> Contextuality:
    """The contextuality of one layer's states of rows of tokens.

    Args:
      least: the number of rows in which a token must occur. The first occurrence in a
        row is used, of at most `MAX_OCCURRENCES` rows, spread evenly.

    Returns:
      NaN for the means over tokens if no token is frequent enough.
    """
    units = _unit(np.asarray(states, np.float64))
    similar, explained = [], []
    for places in find_occurrences(tokens, least):
        similar.append(self_similarity(units[places]))
        explained.append(max_explained_variance(np.asarray(states, np.float64)[places]))
    return Contextuality(
        self_similarity=float(np.mean(similar)) if similar else float("nan"),
        anisotropy=anisotropy(units),
        max_explained_variance=float(np.mean(explained)) if similar else float("nan"),
        num_tokens=len(similar),
    )


def find_occurrences(
    tokens: Int[np.ndarray, "N T"], least: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rows, positions) of each token that occurs in `least` rows, once per row.

    >>> pairs = find_occurrences(np.array([[5, 5, 1], [2, 1, 5]]), 2)
    >>> [(rows.tolist(), places.tolist()) for rows, places in pairs]
    [([0, 1], [2, 1]), ([0, 1], [0, 2])]
    """
    occurrences = []
    rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
    flat = tokens.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ends = np.flatnonzero(np.diff(flat[order])) + 1
    for group in np.split(order, ends):
        _, first = np.unique(rows[group], return_index=True)
        if len(first) >= max(least, 2):
            spaced = np.linspace(0, len(first) - 1, min(len(first), MAX_OCCURRENCES))
            index = group[first[spaced.round().astype(int)]]
            occurrences.append((rows[index], index % tokens.shape[1]))
    return occurrences


def self_similarity(states: Float[np.ndarray, "K D"]) -> float:
    """The mean cosine of all pairs of different states.

    >>> round(self_similarity(np.array([[1.0, 0], [0, 1], [1, 1]])), 6)
    0.471405
    """
    units, num = _unit(states), len(states)
    diagonal = np.square(units).sum()
    return float((np.square(units.sum(axis=0)).sum() - diagonal) / (num * (num - 1)))


def anisotropy(units: Float[np.ndarray, "N T D"]) -> float:
    """The mean cosine of all pairs of states that are of different rows.

    Args:
      units: the states, each of length 1.
    """
    by_row = units.sum(axis=1)
    whole = np.square(by_row.sum(axis=0)).sum() - np.square(by_row).sum()
    num, length = units.shape[:2]
    return float(whole / (num * (num - 1) * length**2)) if num > 1 else float("nan")


def max_explained_variance(states: Float[np.ndarray, "K D"]) -> float:
    """The share of the sum of squares that one direction through the origin holds.

    >>> round(max_explained_variance(np.array([[1.0, 0], [0, 1], [1, 1]])), 6)
    0.75
    """
    squares = np.square(np.linalg.svd(states, compute_uv=False))
    return float(squares[0] / max(squares.sum(), TINY))


def _unit(states: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(states, axis=-1, keepdims=True)
    return states / np.maximum(lengths, TINY)

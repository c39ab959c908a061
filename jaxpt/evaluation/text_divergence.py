"""MAUVE: how far two sets of texts are apart (Pillutla et al. 2021).

    vectors of all texts -> PCA (90 % of the variance) -> k-means -> histograms p, q
    r = w p + (1 - w) q for 25 weights w
    curve: (exp(-c KL(q | r)), exp(-c KL(p | r))), with c = 5
    MAUVE: the area under the curve; 1 for equal histograms, near 0 without overlap

The functions are those of the authors' package mauve-text 0.4.0 (compute_mauve.py):
clusters are a tenth of the smaller set, vectors have length 1, k-means is the best of
5. Departures: k-means is scikit-learn's, not faiss's, and PCA does not whiten (the
paper; the package does not either by default).
"""

import numpy as np
from jaxtyping import Float

SCALING = 5.0
NUM_WEIGHTS = 25
EDGE = 1e-6  # the smallest weight
VARIANCE = 0.9  # that PCA keeps
NUM_STARTS, MAX_ITERATIONS = 5, 500  # of k-means
TEXTS_PER_CLUSTER = 10


def count_clusters(num_first: int, num_second: int) -> int:
    """The number of clusters for two sets of texts.

    >>> count_clusters(256, 300), count_clusters(5, 5)
    (26, 2)
    """
    return max(2, round(min(num_first, num_second) / TEXTS_PER_CLUSTER))


def make_histograms(
    first: Float[np.ndarray, "N D"],
    second: Float[np.ndarray, "M D"],
    num_clusters: int,
    seed: int = 0,
) -> tuple[Float[np.ndarray, "K"], Float[np.ndarray, "K"]]:
    """The shares of the clusters of two sets of vectors.

    Equal vectors are always in the same cluster.

    Args:
      num_clusters: at most the number of different vectors are used.
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    # Sorted, so that the result does not depend on the order of the texts.
    vectors, places = np.unique(
        np.concatenate([first, second]).astype(np.float64), axis=0, return_inverse=True
    )
    places = places.ravel()
    num_clusters = min(num_clusters, len(vectors))
    if num_clusters < 2:
        return np.ones(1), np.ones(1)
    counts = np.bincount(places)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.repeat(vectors / np.where(lengths > 0, lengths, 1), counts, axis=0)
    pca = PCA(random_state=seed + 1).fit(vectors)
    kept = 1 + np.argmax(np.cumsum(pca.explained_variance_ratio_) >= VARIANCE)
    reduced = pca.transform(vectors)[:, :kept].astype(np.float32)
    fit = KMeans(
        num_clusters, n_init=NUM_STARTS, max_iter=MAX_ITERATIONS, random_state=seed
    ).fit(reduced)
    labels = fit.labels_[np.cumsum(counts) - 1][places]
    halves = labels[: len(first)], labels[len(first) :]
    shares = [np.bincount(x, minlength=num_clusters) / len(x) for x in halves]
    return shares[0], shares[1]


def divergence(first: Float[np.ndarray, "K"], second: Float[np.ndarray, "K"]) -> float:
    """KL(first | second) of two histograms in nats; infinite if a share is missing.

    >>> divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])).__round__(6)
    0.693147
    """
    is_there = first > 0
    if (second[is_there] == 0).any():
        return float("inf")
    return float((first[is_there] * np.log(first[is_there] / second[is_there])).sum())


def mauve(
    first: Float[np.ndarray, "K"],
    second: Float[np.ndarray, "K"],
    scaling: float = SCALING,
) -> float:
    """The area under the divergence curve of two histograms, from 0 to 1.

    Symmetric; 1 if and only if both are equal. Both divergences are monotone in the
    weight, so the points are in order.

    >>> mauve(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    1.0
    >>> mauve(np.array([1.0, 0.0]), np.array([0.0, 1.0])).__round__(6)
    0.004072
    """
    points = [(0.0, np.inf)]
    for weight in np.linspace(EDGE, 1 - EDGE, NUM_WEIGHTS):
        mixed = weight * first + (1 - weight) * second
        points.append((divergence(second, mixed), divergence(first, mixed)))
    points.append((np.inf, 0.0))
    x, y = np.exp(-scaling * np.array(points))[::-1].T
    return float(np.trapezoid(y, x))

"""A linear probe: the accuracy of one linear layer on frozen states.

It is the yardstick common to all objectives: it needs hidden states only, and its
labels come with the text. Passages are held out by document.

Where a network keeps what a text is about depends on how it was trained, and so no one
place to look is fair to all: the layer and how its states are pooled are chosen for
each network, on training documents that are set apart for it. The held-out passages are
asked once, of the choice alone.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxpt.errors import UserError
from jaxpt.statistics.examples import Examples
from jaxpt.text.dataset import Split, split_count
from jaxpt.text.rows.forms import passages

POOLINGS = ("mean", "first", "last")  # of the states of a text's own tokens
# C of the logistic regression, the one first with which layers are compared: an inverse
# penalty on standardised states.
STRENGTHS = (0.1, 0.01, 1.0)
FOLDS = 4  # one part in as many of the training passages chooses


class Choice(NamedTuple):
    """What of a network is read, and how strongly the reading is fitted.

    Attributes:
      layer: 0 is what the first layer reads.
      accuracies: what each layer and pooling reaches on the passages that choose; None
        where the training documents cannot be parted, and this is no choice.
    """

    layer: int
    pooling: int
    strength: float
    accuracies: Float[np.ndarray, "L P"] | None


def pool_states(states: Float[Array, "L B T D"]) -> Float[Array, "B L P D"]:
    """Each layer's states of a text as one vector, by each of `POOLINGS`, float32.

    >>> states = jnp.array([1.0, 3.0, 8.0]).reshape(1, 1, 3, 1)
    >>> pool_states(states)[..., 0].tolist()
    [[[4.0, 1.0, 8.0]]]
    """
    states = states.astype(jnp.float32)
    pooled = [states.mean(axis=2), states[:, :, 0], states[:, :, -1]]
    return jnp.stack(pooled, axis=2).swapaxes(0, 1)


def pool(
    read: Callable,
    params,
    tokens: Int[np.ndarray, "N S"],
    length: int,
    batch_size: int,
    chosen: tuple[int, int] | None = None,
) -> Float[np.ndarray, "N *L D"]:
    """The pooled states of each passage, [N, L, P, D], or [N, D] of what was chosen.

    Args:
      read: (params, tokens [B, length]) -> [B, L, P, D].
      tokens: the model reads each passage in windows of `length`, whose vectors are
        averaged. The last batch is padded with copies of its first window, whose
        results are dropped.
      chosen: a layer and a pooling, which alone is kept.
    """
    pieces = tokens.reshape(-1, length)
    found = []
    for start in range(0, len(pieces), batch_size):
        piece = pieces[start : start + batch_size]
        missing = batch_size - len(piece)
        full = np.concatenate([piece, np.repeat(piece[:1], missing, axis=0)])
        states = np.asarray(read(params, full), np.float32)[: len(piece)]
        # A copy: a view would keep all of the batch's states in memory.
        found.append(states if chosen is None else states[:, *chosen].copy())
    vectors = np.concatenate(found)
    if len(pieces) == len(tokens):
        return vectors
    return vectors.reshape(len(tokens), -1, *vectors.shape[1:]).mean(axis=1)


def has_labels(corpora: dict[str, Split]) -> bool:
    """Whether a probe can be trained: both splits hold at least two common labels."""
    train, valid = (
        set(corpora[s].labels[corpora[s].labels >= 0]) for s in ("train", "valid")
    )
    return len(train) >= 2 and len(train & valid) >= 2


def find_passages(split: Split, length: int, num: int) -> tuple[np.ndarray, ...]:
    """Tokens, labels and documents of passages of all parts of a split."""
    numbers, found, before = split_count(num, split.fractions), [], 0
    for part, n in zip(split.parts, numbers, strict=True):
        tokens, labels, documents = passages(part, length, n)
        found.append((tokens, labels, documents + before))
        before += len(part.labels)
    tokens, labels, documents = (np.concatenate(x) for x in zip(*found, strict=True))
    return tokens, labels, documents


def part_documents(
    labels: Int[np.ndarray, "N"], documents: Int[np.ndarray, "N"]
) -> tuple[Int[np.ndarray, "F"], Int[np.ndarray, "C"]] | None:
    """The passages that fit and those that choose, of no common document.

    Both have the labels in about the same shares. The same documents are parted alike
    for every network.

    Returns:
      None where no such parts have two labels each, all of them known from fitting.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    most = int(np.unique(labels, return_counts=True)[1].max())
    num = min(FOLDS, len(np.unique(documents)), most)
    if num < 2:
        return None
    folds = StratifiedGroupKFold(num, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a label has fewer passages than folds
        parts = list(folds.split(labels, labels, documents))
    for fit, rest in parts:
        known, asked = set(labels[fit].tolist()), set(labels[rest].tolist())
        if len(asked) >= 2 and asked <= known:
            return fit, rest
    return None


def choose(
    vectors: Float[np.ndarray, "N L P D"],
    labels: Int[np.ndarray, "N"],
    documents: Int[np.ndarray, "N"],
) -> Choice:
    """The layer and pooling that tell most, then the strength of their fit.

    Of equal ones the layer furthest up, and the pooling and strength that stand first.
    Where the documents cannot be parted, it is the mean of the last layer.

    Args:
      vectors, labels, documents: of the training passages.
    """
    last, parts = vectors.shape[1] - 1, part_documents(labels, documents)
    if parts is None:
        return Choice(last, 0, STRENGTHS[0], None)
    fit, rest = parts

    def reach(layer: int, pooling: int, strength: float) -> float:
        own = vectors[:, layer, pooling]
        model = fit_linear(own[fit], labels[fit], strength)
        return float(np.mean(model.predict(own[rest]) == labels[rest]))

    found = np.array(
        [
            [reach(layer, i, STRENGTHS[0]) for i in range(len(POOLINGS))]
            for layer in range(last + 1)
        ]
    )
    down, pooling = np.unravel_index(found[::-1].argmax(), found.shape)
    best = last - int(down), int(pooling)
    strengths = [found[best], *(reach(*best, c) for c in STRENGTHS[1:])]
    return Choice(*best, STRENGTHS[int(np.argmax(strengths))], found)


def fit_linear(vectors: Float[np.ndarray, "N D"], labels: np.ndarray, strength: float):
    """Logistic regression on standardised vectors."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=strength, max_iter=300)
    )
    # Matrices this small take several times as long on several threads.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged after max_iter: close enough
        return model.fit(vectors, labels)


def measure_probe(
    read: Callable,
    params,
    corpora: dict[str, Split],
    length: int,
    num_windows: int,
    num_passages: int,
    batch_size: int,
) -> tuple[dict[str, Examples], dict[str, Any]]:
    """Held-out accuracy of logistic regression on the states that were chosen.

    Args:
      read: as of `pool`.
      length: tokens the model reads at once; a passage is `num_windows` such windows.
      num_passages: the maximum number of passages of each split.

    Returns:
      probe_accuracy, and probe_majority: that of the most frequent training label; of
      each held-out passage. And how it was chosen, as result.json has it.
    """
    sets = {}
    for split in ("train", "valid"):
        sets[split] = find_passages(corpora[split], length * num_windows, num_passages)
        labels = sets[split][1]
        if len(set(labels.tolist())) < 2:
            raise UserError(
                f"eval.probe_length={length}, eval.probe_windows={num_windows}: the "
                f"{split} documents give {len(labels)} such passages of fewer than two "
                f"labels; lower them"
            )
    tokens, labels, documents = sets["train"]
    vectors = pool(read, params, tokens, length, batch_size)
    choice = choose(vectors, labels, documents)
    at = choice.layer, choice.pooling
    model = fit_linear(vectors[:, *at], labels, choice.strength)
    common = np.bincount(labels).argmax()
    record = _describe(choice, vectors.shape[1] - 1, len(labels), len(sets["valid"][1]))
    del vectors  # only what was chosen is kept of the held-out passages

    tokens, labels, documents = sets["valid"]
    asked = pool(read, params, tokens, length, batch_size, at)
    hits = {
        "probe_accuracy": model.predict(asked) == labels,
        "probe_majority": labels == common,
    }
    ones = np.ones(len(labels))
    examples = {
        name: Examples(hit.astype(np.float64), ones, documents)
        for name, hit in hits.items()
    }
    return examples, record


def _describe(choice: Choice, num_layers: int, num_train: int, num_test: int) -> dict:
    """A choice as result.json has it."""
    found = choice.accuracies
    return {
        "layer": choice.layer,
        "num_layers": num_layers,
        "pooling": POOLINGS[choice.pooling],
        "strength": choice.strength,
        "is_chosen": found is not None,
        "poolings": list(POOLINGS),
        "accuracies": None if found is None else found.tolist(),
        "train_passages": num_train,
        "test_passages": num_test,
    }


def binomial_error(accuracy: float, num: int) -> float:
    """The standard error of a share of `num` independent answers.

    >>> binomial_error(0.5, 2500)
    0.01
    """
    return math.sqrt(accuracy * (1 - accuracy) / num)

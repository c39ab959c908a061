"""Linear probe: the accuracy of a linear classifier on frozen hidden states.

It is a shared metric of all objectives: it needs hidden states only, and its labels
come with the text. Passages are held out by document.

The most informative layer and pooling depend on the objective. They are therefore
chosen for each network, on training documents that are reserved for this choice. The
held-out passages are evaluated once, with the chosen layer and pooling.
"""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, PyTree

from jaxpt.errors import ConfigError
from jaxpt.evaluation.likelihood import map_batches
from jaxpt.evaluation.linear_probe import fit_logistic
from jaxpt.evaluation.readings import POOLINGS
from jaxpt.judge.examples import Examples
from jaxpt.text.rows.corpus import split_count
from jaxpt.text.rows.forms import passages

if TYPE_CHECKING:
    from jaxpt.text.dataset import Split

# C of the logistic regression, an inverse penalty on standardised states. Layers are
# compared with the first.
STRENGTHS = (0.1, 0.01, 1.0)
FOLDS = 4  # one of these parts of the training passages is reserved for the choice


class ProbeChoice(NamedTuple):
    """The chosen layer, pooling and strength of the fit.

    Attributes:
      layer: 0 is the input of the first layer.
      accuracies: those of each layer and pooling on the reserved passages; None if the
        training documents cannot be split, and the default is used.
    """

    layer: int
    pooling: int
    strength: float
    accuracies: Float[np.ndarray, "L P"] | None


def pool(
    read: Callable,
    params: PyTree,
    tokens: Int[np.ndarray, "N S"],
    length: int,
    batch_size: int,
    chosen: tuple[int, int] | None = None,
) -> Float[np.ndarray, "N *L D"]:
    """The pooled states of each passage, [N, L, P, D], or [N, D] with `chosen`.

    Args:
      read: (params, tokens [B, length]) -> [B, L, P, D].
      tokens: the model reads each passage in windows of `length`, whose vectors are
        averaged.
      chosen: the only layer and pooling to return.
    """
    pieces = tokens.reshape(-1, length)
    batches = map_batches(
        lambda batch: read(params, batch["tokens"]), {"tokens": pieces}, batch_size
    )
    # A copy, because a view would keep all states of the batch in memory.
    vectors = np.concatenate(
        [states if chosen is None else states[:, *chosen].copy() for states in batches]
    )
    if len(pieces) == len(tokens):
        return vectors
    return vectors.reshape(len(tokens), -1, *vectors.shape[1:]).mean(axis=1)


def find_passages(split: "Split", length: int, num: int) -> tuple[np.ndarray, ...]:
    """Tokens, labels and documents of passages of all parts of a split."""
    numbers, parts, before = split_count(num, split.fractions), [], 0
    for part, n in zip(split.parts, numbers, strict=True):
        tokens, labels, documents = passages(part, length, n)
        parts.append((tokens, labels, documents + before))
        before += len(part.labels)
    tokens, labels, documents = (np.concatenate(x) for x in zip(*parts, strict=True))
    return tokens, labels, documents


def part_documents(
    labels: Int[np.ndarray, "N"], documents: Int[np.ndarray, "N"]
) -> tuple[Int[np.ndarray, "F"], Int[np.ndarray, "C"]] | None:
    """Splits passages by document: for fitting, and reserved for the choice.

    The split is stratified by label and is the same for every network.

    Returns:
      None if no split has two labels in each part, with all labels in the first.
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
        known, reserved = set(labels[fit].tolist()), set(labels[rest].tolist())
        if len(reserved) >= 2 and reserved <= known:
            return fit, rest
    return None


def choose(
    vectors: Float[np.ndarray, "N L P D"],
    labels: Int[np.ndarray, "N"],
    documents: Int[np.ndarray, "N"],
) -> ProbeChoice:
    """Chooses the layer and pooling of the highest accuracy, and then the strength.

    Of equals, the highest layer and the first pooling and strength are chosen. If the
    documents cannot be split, it is the mean of the last layer.

    Args:
      vectors, labels, documents: those of the training passages.
    """
    last, parts = vectors.shape[1] - 1, part_documents(labels, documents)
    if parts is None:
        return ProbeChoice(last, 0, STRENGTHS[0], None)
    fit, rest = parts

    def reach(layer: int, pooling: int, strength: float) -> float:
        states = vectors[:, layer, pooling]
        model = fit_linear(states[fit], labels[fit], strength)
        return float(np.mean(model.predict(states[rest]) == labels[rest]))

    accuracies = np.array(
        [
            [reach(layer, i, STRENGTHS[0]) for i in range(len(POOLINGS))]
            for layer in range(last + 1)
        ]
    )
    down, pooling = np.unravel_index(accuracies[::-1].argmax(), accuracies.shape)
    best = last - int(down), int(pooling)
    by_strength = [accuracies[best], *(reach(*best, c) for c in STRENGTHS[1:])]
    return ProbeChoice(*best, STRENGTHS[int(np.argmax(by_strength))], accuracies)


def fit_linear(
    vectors: Float[np.ndarray, "N D"], labels: np.ndarray, strength: float
) -> Any:
    """Logistic regression on standardised vectors, of at most 300 steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without convergence it is close enough
        return fit_logistic(vectors, labels, strength, max_iter=300)


def measure_probe(
    read: Callable,
    params: PyTree,
    corpora: "dict[str, Split]",
    length: int,
    num_windows: int,
    num_passages: int,
    batch_size: int,
) -> tuple[dict[str, Examples], dict[str, Any]]:
    """The held-out accuracy of logistic regression on the chosen layer and pooling.

    Args:
      read: as in `pool`.
      length: the tokens the model reads at once; a passage has `num_windows` windows.
      num_passages: the maximum number of passages of each split.

    Returns:
      probe_accuracy and probe_majority (the baseline of the most frequent training
      label) of each held-out passage; and the record of the choice for result.json.
    """
    sets = {}
    for split in ("train", "valid"):
        sets[split] = find_passages(corpora[split], length * num_windows, num_passages)
        labels = sets[split][1]
        if len(set(labels.tolist())) < 2:
            raise ConfigError(
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
    del vectors  # frees memory

    tokens, labels, documents = sets["valid"]
    vectors = pool(read, params, tokens, length, batch_size, at)
    hits = {
        "probe_accuracy": model.predict(vectors) == labels,
        "probe_majority": labels == common,
    }
    ones = np.ones(len(labels))
    examples = {
        name: Examples(hit.astype(np.float64), ones, documents)
        for name, hit in hits.items()
    }
    return examples, record


def _describe(
    choice: ProbeChoice, num_layers: int, num_train: int, num_test: int
) -> dict:
    """The record of a choice in result.json."""
    accuracies = choice.accuracies
    return {
        "layer": choice.layer,
        "num_layers": num_layers,
        "pooling": POOLINGS[choice.pooling],
        "strength": choice.strength,
        "is_chosen": accuracies is not None,
        "poolings": list(POOLINGS),
        "accuracies": None if accuracies is None else accuracies.tolist(),
        "train_passages": num_train,
        "test_passages": num_test,
    }


def binomial_error(accuracy: float, num: int) -> float:
    """The standard error of the accuracy of `num` independent answers.

    >>> binomial_error(0.5, 2500)
    0.01
    """
    return math.sqrt(accuracy * (1 - accuracy) / num)

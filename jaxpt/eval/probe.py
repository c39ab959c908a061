"""A linear probe: the accuracy of one linear layer on frozen features.

It is the yardstick common to all objectives: it needs hidden states only, and its
labels come with the text. Passages are held out by document.
"""

import warnings
from collections.abc import Callable

import numpy as np

from jaxpt.errors import UserError
from jaxpt.eval.examples import Examples
from jaxpt.text.dataset import Split, split_count
from jaxpt.text.rows.forms import passages


def pool(
    features: Callable, params, tokens: np.ndarray, length: int, batch_size: int
) -> np.ndarray:
    """The mean hidden state [n, D] of each passage.

    Args:
      features: (params, tokens [B, length]) -> hidden states [B, length, D].
      tokens: int32 [n, k * length]; the model reads each passage in k windows. The last
        batch is padded with copies of its first window, whose results are dropped.
    """
    pieces = tokens.reshape(-1, length)
    pooled = []
    for start in range(0, len(pieces), batch_size):
        piece = pieces[start : start + batch_size]
        missing = batch_size - len(piece)
        full = np.concatenate([piece, np.repeat(piece[:1], missing, axis=0)])
        hidden_states = np.asarray(features(params, full), np.float32)
        pooled.append(hidden_states.mean(axis=1)[: len(piece)])
    means = np.concatenate(pooled)
    return means.reshape(len(tokens), -1, means.shape[-1]).mean(axis=1)


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


def measure_probe(
    features: Callable,
    params,
    corpora: dict[str, Split],
    length: int,
    num_windows: int,
    num_passages: int,
    batch_size: int,
) -> dict[str, Examples]:
    """Held-out accuracy of logistic regression on pooled features.

    Args:
      length: tokens the model reads at once; a passage is `num_windows` such windows.
      num_passages: the maximum number of passages of each split.

    Returns:
      probe_accuracy, and probe_majority: that of the most frequent training label;
      of each held-out passage.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    sets = {}
    for split in ("train", "valid"):
        tokens, labels, documents = find_passages(
            corpora[split], length * num_windows, num_passages
        )
        if len(set(labels.tolist())) < 2:
            raise UserError(
                f"eval.probe_length={length}, eval.probe_windows={num_windows}: the "
                f"{split} documents give {len(labels)} such passages of fewer than two "
                f"labels; lower them"
            )
        sets[split] = pool(features, params, tokens, length, batch_size), labels
    # The documents are those of the last split, which is held out.
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged after max_iter: close enough
        model.fit(*sets["train"])
    labels = sets["valid"][1]
    common = np.bincount(sets["train"][1]).argmax()
    ones = np.ones(len(labels))
    return {
        "probe_accuracy": Examples(
            (model.predict(sets["valid"][0]) == labels).astype(np.float64),
            ones,
            documents,
        ),
        "probe_majority": Examples(
            (labels == common).astype(np.float64), ones, documents
        ),
    }

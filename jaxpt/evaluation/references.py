"""Baselines without a network: unigram frequencies and bags of n-grams.

They are evaluated on the same examples as the models: unigram frequencies of the
training text on the cloze and on bits per byte, and bags of n-grams on the labels of
the probe.
"""

import math
import warnings

import numpy as np

from jaxpt.evaluation.cloze import sample_positions
from jaxpt.evaluation.probe import find_passages
from jaxpt.judge.examples import Examples
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.vocab import Vocab

LONGEST = 3  # tokens of an n-gram


def measure_unigrams(
    counts: np.ndarray,
    tokens: np.ndarray,
    num_bytes: np.ndarray,
    documents: np.ndarray,
    vocab: Vocab,
    banned: list[int],
) -> dict[str, Examples]:
    """The cloze and bits per byte of unigram frequencies with add-one smoothing.

    Args:
      counts: int [V], the count of each id in the training text.
      tokens, num_bytes, documents: as in `likelihood.measure_likelihood`.
      banned: as in `cloze.measure_cloze`.

    Returns:
      cloze_accuracy, cloze_bits and bits_per_byte, of each row.
    """
    metrics = {}
    smooth = counts.astype(np.float64) + 1
    allowed = smooth.copy()
    allowed[banned] = 0
    positions, is_masked = sample_positions(tokens, np.array(banned, np.int32))
    targets = np.take_along_axis(tokens, positions, 1)
    if is_masked.any():
        weights = is_masked.sum(1).astype(np.float64)
        is_best = allowed == allowed.max()  # ties share the credit
        hits = (is_best / is_best.sum())[targets] * is_masked
        with np.errstate(divide="ignore"):
            bits = -np.log2(allowed / allowed.sum())[targets]
        bits = np.where(is_masked, bits, 0)
        metrics["cloze_accuracy"] = Examples(hits.sum(1), weights, documents)
        metrics["cloze_bits"] = Examples(bits.sum(1), weights, documents)
    sizes = num_bytes[:, 1:].sum(1, dtype=np.int64).astype(np.float64)
    if sizes.any():
        nll = -np.log(smooth / smooth.sum())[tokens[:, 1:]] / math.log(2)
        is_text = ~vocab.is_special[tokens[:, 1:]] | (num_bytes[:, 1:] > 0)
        bits = np.where(is_text, nll, 0).sum(1)
        bits += vocab.unknown_bits(tokens[:, 1:], num_bytes[:, 1:]).sum(1)
        metrics["bits_per_byte"] = Examples(bits, sizes, documents)
    return metrics


def measure_ngrams(
    corpora: dict[str, Split], length: int, num_windows: int, num_passages: int
) -> dict[str, Examples]:
    """The probe task by logistic regression on a bag of n-grams of tokens.

    Args:
      length, num_windows, num_passages: as in `probe.measure_probe`.

    Returns:
      probe_accuracy of each held-out passage.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    sets = {
        split: find_passages(corpora[split], length * num_windows, num_passages)
        for split in ("train", "valid")
    }
    model = make_pipeline(
        TfidfVectorizer(analyzer=_list_ngrams, min_df=2, sublinear_tf=True),
        LogisticRegression(C=10.0, max_iter=300),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without convergence it is close enough
        model.fit(sets["train"][0].tolist(), sets["train"][1])
    tokens, labels, documents = sets["valid"]
    hits = (model.predict(tokens.tolist()) == labels).astype(np.float64)
    return {"probe_accuracy": Examples(hits, np.ones(len(labels)), documents)}


def _list_ngrams(ids: list[int]) -> list[tuple[int, ...]]:
    return [
        tuple(ids[start : start + num])
        for num in range(1, LONGEST + 1)
        for start in range(len(ids) - num + 1)
    ]

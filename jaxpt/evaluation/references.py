"""What needs no network: the answers that an objective's model must be better than.

They are asked the same questions on the same examples: the tokens of the cloze and of
running text by how frequent each is in the training text, and the labels of the
probe's passages by counts of their n-grams.
"""

import math
import warnings

import numpy as np

from jaxpt.evaluation.cloze import sample_positions
from jaxpt.evaluation.probe import find_passages
from jaxpt.statistics.examples import Examples
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
    """The cloze and bits per byte of each token's frequency, one added to each.

    Args:
      counts: int [V], of each id in the training text.
      tokens, num_bytes, documents: as of `evaluation.measure_likelihood`.
      banned: as of `cloze.measure_cloze`.

    Returns:
      cloze_accuracy, cloze_bits and bits_per_byte, of each row.
    """
    found = {}
    smooth = counts.astype(np.float64) + 1
    allowed = smooth.copy()
    allowed[banned] = 0
    positions, is_asked = sample_positions(tokens, np.array(banned, np.int32))
    targets = np.take_along_axis(tokens, positions, 1)
    if is_asked.any():
        weights = is_asked.sum(1).astype(np.float64)
        is_best = allowed == allowed.max()  # of several, each gets its share
        hits = (is_best / is_best.sum())[targets] * is_asked
        with np.errstate(divide="ignore"):
            bits = -np.log2(allowed / allowed.sum())[targets]
        bits = np.where(is_asked, bits, 0)
        found["cloze_accuracy"] = Examples(hits.sum(1), weights, documents)
        found["cloze_bits"] = Examples(bits.sum(1), weights, documents)
    sizes = num_bytes[:, 1:].sum(1, dtype=np.int64).astype(np.float64)
    if sizes.any():
        nll = -np.log(smooth / smooth.sum())[tokens[:, 1:]] / math.log(2)
        is_text = ~vocab.is_special[tokens[:, 1:]] | (num_bytes[:, 1:] > 0)
        bits = np.where(is_text, nll, 0).sum(1)
        found["bits_per_byte"] = Examples(bits, sizes, documents)
    return found


def measure_ngrams(
    corpora: dict[str, Split], length: int, num_windows: int, num_passages: int
) -> dict[str, Examples]:
    """The probe's question to a linear model of counts of n-grams of tokens.

    Args:
      length, num_windows, num_passages: as of `probe.measure_probe`.

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
        warnings.simplefilter("ignore")  # not converged after max_iter: close enough
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

"""What tasks of embeddings share: the pools as rules, checks, and a bag of words."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from jaxpt.errors import DataError

# The rules of these tasks: how a vector is read from the states of a text.
POOLINGS = {
    "mean": "mean: the mean of the last hidden states, special tokens included",
    "first": "first: the last hidden state of the first position",
    "last": "last: the last hidden state of the last position",
}


class Embed(Protocol):
    """Embeds texts by several pools at once."""

    def __call__(
        self, texts: Sequence[str], pools: Sequence[str]
    ) -> Mapping[str, Float[np.ndarray, "N D"]]:
        """The vectors of the texts by pool, float32."""
        ...


def to_unit(vectors: Float[np.ndarray, "*n D"]) -> Float[np.ndarray, "*n D"]:
    """Vectors of length 1; those that are 0 stay 0.

    >>> to_unit(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    divided = vectors / np.where(lengths > 0, lengths, 1.0)
    return divided.astype(np.float32)


def embed_distinct(
    embed: Embed, texts: Sequence[str], pools: Sequence[str]
) -> dict[str, Float[np.ndarray, "N D"]]:
    """The vectors of texts of which some are equal, of length 1 or 0.

    Each distinct text is read once.
    """
    distinct = list(dict.fromkeys(texts))
    places = {text: i for i, text in enumerate(distinct)}
    rows = np.array([places[text] for text in texts])
    vectors = embed(distinct, pools)
    for values in vectors.values():
        if not np.isfinite(values).all():
            raise DataError("a vector of a text is not finite: the run diverged")
    return {pool: to_unit(values)[rows] for pool, values in vectors.items()}


def weigh_words(texts: Sequence[str]) -> Any:
    """TF-IDF of words as a sparse matrix with rows of length 1, a baseline.

    Words are two or more letters or digits in lower case; 0 for texts without one.
    """
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer().fit_transform(texts)
    except ValueError:  # no text has a word
        return csr_matrix((len(texts), 1))

"""Statistics of attention heads: shares, entropy, positional heads, and rollout.

Shares and entropy are as in Clark et al. 2019 (clarkkev/attention-analysis,
General_Analysis.ipynb), positional heads as Voita et al. 2019 call them, and rollout as
Abnar and Zuidema 2020 (samiraabnar/attention_flow, attention_graph_util.py). All but
`rollout` work on weights [..., T, S] of any heads at once.

The weights of an encoder-decoder's cross-attention are of the same text on both sides
(`jaxpt.nn.inspection`): "self" is the source token that is to be written at a position,
and "previous" the one that the decoder has just read there.
"""

import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

OFFSETS = {"self": 0, "previous": -1, "next": 1}
PLACES = (-2, -1, 0, 1, 2)  # offsets of a positional head
POSITIONAL = 0.9  # of its queries attend most there (Voita et al.)
SMOOTH = 1e-4  # of uniform weights is mixed in before taking the entropy


def is_punctuation(text: str) -> bool:
    """Whether a token's text is only punctuation.

    >>> [is_punctuation(text) for text in (" ,", "?!", "a.", " ", "$")]
    [True, True, False, False, False]
    """
    marks = text.strip()
    return bool(marks) and all(unicodedata.category(c)[0] == "P" for c in marks)


def share_at(
    weights: Float[np.ndarray, "*H T S"], offset: int
) -> Float[np.ndarray, "*H"]:
    """The mean over all queries of the weight at an offset from their position.

    A query that has no such key counts with 0.

    >>> float(share_at(np.array([[1.0, 0.0], [0.4, 0.6]]), -1))
    0.2
    """
    return np.trace(weights, offset, -2, -1) / weights.shape[-2]


def shares(
    weights: Float[np.ndarray, "B *H T S"], marks: Mapping[str, Bool[np.ndarray, "B S"]]
) -> dict[str, Float[np.ndarray, "*H"]]:
    """The mean over rows and queries of the weight on each kind of key.

    Kinds overlap: a token may be the query's own, special and the row's first.

    Args:
      marks: the keys of other kinds than those of `OFFSETS` and the first key.
    """
    means = {
        name: share_at(weights, offset).mean(axis=0) for name, offset in OFFSETS.items()
    }
    means["first"] = weights[..., 0].mean(axis=(0, -1))
    for name, is_marked in marks.items():
        shape = len(weights), *(1,) * (weights.ndim - 2), weights.shape[-1]
        picked = (weights * is_marked.reshape(shape)).sum(axis=-1)
        means[name] = picked.mean(axis=(0, -1))
    return means


def entropy(weights: Float[np.ndarray, "*H T S"]) -> Float[np.ndarray, "*H"]:
    """The mean over queries of the entropy in nats of .9999 a + .0001 / S.

    >>> round(float(entropy(np.full((1, 4), 0.25))), 6)  # log 4
    1.386294
    """
    mixed = (1 - SMOOTH) * weights + SMOOTH / weights.shape[-1]
    return -(mixed * np.log(mixed)).sum(axis=-1).mean(axis=-1)


def count_offsets(
    weights: Float[np.ndarray, "*H T S"],
) -> Int[np.ndarray, "*H O"]:
    """The number of queries with the largest weight at each offset of `PLACES`.

    >>> count_offsets(np.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.1, 0.6, 0.3]]))
    array([0, 2, 1, 0, 0])
    """
    best = weights.argmax(axis=-1) - np.arange(weights.shape[-2])
    return np.stack([(best == offset).sum(axis=-1) for offset in PLACES], axis=-1)


def count_possible(num_queries: int, num_keys: int) -> Int[np.ndarray, "O"]:
    """The number of queries of a row with a key at each offset of `PLACES`.

    >>> count_possible(4, 4)
    array([2, 3, 4, 3, 2])
    """
    keys = np.arange(num_queries)[:, None] + np.array(PLACES)
    return ((keys >= 0) & (keys < num_keys)).sum(axis=0)


class Heads(NamedTuple):
    """Statistics of the heads of one kind of attention, means over rows and queries.

    Attributes:
      shares: by kind of key.
      entropy: in nats.
      offset: of the largest weight, for most of a head's queries; one of `PLACES`.
      offset_share: the share of queries with their largest weight there, among those
        that have such a key.
    """

    shares: dict[str, Float[np.ndarray, "L N"]]
    entropy: Float[np.ndarray, "L N"]
    offset: Int[np.ndarray, "L N"]
    offset_share: Float[np.ndarray, "L N"]

    @property
    def is_positional(self) -> Bool[np.ndarray, "L N"]:
        """Whether a head attends to one offset, whatever the token."""
        return self.offset_share >= POSITIONAL


class HeadCounter:
    """Accumulates the statistics of heads over batches."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._sums: dict[str, np.ndarray] = {}
        self._possible = np.zeros(len(PLACES), np.int64)

    def add(
        self,
        weights: Float[np.ndarray, "L B N T S"],
        marks: Mapping[str, Bool[np.ndarray, "B S"]],
    ) -> None:
        """The weights of B more rows."""
        by_row = np.asarray(weights, np.float64).swapaxes(0, 1)
        num, *_, num_queries, num_keys = by_row.shape
        means = {f"share {k}": v for k, v in shares(by_row, marks).items()}
        means["entropy"] = entropy(by_row).mean(axis=0)
        for name, value in means.items():
            self._sums[name] = self._sums.get(name, 0) + num * value
        counts = count_offsets(by_row).sum(axis=0)
        self._sums["offsets"] = self._sums.get("offsets", 0) + counts
        self._possible += num * count_possible(num_queries, num_keys)
        self.num_rows += num

    def finish(self) -> Heads:
        """The means over all rows."""
        means = {k: v / self.num_rows for k, v in self._sums.items() if k != "offsets"}
        ratios = self._sums["offsets"] / np.maximum(self._possible, 1)
        best = ratios.argmax(axis=-1)
        return Heads(
            shares={
                name.removeprefix("share "): value
                for name, value in means.items()
                if name.startswith("share ")
            },
            entropy=means["entropy"],
            offset=np.array(PLACES)[best],
            offset_share=ratios.max(axis=-1),
        )


def spread_evenly(mask: Bool[np.ndarray, "T S"]) -> Float[np.ndarray, "T S"]:
    """The weights of a head that attends equally to all visible tokens.

    >>> spread_evenly(np.tril(np.ones((2, 2), bool))).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    return mask / mask.sum(axis=-1, keepdims=True)


def rollout(weights: Float[np.ndarray, "L T T"]) -> Float[np.ndarray, "T T"]:
    """The share of each token in each position of the last layer.

    The product over layers of (A + I) / 2, with weights A averaged over heads.

    >>> a = np.array([[[1, 0], [0.5, 0.5]], [[0.2, 0.8], [0.4, 0.6]]])
    >>> rollout(a).round(6).tolist()
    [[0.7, 0.3], [0.4, 0.6]]
    """
    result = np.eye(weights.shape[-1])
    for layer in weights:
        mixed = layer + np.eye(len(layer))
        result = mixed / mixed.sum(axis=-1, keepdims=True) @ result
    return result

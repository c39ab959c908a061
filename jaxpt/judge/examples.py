"""Per-example results of a metric, whose value is their weighted mean."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Examples(NamedTuple):
    """A mean over examples: the sum of `totals` divided by that of `weights`.

    Attributes:
      totals: the result of each example, such as hits, or bits of a row.
      weights: the weight of each example, such as its masked tokens, or a row's bytes.
      groups: the document of each; examples of one document are correlated.
    """

    totals: Float[np.ndarray, "E"]
    weights: Float[np.ndarray, "E"]
    groups: Int[np.ndarray, "E"]

    @property
    def mean(self) -> float:
        """The value of the metric; NaN if all weights are 0."""
        weight = self.weights.sum(dtype=np.float64)
        return float(self.totals.sum(dtype=np.float64) / weight) if weight else np.nan

    def in_blocks(self, num: int) -> "Examples":
        """The same examples, in order, as `num` documents of about equal weight.

        Examples of two models that are of the same text but cut into other rows are in
        the same block if they are of the same part of the text.

        >>> ones = np.ones(4)
        >>> Examples(ones, ones, np.zeros(4, int)).in_blocks(2).groups.tolist()
        [0, 0, 1, 1]
        """
        weights = self.weights.astype(np.float64)
        middles = np.cumsum(weights) - weights / 2
        share = middles / max(weights.sum(), 1.0)
        return self._replace(groups=np.minimum(share * num, num - 1).astype(int))

    def by_document(self) -> "Examples":
        """The sum of each document; the same examples if there is only one.

        Verdicts from these are the same, as all examples of a document are resampled
        together.

        >>> ones = np.ones(4)
        >>> examples = Examples(ones, 2 * ones, np.array([0, 0, 0, 5]))
        >>> [each.tolist() for each in examples.by_document()]
        [[3.0, 1.0], [6.0, 2.0], [0, 5]]
        """
        documents, places = np.unique(self.groups, return_inverse=True)
        if len(documents) < 2:
            return self
        totals, weights = (np.bincount(places, x) for x in (self.totals, self.weights))
        return Examples(totals, weights, documents)

    def influence(self) -> Float[np.ndarray, "E"]:
        """The influence of each example on the mean; the sum is 0."""
        weight = self.weights.sum(dtype=np.float64)
        return (self.totals - self.mean * self.weights) / weight

    def influence_by_group(
        self,
    ) -> tuple[Int[np.ndarray, "G"], Float[np.ndarray, "G"]]:
        """The documents in order, and the influence of each on the mean."""
        documents, places = np.unique(self.groups, return_inverse=True)
        return documents, np.bincount(places, weights=self.influence())


def means(metrics: Mapping[str, Examples]) -> dict[str, float]:
    """The value of each metric."""
    return {name: examples.mean for name, examples in metrics.items()}

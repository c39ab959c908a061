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

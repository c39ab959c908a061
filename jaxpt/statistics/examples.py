"""What a measure found on each test example, of which its value is the mean."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Examples(NamedTuple):
    """A mean over examples: the sum of `totals` divided by that of `weights`.

    Attributes:
      totals: what was found on each, such as hits, or bits of a row.
      weights: how much each counts, such as its masked tokens, or a row's bytes.
      groups: the document of each; examples of one document are alike.
    """

    totals: Float[np.ndarray, "E"]
    weights: Float[np.ndarray, "E"]
    groups: Int[np.ndarray, "E"]

    @property
    def mean(self) -> float:
        """The measure's value; NaN where nothing counts."""
        weight = self.weights.sum(dtype=np.float64)
        return float(self.totals.sum(dtype=np.float64) / weight) if weight else np.nan

    def influence(self) -> Float[np.ndarray, "E"]:
        """By how much each example moves the mean; they add up to 0."""
        weight = self.weights.sum(dtype=np.float64)
        return (self.totals - self.mean * self.weights) / weight

    def influence_by_group(
        self,
    ) -> tuple[Int[np.ndarray, "G"], Float[np.ndarray, "G"]]:
        """The documents in order, and how much each moves the mean."""
        documents, places = np.unique(self.groups, return_inverse=True)
        return documents, np.bincount(places, weights=self.influence())


def means(found: Mapping[str, Examples]) -> dict[str, float]:
    """The value of each measure."""
    return {name: examples.mean for name, examples in found.items()}

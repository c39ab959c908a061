"""How sure a mean over test items is: its 95 % interval, and the method's name."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

LEVEL = 0.95
DRAWS = 2000  # of the bootstrap
SEED = 0  # every run's items are drawn alike
BATCH = 64  # draws in memory at a time
ONE_ITEM = "none: one item"


class Interval(NamedTuple):
    """A 95 % interval of a mean.

    Attributes:
      low, high: its ends.
      method: "Wilson", "bootstrap over items", or "none: one item".
    """

    low: float
    high: float
    method: str


def mean_interval(values: Float[np.ndarray, "N"]) -> Interval:
    """The interval of a mean over items.

    If each item is right or wrong it is Wilson's (1927), which stays within 0 and 1
    and has a width also if all items are right; otherwise the percentile bootstrap's.
    One item has no interval: both ends are NaN. (Wilson's of one item covers as little
    as 79 % of the time.)

    >>> mean_interval(np.array([1.0] * 8 + [0.0] * 2))[0].__round__(4)
    0.4902
    """
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return Interval(math.nan, math.nan, ONE_ITEM)
    if np.isin(values, (0.0, 1.0)).all():
        hits = stats.binomtest(int(values.sum()), len(values))
        found = hits.proportion_ci(LEVEL, method="wilson")
        return Interval(float(found.low), float(found.high), "Wilson")
    low, high = np.quantile(
        bootstrap_means(values), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    ).tolist()
    return Interval(low, high, "bootstrap over items")


def bootstrap_means(
    totals: Float[np.ndarray, "N"], weights: Float[np.ndarray, "N"] | None = None
) -> Float[np.ndarray, "S"]:
    """Means of as many items as there are, drawn with replacement.

    Args:
      weights: what the totals' sum is divided by; None counts each item once.
    """
    rng, num = np.random.default_rng(SEED), len(totals)
    weights = np.ones(num) if weights is None else weights
    means = []
    for start in range(0, DRAWS, BATCH):
        drawn = rng.integers(num, size=(min(BATCH, DRAWS - start), num))
        means.append(totals[drawn].sum(1) / weights[drawn].sum(1))
    return np.concatenate(means)


def ratio_interval(
    totals: Float[np.ndarray, "N"], weights: Float[np.ndarray, "N"]
) -> Interval:
    """The interval of sum(totals) / sum(weights), by the bootstrap over items."""
    if len(totals) < 2:
        return Interval(math.nan, math.nan, ONE_ITEM)
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(bootstrap_means(totals, weights), ends).tolist()
    return Interval(low, high, "bootstrap over items")


def map_interval(interval: Interval, function: Callable[[float], float]) -> Interval:
    """The interval of an increasing or decreasing function of the mean."""
    ends = sorted((function(interval.low), function(interval.high)))
    return Interval(ends[0], ends[1], interval.method)

"""95 % confidence intervals of means over test items; the expected best of trials."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from jaxpt.judge.bootstrap import (
    LEVEL,
    ONE_ITEM,
    Interval,
    bootstrap,
    percentile_interval,
)


def mean_interval(values: Float[np.ndarray, "N"]) -> Interval:
    """The interval of a mean over items.

    If each item is right or wrong it is Wilson's (1927), which stays within 0 and 1 and
    has a width if all items are right, too; otherwise it is the percentile bootstrap.
    One item has no interval: both ends are NaN. (Wilson's coverage for one item is as
    low as 79 %.)

    >>> mean_interval(np.array([1.0] * 8 + [0.0] * 2))[0].__round__(4)
    0.4902
    """
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return Interval(math.nan, math.nan, ONE_ITEM)
    if np.isin(values, (0.0, 1.0)).all():
        hits = stats.binomtest(int(values.sum()), len(values))
        ends = hits.proportion_ci(LEVEL, method="wilson")
        return Interval(float(ends.low), float(ends.high), "Wilson")
    return ratio_interval(values, np.ones(len(values)))


def ratio_interval(
    totals: Float[np.ndarray, "N"], weights: Float[np.ndarray, "N"], unit: str = "items"
) -> Interval:
    """The interval of sum(totals) / sum(weights), by the bootstrap over items."""

    def divide(drawn: Int[np.ndarray, "B N"]) -> Float[np.ndarray, "B"]:
        return totals[drawn].sum(1) / weights[drawn].sum(1)

    num = len(totals)
    return percentile_interval(bootstrap(divide, num), num, unit)


def map_interval(interval: Interval, function: Callable[[float], float]) -> Interval:
    """The interval of an increasing or decreasing function of the mean."""
    ends = sorted((function(interval.low), function(interval.high)))
    return Interval(ends[0], ends[1], interval.method)


def repeat_interval(
    mean: float, std: float, num: int, alpha: float
) -> tuple[float, float]:
    """Where the mean over seeds of a repeated study lies, by Student's t.

    The prediction interval of the mean of `num` new values, of which `num` earlier ones
    have this mean and sample standard deviation: mean +- t std sqrt(2 / num).

    Args:
      num: at least 2.
      alpha: the probability that the new mean lies outside.

    >>> [round(end, 3) for end in repeat_interval(0.5, 0.1, 2, 0.05)]
    [-0.771, 1.771]
    """
    half = float(stats.t.ppf(1 - alpha / 2, num - 1)) * std * math.sqrt(2 / num)
    return mean - half, mean + half


def expected_best(values: Sequence[float], n: int) -> float:
    """The mean of the best of n of these values, drawn without replacement.

    Unbiased: the sum of v_(i) C(i - 1, n - 1) / C(N, n) over the sorted values.
      (Drawing
    with replacement, as in the curves of Dodge et al. 2019, is biased downwards.)

    Raises:
      ValueError: n is not among 1 to the number of values.

    >>> [round(expected_best([0.9, 0.5, 0.7, 0.6], n), 6) for n in (2, 3, 4)]
    [0.783333, 0.85, 0.9]
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if not 1 <= n <= len(ordered):
        raise ValueError(f"n={n}: must be among 1 to {len(ordered)}, the values given")
    ways = [math.comb(i, n - 1) for i in range(len(ordered))]
    return float(np.dot(ordered, ways) / math.comb(len(ordered), n))

"""Spearman's rank correlation, its bootstrap, and a value for each pair.

The correlation is that of mid-ranks: equal values share the mean of their ranks, as in
scipy. It is not a mean over pairs. `pair_values` gives each pair a value whose mean is
exactly the correlation, and whose distance from it is the pair's influence: the
derivative of the correlation by the pair's weight (the infinitesimal jackknife, Efron
1982, chapter 6). So the error of the correlation, and that of a difference of two on
the same pairs, is that of a mean.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from jaxpt.judge.bootstrap import Interval, bootstrap, percentile_interval


def spearman(
    first: Float[np.ndarray, "*B N"], second: Float[np.ndarray, "*B N"]
) -> Float[np.ndarray, "*B"]:
    """The rank correlation of two columns, or of each draw of them; 0 for a constant.

    >>> round(float(spearman(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4]))), 6)
    0.8
    >>> float(spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])))
    0.0
    """
    x, y = (_center_ranks(np.asarray(each, np.float64)) for each in (first, second))
    norms = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return (x * y).sum(-1) / np.where(norms > 0, norms, 1.0)


def _center_ranks(values: Float[np.ndarray, "*B N"]) -> Float[np.ndarray, "*B N"]:
    return stats.rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2


def correlation_interval(
    correlate: Callable[[np.ndarray, np.ndarray], np.ndarray],
    first: Float[np.ndarray, "N"],
    second: Float[np.ndarray, "N"],
) -> Interval:
    """The 95 % interval of a correlation: that of each bootstrap draw of the pairs.

    Args:
      correlate: maps two arrays [B, N] to B correlations, such as `spearman`.
    """

    def find(drawn: Int[np.ndarray, "B N"]) -> Float[np.ndarray, "B"]:
        return correlate(first[drawn], second[drawn])

    num = len(first)
    return percentile_interval(bootstrap(find, num), num, "pairs")


def pair_values(
    first: Float[np.ndarray, "N"], second: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "N"]:
    """For each pair the correlation plus the pair's influence; the mean is exact.

    With mid-ranks r, s as shares of the pairs, minus 1/2, the correlation is
    C / sqrt(V W), with C = mean(r s), V = mean(r r), W = mean(s s). A pair's weight
    changes C directly, and by the ranks of the pairs above it. All 0 if a column is
    constant.

    >>> x, y = np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])
    >>> pair_values(x, y).round(3).tolist()
    [1.4, 0.2, 0.2, 1.4]
    """
    x, y = (np.asarray(each, np.float64) for each in (first, second))
    r, s = (_center_ranks(each) / len(x) for each in (x, y))
    product, x_power, y_power = (r * s).mean(), (r * r).mean(), (s * s).mean()
    scale = np.sqrt(x_power * y_power)
    if not scale:
        return np.zeros(len(x))
    rho = product / scale
    of_product = r * s + _sum_above(x, s) + _sum_above(y, r) - 3 * product
    of_x = r * r + 2 * _sum_above(x, r) - 3 * x_power
    of_y = s * s + 2 * _sum_above(y, s) - 3 * y_power
    influence = of_product / scale - rho / 2 * (of_x / x_power + of_y / y_power)
    return rho + influence


def _sum_above(
    values: Float[np.ndarray, "N"], numbers: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "N"]:
    """For each pair the mean over all of `numbers` where `values` are larger.

    Numbers of equal values count one half.

    >>> _sum_above(np.array([1, 2, 2]), np.array([3.0, 6.0, 12.0])).tolist()
    [6.5, 3.0, 3.0]
    """
    _, codes = np.unique(values, return_inverse=True)
    sums = np.bincount(codes, numbers)
    above = np.append(np.cumsum(sums[::-1])[::-1], 0.0)[1:]
    return (above + sums / 2)[codes] / len(values)

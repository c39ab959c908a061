"""The interval of a difference of two means of normal values, for any two variances.

For n and m independent values with the sample variances s² and r², a = s² / n and
b = r² / m:

    Welch 1947       half width² = t[v]² (a + b),  v = (a + b)² / (a²/(n-1) + b²/(m-1))
    Banerjee 1961    half width² = t[n-1]² a + t[m-1]² b

Banerjee's interval misses the true difference with at most the stated probability, but
with equal numbers it is as wide as that of pairs. Welch's is narrower and only
approximate: with four values on each side and one standard deviation five times the
other, intervals of the levels 0.05, 0.0083 and 0.00055 miss 1.1, 1.5 and 2.8 times as
often as stated. Simultaneous intervals therefore do not keep their joint rate.

Here the narrower of two is used: Banerjee's, or Welch's at a stricter level, which is
the largest one for which the narrower of the two misses at most as often as stated,
whatever the ratio of the variances. This probability is a one-dimensional integral: the
share B of one sum of squares in both has a Beta distribution, and given B, the
difference over the root of both sums is Student's t with n + m - 2 degrees of freedom.
"""

import bisect
import functools
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import roots_jacobi, stdtr, stdtrit

# Levels for which the stricter one is computed; between them both are interpolated as
# logarithms, which errs on the safe side. Below them Banerjee's interval is used.
LEVELS = (1e-5, 1e-4, 5e-4, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
MIN_FACTOR = 1e-9
ENOUGH = 64  # values on both sides: Welch's interval is exact to 2 % of its level
RATIOS = np.exp(np.linspace(-np.log(50), np.log(50), 25))  # of standard deviations
NODES = 64  # of the quadrature
SLACK = 1.005  # relative error of the quadrature


class Sample(NamedTuple):
    """Independent values of one side of a difference.

    Attributes:
      std: their sample standard deviation, one or an array.
      num: how many there are; 0 for a constant, which has no error.
    """

    std: Any
    num: int

    @property
    def variance(self) -> Any:
        """The variance of the mean; 0 for a constant."""
        return np.square(self.std) / self.num if self.num else 0.0 * self.std

    def square(self, level: float) -> Any:
        """The square of half the width of the interval of the mean, by Student's t."""
        quantile = stdtrit(self.num - 1, level / 2) if self.num else 0.0
        with np.errstate(invalid="ignore"):
            return np.where(self.variance > 0, quantile**2 * self.variance, 0.0)


def half_width(first: Sample, second: Sample, level: float) -> Any:
    """Half the width of the interval that misses with a probability of `level`.

    >>> round(float(half_width(Sample(1.0, 5), Sample(1.0, 5), 0.05)), 4)
    1.4881
    """
    a, b = first.variance, second.variance
    banerjee = first.square(level) + second.square(level)
    if not first.num or not second.num:
        return np.sqrt(banerjee)
    stricter = level * find_factor(first.num, second.num, level)
    quantile = stdtrit(_welch_freedom(a, b, first.num, second.num), stricter / 2)
    welch = np.where(a + b > 0, quantile**2 * (a + b), 0.0)
    return np.sqrt(np.minimum(welch, banerjee))


def _welch_freedom(a: Any, b: Any, num: int, other: int) -> Any:
    """Satterthwaite's degrees of freedom of a + b; NaN if both are 0."""
    with np.errstate(invalid="ignore"):
        share = np.divide(a, a + b)
        return 1 / (share**2 / (num - 1) + (1 - share) ** 2 / (other - 1))


def find_factor(num: int, other: int, level: float) -> float:
    """The stricter level of Welch's interval, as a share of `level`.

    >>> round(find_factor(4, 4, 0.05), 2), round(find_factor(20, 20, 0.05), 2)
    (0.88, 1.0)
    """
    if min(num, other) > ENOUGH:
        return 1.0
    if level < LEVELS[0]:
        return 0.0
    place = min(bisect.bisect_right(LEVELS, level), len(LEVELS) - 1)
    ends = LEVELS[place - 1 : place + 1]
    sizes = sorted((num, other))
    factors = [_solve_factor(*sizes, end) for end in ends]
    return math.exp(np.interp(math.log(level), np.log(ends), np.log(factors)))


@functools.cache
def _solve_factor(num: int, other: int, level: float) -> float:
    """The factor with which the worst error rate is `level`."""

    def excess(log_factor: float) -> float:
        rate = find_error_rate(num, other, level, math.exp(log_factor))
        return rate - SLACK * level

    low = math.log(MIN_FACTOR)
    if excess(0.0) <= 0:
        return 1.0
    if excess(low) >= 0:  # the quadrature is too coarse
        return MIN_FACTOR
    return math.exp(brentq(excess, low, 0.0, xtol=0.02))


def find_error_rate(num: int, other: int, level: float, factor: float) -> float:
    """How often the interval misses, for the worst ratio of the variances.

    Args:
      factor: of the level of Welch's interval.

    >>> round(find_error_rate(4, 4, 0.05, 1.0), 3)  # of Welch's
    0.055
    """
    share, weights = _place_nodes(num, other)
    freedom = num + other - 2
    a = share * freedom / (num - 1) / num
    b = (1 - share) * freedom / (other - 1) / other * RATIOS[:, None] ** 2
    squares = stdtrit(num - 1, level / 2) ** 2 * a
    squares = squares + stdtrit(other - 1, level / 2) ** 2 * b
    quantile = stdtrit(_welch_freedom(a, b, num, other), factor * level / 2)
    squares = np.minimum(squares, quantile**2 * (a + b))
    error = np.sqrt(1 / num + RATIOS[:, None] ** 2 / other)
    missed = 2 * stdtr(freedom, -np.sqrt(squares) / error)
    return float((missed @ weights).max())


@functools.cache
def _place_nodes(
    num: int, other: int
) -> tuple[Float[np.ndarray, "Q"], Float[np.ndarray, "Q"]]:
    """Nodes and weights of the Beta distribution of a share of the sum of squares."""
    places, weights = roots_jacobi(NODES, (other - 3) / 2, (num - 3) / 2)
    return (places + 1) / 2, weights / weights.sum()

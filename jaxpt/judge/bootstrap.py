"""The bootstrap: a statistic of draws of the items, with replacement (Efron 1979).

All percentile intervals of jaxpt draw here. There are three forms of a draw:

    draw_groups       the items of each group, drawn again until they are enough
    bootstrap         the items, `BATCH` draws at a time
    draw_counts       how often each item, or each kind of item, is drawn

The last two have the same distribution; a statistic that depends only on the counts is
computed from them. The judge of verdicts (`judge.verdicts`) draws nothing: its errors
are in closed form.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

LEVEL = 0.95
DRAWS = 2000
SEED = 0  # the same draws of items for every run
BATCH = 64  # draws in memory at once
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


def bootstrap(
    statistic: Callable[[Int[np.ndarray, "B N"]], Float[np.ndarray, "B"]], num: int
) -> Float[np.ndarray, "S"]:
    """A statistic of each of `DRAWS` draws of `num` items; NaN for fewer than two.

    Args:
      statistic: of the indices of the items of some draws.

    >>> values = np.array([1.0, 2.0, 4.0])
    >>> round(float(bootstrap(lambda drawn: values[drawn].mean(1), 3).mean()), 1)
    2.3
    """
    if num < 2:
        return np.full(DRAWS, np.nan)
    rng = np.random.default_rng(SEED)
    sizes = [min(BATCH, DRAWS - start) for start in range(0, DRAWS, BATCH)]
    return np.concatenate(
        [statistic(rng.integers(num, size=(size, num))) for size in sizes]
    )


def draw_counts(
    num: int,
    shares: Sequence[float] | Float[np.ndarray, "K"],
    rng: np.random.Generator | None = None,
) -> Int[np.ndarray, "S K"]:
    """How often each of K kinds occurs in `DRAWS` draws of `num` items.

    Args:
      shares: of the items that are of each kind, [K].
      rng: to draw on from; None: from `SEED`.

    >>> draw_counts(5, [0.5, 0.25, 0.25]).sum(1).tolist() == [5] * DRAWS
    True
    """
    rng = rng or np.random.default_rng(SEED)
    return rng.multinomial(num, shares, size=DRAWS)


def draw_groups(
    groups: Sequence[Int[np.ndarray, "G"]],
    is_enough: Callable[[Int[np.ndarray, "G"]], bool],
    rng: np.random.Generator,
) -> Int[np.ndarray, "N"]:
    """One draw of the same number of items from each group.

    A group's draw that is not enough, such as one for which a fit has no solution, is
    repeated.

    >>> rng = np.random.default_rng(0)
    >>> groups = [np.array([0, 1, 2]), np.array([7, 8])]
    >>> draw_groups(groups, lambda drawn: len(set(drawn.tolist())) > 1, rng).tolist()
    [2, 1, 1, 8, 7]
    """

    def draw(group: Int[np.ndarray, "G"]) -> Int[np.ndarray, "G"]:
        while True:
            drawn = group[rng.integers(len(group), size=len(group))]
            if is_enough(drawn):
                return drawn

    return np.concatenate([draw(group) for group in groups])


def find_ends(draws: Float[np.ndarray, "S"]) -> tuple[float, float]:
    """The ends of the percentile interval of bootstrap draws."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def percentile_interval(
    draws: Float[np.ndarray, "S"], num: int, unit: str = "items"
) -> Interval:
    """The interval of a statistic by its draws; one item has none: both ends are NaN.

    Args:
      num: of the units that are drawn.
      unit: what is drawn, for the name of the method.

    >>> percentile_interval(np.array([1.5, 1.5]), 3)
    Interval(low=1.5, high=1.5, method='bootstrap over items')
    >>> percentile_interval(np.zeros(1), 1).method
    'none: one item'
    """
    if num < 2:
        return Interval(math.nan, math.nan, ONE_ITEM)
    return Interval(*find_ends(draws), f"bootstrap over {unit}")

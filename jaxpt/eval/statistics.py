"""Few seeds and many examples: exact tests, resampled intervals, the best of n tries.

`jaxpt.report.verdicts` judges a comparison; what is here serves downstream scores, of
which there are a number for each pretraining seed, fine-tuning run and test example.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

EXACT = 16  # pairs up to which all assignments of signs are counted
NUM_FLIPS = 100_000  # assignments that are drawn beyond that
NUM_DRAWS = 500  # as the multi-bootstrap's source has it


def sign_flip_test(
    differences: Sequence[float] | Float[np.ndarray, "P"], seed: int = 0
) -> float:
    """The two-sided p value of a mean difference of 0, each pair's sign being chance.

    The share of all assignments of signs whose mean is at least as far from 0 as the
    one that was found (Fisher's randomisation test). With up to `EXACT` pairs all of
    them are counted; beyond, `NUM_FLIPS` are drawn, and the one that was found counts
    as one of them. Of P pairs no p value is below 2 / 2^P: with fewer than 6 it is
    never below .05.

    Raises:
      ValueError: there are no differences, or one is not a finite number.

    >>> sign_flip_test([0.02, 0.01, 0.03, -0.005, 0.015])
    0.125
    """
    values = np.asarray(differences, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"differences {values.tolist()}: must be finite numbers")
    # Sums that differ by rounding alone are equal.
    least = abs(values.sum()) - 1e-12 * np.abs(values).sum()
    if len(values) <= EXACT:
        flips = np.array(list(itertools.product((1.0, -1.0), repeat=len(values))))
        return float(np.mean(np.abs(flips @ values) >= least))
    rng = np.random.default_rng(seed)
    count = 0
    for _ in range(NUM_FLIPS // 1000):
        flips = rng.choice((1.0, -1.0), size=(1000, len(values)))
        count += int((np.abs(flips @ values) >= least).sum())
    return (count + 1) / (NUM_FLIPS + 1)


def expected_best(values: Sequence[float], n: int) -> float:
    """The mean of the best of n of these values, drawn without replacement.

    Without bias: sum of v_(i) C(i - 1, n - 1) / C(N, n) over the values in order.

    Raises:
      ValueError: n is not among 1 to the number of values.

    >>> [round(expected_best([0.9, 0.5, 0.7, 0.6], n), 6) for n in (2, 3, 4)]
    [0.783333, 0.85, 0.9]
    """
    ordered = _order(values, n)
    ways = [math.comb(i, n - 1) for i in range(len(ordered))]
    return float(np.dot(ordered, ways) / math.comb(len(ordered), n))


def expected_best_biased(values: Sequence[float], n: int) -> float:
    """The mean of the best of n draws with replacement (Dodge et al. 2019).

    It is too low: sum of v_(i) [(i / N)^n - ((i - 1) / N)^n]. Here beside
    `expected_best` because published curves are computed so.

    Raises:
      ValueError: n is not among 1 to the number of values.

    >>> [round(expected_best_biased([0.9, 0.5, 0.7, 0.6], n), 6) for n in (2, 3, 4)]
    [0.75625, 0.801563, 0.830078]
    """
    ordered = _order(values, n)
    shares = (np.arange(len(ordered) + 1) / len(ordered)) ** n
    return float(np.dot(ordered, np.diff(shares)))


def _order(values: Sequence[float], n: int) -> np.ndarray:
    ordered = np.sort(np.asarray(values, np.float64))
    if not 1 <= n <= len(ordered):
        raise ValueError(f"n={n}: must be among 1 to {len(ordered)}, the values given")
    return ordered


class Bootstrap(NamedTuple):
    """What a multi-bootstrap has found.

    Attributes:
      difference: the mean of the second minus that of the first, as measured.
      low, high: of the interval, quantiles of the draws; one that holds 0 is a tie.
      p: the share of draws that are not above 0, at least one in as many as there are:
        the one-sided p value of no improvement.
      draws: the difference of each draw.
    """

    difference: float
    low: float
    high: float
    p: float
    draws: Float[np.ndarray, "N"]


def multi_bootstrap(
    first: Float[np.ndarray, "S *R X"],
    second: Float[np.ndarray, "Z *R X"],
    *,
    paired_seeds: bool = True,
    num_draws: int = NUM_DRAWS,
    level: float = 0.05,
    seed: int = 0,
) -> Bootstrap:
    """By how much the second is better, over seeds and test examples at once.

    Each draw resamples the pretraining seeds and the examples; both sides are asked the
    same examples (Sellam et al. 2022; google-research/language,
    language/multiberts/multibootstrap.py). Its quantiles are too narrow for few seeds,
    which is why verdicts of a comparison (`jaxpt.report.verdicts`) do not use them.

    Args:
      first, second: the score of every example, of which the metric is the mean: [S,
        X], or [S, R, X] with R fine-tuning runs of a seed, which are averaged first.
      paired_seeds: whether the seeds of both are the same, in this order, and are drawn
        together; if not, each side's are drawn by themselves.
      level: the share of the draws outside the interval.

    Raises:
      ValueError: the examples differ, or the seeds of a pair.
    """
    sides = [_average_runs(side) for side in (first, second)]
    (num_first, num_examples), (num_second, num_other) = (s.shape for s in sides)
    if num_examples != num_other or not num_examples:
        raise ValueError(f"{num_examples} and {num_other} examples: must be the same")
    if paired_seeds and num_first != num_second:
        raise ValueError(
            f"{num_first} and {num_second} seeds: must be the same with paired_seeds"
        )
    rng = np.random.default_rng(seed)
    draws = np.empty(num_draws)
    for i in range(num_draws):
        asked = rng.integers(num_examples, size=num_examples)
        counts = np.bincount(asked, minlength=num_examples) / num_examples
        picked = rng.integers(num_first, size=num_first)
        others = picked if paired_seeds else rng.integers(num_second, size=num_second)
        by_seed = [side @ counts for side in sides]
        draws[i] = by_seed[1][others].mean() - by_seed[0][picked].mean()
    low, high = np.quantile(draws, [level / 2, 1 - level / 2])
    p = max(float(np.mean(draws <= 0)), 1 / num_draws)
    difference = float(sides[1].mean() - sides[0].mean())
    return Bootstrap(difference, float(low), float(high), p, draws)


def _average_runs(scores: np.ndarray) -> Float[np.ndarray, "S X"]:
    """The scores of each seed, its fine-tuning runs averaged."""
    values = np.asarray(scores, np.float64)
    if values.ndim not in (2, 3) or not len(values):
        raise ValueError(f"scores {values.shape}: must be [S, X] or [S, R, X]")
    return values if values.ndim == 2 else values.mean(axis=1)

"""How many times the cost one system needs for the quality of another.

Two systems are measured at several costs, each by several runs. The ratio is that of
the second system's cost to the first one's, at equal quality:

    T        the equal cost: at most the last cost of either curve
    quality  that of the worse one of the two at cost T
    c        the cost at which the better one passes this quality
    ratio    T / c if the first is better (the second needs this times its cost), c / T
             if the second is better

**Estimate.** The mean curve of the better system is made monotone (isotonic regression
by pooling adjacent violators, Barlow et al. 1972), and c is where it passes the
quality, linearly in the logarithm of the cost between two points.

**Interval.** It has the ratios that the test of verdicts does not reject (inversion of
a test, as Fieller's theorem does for the ratio of two means): r is rejected if the two
curves differ significantly where r puts them at equal quality, with the first read at
min(T, T / r) and the second at min(T, r T). The test is that of `judge.verdicts`
(`unpaired.half_width` for the runs, Student's t for test documents, which both share),
each run is read on its own curve, and no distribution is assumed beyond that of the
test. So the interval holds the true ratio as often as the test accepts a true equality,
also for few runs, and it excludes 1 if and only if the difference at equal cost is
significant at the same level. Between two points of a curve, a difference counts as
significant only if it is larger by twice the distance of the linear curve from a
smooth one (`Curve.bend`), as the true curve is not known there. A bootstrap of runs has
none of these properties: with four runs its percentile interval at 95 % holds the true
ratio in about four of five comparisons.

A bound beyond the curves is 0 or infinite, and so is the estimate if the better system
has passed the quality at its first point already; `least` and `most` are the ratios
that the curves can show.

A learning curve is not a row of shorter runs: before the end of a run its learning rate
has not decayed, and a run planned for that cost may be better there. The ratio is that
of the given curves. If each point is a separate run, or a branch with its own decay, it
is that of trained systems.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression
from scipy.special import stdtrit

from jaxpt.judge.unpaired import Sample, half_width
from jaxpt.judge.verdicts import MIN_SEEDS, ROUNDING

FINE = 16  # ratios that are tested between two points of the curves
REFINED = 32  # parts into which the last step at an end is cut, twice


class Curve(NamedTuple):
    """The measurements of one system.

    Attributes:
      costs: rising and above 0, [K].
      values: of each run at each cost, higher is better, [R, K].
      influence: of each test document on the mean over runs (`Examples.influence`), at
        each cost, [K, G], or [1, G] if it is known at the end alone; None without.
    """

    costs: Float[np.ndarray, "K"]
    values: Float[np.ndarray, "R K"]
    influence: Float[np.ndarray, "D G"] | None = None

    def read(
        self, costs: Float[np.ndarray, "N"]
    ) -> tuple[Float[np.ndarray, "R N"], Float[np.ndarray, "D G"] | None]:
        """The runs and the documents at other costs, linearly in the log of the cost.

        >>> curve = Curve(np.array([1.0, 4.0]), np.array([[0.0, 1.0]]))
        >>> curve.read(np.array([2.0]))[0].round(3).tolist()
        [[0.5]]
        """
        after = np.searchsorted(self.costs, costs, side="left").clip(
            1, len(self.costs) - 1
        )
        low, high = np.log(self.costs[after - 1]), np.log(self.costs[after])
        weight = ((np.log(costs) - low) / (high - low)).clip(0, 1)

        def mix(known: np.ndarray) -> np.ndarray:
            return (1 - weight) * known[:, after - 1] + weight * known[:, after]

        influence = self.influence
        if influence is not None and len(influence) > 1:
            influence = mix(influence.T).T
        return mix(self.values), influence

    def bend(self, costs: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        """How far a smooth mean curve is from the linear one at these costs.

        The smooth one is the monotone cubic of Fritsch and Carlson (1980) in the
        logarithm of the cost; both agree at the points.
        """
        if len(self.costs) < 3:
            return np.zeros(len(costs))
        means = self.values.mean(0)
        known, logs = np.log(self.costs), np.log(costs)
        smooth = PchipInterpolator(known, means)(logs.clip(known[0], known[-1]))
        return np.abs(smooth - np.interp(logs, known, means))


class Ratio(NamedTuple):
    """The second system's cost over the first one's, at equal quality.

    Attributes:
      value: the estimate; infinite or 0 beyond the curves.
      low, high: the interval; 0 and infinite beyond the curves, and with fewer than
        `MIN_SEEDS` runs of either.
      least, most: the ratios that the curves can show, at most 1 and at least 1.
    """

    value: float
    low: float
    high: float
    least: float
    most: float

    @property
    def is_apart(self) -> bool:
        """Whether the interval excludes 1: the difference at cost T is significant."""
        return self.low > 1 or self.high < 1

    def invert(self) -> "Ratio":
        """The first system's cost over the second one's.

        >>> Ratio(2.0, 1.25, math.inf, 0.5, 4.0).invert()
        Ratio(value=0.5, low=0.0, high=0.8, least=0.25, most=2.0)
        """
        turned = (self.value, self.high, self.low, self.most, self.least)
        return Ratio(*(1 / x if x else math.inf for x in turned))


def from_documents(
    costs: Float[np.ndarray, "K"], values: Float[np.ndarray, "R K G"]
) -> Curve:
    """A curve from the value of each test document, whose mean is the quality.

    Both systems need the same documents in the same order.

    >>> curve = from_documents(np.array([1.0, 2.0]), np.arange(8.0).reshape(2, 2, 2))
    >>> curve.values.tolist(), curve.influence.tolist()
    ([[0.5, 2.5], [4.5, 6.5]], [[-0.25, 0.25], [-0.25, 0.25]])
    """
    means = values.mean(0)
    apart = (means - means.mean(-1, keepdims=True)) / means.shape[-1]
    return Curve(costs, values.mean(-1), apart)


def find_ratio(
    first: Curve, second: Curve, level: float, end: float | None = None
) -> Ratio:
    """The ratio of the second system's cost to the first one's, at equal quality.

    Args:
      level: the error probability of the interval; of m simultaneous intervals, that of
        all divided by m (Bonferroni), as verdicts have it.
      end: the equal cost T; None: the smaller one of the two last costs.

    Raises:
      ValueError: a curve has fewer than two points, its costs do not rise from above 0,
        or it begins above T.

    >>> costs = np.array([1.0, 2.0, 4.0])
    >>> slow = np.array([[0.0, 1.0, 2.0]]) + np.array([[0.01], [0.0], [-0.01], [0.0]])
    >>> ratio = find_ratio(Curve(costs, slow + 1), Curve(costs, slow), 0.05)
    >>> [round(each, 2) for each in ratio]
    [2.0, 1.98, 2.02, 0.25, 4.0]
    """
    for curve in (first, second):
        _check(curve)
    last = min(first.costs[-1], second.costs[-1])
    pair = _Pair(first, second, level, float(last if end is None else end))
    least = second.costs[0] / pair.end
    most = pair.end / first.costs[0]
    if most < 1 or least > 1:
        raise ValueError(f"a curve begins above {pair.end:g}, the equal cost")
    value = pair.estimate()
    low, high = pair.invert_test(math.log(least), math.log(most))
    return Ratio(value, min(low, value), max(high, value), float(least), float(most))


def _check(curve: Curve) -> None:
    """Raises ValueError unless the costs rise from above 0 and fit the values."""
    costs, num = curve.costs, curve.values.shape[-1]
    if len(costs) < 2 or len(costs) != num:
        raise ValueError(
            f"a curve has {len(costs)} costs and {num} values; needs two or more of "
            f"both"
        )
    if costs[0] <= 0 or (np.diff(costs) <= 0).any():
        raise ValueError(f"costs {costs.tolist()}: must rise from above 0")


class _Pair(NamedTuple):
    """The arguments of `find_ratio`; ratios are natural logarithms here."""

    first: Curve
    second: Curve
    level: float
    end: float

    def estimate(self) -> float:
        """The ratio of the mean curves."""
        first, second = self.find_ends()
        if first == second:
            return 1.0
        if first > second:
            cost = _pass_level(self.first, self.end, second)
            return self.end / cost if cost else math.inf
        return _pass_level(self.second, self.end, first) / self.end

    def find_ends(self) -> tuple[float, float]:
        """The mean of each at the equal cost."""
        first, second = (
            float(curve.read(np.array([self.end]))[0].mean())
            for curve in (self.first, self.second)
        )
        return first, second

    def invert_test(self, least: float, most: float) -> tuple[float, float]:
        """The smallest and the largest ratio that is not rejected.

        If 1 is rejected, only ratios on the side of the better system are tested: the
        others would say that it is the worse one.
        """
        if min(len(self.first.values), len(self.second.values)) < MIN_SEEDS:
            return 0.0, math.inf
        logs = self.list_ratios(least, most)
        if not self.accepts(np.zeros(1))[0]:
            first, second = self.find_ends()
            logs = logs[logs >= 0] if first > second else logs[logs <= 0]
            if not self.accepts(logs).any():  # the curves do not meet
                far = (math.exp(most), math.inf), (0.0, math.exp(least))
                return far[0] if first > second else far[1]
        accepted = self.accepts(logs)
        start, stop = np.flatnonzero(accepted)[[0, -1]]
        low, high = 0.0, math.inf
        if start > 0:
            low = math.exp(self.refine(logs[start - 1], logs[start]))
        if stop < len(logs) - 1:
            high = math.exp(self.refine(logs[stop + 1], logs[stop]))
        return low, high

    def list_ratios(self, least: float, most: float) -> Float[np.ndarray, "N"]:
        """The ratios at which a curve has a point, with `FINE` steps between two.

        Also those at which the mean curves meet: an interval may be narrower than a
        step.
        """
        points = [
            np.log(self.end) - np.log(self.first.costs),
            np.log(self.second.costs) - np.log(self.end),
            [0.0],
        ]
        known = np.unique(np.concatenate(points).clip(least, most))
        places = np.arange(len(known))
        steps = np.linspace(0, len(known) - 1, FINE * (len(known) - 1) + 1)
        logs = np.interp(steps, places, known)
        return np.unique(np.concatenate([logs, self.find_meetings(known), [0.0]]))

    def find_meetings(self, known: Float[np.ndarray, "N"]) -> Float[np.ndarray, "M"]:
        """The ratios at which the means are equal, between which they are linear."""
        runs, others, _ = self.read(known)
        apart = runs.mean(0) - others.mean(0)
        places = np.flatnonzero(apart[:-1] * apart[1:] < 0)
        share = apart[places] / (apart[places] - apart[places + 1])
        return known[places] + share * (known[places + 1] - known[places])

    def refine(self, rejected: float, accepted: float) -> float:
        """The accepted ratio next to the rejected ones, between two ratios."""
        for _ in range(2):
            logs = np.linspace(rejected, accepted, REFINED + 1)
            place = int(np.argmax(self.accepts(logs)))
            rejected, accepted = logs[place - 1], logs[place]
        return float(accepted)

    def read(
        self, logs: Float[np.ndarray, "N"]
    ) -> tuple[
        Float[np.ndarray, "R1 N"],
        Float[np.ndarray, "R2 N"],
        Float[np.ndarray, "D G"] | None,
    ]:
        """The runs of both at these ratios, and the difference by document."""
        runs, influence = self.first.read(self.end * np.exp(np.minimum(0, -logs)))
        others, opposite = self.second.read(self.end * np.exp(np.minimum(0, logs)))
        if influence is None or opposite is None:
            return runs, others, None
        return runs, others, influence - opposite

    def accepts(self, logs: Float[np.ndarray, "N"]) -> Bool[np.ndarray, "N"]:
        """Whether the two do not differ significantly at these ratios."""
        runs, others, apart = self.read(logs)
        sides = _spread(runs), _spread(others)
        half = half_width(*sides, self.level)
        ways = math.comb(len(runs) + len(others), len(runs))
        if 2 / ways > self.level:  # as in `Difference.interval`
            half = np.where(sides[0].std + sides[1].std > 0, half, np.inf)
        if apart is not None:
            num = apart.shape[-1]
            error = np.sqrt(num / (num - 1) * np.square(apart).sum(-1))
            half = np.hypot(half, stdtrit(num - 1, self.level / 2) * error)
        # At 1 the verdict is the same as that at equal cost, which reads linearly.
        bend = np.where(logs == 0, 0.0, self.bend(logs))
        return np.abs(runs.mean(0) - others.mean(0)) <= half + 2 * bend

    def bend(self, logs: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        """How far both smooth curves are from the linear ones at these ratios."""
        first = self.first.bend(self.end * np.exp(np.minimum(0, -logs)))
        return first + self.second.bend(self.end * np.exp(np.minimum(0, logs)))


def _spread(runs: Float[np.ndarray, "R N"]) -> Sample:
    """The spread over runs; of values that are equal up to rounding it is 0."""
    std = runs.std(0, ddof=1)
    largest = np.abs(runs).max(0)
    return Sample(np.where(std > ROUNDING * largest, std, 0.0), len(runs))


def _pass_level(curve: Curve, end: float, level: float) -> float:
    """The cost, up to `end`, at which the monotone mean curve passes a level.

    0 if it has passed it at its first point.
    """
    costs = np.append(curve.costs[curve.costs < end], end)
    means = isotonic_regression(curve.read(costs)[0].mean(0)).x
    place = int(np.searchsorted(means, level))
    if place == 0:
        return 0.0
    if place == len(means):  # equal to the level, up to rounding
        return end
    (low, high), logs = means[place - 1 : place + 1], np.log(costs)
    share = (level - low) / (high - low)
    return math.exp(logs[place - 1] + share * (logs[place] - logs[place - 1]))

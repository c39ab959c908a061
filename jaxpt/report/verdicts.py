"""Which of two objectives is ahead on a yardstick, with a stated error rate.

All runs share seeds, rows and test examples, so a pair of objectives is compared by its
difference on each seed and on each example. The difference has two causes of error:
other seeds would have trained other models, and other examples would have asked other
questions. Both are in its standard error, as in the multi-bootstrap (Sellam et al.
2022; google-research/language, language/multiberts/multibootstrap.py), which resamples
both at once; examples of one document are resampled together.

Departure: the multi-bootstrap takes quantiles of its draws. Of the few seeds of a
comparison these are too narrow: between equal objectives they exclude 0 in a quarter of
all pairs with three seeds, instead of one in twenty. Here the variances that its draws
converge to are computed in closed form, without the bias (n - 1) / n of a resample of
n, and the interval is that of Student's t with Satterthwaite's degrees of freedom.

All pairs on all yardsticks that are judged are one family (Holm 1979): if no two
objectives differ, the chance that any verdict says "ahead" is at most `ALPHA`.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from jaxpt.eval.examples import Examples

ALPHA = 0.05
POWER = 0.8  # with which more seeds are to find the difference that was measured
MOST_SEEDS = 1000
ROUNDING = 1e-12


class Difference(NamedTuple):
    """The mean of one objective minus that of another.

    Attributes:
      mean: over the seeds that both have.
      seeds_error: the standard error of `mean` from the choice of seeds; NaN of one.
      examples_error: that from the choice of examples; 0 where none were kept.
      num_seeds: how many seeds both have.
      num_groups: how many documents the examples are from; 0 where none were kept.
    """

    mean: float
    seeds_error: float
    examples_error: float
    num_seeds: int
    num_groups: int

    @property
    def error(self) -> float:
        """The standard error of the mean, of both causes."""
        return math.hypot(self.seeds_error, self.examples_error)

    @property
    def degrees_of_freedom(self) -> float:
        """Satterthwaite's, of the sum of both variances."""
        return _pool_freedom(
            (self.seeds_error, self.num_seeds), (self.examples_error, self.num_groups)
        )

    @property
    def p(self) -> float:
        """The two-sided p value of no difference; 1 where it cannot be tested."""
        if self.num_seeds < 2 or self.mean == 0:
            return 1.0
        if self.error == 0:  # as a test of the signs alone has it
            return 2.0 ** (1 - self.num_seeds)
        t = abs(self.mean) / self.error
        return float(2 * stdtr(self.degrees_of_freedom, -t))

    def interval(self, level: float) -> tuple[float, float]:
        """The confidence interval whose chance of missing the truth is `level`."""
        is_unknown = self.error == 0 and self.p > level  # a mean without any error
        if self.num_seeds < 2 or (is_unknown and self.mean != 0):
            return -math.inf, math.inf
        half = -float(stdtrit(self.degrees_of_freedom, level / 2)) * self.error
        return self.mean - half, self.mean + half

    def seeds_needed(self, level: float) -> int | None:
        """How many seeds in all would probably give a p value of at most `level`.

        If the objectives differ by as much as was measured, so many find it with the
        probability `POWER`. None where no number does: the examples are too few.
        """
        if self.num_seeds < 2:
            return None
        spread = self.seeds_error * math.sqrt(self.num_seeds)

        def is_enough(num: int) -> bool:
            of_seeds = spread / math.sqrt(num)
            error = math.hypot(of_seeds, self.examples_error)
            freedom = _pool_freedom(
                (of_seeds, num), (self.examples_error, self.num_groups)
            )
            quantiles = -stdtrit(freedom, [level / 2, 1 - POWER])
            return abs(self.mean) >= float(quantiles.sum()) * error

        nums = range(self.num_seeds + 1, MOST_SEEDS + 1)
        place = bisect.bisect_left(nums, True, key=is_enough)
        return nums[place] if place < len(nums) else None


def _pool_freedom(*parts: tuple[float, int]) -> float:
    """Satterthwaite's degrees of freedom of standard errors from so many units each."""
    variances = [(error**2, num - 1) for error, num in parts if error > 0]
    total = sum(variance for variance, _ in variances)
    pooled = sum(variance**2 / freedom for variance, freedom in variances)
    return total**2 / pooled if pooled else math.inf


def subtract(
    first: Mapping[int, float],
    second: Mapping[int, float],
    first_examples: Mapping[int, Examples] | None = None,
    second_examples: Mapping[int, Examples] | None = None,
) -> Difference:
    """The difference of two objectives on one metric.

    Args:
      first, second: the metric's value by seed; seeds that only one has are left out.
      first_examples, second_examples: what each value is the mean of, by seed. Their
        documents are the same; an objective may have cut them into other rows.
    """
    seeds = sorted(first.keys() & second.keys())
    num_seeds = len(seeds)
    if not num_seeds:
        return Difference(math.nan, math.nan, 0.0, 0, 0)
    by_seed = np.array([first[seed] - second[seed] for seed in seeds], np.float64)
    mean = float(by_seed.mean())
    seeds_error = math.nan
    if num_seeds > 1:
        seeds_error = float(by_seed.std(ddof=1)) / math.sqrt(num_seeds)
    # Equal to rounding: as if they were the same number.
    if seeds_error < ROUNDING * max(map(abs, (*first.values(), *second.values()))):
        seeds_error = 0.0
    if not first_examples or not second_examples:
        return Difference(mean, seeds_error, 0.0, num_seeds, 0)
    pulls: dict[int, float] = {}
    for sign, by_name in ((1, first_examples), (-1, second_examples)):
        for seed in seeds:
            for document, pull in by_name[seed].influence_by_group().items():
                pulls[document] = pulls.get(document, 0.0) + sign * pull / num_seeds
    num_groups = len(pulls)
    if num_groups < 2:  # one document says nothing of others
        return Difference(mean, seeds_error, 0.0, num_seeds, 0)
    squares = sum(pull**2 for pull in pulls.values())
    error = math.sqrt(num_groups / (num_groups - 1) * squares)
    return Difference(mean, seeds_error, error, num_seeds, num_groups)


class Holm(NamedTuple):
    """What Holm's procedure makes of one p value of a family.

    Attributes:
      p: the adjusted p value.
      level: of the interval that excludes 0 exactly if the p value is rejected.
      is_rejected: whether the difference is told from none.
    """

    p: float
    level: float
    is_rejected: bool


def correct(p_values: Iterable[float], alpha: float = ALPHA) -> list[Holm]:
    """Holm's correction of a family of p values, in their order.

    The smallest of m is held against alpha / m, the next against alpha / (m - 1), and
    so on; once one is not rejected, neither are those after it, whose level is its.

    >>> [round(h.p, 3) for h in correct([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    values = np.array(list(p_values), np.float64)
    found: list[Holm | None] = [None] * len(values)
    adjusted, stopped = 0.0, None
    for rank, place in enumerate(np.argsort(values, kind="stable")):
        num_left = len(values) - rank
        adjusted = max(adjusted, min(1.0, float(values[place]) * num_left))
        if stopped is None and values[place] > alpha / num_left:
            stopped = alpha / num_left
        level = alpha / num_left if stopped is None else stopped
        found[place] = Holm(adjusted, level, stopped is None)
    return [each for each in found if each is not None]


class Pair(NamedTuple):
    """Two objectives on one yardstick, as judged.

    Attributes:
      difference: by how much `better` is better on the seeds that both have; its mean
        is not negative, whether higher or lower values are better.
      outcome: "ahead", "equivalent", "tie", or "untested" where there is one seed.
      low, high: the corrected interval of the difference.
      p: the corrected p value.
      seeds_needed: in all, to tell them probably apart; None where unknown.
    """

    metric: str
    better: str
    worse: str
    difference: Difference
    outcome: str
    low: float
    high: float
    p: float
    seeds_needed: int | None


class Results(NamedTuple):
    """All that a verdict on one yardstick rests on.

    Attributes:
      metric: its name.
      higher_is_better: whether a larger value is the better one.
      margin: differences smaller than that do not matter.
      values: {objective: {seed: value}}.
      examples: {objective: {seed: Examples}}; empty where none were kept.
    """

    metric: str
    higher_is_better: bool
    margin: float
    values: dict[str, dict[int, float]]
    examples: dict[str, dict[int, Examples]]


def judge(family: Iterable[Results], alpha: float = ALPHA) -> list[Pair]:
    """A verdict on every pair of objectives on every yardstick of a family.

    Pairs come by yardstick, those of the objective with the best mean first.
    """
    asked = []
    for results in family:
        names = [name for name, values in results.values.items() if values]
        means = {name: np.mean(list(results.values[name].values())) for name in names}
        sign = 1 if results.higher_is_better else -1
        ranked = sorted(names, key=lambda name: (-sign * means[name], name))
        for better, worse in itertools.combinations(ranked, 2):
            found = subtract(
                results.values[better],
                results.values[worse],
                results.examples.get(better),
                results.examples.get(worse),
            )
            lead = sign * found.mean
            # The seeds that both have may say otherwise than those of either.
            if lead < 0:
                better, worse = worse, better
            found = found._replace(mean=abs(lead))
            asked.append((results, better, worse, found))
    # One that cannot be tested is not of the family.
    tested = [each for each in asked if each[3].num_seeds > 1]
    corrected = iter(correct((found.p for *_, found in tested), alpha))
    pairs = []
    for results, better, worse, found in asked:
        if found.num_seeds < 2:
            nothing = -math.inf, math.inf, 1.0, None
            pairs.append(
                Pair(results.metric, better, worse, found, "untested", *nothing)
            )
            continue
        holm = next(corrected)
        low, high = found.interval(holm.level)
        outcome, needed = "tie", None
        if holm.is_rejected:
            outcome = "ahead"
        elif max(-low, high) <= results.margin:
            outcome = "equivalent"
        else:
            needed = found.seeds_needed(holm.level)
        pairs.append(
            Pair(
                results.metric, better, worse, found, outcome, low, high, holm.p, needed
            )
        )
    return pairs

"""Pairwise comparison of objectives on a metric, with a stated error rate.

All runs share seeds, rows and test examples, so two objectives are compared by their
difference on each seed and on each example. The difference has two sources of error:
other seeds train other models, and other test documents give other scores. The
multi-bootstrap resamples both (Sellam et al. 2022; google-research/language,
language/multiberts/multibootstrap.py), with all examples of a document together.

Departure: the multi-bootstrap takes quantiles of its draws. With few seeds these are
too narrow: with three seeds they exclude 0 for a quarter of all pairs of equal
objectives, instead of one in twenty. Here the two variances to which its draws converge
are computed in closed form, without the bias (n - 1) / n of a resample of n, and each
source of error has its own Student's t quantile (Banerjee 1961):

    half width² = (t[seeds - 1] · seeds_error)² + (t[documents - 1] · examples_error)²

For normal errors this interval misses the true difference with at most the stated
probability, for any two variances. Satterthwaite's pooled degrees of freedom do not: if
a few seeds agree by chance, the pooled degrees of freedom jump to those of the
documents.

All pairs on all metrics form one family, or all pairs with one of the objectives, the
control. Verdicts use Holm's adjusted p values (1979):
if no two objectives differ, the probability of any verdict "ahead" is at most `ALPHA`.
Intervals are simultaneous (Bonferroni): the probability that any of them misses the
true difference is at most `ALPHA`. An interval that excludes 0 implies the verdict
"ahead"; the converse does not hold, because Holm's test is more powerful.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtr, stdtrit

from jaxpt.statistics import ALPHA
from jaxpt.statistics.examples import Examples

POWER = 0.8  # of a follow-up with the recommended number of seeds
MAX_SEEDS = 1000
ROUNDING = 1e-12
MIN_LOG_P = -600.0  # the log of the smallest p value


class Difference(NamedTuple):
    """The mean of one objective minus that of another.

    Attributes:
      mean: over the seeds that both have.
      seeds_error: the standard error of `mean` due to seeds; NaN for one seed.
      examples_error: the standard error due to test documents; 0 if no examples were
        stored.
      num_seeds: the number of seeds that both have.
      num_groups: the number of test documents; 0 if no examples were stored.
    """

    mean: float
    seeds_error: float
    examples_error: float
    num_seeds: int
    num_groups: int

    @property
    def error(self) -> float:
        """The standard error of the mean, from both sources."""
        return math.hypot(self.seeds_error, self.examples_error)

    @property
    def p(self) -> float:
        """The two-sided p value of no difference; 1 if it cannot be tested."""
        if self.num_seeds < 2 or self.mean == 0:
            return 1.0
        size = abs(self.mean)
        sources = self._sources()
        if not sources:
            return self._sign_p
        if len(sources) == 1:
            ((error, freedom),) = sources
            return max(self._sign_p, float(2 * stdtr(freedom, -size / error)))

        def excess(log_p: float) -> float:
            return self.half_width(math.exp(log_p)) - size

        if excess(MIN_LOG_P) <= 0:
            return math.exp(MIN_LOG_P)
        return math.exp(brentq(excess, MIN_LOG_P, 0.0, xtol=1e-12))

    @property
    def _sign_p(self) -> float:
        """The minimum p value if all seeds have the same difference; otherwise 0.

        Counts of correct answers may agree by chance, in particular of two seeds. Their
        variance is then unknown, and only the signs are evidence.
        """
        return 2.0 ** (1 - self.num_seeds) if self.seeds_error == 0 else 0.0

    def half_width(self, level: float) -> float:
        """Half the width of the confidence interval of error probability `level`.

        >>> round(Difference(0.5, 0.3, 0.4, 3, 40).half_width(0.05), 4)
        1.5234
        """
        return math.hypot(
            *(float(stdtrit(freedom, level / 2)) * e for e, freedom in self._sources())
        )

    def interval(self, level: float) -> tuple[float, float]:
        """The confidence interval of error probability `level`."""
        if self.num_seeds < 2 or (self.mean != 0 and self._sign_p > level):
            return -math.inf, math.inf
        half = self.half_width(level)
        return self.mean - half, self.mean + half

    def seeds_needed(self, level: float) -> int | None:
        """The number of seeds with which a new comparison has p <= `level`.

        It has the power `POWER` if the true difference is the measured one. None if no
        number of seeds suffices, because there are too few test documents.
        """
        if self.num_seeds < 2:
            return None
        spread = self.seeds_error * math.sqrt(self.num_seeds)

        def is_enough(num: int) -> bool:
            larger = self._replace(seeds_error=spread / math.sqrt(num), num_seeds=num)
            half = sum(map(larger.half_width, (level, 2 - 2 * POWER)))
            return abs(self.mean) >= half and larger._sign_p <= level

        nums = range(self.num_seeds + 1, MAX_SEEDS + 1)
        place = bisect.bisect_left(nums, True, key=is_enough)
        return nums[place] if place < len(nums) else None

    def _sources(self) -> list[tuple[float, int]]:
        """The standard errors that are not 0, each with its degrees of freedom."""
        both = (
            (self.seeds_error, self.num_seeds - 1),
            (self.examples_error, self.num_groups - 1),
        )
        return [(error, freedom) for error, freedom in both if error > 0]


def subtract(
    first: Mapping[int, float],
    second: Mapping[int, float],
    first_examples: Mapping[int, Examples] | None = None,
    second_examples: Mapping[int, Examples] | None = None,
) -> Difference:
    """The difference of two objectives on one metric.

    Args:
      first, second: the values of the metric by seed; only common seeds are used.
      first_examples, second_examples: the examples of each value, by seed. They are of
        the same documents, which each objective may have cut into other rows.
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
    # Equal up to rounding.
    if seeds_error < ROUNDING * max(map(abs, (*first.values(), *second.values()))):
        seeds_error = 0.0
    if not first_examples or not second_examples:
        return Difference(mean, seeds_error, 0.0, num_seeds, 0)
    groups, pulls = [], []
    for sign, examples in ((1, first_examples), (-1, second_examples)):
        for seed in seeds:
            documents, influence = examples[seed].influence_by_group()
            groups.append(documents)
            pulls.append(sign * influence / num_seeds)
    documents, places = np.unique(np.concatenate(groups), return_inverse=True)
    influence = np.bincount(places, np.concatenate(pulls))
    num_groups = len(documents)
    if num_groups < 2:  # one document has no variance
        return Difference(mean, seeds_error, 0.0, num_seeds, 0)
    error = math.sqrt(num_groups / (num_groups - 1) * float(influence @ influence))
    return Difference(mean, seeds_error, error, num_seeds, num_groups)


def adjust(p_values: Iterable[float]) -> list[float]:
    """Holm's adjusted p values of a family, in the order given.

    The smallest of m is multiplied by m, the next by m - 1, and so on, and they are
    made monotone. Rejecting those up to alpha has a family-wise error rate of at most
    alpha.

    >>> [round(p, 3) for p in adjust([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    values = np.array(list(p_values), np.float64)
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted.tolist()


class Pair(NamedTuple):
    """Two objectives and the verdict on one metric.

    Attributes:
      difference: the advantage of `better` on common seeds; its mean is not negative,
        also if lower values are better.
      outcome: "ahead" (significantly better), "equivalent" (the interval is within the
        margin), "tie", or "untested" for a single seed.
      low, high: the simultaneous interval of the difference.
      p: Holm's adjusted p value.
      seeds_needed: the number of seeds of a new comparison with the power `POWER`; None
        if unknown.
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
    """The measurements of one metric.

    Attributes:
      metric: its name.
      higher_is_better: whether a larger value is better.
      margin: the equivalence margin; smaller differences are irrelevant.
      values: {objective: {seed: value}}.
      examples: {objective: {seed: Examples}}; empty if none were stored.
    """

    metric: str
    higher_is_better: bool
    margin: float
    values: dict[str, dict[int, float]]
    examples: dict[str, dict[int, Examples]]


def judge(
    family: Iterable[Results], alpha: float = ALPHA, control: str = ""
) -> list[Pair]:
    """A verdict on every pair of objectives on every metric of a family.

    Pairs are sorted by metric, those of the objective with the best mean first.

    Args:
      alpha: the family-wise error rate of verdicts and of intervals.
      control: only its pairs are in the family; "": all pairs.
    """
    compared = [
        each
        for results in family
        for each in _rank_pairs(results)
        if not control or control in each[1:3]
    ]
    # Pairs that cannot be tested are not in the family.
    tested = [each for *_, each in compared if each.num_seeds > 1]
    adjusted = iter(adjust(each.p for each in tested))
    pairs = []
    for results, better, worse, difference in compared:
        names = results.metric, better, worse, difference
        if difference.num_seeds < 2:
            pairs.append(Pair(*names, "untested", -math.inf, math.inf, 1.0, None))
            continue
        p, level = next(adjusted), alpha / len(tested)
        low, high = difference.interval(level)
        outcome, needed = "tie", None
        if p <= alpha:
            outcome = "ahead"
        elif max(-low, high) <= results.margin:
            outcome = "equivalent"
        else:
            needed = difference.seeds_needed(level)
        pairs.append(Pair(*names, outcome, low, high, p, needed))
    return pairs


def _rank_pairs(results: Results) -> list[tuple[Results, str, str, Difference]]:
    """All pairs of objectives, the better one first, with their difference."""
    names = [name for name, values in results.values.items() if values]
    means = {name: np.mean(list(results.values[name].values())) for name in names}
    sign = 1 if results.higher_is_better else -1
    ranked = sorted(names, key=lambda name: (-sign * means[name], name))
    pairs = []
    for better, worse in itertools.combinations(ranked, 2):
        difference = subtract(
            results.values[better],
            results.values[worse],
            results.examples.get(better),
            results.examples.get(worse),
        )
        # Common seeds may order them differently than the means of all seeds.
        if sign * difference.mean < 0:
            better, worse = worse, better
        difference = difference._replace(mean=abs(difference.mean))
        pairs.append((results, better, worse, difference))
    return pairs

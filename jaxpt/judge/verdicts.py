"""Pairwise comparison of objectives on a metric, with a stated error rate.

The difference of two objectives has two sources of error: other seeds train other
models, and other test documents give other scores. The multi-bootstrap resamples both
(Sellam et al. 2022; google-research/language, language/multiberts/multibootstrap.py),
with all examples of a document together. Here, too, documents are paired, as all runs
are measured on the same ones. Seeds are not paired: runs of one seed share the order of
their rows, which in the studies of `results/` correlates their values little or not at
all, and pairs have half the degrees of freedom.

Departure: the multi-bootstrap takes quantiles of its draws. With few seeds these are
too narrow: with three seeds they exclude 0 for a quarter of all pairs of equal
objectives, instead of one in twenty. Here the variances to which its draws converge
are computed in closed form, without the bias (n - 1) / n of a resample of n, and each
source of error has its own quantile (Banerjee 1961):

    half width² = (half width of the seeds)² + (t[documents - 1] · examples_error)²

That of the seeds is for two samples with any two variances (`statistics.unpaired`). For
normal errors this interval misses the true difference with at most the stated
probability. Satterthwaite's degrees of freedom of all sources together do not keep it:
if a few seeds agree by chance, they jump to those of the documents.

All pairs on all metrics form one family, or all pairs with one of the objectives, the
control. Its m intervals are simultaneous (Bonferroni): each has the level alpha / m, so
that with a probability of at most alpha any of them misses the true difference. One
objective is ahead of another if the interval of their difference excludes 0, and p is m
times the level at which the interval ends at 0, so p <= alpha says the same.

With fewer than `MIN_SEEDS` seeds of either objective there is no verdict: two or three
values do not estimate their own spread. Values that do not depend on a seed, such as
those of answers without a network, have no error of seeds. Two such sides are compared
on test documents alone, of which `MIN_DOCUMENTS` are needed.

`estimate` is the mean of one objective, with an interval by the same rule.
"""

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import stdtrit

from jaxpt.judge import ALPHA
from jaxpt.judge.examples import Examples
from jaxpt.judge.unpaired import Sample, half_width

MIN_SEEDS = 4  # of each objective, for a verdict
MIN_DOCUMENTS = 10  # for a verdict if neither side depends on a seed
BLOCKS = 40  # of consecutive examples, if the test text is one document
GOOD_SEEDS = 5  # that are recommended
POWER = 0.8  # of a follow-up with the recommended number of seeds
MAX_SEEDS = 1000
ROUNDING = 1e-12
MIN_LOG_P = -600.0  # the log of the smallest p value


class Difference(NamedTuple):
    """The mean of one objective minus that of another.

    Attributes:
      mean: of the first, over its seeds, minus that of the second over its own.
      first, second: the spread over seeds of each; its `num` is 0 if the value does not
        depend on a seed.
      examples_error: the standard error due to test documents; 0 if no examples were
        stored.
      num_groups: the number of test documents; 0 if no examples were stored.
      is_cut: whether they are blocks of a single document.
    """

    mean: float
    first: Sample
    second: Sample
    examples_error: float = 0.0
    num_groups: int = 0
    is_cut: bool = False

    @property
    def num_seeds(self) -> int:
        """The number of seeds of the side that has fewer."""
        nums = [side.num for side in (self.first, self.second) if side.num]
        return min(nums, default=0)

    @property
    def seeds_error(self) -> float:
        """The standard error due to seeds; NaN if a side has one seed."""
        return math.sqrt(self.first.variance + self.second.variance)

    @property
    def error(self) -> float:
        """The standard error of the mean, from both sources."""
        return math.hypot(self.seeds_error, self.examples_error)

    @property
    def is_testable(self) -> bool:
        """Whether both sides have enough seeds for a verdict.

        Without seeds on either side, whether there are enough test documents.
        """
        if not self.first.num and not self.second.num:
            return self.num_groups >= MIN_DOCUMENTS
        return self.num_seeds >= MIN_SEEDS

    @property
    def p(self) -> float:
        """The two-sided p value of no difference; 1 if it cannot be tested."""
        if not self.is_testable or self.mean == 0:
            return 1.0
        size = abs(self.mean)
        if self.error == 0:
            return self._least_p

        def excess(log_p: float) -> float:
            return self.half_width(math.exp(log_p)) - size

        if excess(MIN_LOG_P) <= 0:
            return max(self._least_p, math.exp(MIN_LOG_P))
        return max(self._least_p, math.exp(brentq(excess, MIN_LOG_P, 0.0, xtol=1e-12)))

    @property
    def _least_p(self) -> float:
        """The minimum p value if the seeds of each side have one value; otherwise 0.

        Counts of correct answers may agree by chance. Their variance is then unknown,
        and the evidence is that all seeds of one side are above all of the other: p of
        a permutation, or of signs if the other side is a constant. Without seeds it is
        that of the signs of documents.
        """
        num, other = self.first.num, self.second.num
        if not num and not other and not self.examples_error:
            return 2.0 / 2**self.num_groups
        if self.seeds_error > 0 or not (num or other):
            return 0.0
        ways = math.comb(num + other, num) if num and other else 2 ** (num + other)
        return 2.0 / ways

    def half_width(self, level: float) -> float:
        """Half the width of the confidence interval of error probability `level`.

        >>> sides = Sample(0.5, 5), Sample(0.2, 5)
        >>> round(Difference(0.5, *sides, 0.4, 40).half_width(0.05), 4)
        1.0221
        """
        seeds = float(half_width(self.first, self.second, level))
        if not self.examples_error:
            return seeds
        quantile = float(stdtrit(self.num_groups - 1, level / 2))
        return math.hypot(seeds, quantile * self.examples_error)

    def interval(self, level: float) -> tuple[float, float]:
        """The confidence interval of error probability `level`."""
        if not self.is_testable or self._least_p > level:
            return -math.inf, math.inf
        half = self.half_width(level)
        return self.mean - half, self.mean + half

    def detectable(self, level: float) -> float:
        """The true difference that has p <= `level` with the power `POWER`."""
        return sum(map(self.half_width, (level, 2 - 2 * POWER)))

    def seeds_needed(self, level: float) -> int | None:
        """The seeds of each side with which a new comparison has p <= `level`.

        It has the power `POWER` if the true difference is the measured one. None if no
        number of seeds suffices, because there are too few test documents.
        """
        if not self.is_testable or self.mean == 0 or not self.num_seeds:
            return None

        def is_enough(num: int) -> bool:
            larger = self._replace(
                first=self.first._replace(num=num if self.first.num else 0),
                second=self.second._replace(num=num if self.second.num else 0),
            )
            is_larger = abs(self.mean) >= larger.detectable(level)
            return is_larger and larger._least_p <= level

        first = self.num_seeds + 1
        last = 2 * first
        while not is_enough(last):
            if last >= MAX_SEEDS:
                return None
            first, last = last + 1, min(2 * last, MAX_SEEDS)
        nums = range(first, last + 1)
        return nums[bisect.bisect_left(nums, True, key=is_enough)]


class Pull(NamedTuple):
    """The influence of each test document on a mean over seeds; the sum is 0.

    Attributes:
      documents: in order.
    """

    documents: Int[np.ndarray, "G"]
    influence: Float[np.ndarray, "G"]


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """What was measured of one objective on one metric.

    Attributes:
      values: by seed; of a baseline without a network, with `is_constant`, one value.
      examples: by seed, the test examples of which a value is the mean; {} if they were
        not stored.
      is_constant: whether the value does not depend on a seed.
    """

    values: Mapping[int, float]
    examples: Mapping[int, Examples] = dataclasses.field(default_factory=dict)
    is_constant: bool = False

    def sample(self) -> Sample:
        """The spread over seeds; values that are equal up to rounding have none."""
        values = np.array(list(self.values.values()), np.float64)
        if self.is_constant or not len(values):
            return Sample(0.0, 0)
        if len(values) < 2:
            return Sample(math.nan, 1)
        std = float(values.std(ddof=1))
        return Sample(
            std if std > ROUNDING * np.abs(values).max() else 0.0, len(values)
        )

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @functools.cached_property
    def pull(self) -> Pull:
        """The influence of documents."""
        return self._gather(self.examples.values())

    def pull_blocks(self, num: int) -> Pull:
        """That of blocks of consecutive examples (`Examples.in_blocks`)."""
        return self._gather(each.in_blocks(num) for each in self.examples.values())

    def _gather(self, examples: Iterable[Examples]) -> Pull:
        pulls = [Pull(*each.influence_by_group()) for each in examples]
        return _add(
            [pull._replace(influence=pull.influence / len(pulls)) for pull in pulls]
        )

    @property
    def num_examples(self) -> int:
        """Those of the seed that has the fewest."""
        return min(len(each.totals) for each in self.examples.values())


def _add(pulls: Sequence[Pull]) -> Pull:
    """The sum of influences by document."""
    first = pulls[0].documents
    if all(np.array_equal(pull.documents, first) for pull in pulls):
        return Pull(first, np.sum([pull.influence for pull in pulls], 0))
    documents, places = np.unique(
        np.concatenate([pull.documents for pull in pulls]), return_inverse=True
    )
    return Pull(
        documents, np.bincount(places, np.concatenate([p.influence for p in pulls]))
    )


def subtract(first: Side, second: Side) -> Difference:
    """The difference of two objectives on one metric.

    Their examples are of the same documents, which each may have cut into other rows. A
    single document is cut into at most `BLOCKS` blocks of consecutive examples, which
    take the place of documents.
    """
    difference = Difference(first.mean - second.mean, first.sample(), second.sample())
    if not first.examples or not second.examples:
        return difference
    return _add_documents(difference, (first, second), np.array([1.0, -1.0]))


def estimate(side: Side) -> Difference:
    """The mean of one objective, as its difference from an exact 0."""
    mean = Difference(side.mean, side.sample(), Sample(0.0, 0))
    return _add_documents(mean, (side,), np.ones(1)) if side.examples else mean


def _add_documents(
    difference: Difference, sides: Sequence[Side], signs: Float[np.ndarray, "S"]
) -> Difference:
    """The difference with its error due to test documents."""
    influences, is_cut = align_documents(sides)
    num = influences.shape[-1]
    if num < 2:  # one example has no variance
        return difference
    apart = (signs[:, None] * influences).sum(0)
    error = math.sqrt(num / (num - 1) * float(apart @ apart))
    return difference._replace(examples_error=error, num_groups=num, is_cut=is_cut)


def align_documents(sides: Sequence[Side]) -> tuple[Float[np.ndarray, "S G"], bool]:
    """The influence of each document on each side, and whether they are blocks.

    A document that a side does not have has no influence on it.
    """
    pulls = [side.pull for side in sides]
    is_cut = len({document for pull in pulls for document in pull.documents[:2]}) == 1
    if is_cut:
        num = min(BLOCKS, *(side.num_examples for side in sides))
        pulls = [side.pull_blocks(num) for side in sides]
    documents = np.unique(np.concatenate([pull.documents for pull in pulls]))
    influences = np.zeros((len(pulls), len(documents)))
    for row, pull in zip(influences, pulls, strict=True):
        row[np.searchsorted(documents, pull.documents)] = pull.influence
    return influences, is_cut


class Pair(NamedTuple):
    """Two objectives and the verdict on one metric.

    Attributes:
      difference: the advantage of `better`; its mean is not negative, also if lower
        values are better.
      outcome: "ahead" (significantly better: the interval excludes 0), "equivalent"
        (the interval is within the margin), "tie" (not significantly different), or
        "untested" with fewer than `MIN_SEEDS` seeds.
      low, high: the simultaneous interval of the difference, within the metric's range;
        infinite if "untested".
      p: adjusted for the family (Bonferroni); at most alpha if and only if "ahead".
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

    @property
    def at_most(self) -> float:
        """The largest absolute difference within the interval."""
        return max(abs(self.low), abs(self.high))


class Results(NamedTuple):
    """The measurements of one metric.

    Attributes:
      metric: its name.
      higher_is_better: whether a larger value is better.
      margin: the equivalence margin; smaller differences are irrelevant.
      values: {objective: {seed: value}}.
      examples: {objective: {seed: Examples}}; empty if none were stored.
      span: the largest difference that two values can have; that of accuracies is 1.
      constants: the names whose value does not depend on a seed: baselines without a
        network.
    """

    metric: str
    higher_is_better: bool
    margin: float
    values: dict[str, dict[int, float]]
    examples: dict[str, dict[int, Examples]]
    span: float = math.inf
    constants: Collection[str] = ()

    def side(self, name: str) -> Side:
        """What was measured of one name."""
        examples = self.examples.get(name, {})
        return Side(self.values[name], examples, name in self.constants)


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
    num_tested = sum(difference.is_testable for *_, difference in compared)
    return [_judge_pair(*each, alpha, num_tested) for each in compared]


def _judge_pair(
    results: Results,
    better: str,
    worse: str,
    difference: Difference,
    alpha: float,
    num_tested: int,
) -> Pair:
    """The verdict on one pair of a family of `num_tested`."""
    names = results.metric, better, worse, difference
    if not difference.is_testable:
        return Pair(*names, "untested", -math.inf, math.inf, 1.0, None)
    level = alpha / num_tested
    low, high = difference.interval(level)
    outcome, needed = "tie", None
    if low > 0:
        outcome = "ahead"
    elif max(-low, high) <= results.margin:
        outcome = "equivalent"
    else:
        needed = difference.seeds_needed(level)
    low, high = max(low, -results.span), min(high, results.span)
    p = min(1.0, num_tested * difference.p)
    return Pair(*names, outcome, low, high, p, needed)


def _rank_pairs(results: Results) -> list[tuple[Results, str, str, Difference]]:
    """All pairs of objectives, the better one first, with their difference."""
    sides = {name: results.side(name) for name, of in results.values.items() if of}
    sign = 1 if results.higher_is_better else -1
    ranked = sorted(sides, key=lambda name: (-sign * sides[name].mean, name))
    pairs = []
    for better, worse in itertools.combinations(ranked, 2):
        difference = subtract(sides[better], sides[worse])
        difference = difference._replace(mean=abs(difference.mean))
        pairs.append((results, better, worse, difference))
    return pairs

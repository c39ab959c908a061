"""Tests of the assumptions of a comparison's error rate, with warnings.

The error rate of a verdict (`statistics.verdicts`) holds for normal errors with any
standard deviations. A run that stays on a plateau or diverges late violates this: with
few seeds, mean and standard deviation no longer predict other seeds. A test detects it:

    an outlying seed    Grubbs 1950: the largest |x - mean| / std of one objective
                        with `MIN_SEEDS` or more

It does not detect failures that no seed shows: if one run in five stays on a plateau,
five seeds include none in .8^5 = 33 % of all comparisons.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.01  # of the test
MIN_SEEDS = 5  # of fewer, two or three may agree by chance up to a single answer


def find_outlier(values: Mapping[int, float]) -> int | None:
    """The seed whose value is an outlier (Grubbs' test), if any.

    >>> find_outlier({0: 0.70, 1: 0.71, 2: 0.69, 3: 0.70, 4: 0.29})
    4
    >>> find_outlier({0: 0.70, 1: 0.71, 2: 0.69, 3: 0.70, 4: 0.66}) is None
    True
    """
    num = len(values)
    array = np.array(list(values.values()), np.float64)
    spread = array.std(ddof=1) if num >= MIN_SEEDS else 0.0
    if not spread > 0:
        return None
    scores = np.abs(array - array.mean()) / spread
    t = -stdtrit(num - 2, LEVEL / (2 * num))
    limit = (num - 1) / math.sqrt(num) * math.sqrt(t**2 / (num - 2 + t**2))
    place = int(scores.argmax())
    return list(values)[place] if scores[place] > limit else None


def check_seeds(label: str, values: Mapping[str, Mapping[int, float]]) -> list[str]:
    """One-line warnings about the seeds of a metric.

    Args:
      label: the label of the metric.
      values: {objective: {seed: value}}.
    """
    lines = []
    for name, by_seed in sorted(values.items()):
        seed = find_outlier(by_seed)
        if seed is not None:
            lines.append(
                f"WARNING: {label}: seed {seed} of {name} ({by_seed[seed]:.3f}) is an "
                f"outlier (Grubbs' test, p < {LEVEL}); the error rate of verdicts on "
                f"{name} assumes that the values of its seeds are normally distributed"
            )
    return lines


def describe_seeds(seeds: Iterable[int], earlier: Iterable[int], alpha: float) -> str:
    """A one-line description of the choice of seeds.

    Args:
      earlier: the seeds of an earlier comparison that this one follows up; () if none.
      alpha: the family-wise error rate of this comparison.
    """
    seeds, earlier = list(seeds), list(earlier)
    rate = f"family-wise error rate {alpha:g}"
    if not earlier:
        return (
            f"{rate}, if the seeds were chosen before any result was seen; adding "
            f"seeds to a comparison without a verdict raises it, a follow-up with new "
            f"seeds alone does not "
            f"(compare.earlier_seeds)"
        )
    written = ", ".join(map(str, earlier))
    if set(seeds).isdisjoint(earlier):
        return (
            f"follow-up of a comparison with seeds {written}: these verdicts use new "
            f"seeds alone; {rate}, whatever the earlier comparison showed"
        )
    return (
        f"follow-up of a comparison with seeds {written}, which are used again: {rate} "
        f"in each of the comparisons that were planned, whose rates add up"
    )


MERGED = (
    "the error rate assumes that the seeds were chosen before any result was seen; "
    "jaxpt report cannot know that, as its runs were trained separately"
)

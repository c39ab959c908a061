"""Split-half reliability: does another half of the test text give the same ranks?

A metric is a mean over test examples. Its documents are split in two halves at random,
and the means of all objectives on one half are correlated with those on the other. The
correlation r is the share of the variance between objectives, on half of the text, that
is not an accident of its examples. It does not measure seeds: both halves are of the
same runs (verdicts take both into account).

    r = sum of covariances / sqrt(sum of variances of A  x  sum of variances of B)

The sums are over `NUM_SPLITS` splits. There is no Spearman-Brown correction, which
would give the whole text 2 r / (1 + r). Below `LEAST`, more than half of the variance
is noise, and the metric does not rank these objectives, whatever their means.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from jaxpt.judge.examples import Examples

NUM_SPLITS = 200
LEAST = 0.5
SEED = 0
FEWEST = 16  # documents that are split as they are; fewer are cut into blocks
NUM_BLOCKS = 64


def split_half(by_name: Mapping[str, Sequence[Examples]]) -> float | None:
    """The correlation between halves of the test text; None if there is none.

    Args:
      by_name: the examples of each objective's runs.

    Returns:
      None for fewer than two objectives, examples that differ between objectives, or
      means that are all equal.
    """
    first = [runs[0] for runs in by_name.values() if runs]
    if len(first) < 2 or len(first) < len(by_name):
        return None
    groups = first[0].groups
    runs = [run for of in by_name.values() for run in of]
    if any(not np.array_equal(run.groups, groups) for run in runs):
        return None
    units = _find_units(groups)
    num = units.max() + 1
    sums = np.array(
        [
            [
                sum(np.bincount(units, getattr(run, field), num) for run in of)
                for field in ("totals", "weights")
            ]
            for of in by_name.values()
        ]
    )  # [objectives, totals and weights, units]
    return _correlate(sums[:, 0], sums[:, 1]) if num > 1 else None


def _find_units(groups: Int[np.ndarray, "E"]) -> Int[np.ndarray, "E"]:
    """What is split: documents, or consecutive blocks of examples."""
    documents, units = np.unique(groups, return_inverse=True)
    if len(documents) >= FEWEST:
        return units
    return np.arange(len(groups)) * NUM_BLOCKS // len(groups)


def _correlate(
    totals: Float[np.ndarray, "N U"], weights: Float[np.ndarray, "N U"]
) -> float | None:
    rng, num = np.random.default_rng(SEED), totals.shape[1]
    products = np.zeros(3)  # covariances, variances of either half
    for _ in range(NUM_SPLITS):
        half = rng.permutation(num) < num // 2
        means = []
        for part in (half, ~half):
            weight = weights[:, part].sum(1)
            if not weight.all():
                break
            mean = totals[:, part].sum(1) / weight
            means.append(mean - mean.mean())
        if len(means) == 2:
            a, b = means
            products += a @ b, a @ a, b @ b
    scale = np.sqrt(products[1] * products[2])
    return float(products[0] / scale) if np.isfinite(scale) and scale > 0 else None

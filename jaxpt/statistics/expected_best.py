"""The expected best of several trials."""

import math
from collections.abc import Sequence

import numpy as np


def expected_best(values: Sequence[float], n: int) -> float:
    """The mean of the best of n of these values, drawn without replacement.

    Without bias: sum of v_(i) C(i - 1, n - 1) / C(N, n) over the values in order. (With
    replacement, as published curves of Dodge et al. 2019 have it, it is too low.)

    Raises:
      ValueError: n is not among 1 to the number of values.

    >>> [round(expected_best([0.9, 0.5, 0.7, 0.6], n), 6) for n in (2, 3, 4)]
    [0.783333, 0.85, 0.9]
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if not 1 <= n <= len(ordered):
        raise ValueError(f"n={n}: must be among 1 to {len(ordered)}, the values given")
    ways = [math.comb(i, n - 1) for i in range(len(ordered))]
    return float(np.dot(ordered, ways) / math.comb(len(ordered), n))

"""What the tests of the ops share."""

import numpy as np
import pytest
from scipy import stats


@pytest.fixture
def is_uniform():
    """`is_uniform(counts)`: whether counts of equally likely outcomes look it.

    The bound is generous (one true positive in a million fails), and keys are fixed.
    """

    def check(counts) -> bool:
        counts = np.asarray(counts)
        return stats.chisquare(counts).pvalue > 1e-6

    return check

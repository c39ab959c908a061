"""Means over examples, and blocks of them."""

import numpy as np
import pytest

from jaxpt.judge.examples import Examples


@pytest.mark.parametrize(
    "weights, num, expected",
    [
        ([1, 3], 2, [0, 1]),  # an example is where its middle is
        ([3, 1], 2, [0, 1]),
        ([1, 1, 6, 2], 2, [0, 0, 1, 1]),
        ([5, 5], 4, [1, 3]),
        ([0, 0, 2], 2, [0, 0, 1]),
        ([0, 0], 3, [0, 0]),
        ([1] * 7, 3, [0, 0, 1, 1, 1, 2, 2]),
    ],
)
def test_blocks_are_of_about_equal_weight(weights, num, expected):
    weights = np.array(weights, float)
    blocks = Examples(weights, weights, np.zeros(len(weights), int)).in_blocks(num)
    assert blocks.groups.tolist() == expected
    assert blocks.totals is weights

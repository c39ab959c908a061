"""Warnings about seeds: Grubbs' published critical values, false alarms, wording."""

import numpy as np
import pytest

from jaxpt.config.sections import CompareSpec
from jaxpt.errors import UserError
from jaxpt.statistics.assumptions import (
    check_seeds,
    describe_seeds,
    find_outlier,
    has_unequal_spreads,
)
from jaxpt.statistics.verdicts import Results, judge


def place_last(num, score):
    """`num` values, the last of which is this number of deviations from the mean."""
    # Of num - 1 values +-1 and one x, found by bisection.
    low, high = 1.0, 1e6
    base = np.resize([1.0, -1.0], num - 1)
    for _ in range(200):
        middle = (low + high) / 2
        values = np.append(base, middle)
        result = (middle - values.mean()) / values.std(ddof=1)
        low, high = (middle, high) if result < score else (low, middle)
    return dict(enumerate(values.tolist()))


@pytest.mark.parametrize(
    "num, critical", [(5, 1.764), (6, 1.973), (10, 2.482), (20, 3.001)]
)
def test_grubbs_critical_values(num, critical):
    """Two-sided, 1 % (Grubbs and Beck 1972, table I, upper .5 %)."""
    assert find_outlier(place_last(num, critical + 0.003)) == num - 1
    assert find_outlier(place_last(num, critical - 0.003)) is None


def test_few_or_equal_values_have_no_outlier():
    assert find_outlier({}) is None
    assert find_outlier({0: 0.911, 1: 0.911, 2: 0.911, 3: 0.897}) is None
    assert find_outlier(dict.fromkeys(range(6), 1.0)) is None


def test_normal_seeds_give_few_warnings():
    draw = np.random.default_rng(0)
    outliers = unequal = 0
    for _ in range(1000):
        first, second = draw.normal(0, 1, (2, 5))
        outliers += find_outlier(dict(enumerate(first))) is not None
        unequal += has_unequal_spreads(first, second)
    assert 0 < outliers <= 20 and 0 < unequal <= 20


def test_a_plateau_is_named():
    values = {"mlm": [0.7, 0.71, 0.69, 0.7, 0.29], "clm": [0.5, 0.51, 0.49, 0.5, 0.5]}
    by_seed = {name: dict(enumerate(v)) for name, v in values.items()}
    pairs = judge([Results("m", True, 0.0, by_seed, {})])
    (line,) = check_seeds("cloze accuracy", by_seed, pairs)
    assert line.startswith(
        "WARNING: cloze accuracy: seed 4 of mlm (0.290) is an outlier"
    )


def test_unequal_spreads_matter_to_verdicts_of_few_seeds():
    draw = np.random.default_rng(0)

    def warn(num, gap):
        wide, narrow = draw.normal(0, 1, num), draw.normal(gap, 0.01, num)
        by_seed = {"wide": dict(enumerate(wide)), "narrow": dict(enumerate(narrow))}
        return check_seeds("m", by_seed, judge([Results("m", True, 0.0, by_seed, {})]))

    (line,) = warn(5, 9.0)
    assert "standard deviations over seeds differ (narrow" in line
    assert warn(5, 0.0) == []  # a tie claims nothing
    assert warn(10, 9.0) == []


def test_how_seeds_were_chosen():
    assert "before any result was seen" in describe_seeds((0, 1), (), 0.05)
    assert "new seeds alone" in describe_seeds((2, 3), (0, 1), 0.05)
    again = describe_seeds((0, 1, 2, 3), (0, 1), 0.025)
    assert "used again: family-wise error rate 0.025" in again


def test_a_follow_up_uses_new_seeds_or_shares_the_error_rate():
    spec = {"amount": 1.0, "seeds": (0, 1, 2), "earlier_seeds": (0, 1)}
    with pytest.raises(UserError, match=r"compare.seeds=\(0, 1, 2\): .*earlier_seeds"):
        CompareSpec(**spec)
    CompareSpec(**spec | {"alpha": 0.025})
    CompareSpec(**spec | {"seeds": (2, 3)})
    for wrong in (0.0, 1.0, float("nan")):
        with pytest.raises(UserError, match="compare.alpha="):
            CompareSpec(amount=1.0, alpha=wrong)

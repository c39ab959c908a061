"""Warnings about seeds: Grubbs' published critical values, false alarms, wording."""

import numpy as np
import pytest

from jaxpt.config.sections import CompareSpec
from jaxpt.errors import UserError
from jaxpt.judge.assumptions import (
    check_seeds,
    describe_seeds,
    find_outlier,
)


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
    outliers = sum(
        find_outlier(dict(enumerate(draw.normal(0, 1, 5)))) is not None
        for _ in range(1000)
    )
    assert 0 < outliers <= 20


def test_a_plateau_is_named():
    values = {"mlm": [0.7, 0.71, 0.69, 0.7, 0.29], "clm": [0.5, 0.51, 0.49, 0.5, 0.5]}
    by_seed = {name: dict(enumerate(v)) for name, v in values.items()}
    (line,) = check_seeds("cloze accuracy", by_seed)
    assert line.startswith(
        "WARNING: cloze accuracy: seed 4 of mlm (0.290) is an outlier"
    )


def test_unequal_spreads_are_no_reason_to_warn():
    """The error rate holds for any standard deviations."""
    draw = np.random.default_rng(0)
    wide, narrow = draw.normal(0, 1, 5), draw.normal(9, 0.01, 5)
    by_seed = {"wide": dict(enumerate(wide)), "narrow": dict(enumerate(narrow))}
    assert check_seeds("m", by_seed) == []


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

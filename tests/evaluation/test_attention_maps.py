"""Tests of what heads look at: reference vectors, and rows that are counted by hand."""

import math

import numpy as np
import pytest

from jaxpt.evaluation import attention_maps
from jaxpt.evaluation.attention_maps import HeadCounter

# Three queries by three keys.
ONE = np.array([[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])


def test_shares_by_hand():
    is_marked = np.array([[False, False, True]])
    result = attention_maps.shares(ONE[None, None], {"special": is_marked})
    values = {name: float(value[0]) for name, value in result.items()}
    assert values == pytest.approx(
        {
            "self": (1 + 0.25 + 0.5) / 3,
            "previous": (0.75 + 0.5) / 3,
            "next": 0.0,
            "first": 1.75 / 3,
            "special": 0.5 / 3,
        }
    )


def test_marks_are_those_of_each_row():
    weights = np.stack([ONE, ONE[::-1]])[:, None]
    marks = np.array([[True, False, False], [False, True, True]])
    result = attention_maps.shares(weights, {"special": marks})
    assert result["special"][0] == pytest.approx((1.75 / 3 + 1.25 / 3) / 2)


def test_entropy_is_in_nats_of_smoothed_weights():
    even = np.full((2, 8), 1 / 8)
    assert attention_maps.entropy(even) == pytest.approx(math.log(8))
    one = np.eye(4)[:1]
    most, rest = 0.9999 + 0.0001 / 4, 0.0001 / 4
    expected = -most * math.log(most) - 3 * rest * math.log(rest)
    assert attention_maps.entropy(one) == pytest.approx(expected)
    assert expected > 0


def test_the_reference_rollout():
    first, second = [[1, 0], [0.5, 0.5]], [[0.2, 0.8], [0.4, 0.6]]
    result = attention_maps.rollout(np.array([first, second]))
    np.testing.assert_allclose(result, [[0.7, 0.3], [0.4, 0.6]])
    alone = attention_maps.rollout(np.array([first]))
    np.testing.assert_allclose(alone, [[1, 0], [0.25, 0.75]])


def make_weights(offset, length=6, sharpness=0.8):
    """A head that looks at one offset where it can, and evenly elsewhere."""
    weights = np.full((length, length), (1 - sharpness) / (length - 1))
    for t in range(length):
        if 0 <= t + offset < length:
            weights[t, t + offset] = sharpness
        else:
            weights[t] = 1 / length
    return weights


def test_positional_heads_are_found_and_others_are_not():
    rng = np.random.default_rng(0)
    drawn = rng.dirichlet(np.ones(6), 6)
    heads = [make_weights(-1), make_weights(1), make_weights(0), drawn]
    layer = np.stack(heads)[None, None]  # one layer, one row
    counter = HeadCounter()
    counter.add(layer, {})
    counter.add(layer, {})
    result = counter.finish()
    assert result.offset[0, :3].tolist() == [-1, 1, 0]
    # The first query of the first head has no key there, and is not counted.
    assert result.offset_share[0, :3].tolist() == [1, 1, 1]
    assert result.is_positional[0].tolist() == [True, True, True, False]


def test_batches_add_up_to_the_mean_over_rows():
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(5), (2, 3, 4, 5))  # L, B, N, T, S
    marks = {"special": rng.random((3, 5)) < 0.5}
    whole, parts = HeadCounter(), HeadCounter()
    whole.add(weights, marks)
    parts.add(weights[:, :2], {"special": marks["special"][:2]})
    parts.add(weights[:, 2:], {"special": marks["special"][2:]})
    one, two = whole.finish(), parts.finish()
    assert one.shares.keys() == {"self", "previous", "next", "first", "special"}
    for name in one.shares:
        assert one.shares[name].shape == (2, 4)
        np.testing.assert_allclose(one.shares[name], two.shares[name])
    np.testing.assert_allclose(one.entropy, two.entropy)
    np.testing.assert_array_equal(one.offset_share, two.offset_share)
    expected = np.trace(weights[1, :, 2], 0, 1, 2).sum() / 15
    assert one.shares["self"][1, 2] == pytest.approx(expected)


def test_an_even_spread_over_what_may_be_seen():
    seen = np.tril(np.ones((3, 3), bool))
    even = attention_maps.spread_evenly(seen)
    assert attention_maps.share_at(even, 0) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert attention_maps.share_at(even, 1) == 0

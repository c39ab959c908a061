"""nDCG as trec_eval has it; ties by the larger id."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.evaluation.ndcg import dcg, expected_ndcg, ndcg, rank


def test_by_hand():
    # Gains 0, 2, 1 at ranks 1 to 3; best 2, 1.
    value = (2 / math.log2(3) + 1 / 2) / (2 + 1 / math.log2(3))
    assert ndcg(["c", "a", "b"], {"a": 2, "b": 1}) == pytest.approx(value)
    assert ndcg(["b"], {"a": -1, "b": 1}) == 1  # a negative one is no gain
    assert ndcg(["a"], {"a": 0}) == 0 and ndcg(["a"], {"b": 3}) == 0
    ids = [f"{i:02d}" for i in range(12)]
    assert ndcg(ids, {"09": 1}) == pytest.approx(1 / math.log2(11))
    assert ndcg(ids, {"10": 1}) == 0  # at rank 11


def test_gain_is_linear():
    assert dcg([3]) == 3


def test_ties_go_to_the_larger_id_also_at_the_cut():
    ids = ["d", "c", "b", "a"]
    assert rank(np.array([0.5, 0.5, 0.5, 0.9]), ids, 3) == ["a", "d", "c"]
    assert rank(np.zeros(4), ids, 2) == ["d", "c"]
    # Compared as float32, in which these two are equal.
    assert rank(np.array([0.5, 0.5 + 1e-12, 0.1, 0.0]), ids, 2) == ["d", "c"]


judged = st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.integers(-1, 3))


@given(judged, st.permutations(list("abcdefghijklmnop")))
def test_from_0_to_1_and_best_in_order_of_relevance(relevance, order):
    assert 0 <= ndcg(order, relevance) <= 1
    best = sorted(order, key=lambda id_: -relevance.get(id_, 0))
    assert ndcg(best, relevance) == pytest.approx(
        float(any(x > 0 for x in relevance.values()))
    )


def test_chance_is_the_mean_over_all_orders():
    rng, relevance = np.random.default_rng(0), {"a": 2, "b": 1}
    values = [ndcg(rng.permutation(list("abcd")), relevance, 3) for _ in range(20_000)]
    assert expected_ndcg(4, relevance, 3) == pytest.approx(np.mean(values), abs=5e-3)

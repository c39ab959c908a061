"""Masks: every kind spelled out against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.ops import masks

T = 5


def spelled(rule, rows, num_queries=T, num_keys=T):
    """bool [rows, 1, T, S] from rule(b, t, s)."""
    return np.array(
        [
            [[[rule(b, t, s) for s in range(num_keys)] for t in range(num_queries)]]
            for b in range(rows)
        ]
    )


def check(mask, rule, rows, num_queries=T, num_keys=T):
    result = masks.materialise(mask, num_queries, num_keys)
    assert result.dtype == jnp.bool_ and result.shape[1] == 1
    expected = spelled(rule, rows, num_queries, num_keys)
    np.testing.assert_array_equal(np.broadcast_to(result, expected.shape), expected)


def test_full_hides_nothing():
    check(masks.full(), lambda b, t, s: True, 1, T, 3)


def test_causal_sees_itself_and_the_past():
    check(masks.causal(), lambda b, t, s: s <= t, 1)


@given(st.lists(st.integers(0, 3), min_size=2 * T, max_size=2 * T))
@settings(max_examples=30, deadline=None)
def test_segments_see_only_themselves(ids):
    ids = np.array(ids).reshape(2, T)

    def rule(b, t, s):
        return ids[b, t] == ids[b, s] and ids[b, t] > 0

    check(masks.segments(jnp.array(ids)), rule, 2)
    check(masks.causal(jnp.array(ids)), lambda b, t, s: rule(b, t, s) and s <= t, 2)


def test_segments_of_queries_and_keys_may_differ():
    query, key = np.array([[1, 2, 0]]), np.array([[2, 2, 1, 0]])
    mask = masks.segments(jnp.array(query), jnp.array(key))
    check(mask, lambda b, t, s: query[0, t] == key[0, s] != 0, 1, 3, 4)


@given(st.integers(0, T), st.integers(0, T))
@settings(max_examples=20, deadline=None)
def test_prefixes_and_lengths(first, second):
    lengths = jnp.array([first, second])
    check(masks.prefix(lengths), lambda b, t, s: s <= t or s < lengths[b], 2)
    check(masks.key_padding(lengths), lambda b, t, s: s < lengths[b], 2)


@given(st.lists(st.integers(0, 7), min_size=2 * T, max_size=2 * T))
@settings(max_examples=30, deadline=None)
def test_each_packed_document_has_a_prefix_of_its_own(values):
    ids, free = np.array(values).reshape(2, T) // 2, np.array(values).reshape(2, T) % 2

    def rule(b, t, s):
        return ids[b, t] == ids[b, s] > 0 and (s <= t or free[b, s] == 1)

    check(masks.prefix_keys(jnp.array(free == 1), jnp.array(ids)), rule, 2)
    check(
        masks.prefix_keys(jnp.array(free == 1)),
        lambda b, t, s: s <= t or free[b, s] == 1,
        2,
    )


def test_a_prompt_sees_itself_and_nothing_behind_it():
    seen = masks.cached_prompt(jnp.array([0, 2]), 3, 5)
    check(seen, lambda b, t, s: s < 3 and s >= (0, 2)[b], 2, 3, 5)


def test_all_conditions_hold_at_once():
    ids = np.array([[1, 1, 1, 2, 2]])
    mask = masks.AttnMask(
        causal=True,
        prefix_lengths=jnp.array([2]),
        key_lengths=jnp.array([4]),
        query_segments=jnp.array(ids),
        key_segments=jnp.array(ids),
    )

    def rule(b, t, s):
        return (s <= t or s < 2) and s < 4 and ids[0, t] == ids[0, s]

    check(mask, rule, 1)


def test_only_a_mask_without_any_condition_is_full():
    assert masks.full().is_full()
    assert masks.segments(None).is_full()
    for mask in (
        masks.causal(),
        masks.segments(jnp.ones((1, 2), int)),
        masks.key_padding(jnp.array([1])),
        masks.prefix(jnp.array([1])),
        masks.prefix_keys(jnp.ones((1, 2), bool)),
    ):
        assert not mask.is_full()


def test_a_mask_passes_through_jit():
    mask = masks.causal(jnp.array([[1, 1, 2, 2, 0]]))
    result = jax.jit(lambda m: masks.materialise(m, T, T))(mask)
    np.testing.assert_array_equal(result, masks.materialise(mask, T, T))


def test_an_array_passes_through():
    array = jnp.tril(jnp.ones((1, 1, 3, 3), bool))
    assert masks.materialise(array, 3, 3) is array


@pytest.mark.parametrize(
    "array",
    [
        jnp.ones((1, 1, 3, 3)),
        jnp.ones((1, 1, 3, 3), jnp.int32),
        jnp.ones((3, 3), bool),
        jnp.ones((1, 2, 3, 3), bool),
        jnp.ones((1, 1, 3, 4), bool),
    ],
    ids=["float", "int", "two axes", "one mask a head", "another length"],
)
def test_any_other_array_is_refused(array):
    with pytest.raises(ValueError, match="attn_mask"):
        masks.materialise(array, 3, 3)


KINDS = {
    "full": (masks.full(), lambda b, t, s: True),
    "causal": (masks.causal(), lambda b, t, s: s <= t),
    "padded": (masks.key_padding(jnp.array([4, 2])), lambda b, t, s: s < [4, 2][b]),
}


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_window_hides_what_is_far(kind, size):
    mask, rule = KINDS[kind]

    def near(b, t, s):
        return rule(b, t, s) and abs(s - t) <= size

    result = masks.local(mask, size, T)
    assert not result.is_full()
    check(result, near, 2)
    # An array says the same; of queries that begin later, too.
    array = masks.materialise(mask, T, T)
    check(masks.local(array, size, T), near, 2)
    later = masks.local(array[:, :, 2:3], size, T, first=2)
    np.testing.assert_array_equal(later, masks.local(array, size, T)[:, :, 2:3])


IDS = jnp.array([[1, 1, 2, 2, 2], [1, 0, 0, 3, 3]])
FORMS = {
    "full": masks.full(),
    "causal": masks.causal(),
    "causal segments": masks.causal(IDS),
    "segments": masks.segments(IDS),
    "padded": masks.key_padding(jnp.array([4, 2])),
    "prefix": masks.prefix(jnp.array([3, 0])),
    "prefix keys": masks.prefix_keys(IDS == 1, IDS),
    "blocks": masks.causal_blocks(2, IDS),
}


@pytest.mark.parametrize("name", FORMS)
def test_which_positions_see_the_one_before(name):
    """By structure, and of an array: the diagonal below the main one."""
    mask = FORMS[name]
    array = jnp.broadcast_to(masks.materialise(mask, T, T), (2, 1, T, T))
    below = np.diagonal(array[:, 0], -1, 1, 2)
    expected = np.pad(below, ((0, 0), (1, 0)))
    for each in (mask, array):
        result = masks.sees_previous(each, (2, T))
        np.testing.assert_array_equal(result, expected)
    # Of queries that begin later, as in a cache.
    later = masks.sees_previous(array[:, :, 2:], (2, T - 2), first=2)
    np.testing.assert_array_equal(later, expected[:, 2:])


# Few sizes, for each is compiled: less than a block, blocks of one token, a last one of
# which a part is filled, and whole ones.
@given(
    st.sampled_from([(1, 3), (5, 1), (2, 6), (20, 3), (12, 6)]),
    st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_blocks_hold_every_visible_pair_once(sizes, kind, is_causal):
    """Blocks placed in the whole mask equal the mask."""
    length, size = sizes
    draw = np.random.default_rng(length)
    ids = np.sort(draw.integers(1, 4, (2, length)), axis=1)
    made = {
        0: masks.causal() if is_causal else masks.full(),
        1: masks.causal(jnp.array(ids)) if is_causal else masks.segments(ids),
        2: masks.key_padding(jnp.array([length, length // 2])),
        3: masks.causal() if is_causal else masks.full(),
    }[kind]
    mask = masks.local(made, size, length)
    result = np.asarray(masks.materialise_blocks(mask, length, size))
    expected = np.asarray(masks.materialise(mask, length, length))
    rows = max(len(result), len(expected))
    whole = np.zeros((rows, length, length), int)
    for row, i, t, s in zip(*result[:, :, 0].nonzero(), strict=True):
        query, key = i * size + t, (i - 1) * size + s
        if query < length:  # those that fill up the last block are cut off
            whole[row if len(result) > 1 else slice(None), query, key] += 1
    np.testing.assert_array_equal(whole, np.broadcast_to(expected[:, 0], whole.shape))

"""Noise: exact counts, T5's lengths, and every outcome equally likely."""

import functools
import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.ops import noise


@pytest.mark.parametrize(
    "inputs, density, mean_span, raw, targets",
    [
        (64, 0.20, 2.0, 70, 22),
        (64, 0.20, 1.0, 63, 27),
        (512, 0.15, 3.0, 568, 114),
        (512, 0.15, 8.0, 588, 100),
        (512, 0.50, 3.0, 766, 512),
        (512, 0.50, 8.0, 908, 512),
        (512, 0.15, 64.0, 600, 92),
        (512, 0.50, 64.0, 1006, 512),
    ],
)
def test_lengths_of_t5s_helper(inputs, density, mean_span, raw, targets):
    result = noise.raw_length(inputs, density, mean_span)
    assert result == raw
    assert noise.corrupted_lengths(result, density, mean_span)[1] == targets


def test_t5s_invariant_of_thirty_two_tokens():
    assert noise.count_spans(32, 0.25, 2.0) == (8, 4)


def test_counts_of_noise_are_clamped():
    assert noise.count_spans(10, 0.001, 3.0) == (1, 1)  # at least one token
    assert noise.count_spans(10, 0.999, 3.0) == (9, 3)  # at least one stays


@given(
    inputs=st.integers(3, 600),
    density=st.floats(0.01, 0.99),
    mean_span=st.floats(1.0, 64.0),
)
@settings(max_examples=100, deadline=None)
def test_raw_length_is_the_most_that_fits(inputs, density, mean_span):
    raw = noise.raw_length(inputs, density, mean_span)
    assert noise.corrupted_lengths(raw, density, mean_span)[0] <= inputs
    if density != 0.5:  # there T5 may take one token less
        assert noise.corrupted_lengths(raw + 1, density, mean_span)[0] > inputs


@given(st.integers(1, 600), st.floats(0.01, 0.99))
@settings(max_examples=100, deadline=None)
def test_count_table_is_berts(length, rate):
    table = noise.count_table(length, rate)
    assert table.dtype == np.int32 and len(table) == length + 1 and table[0] == 0
    assert table[length] == max(1, round(length * rate))
    assert (np.diff(table) >= 0).all()


def test_count_table_rounds_as_python_does():
    # Halves go to the even neighbour: 2.5 to 2 and 3.5 to 4.
    assert noise.count_table(14, 0.25)[[10, 14]].tolist() == [2, 4]


@functools.cache
def drawn_spans(length, density, mean_span, num=64):
    """jitted seed -> num masks."""
    draw = functools.partial(
        noise.random_spans, length=length, density=density, mean_span=mean_span
    )
    return jax.jit(
        lambda seed: jax.vmap(draw)(jax.random.split(jax.random.key(seed), num))
    )


SHAPES = [
    (2, 0.5, 1.0),
    (17, 0.5, 1.0),
    (33, 0.9, 20.0),
    (64, 0.15, 3.0),
]


@given(st.sampled_from(SHAPES), st.integers(0, 2**31 - 1))
@settings(max_examples=40, deadline=None)
def test_spans_have_exact_counts(shape, seed):
    num_noise, num_spans = noise.count_spans(*shape)
    masks = np.asarray(drawn_spans(*shape)(seed))
    assert masks.shape == (64, shape[0]) and masks.dtype == bool
    assert (masks.sum(1) == num_noise).all()
    starts = masks & ~np.pad(masks[:, :-1], ((0, 0), (1, 0)))
    assert (starts.sum(1) == num_spans).all()
    assert not masks[:, 0].any() and masks[:, -1].all()


def test_every_pair_of_cuttings_is_equally_likely(is_uniform):
    # 12 tokens, 6 of them noise, 3 spans: C(5, 2) = 10 ways to cut the noise and 10 to
    # cut the rest, drawn apart from each other.
    assert noise.count_spans(12, 0.5, 2.0) == (6, 3)
    masks = np.asarray(drawn_spans(12, 0.5, 2.0, num=40_000)(0))
    counts = Counter(map(bytes, masks))
    assert len(counts) == 100
    assert is_uniform(list(counts.values()))


def test_segmentations_are_nonempty_and_equally_likely(is_uniform):
    keys = jax.random.split(jax.random.key(1), 20_000)
    cut = jax.vmap(lambda key: noise.random_segmentation(key, 6, 3))
    counts = Counter(map(tuple, np.asarray(jax.jit(cut)(keys)).tolist()))
    triples = itertools.product(range(1, 5), repeat=3)
    expected = {triple for triple in triples if sum(triple) == 6}
    assert set(counts) == expected
    assert is_uniform(list(counts.values()))


choose = jax.jit(noise.sample_positions, static_argnames="num_slots")


@given(
    st.lists(st.booleans(), min_size=24, max_size=24),
    st.integers(0, 24),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=80, deadline=None)
def test_chosen_positions_are_distinct_eligible_and_counted(eligible, count, seed):
    eligible = np.array(eligible)
    positions, weights = choose(jax.random.key(seed), eligible, count, num_slots=8)
    positions, weights = np.asarray(positions), np.asarray(weights)
    assert len(set(positions.tolist())) == 8  # also the slots left over
    assert set(weights.tolist()) <= {0.0, 1.0} and weights.dtype == np.float32
    assert weights.sum() == min(count, eligible.sum(), 8)
    assert eligible[positions[weights > 0]].all()


def test_every_subset_is_equally_likely(is_uniform):
    eligible = jnp.array([True, False, True, True, False, True, True])
    keys = jax.random.split(jax.random.key(2), 20_000)
    draw = jax.vmap(lambda key: noise.sample_positions(key, eligible, 2, 3))
    positions, weights = map(np.asarray, jax.jit(draw)(keys))
    assert (weights == [1, 1, 0]).all()
    counts = Counter(tuple(sorted(row)) for row in positions[:, :2].tolist())
    assert set(counts) == set(itertools.combinations([0, 2, 3, 5, 6], 2))
    assert is_uniform(list(counts.values()))


probabilities = jax.jit(noise.inclusion_probabilities)


@given(
    st.lists(
        st.sampled_from([0.0, 0.005, 0.1, 0.5, 3.0, 80.0]), min_size=24, max_size=24
    ),
    st.integers(0, 24),
)
@settings(max_examples=80, deadline=None)
def test_probabilities_are_proportional_and_sum_to_the_count(weights, count):
    weights = np.array(weights, np.float32)
    count = min(count, (weights > 0).sum())
    result = np.asarray(probabilities(weights, count))
    assert result.sum() == pytest.approx(count, abs=1e-4)
    assert ((result >= 0) & (result <= 1)).all()
    is_free = (result < 1) & (weights > 0)
    if count and is_free.any():
        factors = result[is_free] / weights[is_free]
        np.testing.assert_allclose(factors, factors[0], rtol=1e-4)
        # Whatever is 1 would be above 1 by that factor.
        assert (weights[result == 1] * factors[0] > 1 - 1e-4).all()


weighted = jax.jit(noise.sample_weighted_positions, static_argnames="num_slots")


@given(
    st.lists(st.booleans(), min_size=24, max_size=24),
    st.integers(0, 24),
    st.floats(0.01, 9),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=80, deadline=None)
def test_equal_weights_choose_as_none_do(eligible, count, weight, seed):
    eligible = np.array(eligible)
    weights = np.where(eligible, weight, 0).astype(np.float32)
    result = weighted(jax.random.key(seed), weights, count, num_slots=8)
    expected = choose(jax.random.key(seed), eligible, count, num_slots=8)
    np.testing.assert_array_equal(result[1], expected[1])
    if 0 < count < eligible.sum():  # the order of slots without weight is nothing
        drawn = np.asarray(result[1]) > 0
        np.testing.assert_array_equal(result[0][drawn], expected[0][drawn])


def test_a_position_is_chosen_with_its_probability():
    """Also where few are chosen of few, and some surely."""
    weights = jnp.array([1.0, 2.0, 0.0, 4.0, 0.5, 30.0, 1.0])
    keys = jax.random.split(jax.random.key(3), 40_000)
    draw = jax.vmap(lambda key: noise.sample_weighted_positions(key, weights, 3, 4))
    positions, used = map(np.asarray, jax.jit(draw)(keys))
    assert (used == [1, 1, 1, 0]).all()
    shares = np.bincount(positions[:, :3].ravel(), minlength=7) / 40_000
    expected = noise.inclusion_probabilities(weights, 3)
    assert expected[5] == 1
    np.testing.assert_allclose(shares, expected, atol=0.03)


@given(st.integers(2, 80), st.floats(0.01, 0.99), st.floats(1.0, 20.0))
@settings(max_examples=60, deadline=None)
def test_span_tables_are_t5s_wherever_t5_has_an_answer(length, density, mean_span):
    num_noise, num_spans = noise.span_tables(length, density, mean_span)
    assert num_noise[:2].tolist() == num_spans[:2].tolist() == [0, 0]
    for n in range(2, length + 1):
        expected = noise.count_spans(n, density, mean_span)
        assert num_noise[n] == expected[0]
        fits = min(expected[0], n - expected[0])
        assert num_spans[n] == min(expected[1], fits) >= 1


def compositions(total, num_parts):
    """All ways to cut at most `total` into at most `num_parts` lengths, in order."""
    yield ()
    if num_parts:
        for first in range(1, total + 1):
            for rest in compositions(total - first, num_parts - 1):
                yield (first, *rest)


@given(st.integers(2, 9), st.floats(0.05, 0.95), st.floats(1.0, 6.0), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_packed_lengths_are_the_most_of_all_compositions(
    length, density, mean_span, num_documents
):
    num_noise, num_spans = noise.span_tables(length, density, mean_span)

    def lengths(raw, ends_in_eos):
        n = raw - ends_in_eos
        inputs = n - num_noise[n] + num_spans[n] + 1 if n else 0
        return inputs, num_noise[n] + num_spans[n] + 1 if n > 1 else 0

    expected = np.zeros((2, length + 1), int)
    for parts in compositions(length, num_documents):
        most = [
            sum(max(lengths(n, e)[half] for e in (0, 1)) for n in parts)
            for half in (0, 1)
        ]
        total = sum(parts)
        expected[:, total] = np.maximum(expected[:, total], most)
    expected = np.maximum.accumulate(expected, axis=1)
    result = noise.packed_lengths(length, density, mean_span, num_documents)
    np.testing.assert_array_equal(result, expected)


def packed_ids(sizes, length):
    ids = np.repeat(np.arange(len(sizes)) + 1, sizes)
    return np.pad(ids, (0, length - len(ids))).astype(np.int32)


@functools.cache
def spans_packed(density, mean_span):
    draw = functools.partial(
        noise.random_spans_packed, density=density, mean_span=mean_span
    )
    return jax.jit(draw)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.sampled_from([(0.15, 3.0), (0.5, 1.0), (0.5, 3.0), (0.9, 2.0)]),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_each_packed_document_has_its_own_exact_spans(sizes, settings, seed):
    ids = packed_ids(sizes, 200)
    result = np.asarray(spans_packed(*settings)(jax.random.key(seed), ids))
    num_noise, num_spans = noise.span_tables(30, *settings)
    assert not result[ids == 0].any()
    for number, size in enumerate(sizes):
        hidden = result[ids == number + 1]
        starts = hidden & ~np.concatenate([[False], hidden[:-1]])
        assert hidden.sum() == num_noise[size]
        assert starts.sum() == num_spans[size]
        assert not hidden[0] and hidden[-1] == (size > 1)


def test_spans_of_packed_documents_are_equally_likely_and_apart(is_uniform):
    # 4 noise and 4 clean tokens, each cut in 2: 3 * 3 ways; 3 and 3 in 2: 2 * 2 ways.
    assert noise.span_tables(8, 0.5, 2.0)[1][[6, 8]].tolist() == [2, 2]
    ids = jnp.asarray(packed_ids([8, 0, 6], 17))
    keys = jax.random.split(jax.random.key(0), 20_000)
    draw = jax.jit(jax.vmap(lambda key: noise.random_spans_packed(key, ids, 0.5, 2.0)))
    counts = Counter(map(bytes, np.asarray(draw(keys))))
    assert len(counts) == 9 * 4
    assert is_uniform(list(counts.values()))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_documents_are_rolled_round_their_own_ends(sizes, seed):
    ids = packed_ids(sizes, 200)
    hidden = np.random.default_rng(seed).random(200) < 0.5
    result = np.asarray(roll(jax.random.key(seed), hidden, ids))
    for number, size in enumerate(sizes):
        old, new = hidden[ids == number + 1], result[ids == number + 1]
        assert any((np.roll(old, by) == new).all() for by in range(size))


roll = jax.jit(noise.roll_documents)


def test_every_roll_is_as_likely(is_uniform):
    ids = jnp.asarray(packed_ids([5, 3], 9))
    hidden = jnp.array([1, 0, 0, 0, 0, 1, 0, 0, 0]) > 0
    keys = jax.random.split(jax.random.key(0), 6000)
    result = np.asarray(jax.vmap(lambda key: roll(key, hidden, ids))(keys))
    counts = Counter(map(bytes, result))
    assert len(counts) == 5 * 3 and is_uniform(list(counts.values()))

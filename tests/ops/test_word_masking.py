"""Words and spans: BERT's six outcomes, SpanBERT's law, exact counts, borders."""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxpt.ops import noise, word_masking

LENGTH, SLOTS = 24, 12
LENGTHS = word_masking.span_length_probabilities(0.2, 10)


def marked(text):
    """(starts, eligible) of pieces: "##" continues a word, [...] is special."""
    pieces = text.split()
    starts = [not piece.startswith("##") for piece in pieces]
    eligible = [not piece.startswith("[") for piece in pieces]
    return jnp.array(starts), jnp.array(eligible)


@functools.cache
def draw_many(kind, num_slots, lengths=None):
    """jitted (seed, starts, eligible, ids, count) -> 4,000 masks."""

    def draw(key, starts, eligible, ids, count):
        words, stretches = word_masking.find_words(starts, eligible, ids)
        if kind == "words":
            return word_masking.sample_words(key, eligible, words, count, num_slots)
        law = LENGTHS if lengths is None else np.array(lengths)
        args = eligible, words, stretches, count, num_slots, law
        return word_masking.sample_spans(key, *args)

    @jax.jit
    def run(seed, *args):
        keys = jax.random.split(jax.random.key(seed), 4000)
        return jax.vmap(draw, (0, None, None, None, None))(keys, *args)

    return run


def outcomes(kind, text, count, ids=None, lengths=None):
    """How often each set of positions was hidden."""
    starts, eligible = marked(text)
    ids = jnp.ones(len(starts), int) if ids is None else jnp.array(ids)
    masks = draw_many(kind, count, lengths)(0, starts, eligible, ids, count)
    return Counter(tuple(np.flatnonzero(mask).tolist()) for mask in masks)


def test_berts_six_sets_of_whole_words():
    result = outcomes("words", "[CLS] a ##b ##c d e ##f g h ##i [SEP]", 3)
    expected = {(1, 2, 3), (4, 5, 6), (4, 7), (4, 8, 9), (5, 6, 7), (7, 8, 9)}
    assert set(result) == expected
    # The longest word fits only where it comes first, of five.
    assert result[1, 2, 3] / 4000 == pytest.approx(1 / 5, abs=0.02)


def test_a_word_that_is_too_long_is_passed_over_for_good():
    # Each first word leaves too little for the other long one.
    assert set(outcomes("words", "a ##a ##a b ##b ##b c", 4)) == {
        (0, 1, 2, 6),
        (3, 4, 5, 6),
    }
    assert set(outcomes("words", "a ##a ##a", 2)) == {()}


def test_words_end_with_documents_and_at_specials():
    result = outcomes("words", "a b ##c ##d", 1, ids=[1, 1, 2, 2])
    assert set(result) == {(0,), (1,)}  # ##c ##d are a word of two
    assert set(outcomes("words", "a [SEP] ##b ##c", 2)) == {(0,), (2, 3)}
    result = outcomes("spans", "a b c d", 3, ids=[1, 1, 2, 2], lengths=(0, 0, 0, 1))
    assert set(result) == {(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)}
    result = outcomes("spans", "a b c d", 2, [1, 1, 2, 2], (0, 1))
    assert set(result) == {(0, 1), (2, 3), (0, 3), (1, 2), (1, 3)}
    # Nothing follows b: only then c is drawn, of three.
    assert result[1, 2] / 4000 == pytest.approx(1 / 12, abs=0.02)


def test_the_law_of_spans_is_cut_off_and_renormalised():
    """Megatron's clipped law has P(10) = .1342 and mean 4.463."""
    assert LENGTHS[0] == pytest.approx(0.2241, abs=5e-5)
    assert LENGTHS[9] == pytest.approx(0.0301, abs=5e-5)
    assert LENGTHS @ np.arange(1, 11) == pytest.approx(3.797, abs=5e-4)
    assert LENGTHS.sum() == pytest.approx(1)


def test_lengths_of_spans_are_of_that_law_in_words():
    # One turn in a row of 30 words of two pieces.
    ids, starts = jnp.ones(60, int), jnp.arange(60) % 2 == 0
    words, stretches = word_masking.find_words(starts, ids > 0, ids)

    def draw(key):
        args = ids > 0, words, stretches, jnp.array(60), 1, LENGTHS
        return word_masking.sample_spans(key, *args)

    keys = jax.random.split(jax.random.key(0), 20_000)
    masks = np.asarray(jax.jit(jax.vmap(draw))(keys))
    assert (masks[:, ::2] == masks[:, 1::2]).all()
    counts = np.bincount(masks[:, ::2].sum(1), minlength=11)[1:]
    # What would reach beyond the row ends there.
    expected = [
        LENGTHS[n - 1] * (31 - n) / 30 + LENGTHS[n:].sum() / 30 for n in range(1, 11)
    ]
    assert stats.chisquare(counts, 20_000 * np.array(expected)).pvalue > 1e-6


def test_counts_round_up_whatever_floating_point_says():
    """BART's reference hides 31 of 100 words at 0.3, for float32 has 30.000001."""
    assert noise.ceil_table(100, 0.3)[-1] == 30
    assert noise.ceil_table(100, 0.07)[-1] == 7  # float64: 7.000000000000001
    assert noise.ceil_table(512, 0.15)[-1] == 77
    assert noise.ceil_table(128, 0.15)[[0, 1, 7, 20, 21]].tolist() == [0, 1, 2, 3, 4]


@given(st.integers(0, 300), st.integers(1, 99))
@settings(max_examples=50, deadline=None)
def test_ceil_table_is_exact(length, percent):
    table = noise.ceil_table(length, percent / 100)
    assert table.tolist() == [-(-n * percent // 100) for n in range(length + 1)]


@functools.cache
def draw_rows():
    """jitted (seed, starts, eligible, ids, count) -> 8 word masks, 8 span masks."""

    def draw(key, starts, eligible, ids, count):
        words, stretches = word_masking.find_words(starts, eligible, ids)
        by_word = word_masking.sample_words(key, eligible, words, count, SLOTS)
        args = eligible, words, stretches, count, SLOTS, LENGTHS
        return by_word, word_masking.sample_spans(key, *args), words, stretches

    @jax.jit
    def run(seed, *args):
        keys = jax.random.split(jax.random.key(seed), 8)
        return jax.vmap(draw, (0, None, None, None, None))(keys, *args)

    return run


flags = st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH)


@given(
    flags,
    flags,
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.integers(0, SLOTS),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=80, deadline=None)
def test_counts_and_borders_of_words_and_spans(starts, eligible, sizes, count, seed):
    ids = np.repeat(np.arange(len(sizes)) + 1, sizes)[:LENGTH]
    ids = np.pad(ids, (0, LENGTH - len(ids)))
    eligible = np.array(eligible) & (ids > 0)
    args = jnp.array(starts), jnp.array(eligible), jnp.array(ids), jnp.array(count)
    by_word, by_span, words, stretches = map(np.asarray, draw_rows()(seed, *args))
    words, stretches = words[0], stretches[0]
    # Words and stretches are within documents, and have eligible tokens only.
    for number in np.unique(stretches[eligible]):
        within = (stretches == number) & eligible
        assert len(set(ids[within])) == 1
        places = np.flatnonzero(within)
        assert (np.diff(places) == 1).all()
    for mask in by_word:
        assert not (mask & ~eligible).any() and mask.sum() <= count
        left = count - mask.sum()
        for word in np.unique(words[eligible]):
            own = (words == word) & eligible
            assert mask[own].all() or not mask[own].any()
            assert mask[own].all() or own.sum() > left  # else it would have fitted
    for mask in by_span:
        assert not (mask & ~eligible).any()
        assert mask.sum() == min(count, eligible.sum())
        # Only the last span may be cut, and so one word.
        cut = [
            word
            for word in np.unique(words[eligible])
            if 0 < mask[(words == word) & eligible].mean() < 1
        ]
        assert len(cut) <= 1
        for word in cut:
            own = mask[(words == word) & eligible]
            assert own[: own.sum()].all()  # from its beginning


def test_every_token_is_as_likely_to_begin_a_span(is_uniform):
    ids = jnp.ones(9, int)
    ones = jnp.ones(9, bool)
    run = draw_many("spans", 1, (1.0,))
    masks = np.asarray(run(0, ones, ones, ids, 1))
    assert is_uniform(masks.sum(0))
    # By its tokens: a word of three is begun three times as often as one of one.
    starts = jnp.array([1, 0, 0, 1]) > 0
    masks = np.asarray(draw_many("spans", 3, (1.0,))(0, starts, ones[:4], ids[:4], 1))
    assert masks[:, 0].mean() == pytest.approx(0.75, abs=0.03)
    assert not masks[:, 1:3].any()


def test_slots_are_filled_in_order():
    positions, weights = word_masking.find_masked_positions(jnp.arange(9) % 4 == 2, 4)
    assert positions[:2].tolist() == [2, 6] and weights.tolist() == [1, 1, 0, 0]
    assert len(set(positions.tolist())) == 4


def test_a_hash_tells_rows_apart():
    draw = np.random.default_rng(0)
    rows = draw.integers(0, 50_000, (3000, 64)).astype(np.int32)
    rows[1::3] = rows[::3]
    rows[1::3, 5] += 1  # a neighbour
    rows[2::3] = rows[::3, ::-1]  # another order
    hashed = jax.jit(jax.vmap(word_masking.hash_tokens))(
        rows, np.ones(rows.shape, bool)
    )
    for half in hashed:
        assert len(np.unique(half)) == 3000

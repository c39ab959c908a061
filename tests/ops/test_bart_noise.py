"""Exact budgets, sentences that move, rotations: each text of a row separately."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.ops import bart_noise, noise

R, T = 24, 30
RATES = (0.05, 0.3, 0.75)
CHANCES = bart_noise.poisson_table(3.0)
SEEDS = st.integers(0, 2**31 - 1)
TEXTS = st.lists(st.integers(0, 8), min_size=1, max_size=8)


def lay_out(sizes):
    """Texts of these lengths in a row, each followed by a fixed token."""
    ids = [i for n, size in enumerate(sizes, 1) for i in [n] * size + [0]]
    return np.array((ids + [0] * R)[:R], np.int32)


def test_budgets_are_exact_where_float32_rounds_up():
    """fairseq: ceil of a float32 product makes 31 of 100 words at .3 (30.000001)."""
    reference = math.ceil(np.float32(100) * np.float32(0.3).astype(np.float64))
    assert reference == 31 and noise.ceil_table(100, 0.3)[100] == 30
    # In float64 too some products are a little more than whole.
    assert math.ceil(100 * 0.07) == 8 and noise.ceil_table(100, 0.07)[100] == 7
    assert noise.ceil_table(10, 0.0).tolist() == [0] * 11
    assert noise.ceil_table(3, 0.01).tolist() == [0, 1, 1, 1]


def test_lengths_are_poissons():
    for mean, first in ((3.0, 0.0498), (3.5, 0.0302)):
        table = bart_noise.poisson_table(mean)
        assert table[0] == pytest.approx(first, abs=5e-5)
        assert table.sum() == pytest.approx(1, abs=1e-12)
        assert table @ np.arange(len(table)) == pytest.approx(mean, abs=1e-5)
        # fairseq's table ends at the first chance below 1e-7.
        assert table[-1] < 1e-7 <= table[-2]
    assert len(bart_noise.poisson_table(3.0)) == 18


def test_a_large_mean_is_no_table_of_zero():
    """fairseq's ends at once where e^-mean < 1e-7, and its spans never end."""
    table = bart_noise.poisson_table(20.0)
    assert table @ np.arange(len(table)) == pytest.approx(20, abs=1e-4)


@jax.jit
def infill_all(rng, texts):
    """At three rates, in one program."""
    budgets = [jnp.asarray(noise.ceil_table(R, rate)) for rate in RATES]
    return [bart_noise.infill_spans(rng, texts, b, CHANCES) for b in budgets]


@given(TEXTS, SEEDS)
@settings(max_examples=60, deadline=None)
def test_spans_hide_exactly_the_budget_of_each_text(sizes, seed):
    texts = lay_out(sizes)
    for rate, result in zip(
        RATES, infill_all(jax.random.key(seed), texts), strict=True
    ):
        hidden, first, zeros = map(np.asarray, result)
        assert not hidden[texts == 0].any() and not zeros[texts == 0].any()
        assert (hidden | ~first).all() and (zeros >= 0).all()
        for text in set(texts.tolist()) - {0}:
            own = texts == text
            assert hidden[own].sum() == math.ceil(round(rate * own.sum(), 9))
            # Every run of hidden tokens begins a span.
            begins = own & hidden & ~np.append(False, (own & hidden)[:-1])
            assert (first | ~begins).all()


def draw_slowly(rng, budget):
    """Lengths as fairseq draws them: to the budget, the last cut, 0 for insertions."""
    lengths = []
    while sum(lengths) < budget:
        lengths.append(rng.choice(len(CHANCES), p=CHANCES))
    lengths[-1] -= sum(lengths) - budget
    return lengths


def test_spans_are_as_many_as_the_sources_and_zeros_are_kept():
    """transformers' Flax script drops lengths of 0; here they become insertions."""
    keys = jax.random.split(jax.random.key(0), 4000)
    texts, budgets = (
        jnp.ones(100, jnp.int32),
        jnp.asarray(noise.ceil_table(100, 0.3)),
    )
    run = jax.jit(
        jax.vmap(lambda key: bart_noise.infill_spans(key, texts, budgets, CHANCES))
    )
    hidden, first, zeros = map(np.asarray, run(keys))
    assert (hidden.sum(1) == 30).all()
    rng = np.random.default_rng(0)
    slow = [draw_slowly(rng, 30) for _ in range(2000)]
    for result, expected in (
        (first.sum(1), [sum(n > 0 for n in lengths) for lengths in slow]),
        (zeros.sum(1), [lengths.count(0) for lengths in slow]),
    ):
        spread = np.std(expected) * (1 / 2000 + 1 / 4000) ** 0.5
        assert abs(result.mean() - np.mean(expected)) < 5 * spread
        assert np.std(result) == pytest.approx(np.std(expected), rel=0.1)
    assert zeros.sum() / (zeros.sum() + first.sum()) == pytest.approx(0.0498, abs=0.004)
    # Lengths one by one, but for the last, which is cut.
    sizes = [np.diff(np.append(np.flatnonzero(f), 100)) for f in first[:500]]
    alone = [n for row, f in zip(hidden, sizes) for n in f if n <= row.sum()]
    assert 1 in alone and max(alone) > 5
    # No place is preferred: the same from both ends.
    share = hidden.mean(0)
    assert abs(share - share[::-1]).max() < 5 * (0.5 / 4000) ** 0.5


def test_the_span_that_is_cut_lies_anywhere():
    """Spans of 2 for a budget of 3: as often 1 and 2 tokens as 2 and 1."""
    chances, budgets = np.array([0.0, 0.0, 1.0]), jnp.full(9, 3)
    texts = jnp.ones(8, jnp.int32)
    run = jax.jit(
        jax.vmap(lambda key: bart_noise.infill_spans(key, texts, budgets, chances))
    )
    hidden, first, zeros = map(
        np.asarray, run(jax.random.split(jax.random.key(0), 3000))
    )
    assert (first.sum(1) == 2).all() and (zeros == 0).all()
    starts = [np.flatnonzero(row) for row in first]
    sizes = [row[a:b].sum() for row, (a, b) in zip(hidden, starts, strict=True)]
    assert set(sizes) == {1, 2} and abs(np.mean(sizes) - 1.5) < 5 * 0.5 / 3000**0.5


def place_as_fairseq(rng, length, budget):
    """Spans from random places on, which may meet: what is hidden, and the masks."""
    lengths = draw_slowly(rng, budget)
    sizes = [n for n in lengths if n]
    starts = rng.permutation(length)[: len(sizes)]
    hidden = np.zeros(length, bool)
    masks = set(starts.tolist())
    for start, size in zip(starts, sizes, strict=True):
        hidden[start : start + size] = True
        masks -= set(range(start + 1, start + size))
    return hidden.sum(), len(masks) + lengths.count(0)


def test_the_source_hides_less_than_its_budget():
    """Of 100 words at .3 it removes 27.5 behind 9.0 masks, at most its 31."""
    rng = np.random.default_rng(0)
    result = np.array([place_as_fairseq(rng, 100, 31) for _ in range(4000)])
    assert result[:, 0].max() == 31
    assert result.mean(0) == pytest.approx([27.5, 9.0], abs=0.35)


@jax.jit
def permute_all(rng, sentences, texts):
    return [
        bart_noise.permute_sentences(rng, sentences, texts, share)
        for share in (0.5, 1.0)
    ]


@given(TEXTS, st.lists(st.booleans(), min_size=R, max_size=R), SEEDS)
@settings(max_examples=60, deadline=None)
def test_sentences_are_kept_whole_and_fixed_tokens_stay(sizes, starts, seed):
    texts, sentences = lay_out(sizes), np.cumsum(starts).astype(np.int32)
    for share, order in zip(
        (0.5, 1.0), permute_all(jax.random.key(seed), sentences, texts), strict=True
    ):
        order = np.asarray(order)
        assert sorted(order.tolist()) == list(range(R))
        assert (order[texts == 0] == np.flatnonzero(texts == 0)).all()
        assert (texts[order] == texts).all()
        moved = 0
        for text in set(texts.tolist()) - {0}:
            own = np.flatnonzero(texts == text)
            ids = sentences[own]
            groups = [own[ids == i].tolist() for i in dict.fromkeys(ids.tolist())]
            now = order[own].tolist()
            results = [
                list(next(g for g in groups if g[0] == now[i]))
                for i in np.flatnonzero(np.append(True, np.diff(sentences[now]) != 0))
            ]
            assert sorted(results) == groups and sum(results, []) == now
            moved = sum(a != b for a, b in zip(results, groups, strict=True))
            assert moved <= math.ceil(len(groups) * share)


def test_every_order_of_the_sentences_is_as_likely():
    """fairseq's permutation does nothing where no id is that of its full stop, and its
    last sentence never moves if it is one token: here it is [6]."""
    texts = jnp.array([0, 1, 1, 1, 1, 1, 1, 0])
    sentences = jnp.array([1, 1, 1, 2, 2, 2, 3, 3])
    keys = jax.random.split(jax.random.key(0), 3000)
    run = jax.jit(
        jax.vmap(lambda key: bart_noise.permute_sentences(key, sentences, texts, 1.0))
    )
    result, counts = np.unique(np.asarray(run(keys)), axis=0, return_counts=True)
    assert len(result) == 6
    assert abs(counts - 500).max() < 5 * (500 * 5 / 6) ** 0.5
    assert {tuple(row) for row in result.tolist()} >= {
        (0, 6, 1, 2, 3, 4, 5, 7),
        (0, 1, 2, 6, 3, 4, 5, 7),
    }


@given(TEXTS, SEEDS)
@settings(max_examples=30, deadline=None)
def test_tokens_are_chosen_by_the_text(sizes, seed):
    texts = lay_out(sizes)
    eligible = np.random.default_rng(seed).random(R) < 0.7
    budgets = noise.ceil_table(R, 0.3)
    chosen = np.asarray(choose(jax.random.key(seed), texts, eligible, budgets))
    assert (eligible | ~chosen).all() and not chosen[texts == 0].any()
    for text in set(texts.tolist()) - {0}:
        own = texts == text
        assert chosen[own].sum() == min(budgets[own.sum()], (eligible & own).sum())


choose = jax.jit(bart_noise.sample_tokens)
write = jax.jit(bart_noise.insert_and_rotate, static_argnums=(6, 7, 8, 9))


@given(TEXTS, st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]), SEEDS)
@settings(max_examples=80, deadline=None)
def test_what_is_written(sizes, inserts, rotate, seed):
    texts, draw = lay_out(sizes), np.random.default_rng(seed)
    size = min(sum(sizes) + len(sizes), R)
    segments = (np.arange(R) < size).astype(np.int32)
    keep, tokens = draw.random(R) < 0.8, np.arange(R, dtype=np.int32) + 100
    keep |= texts == 0
    adds = np.zeros(R, np.int32)
    for text in set(texts.tolist()) - {0}:
        adds[np.flatnonzero(texts == text)[0]] = inserts
    args = tokens, keep, texts, segments, adds, 7, rotate, T, 0
    row, ids = map(np.asarray, write(jax.random.key(seed), *args))
    assert (ids[row == 0] == 0).all() and (ids[row > 0] == 1).all()
    num = (row > 0).sum()
    assert (row[num:] == 0).all()
    expected = (keep & (segments > 0)).sum() + adds.sum()
    assert num == min(expected, T)  # nothing is lost but insertions
    if expected > T:
        return
    place = 0
    borders = np.flatnonzero(np.diff(texts[:size], prepend=-1, append=-1))
    for start, stop in zip(borders[:-1], borders[1:], strict=True):
        own = (np.flatnonzero(keep[start:stop]) + start + 100).tolist()
        is_text = texts[start] > 0
        result = row[place:][: len(own) + inserts * is_text].tolist()
        place += len(result)
        assert result.count(7) == inserts * is_text
        turned = [own[i:] + own[:i] for i in range(max(len(own), 1))]
        kept = [x for x in result if x != 7]
        assert kept in (turned if rotate and is_text else turned[:1])
        if rotate == 1.0 and is_text and len(own) > 1 and not inserts:
            assert kept != own
    assert place == num


def test_rotation_begins_at_any_other_token():
    """Of 1 to n - 1, all as likely; fairseq's range has offsets that turn nothing."""
    texts = np.array([0, 1, 1, 1, 1, 0], np.int32)
    tokens, ones = np.arange(6, dtype=np.int32) + 5, np.ones(6, np.int32)
    run = jax.jit(
        jax.vmap(
            lambda key: bart_noise.insert_and_rotate(
                key, tokens, ones > 0, texts, ones, 0 * ones, 4, 1.0, 6
            )[0]
        )
    )
    rows = np.asarray(run(jax.random.split(jax.random.key(0), 3000)))
    assert (rows[:, 0] == 5).all() and (rows[:, 5] == 10).all()
    first, counts = np.unique(rows[:, 1], return_counts=True)
    assert first.tolist() == [7, 8, 9]
    assert abs(counts - 1000).max() < 5 * (1000 * 2 / 3) ** 0.5
    assert (np.diff(rows[:, 1:5], axis=1) % 4 == 1).all()


def test_insertions_stand_anywhere():
    """Every subset of the places of the result is as likely."""
    texts = np.array([1, 1, 0], np.int32)
    ones = np.ones(3, np.int32)
    run = jax.jit(
        jax.vmap(
            lambda key: bart_noise.insert_and_rotate(
                key, ones + 4, ones > 0, texts, ones, ones[:1] * (texts > 0), 4, 0.0, 5
            )[0]
        )
    )
    rows = np.asarray(run(jax.random.split(jax.random.key(0), 3000)))
    result, counts = np.unique(rows == 4, axis=0, return_counts=True)
    assert (rows[:, 4] == 5).all() and len(result) == 6
    assert abs(counts - 500).max() < 5 * (500 * 5 / 6) ** 0.5
    # Neighbours of two documents do not mix: their fixed tokens are one run.
    ids = np.array([1, 1, 2, 2], np.int32)
    texts = np.array([1, 0, 0, 2], np.int32)
    args = np.arange(4, dtype=np.int32) + 5, ids > 0, texts, ids, 0 * ids, 4, 1.0, 5
    row, result = bart_noise.insert_and_rotate(jax.random.key(0), *args)
    assert row.tolist() == [5, 6, 7, 8, 0] and result.tolist() == [1, 1, 2, 2, 0]

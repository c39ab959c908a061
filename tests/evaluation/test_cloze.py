"""The one question to every objective that fills masks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.evaluation import cloze, readings
from jaxpt.judge.examples import means

MASK, EOS, V = 1, 0, 12
BANNED = [EOS, MASK, V - 1]  # the last one is padding of the model


def draw_rows(seed, num=6, length=40):
    rows = np.random.default_rng(seed).integers(2, V - 1, (num, length), np.int32)
    rows[:, 7] = EOS
    return rows


def ask(logits_of, rows, batch_size=4, length=0):
    """`measure_cloze` of a model, and the rows that it read."""
    read = []

    def fill_scores(params, batch, allowed):
        read.append(batch["tokens"])
        logits = jnp.asarray(logits_of(batch["tokens"]))
        score = jax.jit(readings.score_masked)
        return score(logits, batch["positions"], batch["targets"], allowed)

    length = length or rows.shape[1]
    ids = MASK, BANNED, V
    result = cloze.measure_cloze(fill_scores, None, rows, *ids, batch_size, length)
    return means(result), read


@given(st.integers(1, 70), st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=60)
def test_the_share_is_exact_and_neither_first_nor_last_nor_special(length, seed, share):
    rng = np.random.default_rng(seed)
    rows = rng.integers(2, V, (5, length), np.int32)
    rows[rng.random(rows.shape) < share] = EOS
    places, counts = cloze.sample_positions(rows, np.array(BANNED))
    expected = min(max(1, round(0.15 * length)), length)
    assert places.shape == counts.shape == (5, expected)
    for row, chosen, is_asked in zip(rows, places, counts, strict=True):
        can = [i for i in range(1, length - 1) if row[i] not in BANNED]
        positions = chosen[is_asked].tolist()
        assert len(positions) == min(expected, len(can)) and set(positions) <= set(can)
        assert len(set(chosen.tolist())) == expected
    again, _ = cloze.sample_positions(rows, np.array(BANNED))
    assert (again == places).all()


def test_what_a_model_reads_is_the_text_with_masks_in_it():
    rows = draw_rows(0)
    _, read = ask(lambda tokens: np.zeros((*tokens.shape, V), np.float32), rows, 6)
    places, _ = cloze.sample_positions(rows, np.array(BANNED))
    expected = rows.copy()
    np.put_along_axis(expected, places, MASK, 1)
    assert (read[0] == expected).all() and (rows != MASK).all()
    assert (expected == MASK).sum(1).tolist() == [6] * 6


def test_who_reads_all_but_the_last_is_asked_the_same():
    rows, table = draw_rows(5, num=8), np.random.default_rng(0).normal(size=(V, V))
    result, read = ask(lambda t: table[t].astype(np.float32), rows, 8, 39)
    whole, all_of_it = ask(lambda t: table[t].astype(np.float32), rows, 8)
    np.testing.assert_array_equal(read[0], all_of_it[0][:, :-1])
    assert result == whole
    with pytest.raises(ValueError, match="38 of 40 tokens"):
        ask(None, rows, 8, 38)


def test_one_who_knows_the_text_fills_in_all():
    rows = draw_rows(1, num=8)
    whole = iter(np.split(rows, 2))
    result, _ = ask(lambda _: 50 * np.eye(V, dtype=np.float32)[next(whole)], rows)
    assert result["cloze_accuracy"] == 1 and result["cloze_bits"] < 1e-6


def test_one_who_knows_nothing_has_the_bits_of_the_words():
    """Banned ids have probability 0, for any scores."""

    def guess(tokens):
        logits = np.zeros((*tokens.shape, V), np.float32)
        logits[..., BANNED] = 90.0
        return logits

    result, _ = ask(guess, draw_rows(2))
    assert result["cloze_bits"] == pytest.approx(math.log2(V - len(BANNED)))
    # Equal scores share the credit, as in the choice, whichever id the lowest is.
    assert result["cloze_accuracy"] == pytest.approx(1 / (V - len(BANNED)))


def test_scores_by_hand():
    logits = jnp.log(jnp.array([[[1.0, 1, 1, 1], [0.1, 0.2, 0.3, 0.4]]]))
    allowed = jnp.array([False, True, True, True])
    nll, hits = readings.score_masked(
        logits, jnp.array([[1, 0]]), jnp.array([[3, 2]]), allowed
    )
    np.testing.assert_allclose(nll, [[-math.log(4 / 9), math.log(3)]], rtol=1e-6)
    np.testing.assert_allclose(hits, [[1, 1 / 3]], rtol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 8, 11])
def test_the_size_of_a_batch_changes_nothing(batch_size):
    rows, table = draw_rows(3, num=8), np.random.default_rng(0).normal(size=(V, V))
    result, _ = ask(lambda tokens: table[tokens].astype(np.float32), rows, batch_size)
    whole, _ = ask(lambda tokens: table[tokens].astype(np.float32), rows, 8)
    assert result == pytest.approx(whole)


def test_few_scores_exist_at_once(monkeypatch):
    monkeypatch.setattr(cloze, "MAX_LOGITS", 2 * 40 * V)
    _, read = ask(lambda t: np.zeros((*t.shape, V), np.float32), draw_rows(4), 6)
    assert [len(tokens) for tokens in read] == [2, 2, 2]


def test_text_without_words_is_not_asked_about():
    rows = np.full((4, 8), EOS, np.int32)
    result, _ = ask(lambda t: np.zeros((*t.shape, V), np.float32), rows)
    assert result == {}

"""Tests of CKA and contextuality: reference vectors, invariances, what bias hides."""

import numpy as np
import pytest

from jaxpt.evaluation import similarity
from jaxpt.evaluation.similarity import linear_cka

X = np.array([[1.0, 0], [0, 1], [1, 1], [2, -1]])
Y = np.array([[2.0, 1], [0, 1], [1, 3], [4, 0]])
THREE = np.array([[1.0, 0], [0, 1], [1, 1]])


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_the_reference_value_is_that_of_centred_columns():
    assert linear_cka(X, Y) == pytest.approx(0.944518, abs=1e-6)
    raw = similarity.biased_hsic(X, Y) / np.sqrt(
        similarity.biased_hsic(X, X) * similarity.biased_hsic(Y, Y)
    )
    assert raw == pytest.approx(0.955191, abs=1e-6)  # what uncentred columns give


@pytest.mark.parametrize("is_debiased", [False, True])
def test_rotation_scale_and_shift_change_nothing(is_debiased):
    x = draw(50, 6)
    turn, _ = np.linalg.qr(draw(6, 6, seed=1))
    moved = 3 * x @ turn + draw(6, seed=2)
    assert linear_cka(x, moved, is_debiased=is_debiased) == pytest.approx(1)
    bent = moved @ np.diag([9, 1, 1, 1, 1, 1])
    assert linear_cka(x, bent, is_debiased=is_debiased) < 0.95


def test_what_has_nothing_in_common_looks_alike_unless_debiased():
    """With 100 tokens and 1,000 widths, as the reference has it."""
    x, y = draw(100, 1000), draw(100, 1000, seed=1)
    assert linear_cka(x, y) == pytest.approx(0.91, abs=0.01)
    assert abs(linear_cka(x, y, is_debiased=True)) < 0.01


def test_the_unbiased_estimate_is_the_formula_with_kernels():
    x, y = draw(12, 3), draw(12, 5, seed=1) + 1
    n = len(x)
    k, l = x @ x.T, y @ y.T  # noqa: E741
    np.fill_diagonal(k, 0)
    np.fill_diagonal(l, 0)
    expected = np.trace(k @ l) + k.sum() * l.sum() / ((n - 1) * (n - 2))
    expected = (expected - 2 / (n - 2) * (k @ l).sum()) / (n * (n - 3))
    assert similarity.unbiased_hsic(x, y) == pytest.approx(expected)


def test_its_mean_over_independent_samples_is_zero():
    rng = np.random.default_rng(0)
    results = [
        similarity.unbiased_hsic(rng.normal(size=(8, 3)), rng.normal(size=(8, 3)))
        for _ in range(2000)
    ]
    assert abs(np.mean(results)) < 4 * np.std(results) / np.sqrt(2000)


def test_a_matrix_of_readings_of_any_width():
    states = [draw(40, 5), draw(40, 7, seed=1), draw(40, 5)]
    result = similarity.cka_matrix(states, is_debiased=True)
    assert np.array_equal(result, result.T)
    assert result[0, 2] == pytest.approx(1) and result[0, 0] == pytest.approx(1)
    expected = linear_cka(states[1], states[0], is_debiased=True)
    assert result[0, 1] == expected


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="4 and 3 tokens"):
        linear_cka(X, Y[:3])
    with pytest.raises(ValueError, match="3 tokens: a debiased"):
        linear_cka(X[:3], Y[:3], is_debiased=True)
    assert np.isnan(linear_cka(X, np.ones((4, 2))))


def test_the_reference_contextuality():
    assert similarity.self_similarity(THREE) == pytest.approx(0.471405, abs=1e-6)
    assert similarity.max_explained_variance(THREE) == pytest.approx(0.75)
    static = np.tile([1.0, 2.0], (4, 1))
    assert similarity.self_similarity(static) == pytest.approx(1)
    assert similarity.max_explained_variance(static) == pytest.approx(1)


def test_anisotropy_is_the_mean_over_all_pairs_of_different_rows():
    units = draw(4, 3, 5) + 0.5
    units /= np.linalg.norm(units, axis=-1, keepdims=True)
    pairs = [
        units[i, a] @ units[j, b]
        for i in range(4)
        for j in range(4)
        for a in range(3)
        for b in range(3)
        if i != j
    ]
    assert similarity.anisotropy(units) == pytest.approx(np.mean(pairs))


def test_one_vector_a_token_is_no_context_and_a_shift_is_anisotropy():
    tokens = np.random.default_rng(0).integers(0, 6, (12, 8))
    table = draw(6, 32)
    static = similarity.measure_contextuality(table[tokens], tokens)
    assert static.num_tokens == 6
    assert static.self_similarity == pytest.approx(1)
    assert static.max_explained_variance == pytest.approx(1)
    shifted = similarity.measure_contextuality(table[tokens] + 20, tokens)
    assert shifted.anisotropy > 0.99 > static.anisotropy
    assert shifted.adjusted == pytest.approx(1 - shifted.anisotropy)
    anything = similarity.measure_contextuality(draw(12, 8, 32), tokens)
    assert abs(anything.adjusted) < 0.1


def test_one_occurrence_a_row_counts_and_rare_tokens_do_not():
    tokens = np.array([[1, 1, 2], [1, 3, 2], [4, 1, 5]])
    assert len(similarity.find_occurrences(tokens, 3)) == 1
    assert len(similarity.find_occurrences(tokens, 2)) == 2
    none = similarity.measure_contextuality(draw(3, 3, 4), tokens, least=4)
    assert none.num_tokens == 0 and np.isnan(none.self_similarity)
    many = np.ones((300, 2), int)
    (places,) = similarity.find_occurrences(many, 5)
    assert len(places[0]) == similarity.MAX_OCCURRENCES == len(set(places[0]))

"""The exact probe: standardised by training, converged, chosen on dev."""

import numpy as np
import pytest

from jaxpt.evaluation import linear_probe
from jaxpt.evaluation.linear_probe import STRENGTHS, fit_probe


def make_data(num=120, dim=5, seed=0):
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(num, dim)) * 10.0 ** np.arange(dim) + 3
    scores = (vectors - 3) / 10.0 ** np.arange(dim) @ np.arange(1, dim + 1)
    return vectors, (scores + draw.normal(size=num) > 0).astype(int)


def test_it_has_converged():
    """The gradient of the penalised loss is zero, by the definition of both."""
    vectors, labels = make_data()
    probe = fit_probe(vectors, labels, vectors, labels)
    regression = probe.model[-1]
    x = (vectors - vectors.mean(0)) / vectors.std(0)
    w, b = regression.coef_[0], regression.intercept_[0]
    error = 1 / (1 + np.exp(-(x @ w + b))) - labels
    slope = probe.strength * error @ x + w, probe.strength * error.sum()
    assert max(map(abs, (*slope[0], slope[1]))) < 1e-5 * probe.strength * len(labels)


def test_dev_is_standardised_by_the_training_examples():
    """Moved or scaled together, all answers are the same; dev alone, they are not."""
    vectors, labels = make_data()
    dev, dev_labels = make_data(40, seed=1)
    one = fit_probe(vectors, labels, dev, dev_labels)
    two = fit_probe(vectors * 7 - 2, labels, dev * 7 - 2, dev_labels)
    assert one.dev == two.dev
    three = fit_probe(vectors, labels, dev * 7 - 2, dev_labels)
    assert three.dev != one.dev


def test_the_strength_is_the_best_on_dev_and_the_smallest_of_equals():
    vectors, labels = make_data()
    dev, dev_labels = make_data(40, seed=1)
    probe = fit_probe(vectors, labels, dev, dev_labels)
    best = max(probe.dev.values())
    assert set(probe.dev) == set(STRENGTHS)
    assert probe.strength == min(c for c, x in probe.dev.items() if x == best)
    assert np.mean(probe.predict(dev) == dev_labels) == best > 0.8


def test_what_cannot_be_fitted_is_refused(refuses, monkeypatch):
    vectors, labels = make_data(20)
    with refuses("one label", "20 training examples"):
        fit_probe(vectors, np.zeros(20), vectors, labels)
    monkeypatch.setattr(linear_probe, "MOST_STEPS", 1)
    with refuses("has not converged after 1 steps"):
        fit_probe(vectors, labels, vectors, labels)


@pytest.mark.parametrize("num_labels", [3])
def test_several_labels(num_labels):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, num_labels, 60)
    vectors = np.eye(num_labels)[labels] + 0.1 * draw.normal(size=(60, num_labels))
    probe = fit_probe(vectors, labels, vectors, labels)
    assert np.array_equal(probe.predict(vectors), labels)

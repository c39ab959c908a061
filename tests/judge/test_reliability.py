"""Split-half reliability: a ranking that another half of the text repeats, or not."""

from pathlib import Path

import numpy as np
import pytest
from reports import make_report, make_runs, vary

from jaxpt.comparison.studies import load_study
from jaxpt.judge.examples import Examples
from jaxpt.judge.reliability import FEWEST, LEAST, split_half
from jaxpt.report.metrics import (
    list_reliability,
    list_unreliable,
    measure_reliability,
)
from jaxpt.report.terminal import list_warnings
from jaxpt.report.types import RunEntry

RESULTS = Path(__file__).parents[2] / "results"


def draw(signal, noise, num_names=8, num_docs=60, per_doc=5, seed=0, num_seeds=2):
    """Values of each name: its own level, and noise of each example."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(num_docs), per_doc)
    levels = rng.normal(0, signal, num_names)
    return {
        f"n{i}": [
            Examples(
                rng.normal(level, noise, len(groups)), np.ones(len(groups)), groups
            )
            for _ in range(num_seeds)
        ]
        for i, level in enumerate(levels)
    }


@pytest.mark.parametrize("signal", [0.03, 0.1, 0.5])
def test_it_is_the_share_of_variance_that_is_not_noise(signal):
    """Of half of the text: half of 60 documents of 5 examples, of two runs."""
    noise = 1.0 / np.sqrt(2 * 150)
    expected = signal**2 / (signal**2 + noise**2)
    values = [split_half(draw(signal, 1.0, 40, seed=seed)) for seed in range(20)]
    assert np.mean(values) == pytest.approx(expected, abs=0.06)


def test_without_a_difference_it_is_near_zero():
    values = [split_half(draw(0.0, 1.0, 12, seed=seed)) for seed in range(20)]
    assert abs(np.mean(values)) < 0.15 and max(values) < LEAST + 0.2


def test_two_objectives_and_one_document():
    assert split_half(draw(1.0, 0.1, num_names=2)) > 0.99
    one = draw(1.0, 0.1, num_docs=1, per_doc=600)
    assert split_half(one) > 0.99  # cut into blocks


def test_a_half_without_weight_is_left_out():
    """Two of twenty documents have weight; a split may put both on one side."""
    values = draw(1.0, 0.1, num_docs=20, per_doc=1)
    weights = np.where(np.isin(np.arange(20), (3, 11)), 1.0, 0.0)
    values = {
        name: [run._replace(totals=run.totals * weights, weights=weights) for run in of]
        for name, of in values.items()
    }
    assert split_half(values) > 0.9


def test_both_halves_have_the_same_number_of_documents():
    """Differences that add up to 0 are then opposite in the two halves."""
    differences = np.random.default_rng(1).normal(size=20)
    differences -= differences.mean()
    plain = Examples(np.zeros(20), np.ones(20), np.arange(20))
    values = {"a": [plain], "b": [plain._replace(totals=differences)]}
    assert split_half(values) == pytest.approx(-1, abs=1e-9)


def test_from_sixteen_documents_on_they_are_the_units():
    """Documents whose two examples cancel out have no variance; blocks do."""

    def cancel(num_docs, size):
        signs = np.tile(np.repeat([1.0, -1.0], size), num_docs)
        groups = np.repeat(np.arange(num_docs), 2 * size)
        return {
            name: [Examples(scale * signs, np.ones(len(signs)), groups)]
            for name, scale in (("a", 1.0), ("b", 2.0), ("c", 4.0))
        }

    assert split_half(cancel(FEWEST, 8)) is None
    assert split_half(cancel(FEWEST - 1, 8)) < 0  # what one half has, the other lacks


def test_what_cannot_be_split():
    assert split_half(draw(1.0, 0.1, num_names=2) | {"none": []}) is None
    assert split_half(draw(1.0, 0.1, num_names=1)) is None
    assert split_half({}) is None
    equal = {name: runs[:1] for name, runs in draw(1.0, 0.1).items()}
    same = dict.fromkeys(equal, equal["n0"])
    assert split_half(same) is None  # no variance
    other = draw(1.0, 0.1, num_docs=61)["n0"]
    assert split_half(equal | {"n0": other}) is None  # of another text
    assert split_half(draw(1.0, 0.1, num_docs=1, per_doc=1)) is None


def test_weights_count():
    """Examples of weight 0 change nothing."""
    plain = draw(0.1, 1.0)
    more = {
        name: [
            Examples(
                np.concatenate([x.totals, np.zeros(60)]),
                np.concatenate([x.weights, np.zeros(60)]),
                np.concatenate([x.groups, np.arange(60)]),
            )
            for x in runs
        ]
        for name, runs in plain.items()
    }
    assert split_half(more) == pytest.approx(split_half(plain))


@pytest.mark.parametrize(
    ("study", "metric", "low", "high"),
    [
        ("quickstart", "pair_accuracy", 0.98, 1.0),
        ("options-clm", "choice_bayes_accuracy", -0.1, 0.3),
        ("options-clm", "bits_per_byte", 0.97, 1.0),
    ],
)
def test_of_archived_studies(study, metric, low, high):
    """Objectives are ranked; of one objective's options the choice is noise."""
    values = load_study(RESULTS / study).values
    examples = {key: x for key, x in values.items() if len(key) == 2}
    runs = [RunEntry(name, name, seed) for name, seed in examples]
    if study == "quickstart":
        assert len({run.name for run in runs}) == 4
    reliability = measure_reliability(runs, examples)
    assert low < reliability[metric] < high
    report = make_report(make_runs({"clm": [0.5], "mlm": [0.6]}, metric))
    entries = [vary(report.metrics[0], label="the metric")]
    report = vary(report, metrics=entries, reliability=reliability)
    (first,), rest = list_reliability(report), list_unreliable(report)
    assert f"the metric {reliability[metric]:.3f}" in first
    assert bool(rest) == (reliability[metric] < LEAST)
    if rest:
        assert rest == [line for line in list_warnings(report) if "cannot rank" in line]
        assert rest[0].startswith("WARNING: the metric cannot rank: reliability 0.1")


def test_a_report_without_reliability_has_no_line():
    assert list_reliability(make_report(make_runs({"clm": [0.5]}))) == []

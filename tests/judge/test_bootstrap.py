"""All intervals draw from one bootstrap; its draws are those of NumPy's generator."""

import ast
from pathlib import Path

import numpy as np
import pytest

import jaxpt
from jaxpt.judge.bootstrap import (
    DRAWS,
    SEED,
    bootstrap,
    draw_counts,
    draw_groups,
    percentile_interval,
)
from jaxpt.judge.intervals import ratio_interval
from jaxpt.zero_shot.babylm import spread

PACKAGE = Path(jaxpt.__file__).parent


def list_draws(path):
    """Calls that draw with replacement from a generator."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("multinomial", "integers", "choice"):
                yield node.func.attr


@pytest.mark.parametrize("room", ["judge", "comparison", "zero_shot", "report"])
def test_nothing_else_draws_with_replacement(room):
    found = {
        path.name for path in (PACKAGE / room).rglob("*.py") if any(list_draws(path))
    }
    assert found == ({"bootstrap.py"} if room == "judge" else set())


def test_batches_are_the_draws_of_one_call():
    drawn = bootstrap(lambda index: index.astype(float)[:, 0], 7)
    whole = np.random.default_rng(SEED).integers(7, size=(DRAWS, 7))
    np.testing.assert_array_equal(drawn, whole[:, 0])


def test_intervals_that_were_computed_before():
    rng = np.random.default_rng(5)
    x, y = rng.random(301), rng.random(301) + 0.1
    assert ratio_interval(x, y)[:2] == (0.7795572920155202, 0.9297650594116604)
    assert spread(x[:50], y[:50])[:2] == (-0.27586468722557195, 0.31290736703888555)


def test_counts_are_of_the_same_distribution_as_items():
    values = np.array([0.0, 1.0, 5.0, 2.0])
    of_items = bootstrap(lambda index: values[index].mean(1), 4)
    of_counts = draw_counts(4, [0.25] * 4) @ values / 4
    assert of_items.mean() == pytest.approx(of_counts.mean(), abs=0.1)
    assert of_items.std() == pytest.approx(of_counts.std(), rel=0.05)


def test_a_group_is_drawn_until_it_is_enough():
    groups, rng = [np.arange(3), np.arange(3, 8)], np.random.default_rng(1)
    for _ in range(50):
        drawn = draw_groups(groups, lambda index: len(np.unique(index)) > 2, rng)
        assert len(np.unique(drawn[:3])) == 3 and set(drawn[3:]) <= set(range(3, 8))


def test_one_item_has_no_interval_and_nothing_is_drawn():
    interval = percentile_interval(bootstrap(lambda index: 1 / 0, 1), 1)
    assert np.isnan(interval[:2]).all() and interval.method == "none: one item"

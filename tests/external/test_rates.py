"""Simulated error rates of `jaxpt.verdict`, of three systems that do not differ.

.venv/bin/python -m pytest -m slow -s tests/external/test_rates.py
"""

import numpy as np
import pytest
from comparisons import PER_DOCUMENT, Case, draw_many

import jaxpt

DRAWS = 1000
CASES = {
    "5 seeds, 24 groups": (Case(3, 5, 24), False),
    "5 seeds, no examples": (Case(3, 5, 0), False),
    "fixed, 24 groups": (Case(3, 1, 24, seed_std=0.0), True),
    "fixed, 10 groups": (Case(3, 1, 10, seed_std=0.0), True),
}


def to_columns(drawn, place):
    """One simulated comparison as a table; a group is an example of its mean."""
    values = drawn.values[place, 0]
    if drawn.totals is not None:
        values = drawn.totals[place, 0] / PER_DOCUMENT
    places = np.indices(values.shape)
    columns = {"system": places[0], "seed": places[1], "score": values}
    if drawn.totals is not None:
        columns["example"] = places[2]
    return {name: column.ravel() for name, column in columns.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_false_verdicts_and_missed_means_are_as_rare_as_stated(name):
    case, fixed = CASES[name]
    drawn = draw_many(np.random.default_rng(57), case, DRAWS)
    false, misses, missed_means = 0, 0, 0
    for place in range(DRAWS):
        (ranking,) = jaxpt.verdict(to_columns(drawn, place), fixed=fixed).rankings
        false += any(pair.outcome == "ahead" for pair in ranking.metric.pairs)
        misses += any(not pair.low <= 0 <= pair.high for pair in ranking.metric.pairs)
        missed_means += any(not line.low <= 0 <= line.high for line in ranking.lines)
    print(
        f"\n| {name} | {false / DRAWS:.3f} | {1 - misses / DRAWS:.3f} "
        f"| {1 - missed_means / DRAWS:.3f} |"
    )
    most = 0.05 + 3 * (0.05 * 0.95 / DRAWS) ** 0.5
    assert false / DRAWS <= most and misses == false
    assert missed_means / DRAWS <= most

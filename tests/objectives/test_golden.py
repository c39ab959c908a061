"""Losses of 50 steps are the stored ones, for every objective and variant."""

import json

import numpy as np
import pytest
from objectives.golden import FILE, NUM_STEPS, compute_losses, list_names
from tiny import CORE, slow_but

GOLDEN = json.loads(FILE.read_text())


def test_every_objective_has_golden_losses():
    assert set(GOLDEN) == set(list_names())
    assert {len(losses) for losses in GOLDEN.values()} == {NUM_STEPS}


@pytest.mark.parametrize("name", slow_but(CORE, list_names()))
def test_losses_are_the_golden_ones(name):
    losses = compute_losses(name)
    np.testing.assert_allclose(losses, GOLDEN[name], rtol=1e-4, atol=1e-6)

"""The trials of tests/trials, each in part."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "trials"))

import forged
import hostile
import killed


@pytest.mark.slow
def test_forged_files():
    tried, held = forged.try_all(4)
    assert tried == held > 90


@pytest.mark.slow
def test_hostile_files():
    tried, held = hostile.try_all()
    assert tried == held > 300


@pytest.mark.slow
def test_killed_writers():
    tried, held = killed.try_all(20)
    assert tried == held >= 6

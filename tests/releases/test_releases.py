"""Folders written by each released version are whole and give the stored numbers."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from releases.make_fixture import measure

from jaxpt.doctor import examine

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
LIMIT = 200_000  # bytes of an archive


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_release_is_read_and_computes_the_same(archive, tmp_path, monkeypatch):
    assert archive.stat().st_size < LIMIT
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    expected = json.loads(Path("expected.json").read_text())
    assert_close(expected, measure(Path()), "")
    for name in ("clm-seed0", "mlm-seed0", "export", "store", "tuned"):
        assert examine(Path(name)).faults == [], name


def assert_close(expected, value, place: str) -> None:
    """Asserts that two plain values are equal, numbers within 1e-4."""
    if isinstance(expected, dict):
        assert expected.keys() <= value.keys(), place
        for name in expected:
            assert_close(expected[name], value[name], f"{place}/{name}")
    elif isinstance(expected, list):
        assert len(expected) == len(value), place
        for i, pair in enumerate(zip(expected, value, strict=True)):
            assert_close(*pair, f"{place}/{i}")
    elif isinstance(expected, float):
        np.testing.assert_allclose(value, expected, rtol=1e-4, err_msg=place)
    else:
        assert value == expected, place

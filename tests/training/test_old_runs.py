"""Runs of an earlier version load, fill, score, resume and are reported.

tests/training/old/runs.tar.xz has four runs of `old/config.py` by the version of
24 November 2026, before packages were renamed: mlm and clm with seeds 0 and 1, the
checkpoints of one, and `expected.json`, what that version filled and scored with it.
"""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import jaxpt
from jaxpt.cli.main import main
from jaxpt.runs.result import load_result

ARCHIVE = Path(__file__).parent / "old" / "runs.tar.xz"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The folder of the four runs."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_they_fill_and_score_as_before(old):
    run = jaxpt.load(old / "mlm-seed0")
    expected = json.loads((old / "expected.json").read_text())
    (filled,) = run.fill("the sta[MASK]e of")
    (reference,) = expected["fill"]
    assert [token for token, _ in filled] == [token for token, _ in reference]
    np.testing.assert_allclose(
        [p for _, p in filled], [p for _, p in reference], rtol=1e-4
    )
    nll = run.nll(["the state of", "the sky"])
    np.testing.assert_allclose(nll, expected["nll"], rtol=1e-4)


def test_they_resume_to_the_same_result(old, tmp_path):
    run = shutil.copytree(old / "mlm-seed0", tmp_path / "run")
    expected = load_result(run)  # with the present names of metrics
    for path in run.glob("checkpoints/12*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("result.json", "examples.npz"):
        (run / name).unlink()
    assert main(["train", f"--workdir={run}", "--quiet"]) == 0
    result = json.loads((run / "result.json").read_text())
    new = {"pair_accuracy", "pair_nats"}  # on by default since
    new |= {f"{name}_random" for name in new}
    assert result["metrics"].keys() == expected["metrics"].keys() | new
    for name, value in expected["metrics"].items():
        assert result["metrics"][name] == pytest.approx(value, rel=1e-3), name
    assert [point["step"] for point in result["curve"]] == [0, 4, 8, 12]


def test_they_are_reported(old, tmp_path):
    runs = [str(old / f"{name}-seed{seed}") for name in ("mlm", "clm") for seed in "01"]
    argv = ["report", "--runs", *runs, f"--workdir={tmp_path / 'report'}"]
    assert main(argv) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [(r["name"], r["seed"]) for r in report["runs"]] == [
        (name, seed) for name in ("mlm", "clm") for seed in (0, 1)
    ]
    judged = {metric["metric"] for metric in report["metrics"]}
    assert "choice_bayes_accuracy" in judged

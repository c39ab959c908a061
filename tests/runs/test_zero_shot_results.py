"""`jaxpt evaluate --tasks`: asked once, kept in the run's folder, told as a table."""

import json

import numpy as np
import pytest
from tiny import make_config, write_run

from jaxpt.cli.main import main

PAIRS = ["the people\tpeople the", "we have\thave we", "we\twe", "a man\tmen a"]


@pytest.fixture(scope="module")
def run(speech, tmp_path_factory):
    """A causal run before its first step."""
    folder = tmp_path_factory.mktemp("zero_shot")
    return write_run(make_config(speech, "clm"), folder / "run")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(["good\tbad", *PAIRS]) + "\n")
    return path


def call(capsys, *args):
    code = main(["evaluate", *map(str, args)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_task_is_asked_once_and_kept(run, table, capsys):
    args = ("--workdir", run, "--tasks", f"pairs:{table}")
    code, out, _ = call(capsys, *args)
    assert code == 0 and "4 items\n" in out and "causal: log p" in out
    assert "Ties: 1" in out and "bootstrap" in out
    (kept,) = (run / "evaluations").glob("pairs-*.json")
    result = json.loads(kept.read_text())
    assert result["step"] == 0 and list(result["results"]) == ["causal"]
    with np.load(kept.with_suffix(".npz")) as columns:
        good, bad = columns["causal/good"], columns["causal/bad"]
        assert columns["index"].tolist() == [0, 1, 2, 3]
    assert len(good) == 4 and good[2] == bad[2]
    hits = (good > bad) + 0.5 * (good == bad)
    figures = result["results"]["causal"]["figures"]
    assert figures["accuracy"]["value"] == pytest.approx(hits.mean())
    before = kept.read_bytes()
    code, again, _ = call(capsys, *args)
    assert code == 0 and "4 items; asked before" in again
    assert kept.read_bytes() == before
    # Other items at the same path are asked anew.
    table.write_text(table.read_text().replace("we have", "we had"))
    code, third, _ = call(capsys, *args)
    assert code == 0 and "asked before" not in third


def test_some_items_are_spread_evenly_and_it_is_said(run, table, capsys):
    code, out, _ = call(
        capsys,
        *("--workdir", run, "--tasks", f"pairs:{table}"),
        *("--num_items", 2, "--rule", "auto"),
    )
    assert code == 0 and "2 items of 4, spread evenly" in out
    places = list((run / "evaluations").glob("*.npz"))
    results = [np.load(place)["index"].tolist() for place in places]
    assert [0, 2] in results


@pytest.mark.parametrize(
    "more, output",
    [
        (["--tasks", "pairs:nowhere.tsv"], "nowhere.tsv: No such file"),
        (["--tasks", "nothing:x"], "--tasks=nothing:x: must be one of"),
        (["--rule", "pll"], "--rule=pll: is for --tasks"),
        (["--num_items", "3"], "--num_items=3: is for --tasks"),
        (["--rule", "pll", "--tasks", "TABLE"], "--rule=pll: must be one of auto, ca"),
        (["--num_items", "-1", "--tasks", "TABLE"], "--num_items=-1: must be"),
    ],
)
def test_what_cannot_be_is_one_line(more, output, run, table, capsys):
    more = [f"pairs:{table}" if word == "TABLE" else word for word in more]
    code, out, err = call(capsys, "--workdir", run, *more)
    assert code == 2 and output in err and len(err.splitlines()) == 1 and not out

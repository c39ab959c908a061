"""--quiet and --json: a result alone, for other programs to read."""

import json

import pytest
from tiny import write_config

from jaxpt.cli.main import main


@pytest.fixture(scope="module")
def config(speech, tmp_path_factory):
    path = tmp_path_factory.mktemp("output") / "config.py"
    write_config(path, speech, train__steps=4)
    return path


def test_a_result_is_printed_alone(config, capsys, tmp_path):
    train = ["train", "--config", str(config), "--workdir"]
    assert main([*train, str(tmp_path / "loud")]) == 0
    loud = capsys.readouterr().out.splitlines()
    assert main([*train, str(tmp_path / "quiet"), "--quiet"]) == 0
    quiet = capsys.readouterr().out.splitlines()
    assert any(" step 4/4 " in f" {line} " for line in loud)
    assert not any("step " in line for line in quiet)
    assert quiet[:-1] == loud[-len(quiet) : -1]  # the metrics
    assert main([*train, str(tmp_path / "data"), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output == json.loads((tmp_path / "data" / "result.json").read_text())
    budget = ["--config.compare.budget=steps", "--config.compare.amount=0"]
    names = ["--config.compare.objectives=('mlm',)", "--config.compare.seeds=(0,)"]
    command = ["compare", "--config", str(config), *budget, *names, "--quiet"]
    assert main([*command, "--workdir", str(tmp_path / "both")]) == 0
    table = capsys.readouterr().out
    assert "step 4/4" not in table and "report.html" in table
    run = ["--workdir", str(tmp_path / "data"), "--json"]
    assert main(["evaluate", *run]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["step"] == 4
    assert printed["metrics"]["valid_loss"] == pytest.approx(
        output["metrics"]["valid_loss"], rel=1e-5
    )
    pair = {"sentence_good": "the men", "sentence_bad": "men the", "UID": "order"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair))
    command = ["--tasks", f"pairs:{tmp_path}/pairs.jsonl"]
    assert main(["evaluate", *run, *command]) == 0
    (task,) = json.loads(capsys.readouterr().out)
    assert task["num_items"] == 1


def test_report_is_printed_alone(config, capsys, tmp_path, monkeypatch):
    """Also if the text of the runs has to be prepared again."""
    run = str(tmp_path / "run")
    assert main(["train", "--config", str(config), "--workdir", run]) == 0
    capsys.readouterr()
    printed = {}
    for flag in ("--noquiet", "--quiet"):
        monkeypatch.setenv("JAXPT_CACHE", str(tmp_path / f"cache{flag}"))
        workdir = str(tmp_path / f"report{flag}")
        assert main(["report", "--runs", run, "--workdir", workdir, flag]) == 0
        printed[flag] = capsys.readouterr().out
    title = "At 1.64e7 FLOPs per run, no shared metric was measured"
    assert printed["--quiet"].startswith(title)
    progress, _, _ = printed["--noquiet"].partition(title)
    assert progress.startswith("preparing ")

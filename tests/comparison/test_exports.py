"""`jaxpt export` of a comparison: a model of each objective, with the verdicts."""

import dataclasses
import json
import shutil

import pytest
from reports import make_report, make_run
from tiny import make_config, write_run

from jaxpt.cli.main import main
from jaxpt.files import checksums
from jaxpt.hub import upload

BERT = {
    "model__norm_position": "post",
    "model__num_types": 1,
    "model__head_bias": True,
    "model__head_transform": True,
}


@pytest.fixture
def compared(speech, tmp_path):
    """A comparison of two objectives with two seeds, whose report has a verdict."""
    both = tmp_path / "both"
    for seed in (0, 1):
        for name, changes in (("clm", {}), ("mlm", BERT)):
            config = make_config(speech, name, train__seed=seed, **changes)
            write_run(config, both / "runs" / f"{name}-seed{seed}")
    runs = [
        dataclasses.replace(
            make_run(name, seed, probe_accuracy=mean + seed / 1000), objective=name
        )
        for name, mean in (("clm", 0.5), ("mlm", 0.9))
        for seed in (0, 1)
    ]
    text = json.dumps(make_report(runs, alpha=0.05).to_json()).encode()
    checksums.write(both / "report.json", text)
    return both


def test_each_objective_is_exported_with_the_verdicts(
    compared, tmp_path, capsys, monkeypatch
):
    pushed = []
    monkeypatch.setattr(upload, "push_folder", lambda *args: pushed.append(args) or [])
    out = tmp_path / "out"
    argv = ["export", "--workdir", str(compared), "--to", str(out), "--push", "a/b"]
    assert main([*argv, "--license=mit", "--private"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        str(out / "clm"),
        str(out / "mlm"),
    ]
    for name, other in (("clm", "GPT2LMHeadModel"), ("mlm", "BertForMaskedLM")):
        card = (out / name / "README.md").read_text()
        assert f"# {other} pretrained with jaxpt" in card and "seed 0" in card
        assert "license: mit" in card
        _, _, section = card.partition("\n## Comparison\n\n")
        assert "- Budget of each run: 1.67e14 FLOPs (as clm)\n" in section
        assert "- Seeds: 0, 1\n" in section
        first = "At 1.67e14 FLOPs per run, no verdict from 2 seeds"
        assert f"- {first}" in section
        assert main(["doctor", str(out / name)]) == 0
    assert pushed == [(out / n, f"a/b-{n}", True) for n in ("clm", "mlm")]
    # A run alone says nothing of a comparison.
    run = str(compared / "runs" / "mlm-seed0")
    assert main(["export", "--workdir", run, "--to", str(tmp_path / "one")]) == 0
    assert "Comparison" not in (tmp_path / "one" / "README.md").read_text()


def test_what_cannot_be_exported_leaves_nothing(compared, speech, tmp_path, capsys):
    out = tmp_path / "out"
    argv = ["export", "--workdir", str(compared), "--to", str(out)]
    assert main([*argv, "--family=bert"]) == 2
    error = capsys.readouterr().err
    assert "--family=bert: must be left out for a comparison" in error
    for name in ("clm", "mlm"):
        shutil.rmtree(compared / "runs" / f"{name}-seed1")
        (compared / "runs" / f"{name}-seed0").rename(tmp_path / name)
    add_prefix_lm(compared, speech)
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "none of its objectives can be exported: prefix_lm: no family of" in error
    assert not out.exists()


def add_prefix_lm(compared, speech):
    """A decoder with norms after its blocks, which no class of transformers has."""
    config = make_config(speech, "prefix_lm", model__norm_position="post")
    write_run(config, compared / "runs" / "prefix_lm-seed0")


def test_what_can_be_exported_is_exported(
    compared, speech, tmp_path, capsys, monkeypatch
):
    """The rest is listed with its reason, also in the exit code."""
    pushed = []
    monkeypatch.setattr(upload, "push_folder", lambda *args: pushed.append(args) or [])
    add_prefix_lm(compared, speech)
    shutil.rmtree(compared / "runs" / "mlm-seed0" / "checkpoints")
    out = tmp_path / "out"
    argv = ["export", "--workdir", str(compared), "--to", str(out), "--push", "a/b"]
    assert main(argv) == 1
    *_, first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("not exported: mlm: ") and "checkpoint" in first
    assert second.startswith("not exported: prefix_lm: no family of transformers has")
    assert last == "exported 1 of 3 objectives, without mlm, prefix_lm"
    assert [path.name for path in out.iterdir()] == ["clm"]
    assert pushed == [(out / "clm", "a/b-clm", False)]
    assert main(["doctor", str(out / "clm")]) == 0

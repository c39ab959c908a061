"""Archived studies: files, facts, verdicts from stored values, and reproduction."""

import json
import shutil

import pytest
from tiny import make_config

from jaxpt import cli
from jaxpt.comparison import compare as comparison
from jaxpt.comparison import plan_runs, reproduce
from jaxpt.comparison.archive import (
    archive,
    check_study,
    list_intervals,
    redraw_verdicts,
)
from jaxpt.comparison.short_paths import shorten_paths
from jaxpt.errors import UserError
from jaxpt.files.folder import write_json
from jaxpt.report import figures
from jaxpt.report.studies import list_studies, load_study
from jaxpt.training import loop
from jaxpt.training.machine import describe_machine, describe_versions

SETTINGS = {
    "compare__objectives": ("clm", "mlm"),
    "compare__seeds": (0, 1),
    "compare__amount": 1e8,
    "data__label_field": "era",
    "data__split": "documents",
    "data__valid_fraction": 0.25,
    "train__checkpoint_every": 0,
}
WORDS = "Two objectives", "Which is better?"


def draw(report, corpora_of, workdir, look):
    """One picture without compiling anything."""
    (workdir / "learning_curves.png").write_bytes(b"PNG")
    return {"learning_curves": "learning_curves.png"}


@pytest.fixture(scope="module")
def quick():
    """No pictures of models, which compile much; no timed calls before training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", draw)
        patch.setattr(plan_runs, "check_run", lambda *args: None)
        yield


@pytest.fixture(scope="module")
def compared(quick, labelled, tmp_path_factory):
    """The folder of a comparison of two objectives by two seeds."""
    workdir = tmp_path_factory.mktemp("compared") / "both"
    comparison.compare(make_config(labelled, **SETTINGS), workdir)
    return workdir


@pytest.fixture(scope="module")
def study(compared, tmp_path_factory):
    """The folder of its study."""
    folder = tmp_path_factory.mktemp("results") / "both"
    archive(compared, folder, *WORDS)
    return folder


@pytest.fixture
def copied(study, tmp_path):
    return shutil.copytree(study, tmp_path / "study")


def change(path, **values):
    """Rewrites a JSON file with its checksum, as a forger would."""
    write_json(path, json.loads(path.read_text()) | values)


def test_a_study_holds_what_verdicts_need_and_no_checkpoints(study, compared, labelled):
    names = {path.relative_to(study).as_posix() for path in study.rglob("*")}
    expected = {"study.json", "report.json", "results.csv", "differences.csv"}
    expected |= {"compare.json", "plans.json", "references.npz", "learning_curves.png"}
    expected |= {"runs/clm-seed0/examples.npz", "runs/mlm-seed1/result.json"}
    assert expected <= names
    assert not any("checkpoints" in name or "tensorboard" in name for name in names)
    report = (study / "report.json").read_text()
    assert report == (compared / "report.json").read_text().replace(
        f'"{labelled}"', f'"{labelled.name}"'
    )
    facts = load_study(study).facts
    assert (facts["title"], facts["question"]) == WORDS
    assert facts["objectives"] == ["clm", "mlm"] and facts["seeds"] == [0, 1]
    assert facts["machines"] == [describe_machine()]
    assert facts["versions"] == [describe_versions()]
    assert [each.folder for each in list_studies(study.parent)] == [study]


def test_a_study_has_no_path_of_the_machine(study, compared, labelled, tmp_path):
    """Absolute paths are shortened; the other files are copies."""
    command = f"jaxpt compare --config.data.path={labelled} --workdir {compared}"
    folder = tmp_path / "study"
    archive(compared, folder, *WORDS, command)
    texts = {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*.*")
        if path.suffix not in (".npz", ".png") and path.is_file()
    }
    assert {"runs/mlm-seed1/result.json", "plans.json", "results.csv"} <= texts.keys()
    for root in (labelled.parent, compared.parent):
        assert not [name for name, text in texts.items() if str(root) in text]
    facts = json.loads(texts["study.json"])
    assert facts["command"] == (
        f"jaxpt compare --config.data.path={labelled.name} --workdir {compared.name}"
    )
    for name in ("compare.json", "runs/clm-seed0/config.json"):
        assert json.loads(texts[name])["data"]["path"] == labelled.name
    result = json.loads(texts["runs/clm-seed0/result.json"])
    assert result["workdir"] == f"{compared.name}/runs/clm-seed0"
    intervals = load_study(study).facts["intervals"]
    assert check_study(folder).facts["intervals"] == intervals


def test_paths_in_settings_are_shortened(tmp_path):
    """Parts of one setting, paths within others; texts that are not paths stay."""
    settings = {
        "mixture": ["/d/a/t.txt=1", "/d/b/t.txt=2"],
        "tasks": ["finetune:/me/own.py:/d/one,/d/two", "blimp:rel/b.tar"],
        "teacher": "/me/runs/x/teachers/mlm",
        "path": "tfds:wiki/en",
    }
    run = {"workdir": "/me/runs/x/runs/mlm-seed0", "note": "/me/runs/xy or/d/one"}
    write_json(tmp_path / "compare.json", settings)
    write_json(tmp_path / "runs" / "mlm-seed0" / "result.json", run)
    write_json(tmp_path / "runs" / "mlm-seed0" / "tokenizer.json", {"v": ["/d/one"]})
    shorten_paths(tmp_path, ["compare.json"], "jaxpt compare --workdir '/me/runs/x'")
    assert json.loads((tmp_path / "compare.json").read_text()) == {
        "mixture": ["a/t.txt=1", "b/t.txt=2"],
        "tasks": ["finetune:own.py:one,two", "blimp:rel/b.tar"],
        "teacher": "x/teachers/mlm",
        "path": "tfds:wiki/en",
    }
    place = tmp_path / "runs" / "mlm-seed0"
    assert json.loads((place / "result.json").read_text()) == {
        "workdir": "x/runs/mlm-seed0",
        "note": "/me/runs/xy or/d/one",
    }
    assert json.loads((place / "tokenizer.json").read_text()) == {"v": ["/d/one"]}


def test_verdicts_are_drawn_again_from_the_folder(study):
    stored = load_study(study)
    metrics = redraw_verdicts(stored)
    assert metrics == stored.report["metrics"]
    assert any(entry["pairs"] for entry in metrics)
    assert any(entry["baselines"] for entry in metrics)


def test_the_folder_is_what_report_reads(study, tmp_path, capsys):
    """Its runs are reported like any others, without text and checkpoints."""
    argv = ["report", "--runs", str(study / "runs" / "*"), "--workdir"]
    assert cli.main([*argv, str(tmp_path / "report")]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    by_metric = {entry["metric"]: entry for entry in report["metrics"]}
    for entry in load_study(study).report["metrics"]:
        assert by_metric[entry["metric"]]["by_name"] == entry["by_name"]


def test_an_altered_study_is_refused(copied):
    path = copied / "report.json"
    report = json.loads(path.read_text())
    metric = next(x for x in report["metrics"] if x["pairs"])
    metric["pairs"][0]["p"] += 0.1
    path.write_text(json.dumps(report))
    with pytest.raises(UserError, match="altered"):
        check_study(copied)
    (copied / "checksums.json").unlink()
    with pytest.raises(UserError, match="pairs is not what the values by example"):
        check_study(copied)


def test_verdicts_at_other_equal_costs_follow_from_the_runs(copied):
    path = copied / "report.json"
    report = json.loads(path.read_text())
    pair = next(pair for x in report["metrics"] for pair in x["pairs"])
    assert set(pair["under"]) == {"flops", "operations", "raw_tokens", "seconds"}
    pair["under"]["operations"] = "ahead of all"
    path.write_text(json.dumps(report))
    (copied / "checksums.json").unlink()
    with pytest.raises(UserError, match="pairs is not what the values by example"):
        check_study(copied)


@pytest.mark.parametrize(
    "name", ["references.npz", "runs/clm-seed1/examples.npz", "runs/mlm-seed0"]
)
def test_a_study_without_a_file_is_refused(name, copied):
    path = copied / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError):
        check_study(copied)


def test_stated_intervals_are_those_of_the_report(copied):
    intervals = load_study(copied).facts["intervals"]
    intervals["bits_per_byte"]["clm"]["high"] += 1
    change(copied / "study.json", intervals=intervals)
    with pytest.raises(UserError, match="intervals"):
        check_study(copied)


def test_intervals_cover_a_repetition(study):
    """By hand: two means of two seeds; t(1 - .05 / 4, 1) = 25.45."""
    stats = {"mean": 0.5, "std": 0.1, "n": 2}
    entry = {"metric": "m", "is_common": True, "by_name": {"a": stats, "b": stats}}
    alone = {"c": {"mean": 1.0, "std": None, "n": 1}}
    other = {"metric": "other", "is_common": True, "by_name": alone}
    own = {"metric": "valid_loss", "is_common": False, "by_name": {"a": stats}}
    intervals = list_intervals({"metrics": [entry, other, own]})
    assert list(intervals) == ["m"]
    assert intervals["m"]["a"]["high"] == pytest.approx(0.5 + 25.452 * 0.1, rel=1e-3)


def test_archive_on_the_command_line(compared, tmp_path, capsys):
    """The config that the command names is copied; a study is replaced."""
    argv = ["archive", "--workdir", str(compared), "--to", str(tmp_path / "s")]
    assert cli.main(argv) == 2
    assert "--title: must be given" in capsys.readouterr().err
    argv += ["--title", "t", "--question", "q"]
    made = "jaxpt compare --config=quickstart:mlm --workdir runs/x"
    assert cli.main([*argv, "--command", made]) == 0
    assert "4 runs" in capsys.readouterr().out
    assert "get_config" in (tmp_path / "s" / "config.txt").read_text()
    assert cli.main(argv) == 0
    assert not (tmp_path / "s" / "config.txt").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert cli.main([*argv, "--to", str(tmp_path / "other")]) == 2
    assert cli.main([*argv, "--workdir", str(tmp_path / "other")]) == 2
    assert list((tmp_path / "other").iterdir()) == [tmp_path / "other" / "file"]


def test_a_study_is_reproduced(
    quick, study, copied, labelled, tmp_path, capsys, monkeypatch
):
    argv = ["reproduce", str(study), "--workdir", str(tmp_path / "again")]
    assert cli.main(argv) == 2
    assert "no such file or directory; name the text with --data" in (
        capsys.readouterr().err.lower()
    )
    argv += ["--data", str(labelled)]
    assert cli.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("reproduced: ")
    assert any("bits_per_byte of clm" in line and "within" in line for line in lines)
    new = json.loads((tmp_path / "again" / "report.json").read_text())
    old = load_study(study).report
    assert [x["by_name"] for x in new["metrics"]] == [
        x["by_name"] for x in old["metrics"]
    ]

    # The finished runs are not trained again; other means give exit code 1.
    monkeypatch.setattr(loop._Run, "_advance", None)
    stated = {"mean": 9.0, "low": 8.0, "high": 10.0}
    facts = load_study(copied).facts | {"intervals": {"bits_per_byte": {"clm": stated}}}
    write_json(copied / "study.json", facts)
    monkeypatch.setattr(reproduce, "check_study", load_study)
    argv[1] = str(copied)
    assert cli.main(argv) == 1
    out = capsys.readouterr().out
    assert "OUTSIDE [8.000, 10.000]; stated 9.000" in out
    assert "NOT reproduced: 0 of 1" in out


def test_what_cannot_be_reproduced_is_refused(copied, tmp_path, capsys, labelled):
    argv = ["reproduce", str(tmp_path / "none"), "--workdir", str(tmp_path / "w")]
    assert cli.main(argv) == 2
    assert "study.json: not found" in capsys.readouterr().err
    assert cli.main(["reproduce", "--workdir", str(tmp_path / "w")]) == 2
    capsys.readouterr()
    argv[1] = str(copied)
    other = tmp_path / "other.jsonl"
    other.write_text(labelled.read_text().replace("the", "The"))
    assert cli.main([*argv, "--data", str(other)]) == 2
    error = capsys.readouterr().err
    assert "is not the text of" in error and "name the text with --data" in error
    assert not (tmp_path / "w").exists()  # nothing was written
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "file").touch()
    assert cli.main(argv) == 2
    assert "holds other files" in capsys.readouterr().err

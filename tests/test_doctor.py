"""`jaxpt doctor` finds every damaged or missing file, and writes nothing."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from jaxpt.cli.main import main
from jaxpt.comparison.studies import load_study
from jaxpt.comparison.study_files import write_study
from jaxpt.doctor import examine
from jaxpt.files import checksums
from jaxpt.runs import manifest
from jaxpt.runs.finished_runs import METRICS_FILE
from jaxpt.version import __version__

ARCHIVE = Path(__file__).parent / "releases" / f"{__version__}.tar.xz"
KINDS = {
    "clm-seed0": "training run",
    "store": "prepared store",
    "export": "export",
    "tuned": "fine-tuning",
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folders of a release's fixture."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def copy(release, tmp_path):
    """`copy("export")`: a copy of one of its folders."""
    return lambda name: shutil.copytree(release / name, tmp_path / name)


def list_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def snapshot(folder):
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in list_files(folder)
    }


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("when", ["verified", "counted"])
def test_a_step_that_training_removes_meanwhile_is_not_damaged(when, copy, monkeypatch):
    run = copy("clm-seed0")
    (run / "result.json").unlink()  # it trains
    before = examine(run).faults
    folder = run / "checkpoints"
    first = manifest.list_finished(folder)[0]
    verify, is_file = manifest.verify, Path.is_file

    def remove_first(folder, step):
        if step == first:
            manifest.remove(folder, step)
        return verify(folder, step)

    def remove_counted(path):
        answer = is_file(path)
        if answer and str(first) in path.parts:
            monkeypatch.undo()
            manifest.remove(folder, first)
        return answer

    if when == "verified":
        monkeypatch.setattr(manifest, "verify", remove_first)
    else:
        monkeypatch.setattr(Path, "is_file", remove_counted)
    assert examine(run).faults == before
    assert first not in manifest.list_finished(folder)


def test_a_step_that_training_saves_meanwhile_is_not_unverified(copy, monkeypatch):
    run = copy("clm-seed0")
    (run / "result.json").unlink()  # it trains
    before = examine(run).faults
    folder = run / "checkpoints"
    first = manifest.list_finished(folder)[0]
    verify = manifest.verify

    def save_another(place, step):
        if not (folder / "999.manifest.json").exists():
            shutil.copytree(folder / str(first), folder / "999")
            saved = folder / f"{first}.manifest.json"
            shutil.copy(saved, folder / "999.manifest.json")
        return verify(place, step)

    monkeypatch.setattr(manifest, "verify", save_another)
    assert examine(run).faults == before
    assert manifest.list_finished(folder)[-1] == 999


@pytest.mark.parametrize("name", KINDS)
def test_every_flip_and_every_missing_file_is_found(name, copy, release):
    folder = copy(name)
    before = snapshot(folder)
    result = examine(folder)
    assert (result.kind, result.faults, result.unverified) == (KINDS[name], [], [])
    assert snapshot(folder) == before
    assert result.num_files == len(before)
    for path in before:
        place = path.relative_to(folder).as_posix()
        flip(path)
        faults = examine(folder).faults
        assert faults, f"a flip in {place}"
        assert any(place in f"{fault.path} {fault.problem}" for fault in faults), place
        path.unlink()
        assert examine(folder).faults, f"{place} is missing"
        shutil.copy2(release / name / place, path)
    assert examine(folder).faults == []


def test_an_older_checkpoint_is_named(copy, capsys):
    run = copy("clm-seed0")
    largest = max(list_files(run / "checkpoints" / "8"), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:100])
    assert main(["doctor", str(run)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{run}: training run, 1 damaged;")
    place = largest.relative_to(run)
    assert f"  checkpoints/8: is damaged: {place} was altered or cut short" in out
    assert "-> step 4 is intact and is used instead" in out
    flip(run / "checkpoints" / "4.manifest.json")
    assert main(["doctor", str(run), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert [fault["path"] for fault in result["faults"]] == [
        "checkpoints/4",
        "checkpoints/8",
    ]
    assert all("no intact checkpoint" in f["remedy"] for f in result["faults"])


def test_a_growing_log_and_an_unfinished_save_are_no_damage(copy, capsys):
    run = copy("clm-seed0")
    with open(run / METRICS_FILE, "ab") as log:
        log.write(b'{"step": 9}\n')
    (run / "result.json").unlink()
    checksums.remove(run / "result.json")
    (run / "checkpoints" / "8.manifest.json").unlink()
    assert main(["doctor", str(run)]) == 0
    assert "note: checkpoints/8: an unfinished save" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["clm-seed0/checkpoints", "tuned/model"])
def test_missing_checkpoints_are_found(place, copy):
    folder = copy(place.partition("/")[0])
    shutil.rmtree(folder / place.partition("/")[2])
    (fault,) = examine(folder).faults
    assert "is missing: the result is that of this step" in fault.problem


def test_what_works_is_said(copy, capsys):
    export = copy("export")
    (export / "README.md").write_text("my model")
    assert main(["doctor", str(export)]) == 1
    assert "-> the model can be used" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nothing", "empty", "file"])
def test_other_paths_are_one_line(name, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert main(["doctor", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / name) in error and len(error.splitlines()) == 1


@pytest.fixture
def study(tmp_path):
    root = Path(__file__).parents[1] / "results" / "speedruns"
    source = root / "cpu" / "mlm" / "adamw"
    return shutil.copytree(source, tmp_path / "study")


def test_each_file_of_a_study_is_verified(study):
    whole = examine(study)
    assert (whole.kind, whole.num_files, whole.faults) == ("archived study", 3, [])
    assert not whole.unverified
    for path in study.iterdir():
        data = path.read_bytes()
        path.write_bytes(data[:-2] + b"{" + data[-1:])
        (fault,) = examine(study).faults
        assert fault.path == path.name and "jaxpt archive" in fault.remedy
        path.write_bytes(data)
    (study / "values.npz").unlink()
    (fault,) = examine(study).faults
    assert (fault.path, fault.problem) == ("values.npz", "is missing")


def test_a_study_whose_result_was_changed_is_found(study):
    forged = load_study(study)
    forged.stored["report"]["runs"][0]["metrics"]["choice_bayes_accuracy"] += 0.1
    write_study(study, forged.facts, forged.stored, forged.values)
    (fault,) = examine(study).faults
    assert "values by example" in fault.problem

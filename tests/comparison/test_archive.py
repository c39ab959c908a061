"""Archived studies: files, facts, verdicts from stored values, and reproduction."""

import copy
import errno
import json
import os
import shutil

import pytest
from comparison.conftest import draw_nothing

from jaxpt.cli import main as cli
from jaxpt.comparison import archive as archiving
from jaxpt.comparison import compare as comparison
from jaxpt.comparison import plan_runs, reproduce
from jaxpt.comparison.archive import (
    archive,
    check_study,
    list_intervals,
    redraw,
    redraw_verdicts,
)
from jaxpt.comparison.short_paths import shorten_paths
from jaxpt.errors import UserError
from jaxpt.files import disk
from jaxpt.files.folder import write_json
from jaxpt.report import figures
from jaxpt.report.formats import to_plain
from jaxpt.report.studies import list_studies, load_study
from jaxpt.training import loop
from jaxpt.training.machine import describe_machine, describe_versions

WORDS = "Two objectives", "Which is better?"
LINK = os.link


@pytest.fixture(scope="module")
def quick():
    """No pictures of models, which compile much; no timed calls before training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", draw_nothing)
        patch.setattr(plan_runs, "check_run", lambda *args: None)
        yield


@pytest.fixture(scope="module")
def compared(two_by_two):
    """The folder of a comparison of two objectives by two seeds, which is only read."""
    return two_by_two


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


def test_verdicts_of_an_earlier_procedure_are_redrawn(copied, study):
    """Without training: the values of the runs give the report again."""
    report = json.loads((copied / "report.json").read_text())
    metrics = copy.deepcopy(report["metrics"])
    for entry in metrics:
        for pair in entry["pairs"]:
            pair |= {"outcome": "ahead", "p": 0.01, "low": 0.1, "high": 0.2}
    change(copied / "report.json", metrics=metrics, seeds_note="of another procedure")
    with pytest.raises(UserError, match="is not what the values by example"):
        check_study(copied)
    before, after = redraw(copied)
    assert before["metrics"] == metrics
    check_study(copied)
    written = json.loads((copied / "report.json").read_text())
    assert written == to_plain(after) == report
    for name in ("differences.csv", "study.json"):
        assert (copied / name).read_bytes() == (study / name).read_bytes()


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


def snapshot(folder):
    """The files of a folder with their content; study.json names no time."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


class Kills:
    """Copies of a folder before and after each change: what a kill would leave."""

    def __init__(self, root, copies, monkeypatch):
        self._root, self._copies, self.num = root, copies, 0
        for name in ("replace", "exchange", "remove", "move", "rename"):
            monkeypatch.setattr(disk, name, self._watch(getattr(disk, name)))
        for name in ("link", "mkdir"):
            monkeypatch.setattr(os, name, self._watch(getattr(os, name)))

    def _watch(self, function):
        def call(*args, **more):
            is_here = any(str(self._root) in str(arg) for arg in args)
            if is_here:
                self.copy()
            result = function(*args, **more)
            if is_here:
                self.copy()
            return result

        return call

    def copy(self):
        """Stores the folder as it is now, unless the last copy is equal."""
        root = self._root
        self._root = "nowhere"  # its copies are not changes
        shutil.copytree(root, self._copies / str(self.num), copy_function=LINK)
        now, last = (self._copies / str(self.num - i) for i in (0, 1))
        if self.num and snapshot(now) == snapshot(last):
            shutil.rmtree(now)
        else:
            self.num += 1
        self._root = root


def refuse_exchange(one, other):
    raise OSError(errno.EINVAL, "no such flag")


@pytest.mark.parametrize("has_exchange", [True, False])
def test_a_killed_archive_leaves_the_old_or_the_new_study(
    has_exchange, compared, study, tmp_path, monkeypatch
):
    """And the same command succeeds afterwards, wherever it was killed."""
    (root := tmp_path / "results").mkdir()
    shutil.copytree(study, root / "both")
    old = snapshot(root / "both")
    if not has_exchange:
        monkeypatch.setattr(disk, "exchange", refuse_exchange)
    with pytest.MonkeyPatch.context() as patch:
        kills = Kills(root, tmp_path / "copies", patch)
        archive(compared, root / "both", "New", "Is it new?")
    new = snapshot(root / "both")
    assert list(root.iterdir()) == [root / "both"] and kills.num > 20
    states = []
    for i in range(kills.num):
        place = tmp_path / "copies" / str(i)
        is_missing = not (place / "both").exists()
        state = "missing" if is_missing else snapshot(place / "both")
        states.append(
            {True: "old", state == new: "new"}.get(state in (old, new), state)
        )
        assert len(list_studies(place)) == 1 - is_missing  # hidden ones are none
    # Without an exchange of names there are two renames, with nothing in between.
    assert set(states) - {"missing"} == {"old", "new"}
    assert states.count("missing") <= (not has_exchange)
    changes = [i for i in range(1, kills.num) if states[i] != states[i - 1]]
    for i in {0, kills.num // 2, *changes, *(i - 1 for i in changes)}:
        place = tmp_path / "copies" / str(i)
        archive(compared, place / "both", "New", "Is it new?")
        assert snapshot(place / "both") == new
        assert list(place.iterdir()) == [place / "both"]


def test_an_earlier_study_comes_back_if_the_command_is_wrong(
    compared, study, tmp_path, monkeypatch
):
    """After a kill between two renames."""
    shutil.copytree(study, tmp_path / ".both.earlier")
    with pytest.raises(UserError, match="--command: its config no.py"):
        archive(compared, tmp_path / "both", *WORDS, "jaxpt compare --config no.py")
    monkeypatch.setattr(archiving, "check_study", refuse_study)
    with pytest.raises(UserError, match="is no study"):
        archive(compared, tmp_path / "both", *WORDS)
    assert snapshot(tmp_path / "both") == snapshot(study)
    assert list(tmp_path.iterdir()) == [tmp_path / "both"]


def refuse_study(folder):
    raise UserError(f"{folder}: is no study")


ALTERED = (
    *("compare.json", "plans.json", "report.json", "results.csv"),
    *("differences.csv", "learning_curves.png", "runs/clm-seed0/config.json"),
    *("runs/clm-seed0/result.json", "runs/mlm-seed1/examples.npz"),
    *("runs/mlm-seed0/metrics.jsonl", "runs/mlm-seed0/checksums.json"),
)


def test_what_is_refused_keeps_the_earlier_study(compared, study, tmp_path, capsys):
    """Each input altered or missing, or a wrong command; then all is well."""
    source, to = tmp_path / compared.name, tmp_path / "study"
    shutil.copytree(compared, source)
    shutil.copytree(study, to)
    argv = ["archive", "--workdir", str(source), "--to", str(to), "--title=t"]
    argv += ["--question=q"]

    def check_refused(more, named):
        assert cli.main([*argv, *more]) == 2
        error = capsys.readouterr().err
        assert named in error and "Traceback" not in error and ".partial" not in error
        assert snapshot(to) == snapshot(study)
        assert {path.name for path in tmp_path.iterdir()} == {source.name, "study"}

    for name in ALTERED:
        data = (source / name).read_bytes()
        (source / name).write_bytes(b"[" + data)
        check_refused([], str(source / name))
        if name != "runs/mlm-seed0/checksums.json":  # then nothing is verified
            (source / name).unlink()
            check_refused([], str(source))
        (source / name).write_bytes(data)
    for command in ("jaxpt compare --config no.py", 'jaxpt compare --config "no'):
        check_refused(["--command", command], "--command")
    assert cli.main(argv) == 0
    assert check_study(to).facts["title"] == "t"


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


def stop(*args, **more):
    raise KeyboardInterrupt


def test_a_stopped_reproduction_continues(
    quick, study, labelled, tmp_path, monkeypatch
):
    """Stopped or killed at any change before runs begin, and before the report."""
    (root := tmp_path / "work").mkdir()

    def run(place, module, name, function=stop):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module, name, function)
            reproduce.reproduce(study, place, str(labelled))

    run(root / "again", plan_runs, "load_text")
    kills, load = Kills(root, tmp_path / "copies", monkeypatch), plan_runs.load_text

    def load_killed(*args):
        kills.copy()  # killed while the text is prepared
        return load(*args)

    monkeypatch.setattr(plan_runs, "load_text", load_killed)
    run(root / "again", reproduce, "do_part")
    monkeypatch.undo()
    assert kills.num > 4
    expected = snapshot(root / "again")
    for i in range(kills.num):
        run(tmp_path / "copies" / str(i) / "again", reproduce, "do_part")
        assert snapshot(tmp_path / "copies" / str(i) / "again") == expected
    run(root / "again", comparison, "collect_runs")  # after the runs
    repeated = reproduce.reproduce(study, root / "again", str(labelled))
    assert repeated and all(each.is_within for each in repeated)


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

"""Archived studies: files, facts, verdicts from stored values, and reproduction."""

import errno
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from comparison.conftest import draw_nothing
from hypothesis import given
from hypothesis import strategies as st

import jaxpt
from jaxpt.cli import main as cli
from jaxpt.comparison import archive as archiving
from jaxpt.comparison import compare as comparison
from jaxpt.comparison import plan_runs, reproduce, studies
from jaxpt.comparison.archive import archive
from jaxpt.comparison.short_paths import shorten_paths
from jaxpt.comparison.studies import (
    COMPUTED,
    check_study,
    list_intervals,
    list_studies,
    load_all_runs,
    load_study,
)
from jaxpt.comparison.study_files import pack_values, unpack_values, write_study
from jaxpt.errors import UserError
from jaxpt.files import disk
from jaxpt.judge.examples import Examples
from jaxpt.report import figures
from jaxpt.training import loop
from jaxpt.training.machine import list_versions, read_machine

QUICKSTART = Path(__file__).parents[2] / "results" / "quickstart"
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


def forge(folder, change):
    """Writes a study again, with new checksums, after a change of what it stores."""
    study = load_study(folder)
    change(study.stored, study.values)
    write_study(folder, study.facts, study.stored, study.values)


def read_stored(folder):
    return json.loads(gzip.decompress((folder / "runs.json.gz").read_bytes()))


def test_a_study_is_three_files_with_what_verdicts_need(study, compared, labelled):
    names = {path.name for path in study.iterdir()} - {".lock"}
    assert names == {"study.json", "runs.json.gz", "values.npz"}
    stored = load_study(study)
    facts, report = stored.facts, stored.report
    written = (compared / "report.json").read_text()
    expected = json.loads(written.replace(f'"{labelled}"', f'"{labelled.name}"'))
    assert report.keys() == expected.keys()
    for name in expected.keys() - {"figures", *COMPUTED}:
        assert report[name] == expected[name], name
    for name in COMPUTED:
        assert archiving.is_close(report.get(name), expected.get(name)), name
    assert (facts["title"], facts["question"]) == WORDS
    assert facts["objectives"] == ["clm", "mlm"] and facts["seeds"] == [0, 1]
    assert facts["machines"] == [read_machine()]
    assert facts["versions"] == [list_versions()]
    assert [each.folder for each in list_studies(study.parent)] == [study]


def test_all_four_costs_are_judged(study, compared):
    pairs = [p for x in load_study(study).report["metrics"] for p in x["pairs"]]
    kinds = {"flops", "operations", "raw_tokens", "seconds"}
    assert pairs and all(set(pair["under"]) == kinds for pair in pairs)


def test_a_study_has_no_path_of_the_machine(study, compared, labelled, tmp_path):
    """Absolute paths are shortened."""
    command = f"jaxpt compare --config.data.path={labelled} --workdir {compared}"
    folder = tmp_path / "study"
    archive(compared, folder, *WORDS, command)
    stored = read_stored(folder)
    for text in (json.dumps(stored), (folder / "study.json").read_text()):
        assert str(labelled.parent) not in text and str(compared.parent) not in text
    assert check_study(folder).facts["command"] == (
        f"jaxpt compare --config.data.path={labelled.name} --workdir {compared.name}"
    )
    plans = [plan["config"] for plan in stored["plans"]["plans"].values()]
    for config in (stored["compare"], *plans):
        assert config["data"]["path"] == labelled.name
    assert stored["report"]["runs"][0]["workdir"] == "runs/clm-seed0"


def test_paths_in_settings_are_shortened():
    """Parts of one setting, paths within others; texts that are not paths stay."""
    settings = {
        "mixture": ["/d/a/t.txt=1", "/d/b/t.txt=2"],
        "tasks": ["finetune:/me/own.py:/d/one,/d/two", "blimp:rel/b.tar"],
        "teacher": "/me/runs/x/teachers/mlm",
        "path": "tfds:wiki/en",
    }
    run = {"workdir": "/me/runs/x/runs/mlm-seed0", "note": "/me/runs/xy or/d/one"}
    assert shorten_paths([settings, run], [settings, "/me/runs/x"]) == [
        {
            "mixture": ["a/t.txt=1", "b/t.txt=2"],
            "tasks": ["finetune:own.py:one,two", "blimp:rel/b.tar"],
            "teacher": "x/teachers/mlm",
            "path": "tfds:wiki/en",
        },
        {"workdir": "x/runs/mlm-seed0", "note": "/me/runs/xy or/d/one"},
    ]


@given(st.data(), st.integers(1, 20), st.integers(1, 3))
def test_values_come_back(data, size, num):
    """Hits and counts exactly, others to the precision of float32."""
    kinds = st.integers(0, 1), st.integers(0, 300), st.floats(-1e6, 1e6)
    examples = {}
    for seed in range(num):
        numbers = data.draw(st.lists(st.one_of(*kinds), min_size=size, max_size=size))
        kind = data.draw(st.sampled_from(["hits", "other"]))
        totals = np.array(numbers, float)
        totals = (totals > 0.5).astype(float) if kind == "hits" else totals
        x = Examples(totals, np.arange(size) + 0.5, np.arange(size) // 2)
        examples["a", seed] = {kind: x, "twice": x}
        examples["a",] = {"baseline": x}
    unpacked = unpack_values(*pack_values(examples))
    assert unpacked.keys() == examples.keys()
    for owner, by_metric in examples.items():
        assert unpacked[owner].keys() == by_metric.keys()
        for metric, x in by_metric.items():
            one = unpacked[owner][metric]
            np.testing.assert_array_equal(one.totals, x.totals.astype(np.float32))
            np.testing.assert_array_equal(one.weights, x.weights)
            np.testing.assert_array_equal(one.groups, x.groups)
            assert {z.dtype.kind for z in one[:2]} == {"f"}
            assert one.groups.dtype == np.int64


def test_a_study_is_what_report_reads(study, tmp_path, capsys, labelled, monkeypatch):
    """Alone as it was, and its runs like any others, without text and checkpoints."""
    place = tmp_path / "report"
    argv = ["report", f"--study={study}", f"--workdir={place}"]
    assert cli.main(argv) == cli.main(argv) == 0
    stored = load_study(study).report
    report = json.loads((place / "report.json").read_text())
    assert report | {"figures": {}} == stored
    assert {"report.html", "results.csv", "learning_curves.svg"} <= set(
        os.listdir(place)
    )
    assert cli.main([*argv, "--alpha=0.01"]) == 2
    assert "leave out --alpha" in capsys.readouterr().err
    assert cli.main(["report", f"--runs={study}", f"--workdir={place}"]) == 0
    report = json.loads((place / "report.json").read_text())
    assert "the text cannot be read" in report["left_out"][0]
    by_metric = {entry["metric"]: entry for entry in report["metrics"]}
    for entry in stored["metrics"]:
        assert by_metric[entry["metric"]]["by_name"] == entry["by_name"]


def test_runs_of_a_study_are_those_of_their_folders(study, compared, labelled):
    folders = sorted((compared / "runs").glob("*-seed*"))
    (*runs,) = load_all_runs([study])
    for run, own in zip(runs, load_all_runs(folders), strict=True):
        assert (run.folder.name, run.version) == (own.folder.name, own.version)
        settings = own.settings | {"data.path": labelled.name}
        assert run.settings == settings and run.text == own.text
        assert run.tokenizer_sha256 == own.tokenizer_sha256
        assert run.examples.keys() == own.examples.keys()
        result = {k: v for k, v in own.result.items() if k not in ("workdir", "curve")}
        assert archiving.is_close({k: run.result[k] for k in result}, result)


def test_an_altered_study_is_refused(copied):
    for path in sorted(copied.iterdir()):
        if path.name == ".lock":
            continue
        data = path.read_bytes()
        for changed in (data[:-3], b"", data.replace(b"a", b"b")):
            path.write_bytes(changed)
            with pytest.raises(UserError, match=path.name):
                check_study(copied)
        path.unlink()
        with pytest.raises(UserError, match=path.name):
            check_study(copied)
        path.write_bytes(data)
    check_study(copied)
    facts = json.loads((copied / "study.json").read_text())
    (copied / "study.json").write_text(json.dumps(facts | {"format": 2}))
    with pytest.raises(UserError, match="has format 2; .* reads format 1"):
        check_study(copied)
    (copied / "study.json").write_text(json.dumps(facts | {"title": "Other"}))
    with pytest.raises(UserError, match="study.json: was altered"):
        check_study(copied)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda runs, values: runs.append(runs[0]), "has two runs clm-seed0"),
        (lambda runs, values: runs.pop(0), "clm-seed0: has values by example, but"),
        (
            lambda runs, values: values.pop(("mlm", 1)),
            "mlm-seed1: has values by example of other",
        ),
        (lambda runs, values: runs[0].update(steps=1), "clm-seed0: has steps 1; its"),
        (lambda runs, values: runs[0].update(objective="mlm"), "has objective mlm"),
        (
            lambda runs, values: runs[1]["metrics"].update(bits_per_byte=1.5),
            "clm-seed1: its bits_per_byte is 1.5, but the mean",
        ),
        (lambda runs, values: runs[1].update(metrics={}), "clm-seed1: its .* is None"),
    ],
)
def test_a_study_that_was_forged_is_refused(change, words, copied):
    """With valid checksums."""
    forge(copied, lambda stored, values: change(stored["report"]["runs"], values))
    with pytest.raises(UserError, match=words):
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
    assert "get_config" in read_stored(tmp_path / "s")["source"]
    assert cli.main(argv) == 0
    assert read_stored(tmp_path / "s")["source"] == ""
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
    assert list(root.iterdir()) == [root / "both"] and kills.num >= 6
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
    with pytest.raises(UserError, match="command: its config no.py"):
        archive(compared, tmp_path / "both", *WORDS, "jaxpt compare --config no.py")
    monkeypatch.setattr(archiving, "check_study", refuse_study)
    with pytest.raises(UserError, match="is no study"):
        archive(compared, tmp_path / "both", *WORDS)
    assert snapshot(tmp_path / "both") == snapshot(study)
    assert list(tmp_path.iterdir()) == [tmp_path / "both"]


def refuse_study(folder):
    raise UserError(f"{folder}: is no study")


ALTERED = (
    *("compare.json", "plans.json", "report.json", "runs/clm-seed0/config.json"),
    *("runs/clm-seed0/result.json", "runs/mlm-seed1/examples.npz"),
    "runs/mlm-seed0/checksums.json",
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
    monkeypatch.setattr(loop, "prefetch", None)
    stated = {"mean": 9.0, "low": 8.0, "high": 10.0}
    intervals = {"bits_per_byte": {"clm": stated}}
    monkeypatch.setattr(studies, "list_intervals", lambda report: intervals)
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


def test_the_report_is_printed_in_every_form(tmp_path, capsys):
    argv = ["report", f"--study={QUICKSTART}", f"--workdir={tmp_path / 'report'}"]
    assert cli.main([*argv, "--pairs"]) == 0
    text = capsys.readouterr().out
    sentence, table, note, *_ = text.split("\n\n")
    first, ratio = sentence.split("\nFor ")
    assert first.endswith("electra and span_corruption on bigram-matched cloze.")
    assert ratio.endswith("times clm's FLOPs (from learning curves).")
    rows = [line.split() for line in table.splitlines()[-4:]]
    assert [row[1] for row in rows] == ["clm", "mlm", "electra", "span_corruption"]
    assert [row[5] for row in rows] == ["a", "b", "c", "d"]
    assert note.startswith("Objectives that share a letter do not differ")
    assert "bigram-matched cloze:\nbetter mean  worse mean" in text
    # The docs show this output, without the pairs.
    whole = repr(jaxpt.load_comparison(tmp_path / "report"))
    docs = QUICKSTART.parents[1] / "docs"
    assert f"```\n{whole}\n\nreport: " in (docs / "index.md").read_text("utf-8")
    first = "\n\n".join(whole.split("\n\n")[:4])  # without the tables of numbers
    assert f"```\n{first}\n```" in (docs / "compare.md").read_text("utf-8")
    assert cli.main([*argv, "--format=csv"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("metric,objective,rank,rank_to,mean,low,high,std,seeds")
    assert len(lines) == 4 + 4 + 1 + 2 + 2
    assert cli.main([*argv, "--format=markdown"]) == 0
    assert "| rank | objective | mean | interval |" in capsys.readouterr().out
    assert cli.main([*argv, "--format=word"]) == 2

"""Reports of existing runs: the numbers of a comparison, and the inequalities."""

import dataclasses
import json
import math
import os
import shutil

import numpy as np
import pytest
from reports import vary
from tiny import make_config

from jaxpt.cli import main as cli
from jaxpt.comparison import compare as comparison
from jaxpt.comparison.inequalities import find_tests, list_inequalities
from jaxpt.comparison.naming import name_runs
from jaxpt.comparison.runs_report import report_runs
from jaxpt.config.plan import make_plan
from jaxpt.files import folder as folders
from jaxpt.judge.examples import Examples
from jaxpt.report import figures
from jaxpt.report.summary import summarise
from jaxpt.report.terminal import format_table
from jaxpt.report.types import Report
from jaxpt.runs.finished_runs import find_folders, load_runs
from jaxpt.runs.task import make_task
from jaxpt.text.dataset import load_text
from jaxpt.training import loop

TEXT = {
    "data__label_field": "era",
    "data__split": "documents",
    "data__valid_fraction": 0.25,
    "train__checkpoint_every": 0,
}


@pytest.fixture(scope="module")
def trained(two_by_two, labelled, tmp_path_factory):
    """A comparison of two objectives by two seeds, and a run of another tokenizer."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(two_by_two, folder / "both")
    plan = make_plan(
        make_config(labelled, tokenizer__specials=("pad", "unk", "eos"), **TEXT)
    )
    tokenizer, corpora = load_text(plan.text)
    task = make_task(plan, tokenizer.vocab)
    loop.train(task, tokenizer, corpora, folder / "other")
    return folder


@pytest.fixture(scope="module")
def loaded_runs(trained):
    """The runs of the comparison, read, in the order clm, mlm."""
    return load_runs(find_folders([str(trained / "both/runs/*-seed*")]))


@pytest.fixture
def quick(monkeypatch):
    """No pictures: those of models compile much."""
    monkeypatch.setattr(figures, "draw", lambda *args: {})


def list_folders(trained):
    return sorted((trained / "both" / "runs").glob("*-seed*"))


def change(run, settings=(), result=(), **fields):
    """The run, with other settings or another result."""
    run = run._replace(settings=run.settings | dict(settings))
    return run._replace(result=run.result | dict(result), **fields)


def group(runs):
    groups = {}
    for run in runs:
        groups.setdefault(run.objective, []).append(run)
    return groups


def same(a, b):
    """Whether the metrics of two reports are equal, up to rounding in a sum."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9)
    return a == b


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl"])
def test_a_fifo_is_refused_in_one_line(name, trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained / "other", run)
    (run / name).unlink()
    os.mkfifo(run / name)
    command = ["report", f"--runs={run}", f"--workdir={tmp_path / 'new'}"]
    assert cli.main(command) == 2
    reason = "cannot be read: is a FIFO; must be a regular file"
    assert f"{run / name}: {reason}" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_report_is_that_of_the_comparison(trained, tmp_path, monkeypatch):
    """Pictures too; and nothing is trained."""
    monkeypatch.setattr(loop, "prefetch", None)  # would raise if it trained
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    report_runs(list_folders(trained), tmp_path / "r")
    assert before == {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    made, reference = (
        json.loads((folder / "report.json").read_text())
        for folder in (tmp_path / "r", trained / "both")
    )
    assert same(made["metrics"], reference["metrics"])
    assert any(yardstick["baselines"] for yardstick in made["metrics"])
    keys = [key for key in reference["runs"][0] if key != "workdir"]
    for ours, other in zip(made["runs"], reference["runs"], strict=True):
        assert [ours[key] for key in keys] == [other[key] for key in keys]
        assert (tmp_path / "r" / ours["workdir"] / "result.json").exists()
    assert made["data"] == reference["data"]
    assert made["budget"]["kind"] == "flops" and made["left_out"] == []
    expected = {"learning_curves", "attention_masks", "mask_fill_mlm"}
    assert expected <= made["figures"].keys()
    names = {path.name for path in (tmp_path / "r").iterdir()}
    expected = {"report.json", "report.html", "runs.json", "checksums.json"}
    expected |= {"results.csv", "differences.csv", "results.tex"}
    assert names == expected | set(made["figures"].values())
    for name in ("results.csv", "differences.csv", "results.tex"):
        assert (trained / "both" / name).exists()
    assert (tmp_path / "r/results.csv").read_bytes() == (
        trained / "both/results.csv"
    ).read_bytes()


def test_what_is_equal_is_not_said(loaded_runs):
    clm = [run for run in loaded_runs if run.objective == "clm"]
    twins = {"a": clm, "b": clm}
    assert list_inequalities(twins) == []
    # FLOPs of this comparison are equal to one call, as its budget has it.
    inequalities = list_inequalities(group(loaded_runs))
    assert not any(line.startswith("FLOPs") for line in inequalities)
    for part in ("text", "tokenizer", "seeds", "batch size", "device", "version"):
        assert not any(line.startswith(part) for line in inequalities), inequalities


A_CALL = 2  # train.steps_per_call of the tests


@pytest.mark.parametrize(
    "settings, result, fields, line",
    [
        ({"train.batch_size": 16}, {}, {}, "batch size (train.batch_size): 8 (clm)"),
        ({"optim.lr": 0.5}, {}, {}, "learning rate (optim.lr): "),
        ({"eval.num_rows": 0}, {}, {}, "validation rows (eval.num_rows, 0 is all): "),
        ({"model.num_layers": 3}, {}, {}, "model.num_layers: 1 (clm); 3 (mlm)"),
        ({}, {"row_length": 32}, {}, "row length: 24 tokens (clm); 32 tokens (mlm)"),
        ({}, {"params": 10}, {}, "parameters: "),
        ({}, {"device": "8 x H100"}, {}, "device: 1 x cpu (clm); 8 x H100 (mlm)"),
        ({}, {}, {"version": "0.3.0"}, "version of jaxpt: "),
        ({}, {}, {"tokenizer_sha256": "f" * 64}, "tokenizer: char of "),
        ({}, {}, {"text": {"train": "a", "valid": "b"}}, "validation text: "),
        (
            {},
            {"seed": 7},
            {},
            "seeds: 0, 1 (clm); 7, 7 (mlm); each is judged",
        ),
    ],
)
def test_what_differs_is_said(settings, result, fields, line, loaded_runs):
    before = list_inequalities(group(loaded_runs))
    runs = [
        change(run, settings, result, **fields) if run.objective == "mlm" else run
        for run in loaded_runs
    ]
    output = [each for each in list_inequalities(group(runs)) if each not in before]
    assert any(each.startswith(line) for each in output), output
    assert all("\n" not in each for each in output)


@pytest.mark.parametrize("key", ["flops", "raw_tokens", "steps", "train_seconds"])
def test_a_cost_differs_by_more_than_one_call(key, loaded_runs):
    clm = [run for run in loaded_runs if run.objective == "clm"]
    clm = [change(run, result={key: 100.0, "steps": 20}) for run in clm]
    if key == "steps":
        clm = [change(run, result={key: 100}) for run in clm]
    a_call = A_CALL if key == "steps" else 100 / 20 * A_CALL

    def list_differences(more):
        dear = [change(r, result={key: 100 + more}) for r in clm]
        return list_inequalities({"a": clm, "b": dear})

    assert list_differences(a_call * 0.99) == []
    (line,) = list_differences(4 * a_call)
    assert "(a); " in line and line.endswith("times the least")


def test_the_ratio_of_parameters_is_said(loaded_runs):
    first, *_ = loaded_runs
    groups = {
        name: [change(first, result={"params": number})]
        for name, number in (("small", 1000), ("large", 2500))
    }
    output = (
        "parameters: 1,000 (small); 2,500 (large); the most is 2.50 times the least"
    )
    assert list_inequalities(groups) == [output]


def test_no_verdict_on_other_examples(loaded_runs):
    """For each metric only the settings that select its test examples count."""
    runs = [
        change(run, {"eval.probe_length": 4}) if run.objective == "mlm" else run
        for run in loaded_runs
    ]
    tests = find_tests(group(runs))
    assert tests["probe_accuracy"] == [{"clm"}, {"mlm"}]
    assert tests["cloze_bits"] == [{"mlm"}]
    (line,) = (x for x in list_inequalities(group(runs)) if "no verdict" in x)
    assert "eval.probe_length is 8 and 4" in line and "clm and mlm" in line
    rows = [
        change(run, {"eval.num_rows": 4}) if run.objective == "mlm" else run
        for run in loaded_runs
    ]
    assert find_tests(group(rows))["probe_accuracy"] == [{"clm", "mlm"}]


def test_bits_per_byte_are_of_the_same_bytes(loaded_runs):
    """Across tokenizers, too: then the bytes of each document decide."""
    first, *_ = loaded_runs
    weights = np.array([3.0, 4.0, 5.0])

    def with_bytes(documents, weights):
        examples = {"bits_per_byte": Examples(weights, weights, np.array(documents))}
        return change(first, tokenizer_sha256="f" * 64, examples=examples)

    one = change(first, examples=with_bytes([0, 0, 1], weights).examples)
    others = {
        "same": with_bytes([1, 0, 0], weights[[2, 0, 1]]),
        "moved": with_bytes([0, 1, 1], weights),
        "fewer": with_bytes([0, 0, 1], weights - 1),
        "unkept": with_bytes([0], weights[:1])._replace(examples={}),
    }
    for name, other in others.items():
        tests = find_tests({"one": [one], name: [other]})
        is_judged = {"one", name} in tests["bits_per_byte"]
        assert is_judged == (name == "same"), name
        assert {"one", name} not in tests["probe_accuracy"]


def test_runs_of_two_tokenizers_beside_each_other(trained, tmp_path, quick):
    folders = [trained / "other", *list_folders(trained)[:2]]
    report = report_runs(folders, tmp_path / "r")
    names = [run["name"] for run in report["runs"]]
    assert len(set(names)) == 2 and names[1] == names[2]
    assert all(name.startswith("clm ") and "tokenizer=" in name for name in names)
    (probe,) = (y for y in report["metrics"] if y["metric"] == "probe_accuracy")
    assert probe["pairs"] == [] and probe["verdict"] == ""
    assert set(probe["by_name"]) == set(names)
    output = "\n".join(report["inequalities"])
    assert "tokenizer: char" in output and "the tokenizers differ" in output
    assert "no verdict on linear probe on frozen features between" in output
    # Characters are cut into the same rows whatever their ids: the bytes are the same.
    assert "no verdict on bits per byte" not in output
    (bits,) = (y for y in report["metrics"] if y["metric"] == "bits_per_byte")
    assert len(bits["pairs"]) == 1
    assert "\n".join(report["inequalities"][:1]) in (
        (tmp_path / "r/report.html").read_text().replace("&#x27;", "'")
    )


def test_names_tell_apart_what_differs(loaded_runs):
    mlm = [run for run in loaded_runs if run.objective == "mlm"]
    words = [change(run, {"mlm.masking": "words"}) for run in mlm]
    assert list(name_runs(loaded_runs)) == ["clm", "mlm"]
    named = name_runs([*words[::-1], *loaded_runs])
    assert list(named) == ["mlm masking=words", "mlm masking=tokens", "clm"]
    assert [run.seed for run in named["mlm masking=words"]] == [0, 1]
    paths = [change(run, {"train.init_from": "a/b (c)"}) for run in mlm]
    assert list(name_runs([*mlm, *paths])) == [
        "mlm init_from=none",
        "mlm init_from=a_b _c_",
    ]
    many = {
        f"model.{key}": 9999 for key in ("d_model", "d_ff", "max_len", "num_layers")
    }
    assert list(name_runs([*mlm, *(change(r, many) for r in mlm)])) == [
        "mlm 1",
        "mlm 2",
    ]
    text = [change(r, text=r.text | {"train": "0" * 64}) for r in mlm]
    first, second = name_runs([*mlm, *text])
    assert second == "mlm text=00000000" and first.startswith("mlm text=")


def test_the_terminal_tells_names_apart_that_begin_alike(trained):
    report = json.loads((trained / "both/report.json").read_text())
    names = [f"span_corruption mean_span_length={length}.0" for length in (3, 5)]
    output = dict(zip(("clm", "mlm"), names, strict=True))
    report = Report.from_json(report)
    runs = [vary(run, name=output[run.name]) for run in report.runs]
    metrics = summarise(runs)
    text = format_table(dataclasses.replace(report, runs=runs, metrics=metrics))
    for part in ("mean_span_length=3", "mean_span_length=5"):
        lines = [line for line in text.split("\n") if line.startswith("span_corr")]
        assert sum(part in line for line in lines) >= 2, text


def test_folders_are_named_as_a_shell_user_does(trained, tmp_path):
    runs = trained / "both" / "runs"
    some = [runs / "clm-seed0", runs / "mlm-seed1"]
    assert find_folders([",".join(map(str, some))]) == some
    assert find_folders([f"{runs}/clm-seed*", str(some[1])]) == [
        some[0],
        runs / "clm-seed1",
        some[1],
    ]
    # Of a glob only folders: a comparison keeps files beside its runs.
    assert len(find_folders([f"{runs}/*"])) == 4
    (tmp_path / "a,b").mkdir()
    assert find_folders([str(tmp_path / "a,b")]) == [tmp_path / "a,b"]


def test_the_command_and_its_replacement(trained, tmp_path, quick, capsys):
    runs = [str(path) for path in list_folders(trained)]
    into = tmp_path / "r"
    assert cli.main(["report", "--runs", *runs, "--workdir", str(into)]) == 0
    out = capsys.readouterr().out
    assert "not equal: raw tokens: " in out and f"report: {into / 'report.html'}" in out
    # Fewer runs in the same folder: it is the same command's own.
    few = [f"--workdir={into}", f"--runs={runs[0]},{runs[1]}"]
    assert cli.main(["report", *few]) == 0
    held = json.loads((into / "report.json").read_text())
    assert [run["name"] for run in held["runs"]] == ["clm", "clm"]
    assert held["inequalities"] == []


def test_merged_runs_have_an_error_rate_and_its_condition(trained, tmp_path, quick):
    runs = [str(path) for path in list_folders(trained)]
    into = ["--workdir", str(tmp_path / "r")]
    assert cli.main(["report", *into, "--alpha=0.01", "--runs", *runs]) == 0
    held = json.loads((tmp_path / "r" / "report.json").read_text())
    assert held["alpha"] == 0.01 and "cannot know" in held["seeds_note"]
    for wrong in ("0", "1", "2", "nan"):
        assert cli.main(["report", *into, f"--alpha={wrong}", "--runs", *runs]) == 2


def test_a_control_is_a_name_of_the_report(trained, tmp_path, quick, capsys):
    runs = [str(path) for path in list_folders(trained)]
    into = ["--workdir", str(tmp_path / "r")]
    assert cli.main(["report", *into, "--control=mlm", "--runs", *runs]) == 0
    held = json.loads((tmp_path / "r" / "report.json").read_text())
    assert held["control"] == "mlm"
    for entry in held["metrics"]:
        assert all("mlm" in (p["better"], p["worse"]) for p in entry["pairs"])
    assert "All pairs of mlm with" in (tmp_path / "r" / "report.html").read_text()
    capsys.readouterr()
    assert cli.main(["report", *into, "--control=gpt", "--runs", *runs]) == 2
    assert "--control=gpt: must be among" in capsys.readouterr().err


def test_pictures_that_are_no_longer_drawn_are_removed(trained, tmp_path, monkeypatch):
    drawn = iter(({"a": "a.svg", "b": "b.svg"}, {"b": "b.svg"}))

    def draw(report, corpora_of, workdir, look):
        result = next(drawn)
        for name in result.values():
            (workdir / name).write_bytes(b"<svg/>")
        return result

    monkeypatch.setattr(figures, "draw", draw)
    for _ in range(2):
        report_runs(list_folders(trained)[:1], tmp_path / "r")
    assert {p.name for p in (tmp_path / "r").glob("*.svg")} == {"b.svg"}


def test_a_text_that_is_gone_is_said(trained, labelled, tmp_path, quick, monkeypatch):
    """Its references and pictures are left out; the verdicts remain."""
    from jaxpt.comparison import runs_report
    from jaxpt.errors import UserError

    def refuse(*args):
        raise UserError("data.path=gone.txt: not found")

    monkeypatch.setattr(runs_report, "load_text", refuse)
    report = report_runs(list_folders(trained), tmp_path / "r")
    (line,) = report["left_out"]
    assert "clm, mlm" in line and "gone.txt" in line
    for yardstick in report["metrics"]:
        named = {n for p in yardstick["baselines"] for n in (p["better"], p["worse"])}
        assert "(reference)" not in named
    assert any(yardstick["pairs"] for yardstick in report["metrics"])
    assert report["data"]["path"] == str(labelled)


def test_parameters_that_are_gone_are_said(trained, tmp_path, monkeypatch):
    folder = shutil.copytree(trained / "both/runs/clm-seed0", tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    report = report_runs([folder], tmp_path / "r")
    (line,) = report["left_out"]
    assert line.startswith("left out: pictures of clm: the checkpoint")
    assert set(report["figures"]) == {"learning_curves", "shared_metrics"}


def damage(path):
    whole = path.read_bytes()
    place = len(whole) // 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])


def unvouch(folder):
    """Removes the checksums of the folder's files, which other tests cover."""
    (folder / "checksums.json").unlink()
    folders._warned.add(folder)


def spoil_seed(folder):
    """Unvouched, and of another seed than its config has."""
    unvouch(folder)
    result = json.loads((folder / "result.json").read_text()) | {"seed": 5}
    (folder / "result.json").write_text(json.dumps(result))


def spoil_json(folder):
    unvouch(folder)
    (folder / "result.json").write_text("[]")


SPOILT = {
    "is a file; must be folders": lambda f: (shutil.rmtree(f), f.write_text("x")),
    "not found; must be folders of finished": shutil.rmtree,
    "holds no run": lambda f: (f / "config.json").unlink(),
    "holds a comparison; name its": lambda f: (f / "compare.json").write_text("{}"),
    "is not finished": lambda f: (f / "result.json").unlink(),
    "config.json: was altered": lambda f: damage(f / "config.json"),
    "result.json: was altered": lambda f: damage(f / "result.json"),
    "tokenizer.json: was altered": lambda f: damage(f / "tokenizer.json"),
    "examples.npz: was altered": lambda f: damage(f / "examples.npz"),
    "metrics.jsonl: was altered": lambda f: damage(f / "metrics.jsonl"),
    "examples.npz was removed": lambda f: (f / "examples.npz").unlink(),
    "is of seed=5, but": spoil_seed,
    "result.json: not a JSON object: []": spoil_json,
}


@pytest.mark.parametrize("output", SPOILT)
def test_what_is_no_whole_run_is_refused(output, trained, tmp_path, quick, capsys):
    good = trained / "both/runs/mlm-seed0"
    bad = shutil.copytree(trained / "both/runs/clm-seed0", tmp_path / "bad")
    SPOILT[output](bad)
    check_refused(capsys, tmp_path, [good, bad], output, str(bad))


def check_refused(capsys, tmp_path, runs, *parts):
    """One line with these parts, exit code 2, and nothing written."""
    capsys.readouterr()
    argv = ["report", "--runs", *map(str, runs), "--workdir", str(tmp_path / "new")]
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("jaxpt: error: ") and err.count("\n") == 1, err
    assert all(part in err for part in parts), err
    assert not (tmp_path / "new").exists()


def test_a_run_counts_once(trained, tmp_path, capsys):
    run = trained / "both/runs/clm-seed0"
    twice = [run, run.parent / "../runs/clm-seed0"]
    check_refused(capsys, tmp_path, twice, "is the same folder as", str(run))
    copy = shutil.copytree(run, tmp_path / "copy")
    check_refused(capsys, tmp_path, [run, copy], str(copy), "the seed (0)", str(run))
    check_refused(capsys, tmp_path, [], "--runs: must be folders")
    check_refused(capsys, tmp_path, [run.parent / "none*"], "matches no folder")


def test_damaged_parameters_are_refused(trained, tmp_path, capsys):
    run = shutil.copytree(trained / "both/runs/clm-seed0", tmp_path / "run")
    files = [p for p in (run / "checkpoints").rglob("*") if p.is_file()]
    damage(max(files, key=lambda path: path.stat().st_size))
    check_refused(capsys, tmp_path, [run], "is damaged", str(run))


def test_a_folder_that_holds_something_else_is_refused(
    trained, labelled, tmp_path, quick, refuses
):
    runs = list_folders(trained)[:1]
    for folder, what in (
        (trained / "both", "holds a comparison"),
        (runs[0], "holds a training run"),
        (trained, "holds files other than a report"),
    ):
        before = {path.name for path in folder.iterdir()}
        with refuses(f"workdir={folder}", what):
            report_runs(runs, folder)
        assert {path.name for path in folder.iterdir()} == before
    report_runs(runs, tmp_path / "r")
    config = make_config(labelled, compare__amount=1e8, **TEXT)
    with refuses("holds a report"):
        comparison.compare(config, tmp_path / "r")
    assert not (tmp_path / "r/compare.json").exists()

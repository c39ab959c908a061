"""Runs that diverge: the others are trained, and the report says which diverged."""

import csv
import io
import json
import shutil
import signal

import numpy as np
import pytest
from poison import poison
from reports import make_report, make_runs, without_times
from tiny import make_config, write_stored

from jaxpt.cli import main as cli
from jaxpt.comparison import compare as comparison
from jaxpt.comparison import plan_runs
from jaxpt.comparison.compare import Part, do_part
from jaxpt.comparison.plan_runs import load_plans
from jaxpt.comparison.runs_report import report_runs
from jaxpt.config.settings import to_dict
from jaxpt.errors import DivergedError
from jaxpt.report import figures
from jaxpt.report.diverged import list_diverged
from jaxpt.report.page import write_report
from jaxpt.report.tables import format_latex, format_results
from jaxpt.report.terminal import format_table, list_warnings
from jaxpt.report.types import Report
from jaxpt.runs.finished_runs import load_runs
from jaxpt.runs.signals import Stopped
from jaxpt.runs.workdir import load_divergence
from jaxpt.training import loop, saver
from jaxpt.training.call_reader import CallReader

# "hot" diverges at its second step: Adam's step is lr itself without clipping.
SETTINGS = {
    "train__checkpoint_every": 0,
    "compare__objectives": ("clm", "hot", "mlm"),
    "compare__overrides": {
        "hot": {"objective": "clm", "optim": {"lr": 1e25, "schedule": "constant"}}
    },
    "compare__seeds": (0, 1, 2),
    "compare__amount": 4e7,
}
LOST = {("hot", 0): 2, ("hot", 1): 2, ("hot", 2): 2, ("mlm", 1): 5}


@pytest.fixture(autouse=True, scope="module")
def quick():
    """No pictures, no look ahead; and a loss of mlm with seed 1 that is NaN."""
    read = CallReader.read

    def poisoned(self, call):
        plan = self.task.plan
        is_chosen = plan.objective_name == "mlm" and plan.train.seed == 1
        if call and is_chosen and call.step > 4:
            total, weight = call.metrics["loss"]
            bad = {"loss": (total * np.nan, weight)}
            call = call._replace(metrics=call.metrics | bad)
        read(self, call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", lambda *args: {})
        patch.setattr(plan_runs, "check_run", lambda *args: None)
        patch.setattr(CallReader, "read", poisoned)
        yield


@pytest.fixture(scope="module")
def config(speech):
    return make_config(speech, **SETTINGS)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("diverged")
    return workdir, comparison.compare(config, workdir), to_dict(config)


def list_lost(report):
    return {(r["name"], r["seed"]): r["diverged_at"] for r in report["diverged"]}


def test_the_other_runs_are_trained_and_reported(whole):
    workdir, report, _ = whole
    assert list_lost(report) == LOST
    finished = ["clm-0", "clm-1", "clm-2", "mlm-0", "mlm-2"]
    assert [f"{run['name']}-{run['seed']}" for run in report["runs"]] == finished
    for run in report["diverged"]:
        folder = workdir / run["workdir"]
        assert not (folder / "result.json").exists()
        assert load_divergence(folder).items() <= run.items()
        assert "loss is" in run["reason"] and run["flops"] > 0
    output = format_table(Report.from_json(report))
    assert "mlm seed 1 diverged at step 5 (the loss is nan)" in output
    assert "all seeds of hot, which has no results" in output
    rows = [line.split() for line in output.splitlines()]
    assert ["mlm", "2", "of", "3"] in [row[:4] for row in rows]
    assert ["hot", "0", "of", "3", "diverged"] in [row[:5] for row in rows]
    page = (workdir / "report.html").read_text()
    assert page.index("mlm seed 1 diverged at step 5") < page.index("<h2 id")


def test_a_run_that_diverged_is_not_trained_again(whole, config, monkeypatch, capsys):
    workdir, report, _ = whole
    logs = {path: path.read_bytes() for path in workdir.glob("runs/*/metrics.jsonl")}
    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_start", None)  # nothing can be trained
        again = comparison.compare(config, workdir)
    assert without_times(again) == without_times(report)
    folder = workdir / "runs" / "hot-seed0"
    stderr = capsys.readouterr().err
    assert f"the run has diverged; remove {folder} to train it again" in stderr
    assert logs == {path: path.read_bytes() for path in logs} and len(logs) == 9


def test_a_run_without_its_folder_is_trained_again(whole, config, tmp_path):
    workdir = tmp_path / "copy"
    shutil.copytree(whole[0], workdir)
    shutil.rmtree(workdir / "runs" / "hot-seed0")
    record = load_divergence(whole[0] / "runs" / "hot-seed0")
    output = do_part(Part("runs", "hot-seed0"), config, workdir)
    assert output == "diverged: hot-seed0"
    again = load_divergence(workdir / "runs" / "hot-seed0")
    assert without_times(again) == without_times(record)


def test_parts_and_the_report_of_runs_say_the_same(whole, config, tmp_path, refuses):
    workdir, report, _ = whole
    output = do_part(Part("runs"), config, workdir)
    assert output.splitlines() == [
        "finished: clm-seed0, clm-seed1, clm-seed2, mlm-seed0, mlm-seed2",
        "diverged: hot-seed0, hot-seed1, hot-seed2, mlm-seed1",
    ]
    do_part(Part("report"), config, workdir)
    again = json.loads((workdir / "report.json").read_text())
    assert without_times(again) == without_times(report)
    folders = sorted((workdir / "runs").glob("*-seed*"))
    apart = report_runs(folders, tmp_path / "apart")
    lost = {(run["seed"], run["diverged_at"]) for run in apart["diverged"]}
    assert lost == {(seed, step) for (_, seed), step in LOST.items()}
    assert len(apart["runs"]) == 5
    assert "mlm seed 1 diverged at step 5" in format_table(Report.from_json(apart))
    kept = json.loads((tmp_path / "apart" / "runs.json").read_text())
    assert len(kept["runs"]) == 9
    report_runs(folders, tmp_path / "apart")  # may be written again
    for takes in ([folders[-2]], folders[3:6]):  # mlm seed 1; hot
        with refuses("runs: no run is finished", "diverged at step"):
            report_runs(takes, tmp_path / "none")
    with refuses(f"runs={folders[3]}", "diverged at step 2", "leave it out"):
        load_runs(folders)


def test_an_altered_record_is_refused(whole, config, refuses):
    path = whole[0] / "runs" / "mlm-seed1" / "diverged.json"
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"5", b"6", 1))
    try:
        with refuses(f"{path}: was altered"):
            do_part(Part("report"), config, whole[0])
    finally:
        path.write_bytes(kept)


def test_a_comparison_of_which_every_run_diverges(speech, tmp_path, capsys):
    settings = SETTINGS | {"compare__objectives": ("hot",), "compare__seeds": (0,)}
    config = make_config(speech, **settings)
    write_stored(tmp_path / "config.json", config)
    argv = ["compare", "--config", tmp_path / "config.json"]
    assert cli.main([*map(str, argv), "--workdir", str(tmp_path / "out")]) == 3
    err = capsys.readouterr().err.splitlines()[-1]
    assert "no run is finished: hot seed 0 diverged at step 2" in err
    assert not (tmp_path / "out" / "report.json").exists()


def test_a_signal_does_not_move_the_step_of_divergence(whole, tmp_path, monkeypatch):
    """Between checkpoints nothing looks at parameters, nor does a signal."""
    prepared = load_plans(whole[2], whole[0])
    task, text = prepared.make_task("clm", 0), (prepared.tokenizer, prepared.corpora)
    with monkeypatch.context() as patch:
        patch.setattr(loop.SignalWatch, "ask", lambda self: signal.SIGTERM)
        patch.setattr(saver, "is_finite", lambda params: False)
        with pytest.raises(Stopped):
            loop.train(task, *text, tmp_path)
    assert load_divergence(tmp_path) is None
    with monkeypatch.context() as patch:
        patch.setattr(saver, "is_finite", lambda params: False)
        with pytest.raises(DivergedError, match="a parameter is not finite at step"):
            loop.train(task, *text, tmp_path)
    assert load_divergence(tmp_path)["diverged_at"] == task.plan.train.steps


def test_a_signal_during_a_run_that_diverges_is_passed_on(whole, tmp_path, monkeypatch):
    """Otherwise a comparison would continue with the next run."""
    prepared = load_plans(whole[2], whole[0])
    task, text = prepared.make_task("hot", 0), (prepared.tokenizer, prepared.corpora)
    heard, enter = [], loop.SignalWatch.__enter__

    def enter_and_hear(self):
        watch = enter(self)
        watch.signum = signal.SIGTERM
        return watch

    monkeypatch.setattr(loop.SignalWatch, "__enter__", enter_and_hear)
    monkeypatch.setattr(loop.SignalWatch, "ask", lambda self: None)
    monkeypatch.setattr(signal, "raise_signal", heard.append)
    with pytest.raises(DivergedError):
        loop.train(task, *text, tmp_path)
    assert heard == [signal.SIGTERM]


# Of runs that were not trained.


def make_lost(name, seed, step):
    return {
        "name": name,
        "objective": "mlm",
        "seed": seed,
        "diverged_at": step,
        "reason": "the loss is nan",
        "flops": 1.5,
        "raw_tokens": 7,
        "train_seconds": 0.5,
        "workdir": f"out/{name}-{seed}",
    }


def test_every_line_on_an_objective_names_the_seeds_it_lacks(tmp_path):
    runs = make_runs({"clm": [0.7, 0.71, 0.72], "mlm": [0.5, 0.51], "electra": [0.6]})
    lost = [make_lost("mlm", 7, 1200), make_lost("mlm", 8, 3), make_lost("bad", 0, 1)]
    report = make_report(runs, diverged=lost)
    first, second = list_warnings(report)
    assert "mlm seed 7 diverged at step 1,200 (the loss is nan); mlm seed 8" in first
    assert (
        "Means and verdicts of mlm leave it out" in first
        and "(2 of 4 runs diverged)" in first
    )
    assert "bad seed 0 diverged" in second and "no results" in second
    rows = list(csv.DictReader(io.StringIO(format_results(report))))
    assert [row["diverged_at"] for row in rows] == [*[""] * 6, "1200", "3", "1"]
    assert rows[-1]["name"] == "bad" and rows[-1]["probe_accuracy"] == ""
    assert r"bad & 0 & diverged" in format_latex(report)
    assert "mlm seed 8 diverged at step 3" in format_latex(report)
    page = write_report(report, tmp_path).read_text()
    assert "3 other runs diverged" in page and "<h3>Diverged</h3>" in page


def test_without_any_nothing_is_said():
    report = make_report(make_runs({"clm": [0.7, 0.71], "mlm": [0.5, 0.51]}))
    assert "diverged" not in format_table(report) + format_latex(report)
    assert list_diverged(report) == [] and "diverged" not in format_results(report)


@pytest.mark.slow
def test_one_objective_diverges_and_another_skips(speech, tmp_path):
    """The report says both, and a command without a finished run has its own code."""
    hot = {"objective": "clm", "optim": {"lr": 1e25, "schedule": "constant"}}
    changes = {
        "optim__max_skips": 2,
        "compare__objectives": ("fill_in_the_middle", "hot"),
        "compare__overrides": {"hot": hot},
        "compare__seeds": (0, 1),
    }
    config = make_config(speech, **SETTINGS | changes)
    with poison("fill_in_the_middle", {3: np.nan}):
        report = comparison.compare(config, tmp_path)
    assert [run["skipped_updates"] for run in report["runs"]] == [1, 1]
    assert list_lost(report).keys() == {("hot", 0), ("hot", 1)}
    assert all("2 updates in a row" in run["reason"] for run in report["diverged"])
    lines = list(csv.DictReader(io.StringIO(format_results(Report.from_json(report)))))
    assert [line["skipped_updates"] for line in lines] == ["1", "1", "2", "2"]
    assert "skipped updates" in (tmp_path / "report.html").read_text()

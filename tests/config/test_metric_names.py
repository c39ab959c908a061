"""Metrics that earlier versions recorded under other names."""

import json
import tarfile
from pathlib import Path

import pytest
from tiny import make_config

from jaxpt.comparison.plan_runs import CONFIG, check_folder
from jaxpt.comparison.speedruns import TARGETS, load_targets
from jaxpt.config import metric_names
from jaxpt.config.plan import make_compare_spec
from jaxpt.config.settings import default_config, to_dict
from jaxpt.errors import CheckpointError
from jaxpt.files.folder import write_config, write_json
from jaxpt.report.metrics import METRICS
from jaxpt.report.studies import load_study
from jaxpt.report.summary import summarise
from jaxpt.runs.finished_runs import load_runs
from jaxpt.runs.metrics_file import METRICS_FILE, read_metrics
from jaxpt.runs.result import load_result

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "tests" / "training" / "old" / "runs.tar.xz"
OLD = ("fill_top", "heldout_")


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The folder of runs of an earlier version."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(autouse=True)
def not_warned():
    metric_names._warn_once.cache_clear()


def test_new_names_are_metrics_of_reports():
    for name in ("masked_accuracy", "masked_top5_accuracy", "valid_masked_accuracy"):
        assert name in METRICS and name in metric_names.RENAMED.values()
    assert not METRICS.keys() & metric_names.RENAMED.keys()


def test_a_finished_run_has_present_names(old):
    stored = json.loads((old / "mlm-seed0" / "result.json").read_text())
    was, curve = stored["metrics"], [p["valid_accuracy"] for p in stored["curve"]]
    (run,) = load_runs([old / "mlm-seed0"])
    for result in (run.result, load_result(old / "mlm-seed0")):
        metrics = result["metrics"]
        assert metrics["masked_accuracy"] == was["heldout_top1"]
        assert metrics["masked_top5_accuracy"] == was["heldout_top5"]
        assert metrics["masked_top5_accuracy_random"] == was["heldout_top5_random"]
        # One name for each number: there was no held-out split.
        assert not any("valid_" in name and "accuracy" in name for name in metrics)
        assert [p["valid_masked_accuracy"] for p in result["curve"]] == curve
        assert not any("valid_accuracy" in point for point in result["curve"])
    (causal,) = load_runs([old / "clm-seed0"])
    assert causal.result["metrics"]["valid_accuracy"] > 0


def test_an_old_log_has_present_names(old, tmp_path):
    lines = [
        '{"step": 1, "accuracy": 0.5, "fill_top1": 0.5, "fill_top5": 0.75}',
        '{"step": 2, "valid_accuracy": 0.9, "valid_fill_top1": 0.25}',
    ]
    (tmp_path / METRICS_FILE).write_text("\n".join([*lines, ""]))
    assert read_metrics(tmp_path) == [
        {"step": 1, "masked_accuracy": 0.5, "masked_top5_accuracy": 0.75},
        {"step": 2, "valid_accuracy": 0.9, "valid_masked_accuracy": 0.25},
    ]
    rows = read_metrics(old / "mlm-seed0")
    assert not any(each in name for row in rows for name in row for each in OLD)


def test_a_report_of_old_runs_has_present_names(old):
    runs = load_runs([old / f"mlm-seed{seed}" for seed in (0, 1)])
    entries = [{"name": "mlm"} | run.result for run in runs]
    by_metric = {entry["metric"]: entry["by_name"] for entry in summarise(entries)}
    assert by_metric["masked_accuracy"]["mlm"]["n"] == 2
    assert "valid_accuracy" not in by_metric


def test_a_study_of_an_earlier_version_has_present_names(tmp_path):
    source = ROOT / "results" / "speedruns" / "mlm" / "muon-rotary"
    stored = json.loads((source / "report.json").read_text())
    means = {entry["metric"]: entry["by_name"] for entry in stored["metrics"]}
    for entry in stored["metrics"]:
        if entry["metric"] == "masked_accuracy":
            entry["metric"] = "heldout_top1"
    for run in stored["runs"]:
        run["metrics"]["heldout_top1"] = run["metrics"].pop("masked_accuracy")
    write_json(tmp_path / "report.json", stored)
    write_json(tmp_path / "study.json", json.loads((source / "study.json").read_text()))
    report = load_study(tmp_path).report
    by_metric = {entry["metric"]: entry["by_name"] for entry in report["metrics"]}
    for run in report["runs"]:
        assert not any(each in name for name in run["metrics"] for each in OLD)
    for kept in ("masked_accuracy", "valid_loss", "cloze_accuracy"):
        assert by_metric[kept] == means[kept]


@pytest.mark.parametrize(
    "name, accepted", [("heldout_top5", "masked_top5_accuracy"), ("valid_loss", "")]
)
def test_a_setting_accepts_an_old_name_and_warns_once(name, accepted, capsys):
    config = default_config()
    config.compare.amount = 1e9
    config.compare.tune_by = name
    specs = [make_compare_spec(config) for _ in range(2)]
    assert {spec.tune_by for spec in specs} == {accepted or name}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(accepted)
    for line in lines:
        assert f"compare.tune_by={name}: the metric is now {accepted}" in line


def test_a_comparison_resumes_by_either_name(speech, tmp_path, refuses):
    configs = {
        by: to_dict(make_config(speech, "mlm", compare__tune_by=by))
        for by in ("heldout_top1", "masked_accuracy", "valid_loss")
    }
    write_config(tmp_path / CONFIG, configs["heldout_top1"])
    for by in ("heldout_top1", "masked_accuracy"):
        check_folder(tmp_path, configs[by])
    with refuses("compare.tune_by=masked_accuracy") as caught:
        check_folder(tmp_path, configs["valid_loss"])
    assert caught.type is CheckpointError


def test_stored_records_of_tuning_have_present_names():
    tuning = {"mlm": {"by": "heldout_top1", "trials": []}}
    renamed = {"mlm": {"by": "masked_accuracy", "trials": []}}
    assert metric_names.rename_tuning(tuning) == renamed
    report = {"runs": [], "metrics": [], "tuning": tuning}
    assert metric_names.rename_report(report)["tuning"] == renamed


def test_targets_of_speedruns_accept_old_names(tmp_path, caplog):
    rule = {"metric": "heldout_top1", "above": 0.5}
    stored = json.loads((ROOT / "results/speedruns" / TARGETS).read_text())
    stored["objectives"] = {"mlm": rule}
    (tmp_path / TARGETS).write_text(json.dumps(stored))
    rules = load_targets(tmp_path)
    assert rules["objectives"]["mlm"] == {"metric": "masked_accuracy", "above": 0.5}
    assert "is now masked_accuracy" in caplog.text

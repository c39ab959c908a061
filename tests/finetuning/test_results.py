"""Cells in their folders: names and the predictions of each example."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from jaxpt.errors import CheckpointError
from jaxpt.files.folder import write_json
from jaxpt.finetuning import cell as cells
from jaxpt.finetuning import grid, results, summary
from jaxpt.finetuning.cell import Cell
from jaxpt.finetuning.grid import finetune
from jaxpt.finetuning.summary import format_summary
from tests.finetuning.folders import silent

NEAR = (1.0000001e-3, 1e-3)  # equal in six digits


def test_no_two_cells_share_a_name():
    rates = [*NEAR, 0.1 + 0.2, 0.3, 1e10, 12345678.0, 12345680.0, 2e-5, 1.0, 1e-300]
    names = {Cell(lr, 8, 1, 0).name for lr in rates}
    assert len(names) == len(rates)
    assert all(name.isprintable() and "/" not in name for name in names)


def test_near_learning_rates_are_runs_of_their_own(make_base, make_tune, tmp_path):
    base, near = str(make_base("mlm")), make_tune(train__lr=NEAR, train__epochs=(1,))
    result = finetune(near, base, tmp_path / "both", silent)
    losses = [cell["history"][0]["loss"] for cell in result["cells"]]
    assert [cell["lr"] for cell in result["cells"]] == list(NEAR)
    for lr, loss in zip(NEAR, losses):
        alone = make_tune(train__lr=(lr,), train__epochs=(1,))
        (cell,) = finetune(alone, base, tmp_path / f"{lr!r}", silent)["cells"]
        assert cell["history"][0]["loss"] == loss
    rows = format_summary(result).splitlines()[2:4]
    assert [row.split()[0].rstrip("*") for row in rows] == ["0.0010000001", "0.001"]


def test_the_stored_parameters_are_of_the_last_step(monkeypatch, tmp_path, refuses):
    """Whatever the order of the cells' names; those without parameters do not count."""
    steps = [{"model_step": 3}, {"dev": {}}, {"model_step": 12}, {"model_step": 7}]
    monkeypatch.setattr(results, "load_cells", lambda folder: steps)
    assert results.find_model(tmp_path) == {"model_step": 12}
    monkeypatch.setattr(results, "load_cells", lambda folder: steps[1:2])
    with refuses(str(tmp_path), "holds no finished fine-tuning"):
        results.find_model(tmp_path)


@pytest.mark.parametrize(
    "dev, diverged, metric, line",
    [
        (None, None, "", "has no dev; delete its folder"),
        (None, None, "f1", "has no dev.f1; delete its folder"),
        ({}, None, "f1", "has no dev.f1; delete its folder"),
        ({"accuracy": 1}, None, "f1", "has no dev.f1; delete its folder"),
        ({}, None, "", ""),
        ({"f1": 0.5}, None, "f1", ""),
        (None, "a loss", "f1", ""),
    ],
)
def test_a_result_has_the_metric_or_diverged(
    dev, diverged, metric, line, tmp_path, refuses
):
    cell = Cell(1e-3, 8, 1, 0)
    place = tmp_path / "cells" / cell.name
    place.mkdir(parents=True)
    numbers = {"lr": 1e-3, "batch_size": 8, "epochs": 1, "seed": 0, "seconds": 1.0}
    optional = {"dev": dev, "diverged": diverged}
    content = {k: v for k, v in optional.items() if v is not None}
    write_json(place / "result.json", numbers | {"history": []} | content)
    for load in (
        lambda: [results.load_cell(tmp_path, cell, metric)],
        lambda: results.load_cells(tmp_path, metric),
    ):
        if line:
            with refuses("result.json", line):
                load()
        else:
            assert load()[0].get("dev") == dev
    assert results.load_cell(tmp_path, Cell(1e-3, 8, 1, 1), metric) is None


def read_lines(folder):
    (path,) = folder.glob("cells/*/predictions.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("keep", ["last", "best"])
def test_predictions_are_those_that_the_metrics_are_of(
    keep, make_base, make_tune, tmp_path, monkeypatch
):
    base = str(make_base("mlm"))
    plan = make_tune(train__keep=keep, train__evals=3)
    (cell,) = finetune(plan, base, tmp_path / "a", silent)["cells"]
    result = read_lines(tmp_path / "a")
    for split in ("dev", "test"):
        lines = [line for line in result if line["split"] == split]
        assert [line["row"] for line in lines] == list(range(16))
        gold, predictions = (
            [line[x] for line in lines] for x in ("gold", "prediction")
        )
        assert accuracy_score(gold, predictions) == cell[split]["accuracy"]
        assert np.mean([line["score"] for line in lines]) == cell[split]["accuracy"]
        for line in lines:
            best = int(np.argmax(line["probabilities"]))
            assert line["prediction"] == ("0", "1")[best]
            assert sum(line["probabilities"]) == pytest.approx(1)
    # Killed when all was trained: what is measured again is the same.
    with monkeypatch.context() as patch:
        patch.setattr(cells, "conclude", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(plan, base, tmp_path / "b", silent)
    finetune(plan, base, tmp_path / "b", silent)
    assert read_lines(tmp_path / "b") == result


def test_rows_of_held_out_examples_are_those_of_the_file(
    make_base, make_tune, splits, tmp_path
):
    plan = make_tune(data__dev="", data__test="", train__epochs=(0,))
    finetune(plan, str(make_base("mlm")), tmp_path, silent)
    result = read_lines(tmp_path)
    lines = (splits / "train.tsv").read_text().splitlines()[1:]
    assert len(result) == 4 and result[0]["row"] != 0
    for line in result:
        assert lines[line["row"]].endswith(f"\t{line['gold']}")
    assert len({line["row"] for line in result}) == 4


def test_the_report_of_classification(make_base, make_tune, tmp_path):
    plan = make_tune(train__seeds=(0, 1), train__epochs=(1,))
    result = finetune(plan, str(make_base("mlm")), tmp_path, silent)
    report = result["picked"]["report"]["test"]
    each = [cell["report"]["test"] for cell in result["cells"]]
    assert np.sum(report["confusion"]) == 2 * 16
    assert report["ece"] == pytest.approx(np.mean([own["ece"] for own in each]))
    assert report["per_label"]["1"]["support"] == each[0]["per_label"]["1"]["support"]
    output = format_summary(result)
    assert f"AUC {report['auc']:.4f}, ECE {report['ece']:.4f} (15 bins)" in output
    assert "label  precision" in output
    path = next((tmp_path / "cells").glob("*/result.json"))
    for forge, line in [
        (lambda report: report["per_label"]["1"].pop("f1"), "per_label.1"),
        (lambda report: report["per_label"].pop("1"), "has 1 labels, its confusion 2"),
    ]:
        content = json.loads(text := path.read_text())
        forge(content["report"]["test"])
        write_json(path, content)
        with pytest.raises(CheckpointError, match=line):
            results.load_cells(tmp_path)
        write_json(path, json.loads(text))


def test_the_interval_of_a_mean_over_seeds_by_hand():
    """Student's t with one degree of freedom less than seeds: 4.303 for three."""
    low, high = summary.mean_interval([1.0, 2.0, 3.0])
    half = 4.302653 / math.sqrt(3)
    assert (low, high) == pytest.approx((2 - half, 2 + half), rel=1e-6)
    assert math.isnan(summary.mean_interval([1.0])[0])


def test_a_call_killed_between_two_files_can_be_repeated(
    make_base, make_tune, tmp_path, monkeypatch
):
    """After its config and before its identity; and before a checkpoint is removed."""
    base, plan = str(make_base("mlm")), make_tune(train__epochs=(1,))
    with monkeypatch.context() as patch:
        patch.setattr(grid, "write_json", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(plan, base, tmp_path, silent)
    assert (tmp_path / "config.json").exists()
    finetune(plan, base, tmp_path, silent)
    (place,) = tmp_path.glob("cells/*")
    (place / "checkpoints" / "1").mkdir(parents=True)
    finetune(plan, base, tmp_path, silent)
    assert not (place / "checkpoints").exists() and (place / "result.json").exists()

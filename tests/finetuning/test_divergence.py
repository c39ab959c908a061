"""A run that diverges is reported as such, never picked, and leaves strict JSON."""

import dataclasses
import json

import numpy as np
import pytest
from poison import poison_tuning
from stops import stop_after

from jaxpt.errors import DivergedError
from jaxpt.finetuning import evaluation, grid
from jaxpt.finetuning.base import _find_unfinished, load_base
from jaxpt.finetuning.data import read_data
from jaxpt.finetuning.grid import finetune, make_program
from jaxpt.finetuning.results import find_model
from jaxpt.finetuning.reuse import Reuse
from jaxpt.finetuning.summary import format_summary, summarise
from jaxpt.runs.signals import Stopped
from jaxpt.tasks.metrics import number_metrics
from tests.finetuning.folders import silent


def read_strictly(folder):
    """All JSON files of a folder; NaN and Infinity are not JSON."""

    def refuse(name):
        raise AssertionError(f"{name} in JSON")

    result = {}
    for path in folder.rglob("*.json*"):
        text = path.read_text()
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        result[path] = [json.loads(line, parse_constant=refuse) for line in lines]
    return result


def test_a_run_that_diverges_is_not_picked(make_base, make_tune, tmp_path):
    base, lines = str(make_base("mlm")), []
    plan = make_tune(train__lr=(1e10, 1e-3), train__seeds=(0, 1))
    result = finetune(plan, base, tmp_path, lines.append)
    wild, tame = result["settings"]
    assert wild["dev"] is None and wild["diverged"] == 2
    assert tame["diverged"] == 0 and result["picked"]["lr"] == 1e-3
    lost, kept = result["cells"][0], result["cells"][2]
    assert "the loss is not finite after step 5" in lost["diverged"]
    assert "dev" not in lost and "model_step" not in lost
    assert kept["dev"] and "diverged" not in kept
    assert find_model(tmp_path)["lr"] == 1e-3
    assert len(result["expected_best"]) == 2
    assert any("lr1e+10-b8-e2-s0 diverged: " in line for line in lines)
    assert "2 diverged" in format_summary(result)
    assert read_strictly(tmp_path)
    # Nothing is trained again, and the numbers are the same.
    assert finetune(plan, base, tmp_path, silent) == result


def test_a_grid_in_which_all_diverge_is_an_error(make_base, make_tune, tmp_path):
    base = str(make_base("mlm"))
    plan = make_tune(train__lr=(1e10, 1e20), train__keep="best", train__epochs=(1,))
    for _ in range(2):
        with pytest.raises(DivergedError, match="every run diverged .*lower") as error:
            finetune(plan, base, tmp_path, silent)
        assert len(str(error.value).splitlines()) == 1
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["picked"] is None and len(result["cells"]) == 2
    assert read_strictly(tmp_path)


def test_a_network_that_gives_nan_after_its_last_step_diverged(
    make_base, make_tune, tmp_path
):
    """Its losses are finite and its parameters too, and argmax of NaN is a label."""
    one_step = {"train__epochs": (1,), "train__batch_size": (40,)}
    plan = make_tune(train__lr=(3e38, 1e-3), **one_step)
    result = finetune(plan, str(make_base("mlm")), tmp_path, silent)
    assert "after step 1" in result["cells"][0]["diverged"]
    assert result["picked"]["lr"] == 1e-3


def test_outputs_that_are_not_finite_are_no_predictions(
    make_base, make_tune, monkeypatch
):
    plan, base = make_tune(), load_base(str(make_base("mlm")), "auto", 32, -1)
    data, reuse = read_data(plan), Reuse()
    train = reuse.encode_splits(plan, data, base.encoder)["train"]
    program = make_program(plan, base, data.labels, train)
    for bad in (np.nan, np.inf):
        monkeypatch.setattr(
            program, "outputs", lambda *_: np.full((16, 2), bad, np.float32)
        )
        with pytest.raises(DivergedError, match="an output is not finite"):
            evaluation.read_outputs(program, None, train)


def test_a_prediction_that_is_nan_has_no_correlation():
    for bad in (np.nan, np.inf):
        result = number_metrics([1.0, bad, 3.0], [1.0, 2.0, 3.0])
        assert all(np.isnan(value) for value in result.values())
    assert number_metrics([2.0, 2.0], [1.0, 3.0])["pearson"] == 0


def test_a_regression_that_diverges_has_no_score(make_base, make_tune, tmp_path):
    columns = {"task__text": "sentence", "task__pair": "", "task__label": "label"}
    plan = make_tune("regression", train__lr=(1e10, 1e-3), **columns)
    result = finetune(plan, str(make_base("mlm")), tmp_path, silent)
    lost, kept = result["cells"]
    assert "diverged" in lost and "dev" not in lost
    assert np.isfinite(kept["dev"]["pearson"]) and result["picked"]["lr"] == 1e-3
    assert read_strictly(tmp_path)


def make_cell(lr, seed, value):
    cell = {"lr": lr, "batch_size": 8, "epochs": 1, "seed": seed}
    if value is None:
        return cell | {"diverged": "the loss is not finite"}
    return cell | {"dev": {"accuracy": value}}


@pytest.mark.parametrize(
    "values, picked",
    [
        ({0.1: [0.9, 0.9, None], 0.2: [0.8, 0.8, 0.8]}, 0.1),
        ({0.1: [0.9, None, None], 0.2: [0.8, 0.8, 0.8]}, 0.2),
        ({0.1: [0.9, None], 0.2: [0.8, 0.8]}, 0.2),
        ({0.1: [0.9, None, None, None], 0.2: [0.8, 0.8, None, None]}, 0.2),
        ({0.1: [None, None], 0.2: [None, 0.1]}, 0.2),
        ({0.1: [None], 0.2: [None]}, None),
    ],
)
def test_a_seed_that_diverged_counts_as_the_worst(values, picked):
    cells = [
        make_cell(lr, seed, value)
        for lr, result in values.items()
        for seed, value in enumerate(result)
    ]
    summary = summarise(cells, "accuracy")
    assert (summary["picked"] and summary["picked"]["lr"]) == picked
    lost = {each["lr"]: each["diverged"] for each in summary["settings"]}
    assert lost == {lr: result.count(None) for lr, result in values.items()}
    json.dumps(summary, allow_nan=False)


def test_an_unfinished_run_is_named(make_base, make_tune, tmp_path):
    base, lines = str(make_base("mlm")), []
    plan = make_tune(train__epochs=(0,))
    result = finetune(plan, base, tmp_path / "a", lines.append)
    assert result["unfinished"] == "step 0 of train.steps=12"
    output = "the run is unfinished: step 0 of train.steps=12"
    assert output in lines and output in format_summary(result)
    scratch = finetune(plan, f"scratch:{base}", tmp_path / "b", silent)
    assert scratch["unfinished"] == "" and "unfinished" not in format_summary(scratch)


def test_when_a_run_is_finished(make_base, tmp_path):
    task = load_base(str(make_base("mlm")), "auto", 32, -1).task
    assert _find_unfinished(tmp_path, task, 0) == ""  # imported, never trained here
    (tmp_path / "data.json").write_text("{}")
    assert _find_unfinished(tmp_path, task, 11) == "step 11 of train.steps=12"
    assert _find_unfinished(tmp_path, task, 12) == ""
    train = dataclasses.replace(task.plan.train, seconds=5.0)
    plan = dataclasses.replace(task.plan, train=train)
    task = dataclasses.replace(task, plan=plan)
    assert "train.seconds=5" in _find_unfinished(tmp_path, task, 99)
    (tmp_path / "result.json").write_text("{}")
    assert _find_unfinished(tmp_path, task, 99) == ""


@pytest.mark.parametrize("dtype, max_skips", [("float32", 3), ("float16", 0)])
def test_bad_updates_are_skipped_and_a_resumed_run_ends_the_same(
    dtype, max_skips, make_base, make_tune, tmp_path, monkeypatch
):
    """Five steps an epoch, of which three are bad: two in a row, then one."""
    base, nan = str(make_base("mlm", model__dtype=dtype)), float("nan")
    optim = {"optim__max_skips": max_skips, "train__keep": "last"}
    plan = make_tune(train__checkpoint_every=1, **optim)
    with poison_tuning({1: nan, 2: float("inf"), 6: nan}):
        lines = []
        whole = finetune(plan, base, tmp_path / "whole", lines.append)
        with monkeypatch.context() as patch:
            patch.setattr(grid, "SignalWatch", stop_after(2))  # between the two
            with pytest.raises(Stopped):
                finetune(plan, base, tmp_path / "parts", silent)
        parts = finetune(plan, base, tmp_path / "parts", silent)
    (cell,), (resumed,) = whole["cells"], parts["cells"]
    assert cell["skipped_updates"] == 3 and "diverged" not in cell
    assert [entry["skipped_updates"] for entry in cell["history"]] == [2, 3]
    assert all(np.isfinite(entry["loss"]) for entry in cell["history"])
    assert any("skipped 3 updates so far" in line for line in lines)
    for name in ("dev", "test", "skipped_updates"):
        assert cell[name] == resumed[name]
    losses = [[e["loss"] for e in each["history"]] for each in (cell, resumed)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("unfreeze", [0, 1])
def test_too_many_bad_updates_in_a_row_are_a_divergence(
    unfreeze, make_base, make_tune, tmp_path
):
    plan = make_tune(train__lr=(1e-2,), optim__max_skips=2, groups__unfreeze=unfreeze)
    with poison_tuning(dict.fromkeys((6, 7), float("nan"))):
        with pytest.raises(DivergedError, match="2 updates in a row were skipped"):
            finetune(plan, str(make_base("mlm")), tmp_path, silent)
    result = json.loads((tmp_path / "result.json").read_text())
    assert "after step 10" in result["cells"][0]["diverged"]
    assert read_strictly(tmp_path)

"""Runs in float16: overflows are skipped, and the scale is part of the checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest
from poison import poison
from stops import stop_after
from tiny import CORE, make_config, run_on_devices, slow, slow_but

from jaxpt.api import runs
from jaxpt.cli.main import main
from jaxpt.errors import DivergedError
from jaxpt.hub.files import read_tensors
from jaxpt.learn import loss_scale
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.signals import Stopped
from jaxpt.training import loop
from tests.training.test_skips import CASES, assert_same, read_log, restore, train

NAN, INF = float("nan"), float("inf")
HALF = {"model__dtype": "float16"}
SCALE = ".skips.scale.value"
START = loss_scale.START


@pytest.mark.parametrize("objective", slow_but(("electra",), CORE))
def test_an_overflow_changes_nothing_but_the_step_and_the_scale(
    objective, speech, tmp_path
):
    one = {"train__steps_per_call": 1, "train__checkpoint_every": 1}
    keep = {"train__keep_checkpoints": 20, "train__steps": 8, "train__log_every": 1}
    changes = CASES[objective] | HALF | one | keep
    config = make_config(speech, objective, **changes)
    # The loss is finite, and not the gradient.
    with poison(objective, {2: 1e8, 3: NAN}):
        result = train(config, tmp_path)
    assert result["skipped_updates"] == 2
    for step, is_skipped in ((2, False), (3, True), (4, True), (5, False)):
        before, after = (restore(config, tmp_path, at) for at in (step - 1, step))
        for path, leaf in before.items():
            is_state = path.startswith(".params")
            is_state |= path.startswith(".opt_state") and any(
                name in path for name in (".mu", ".nu", ".v", ".trace")
            )
            if is_state and is_skipped:
                np.testing.assert_array_equal(leaf, after[path], err_msg=path)
        changed = any((x != after[p]).any() for p, x in before.items() if "param" in p)
        assert changed != is_skipped
        assert after[SCALE] == before[SCALE] / (2 if is_skipped else 1)
    lines = {line["step"]: line for line in read_metrics(tmp_path) if "lr" in line}
    scales = [lines[step]["loss_scale"] for step in sorted(lines)]
    assert scales == [START, START, START / 2, *[START / 4] * 5]
    assert [line.get("skipped_updates", 0) for line in lines.values()][1:5] == [
        0,
        1,
        2,
        2,
    ]
    assert np.isfinite(lines[3]["loss"]) and lines[3]["loss"] > 1e6


def test_finite_steps_double_the_scale_and_no_other_dtype_has_one(
    speech, tmp_path, monkeypatch
):
    monkeypatch.setattr(loss_scale, "INTERVAL", 5)
    train(make_config(speech, "clm", **HALF), tmp_path / "half")
    lines = [n for n in read_metrics(tmp_path / "half") if "lr" in n]
    scales = [line["loss_scale"] / START for line in lines]
    assert scales == [1, 1, 2, 2, 4, 4]  # at steps 2, 4, ...
    config = make_config(speech, "clm", model__dtype="bfloat16")
    train(config, tmp_path / "other")
    assert not any("loss_scale" in line for line in read_metrics(tmp_path / "other"))
    assert not any("skips" in path for path in restore(config, tmp_path / "other"))


@pytest.mark.parametrize("objective, changes", [("clm", {}), slow("electra", {})])
def test_a_stopped_run_ends_the_same(objective, changes, speech, tmp_path, monkeypatch):
    monkeypatch.setattr(loss_scale, "INTERVAL", 2)
    config = make_config(speech, objective, **HALF, **changes)
    with poison(objective, {5: NAN, 6: 1e9, 9: NAN}):  # a stop in the middle of them
        train(config, tmp_path / "whole")
        with monkeypatch.context() as patch:
            patch.setattr(loop, "SignalWatch", stop_after(2))
            with pytest.raises(Stopped):
                train(config, tmp_path / "parts")
        stopped = restore(config, tmp_path / "parts")
        assert stopped[".skips.in_a_row"] == 1 and stopped[SCALE] != START
        result = train(config, tmp_path / "parts")
    assert result["skipped_updates"] == 3
    assert_same(*(restore(config, tmp_path / name) for name in ("whole", "parts")))
    assert read_log(tmp_path / "whole") == read_log(tmp_path / "parts")


def test_a_run_whose_every_update_overflows_ends_with_one_line(
    speech, tmp_path, capsys
):
    config = make_config(speech, "clm", **HALF, train__steps=60)
    with poison("clm", dict.fromkeys(range(3, 60), INF)):
        with pytest.raises(DivergedError) as error:
            train(config, tmp_path)
    text = str(error.value)
    assert "25 updates in a row were skipped" in text and "loss scale 1 " in text
    assert len(text.splitlines()) == 1
    assert json.loads((tmp_path / "diverged.json").read_text())["diverged_at"] == 4


def test_a_run_is_evaluated_generates_and_is_exported_in_float32(speech, tmp_path):
    config = make_config(speech, "clm", **HALF, eval__samples=1, train__eval_every=4)
    train(config, tmp_path / "run")
    run = runs.load(str(tmp_path / "run"))
    assert run.task.model_spec.dtype == "float16"
    assert run.generate("the ", num_tokens=4)
    assert np.isfinite(run.nll(["the people"])).all()
    assert np.isfinite(run.embed(["the people"])).all()
    flags = ["--workdir", str(tmp_path / "run"), "--to", str(tmp_path / "out")]
    assert main(["export", *flags]) == 0
    tensors = read_tensors(tmp_path / "out")
    assert {x.dtype.name for x in tensors.values()} == {"float32"}


CODE = """
import sys
sys.path.insert(0, {tests!r})
import jax, numpy as np
from poison import poison
from tiny import make_config, prepare
from jaxpt.runs.program import Program
from jaxpt.runs.data import make_feed

for changes in ({changes}):
    config = make_config({path!r}, "electra", model__dtype="float16",
                         model__num_heads=4, train__batch_size=16,
                         train__steps_per_call=1, **changes)
    with poison("electra", {{0: 1e8}}):
        task, _, corpora = prepare(config)
        feed, results = make_feed(task, corpora["train"]), []
        for num in (1, 8):
            program = Program(task, jax.devices()[:num])
            state = program.run_form(program.init_state(3))
            for step in range(4):
                stack = program.place(feed.stack(step, 1))
                state, _ = program.train_call(state, stack, 3)
            for leaf in jax.tree.leaves(state.skips):
                shards = [np.asarray(x.data) for x in leaf.addressable_shards]
                assert all((x == shards[0]).all() for x in shards)
            saved = program.save_form(state)
            results.append(jax.device_get((saved.params, saved.skips)))
    (one, skips), (many, other) = results
    print(float(skips.scale.value), int(skips.total), int(skips.scale.num_finite))
    print(float(other.scale.value), int(other.total), int(other.scale.num_finite))
    gaps = jax.tree.map(lambda a, b: float(abs(a - b).max()), one, many)
    print(max(jax.tree.leaves(gaps)))
"""
PMAP = "{'train__backend': 'pmap'}"
SPLIT = "{'train__fsdp': 0, 'train__num_microbatches': 2}"


@pytest.mark.parametrize("changes", [PMAP, slow(SPLIT)])
def test_all_devices_skip_together(changes, speech):
    tests = str(Path(__file__).parents[1])
    code = CODE.format(tests=tests, path=str(speech), changes=f"{changes},")
    one, many, gap = run_on_devices(8, code).splitlines()[-3:]
    assert one == many == f"{START / 2} 1 3"
    assert float(gap) < 2e-3

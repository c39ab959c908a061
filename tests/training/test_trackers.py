"""What a run is told to TensorBoard, W&B and MLflow, once each, also when resumed."""

import importlib.util
import json
import os
import struct

import pytest
from tiny import make_config, prepare

from jaxpt.config.plan import make_plan
from jaxpt.training import trackers
from jaxpt.training.loop import train
from jaxpt.training.metrics_log import MetricWriter


class Recorder:
    """A tracker that keeps what it was told, over several runs."""

    def __init__(self, last=-1):
        self.last, self.told, self.ends = last, [], []

    def write(self, step, numbers, texts):
        self.told.append((step, dict(numbers), dict(texts)))

    def flush(self):
        pass

    def close(self, is_finished):
        self.ends.append(is_finished)


@pytest.fixture
def recorder(monkeypatch):
    made = Recorder()
    monkeypatch.setattr(trackers, "make_trackers", lambda *args: [made])
    return made


def write_steps(workdir, steps, resume_step=0, names=("tensorboard",), end=None):
    with MetricWriter(workdir, resume_step, names, {"a.b": 1}) as writer:
        for step in steps:
            texts = {"sample": f"fills: {step}"} if step == 2 else {}
            writer.write(step, {"loss": 1 / (step + 1), "seconds": step}, texts)
        if end:
            raise end


def test_a_tracker_is_told_each_step_once_and_what_it_lacks(tmp_path, recorder):
    with pytest.raises(KeyboardInterrupt):
        write_steps(tmp_path, range(6), end=KeyboardInterrupt())
    assert [step for step, *_ in recorder.told] == list(range(6))
    assert recorder.told[2][2] == {"sample": "fills: 2"}
    assert recorder.ends == [False]
    # Resumed from a checkpoint of step 3 by what has all up to step 5.
    recorder.last = 5
    write_steps(tmp_path, range(4, 8), resume_step=3)
    assert [step for step, *_ in recorder.told] == list(range(8))
    assert recorder.ends == [False, True]
    # One that is new gets the lines before, too.
    recorder.last, recorder.told = -1, []
    write_steps(tmp_path, range(7, 9), resume_step=6)
    assert [step for step, *_ in recorder.told] == list(range(9))
    assert recorder.told[2] == (
        2,
        {"loss": 1 / 3, "seconds": 2},
        {"sample": "fills: 2"},
    )


def test_without_trackers_there_is_the_log_alone(tmp_path):
    write_steps(tmp_path, range(3), names=())
    assert {path.name for path in tmp_path.iterdir()} == {
        "metrics.jsonl",
        "checksums.json",
    }


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_one_that_is_not_installed_is_refused_before_anything_is_written(
    name, speech, tmp_path, monkeypatch, refuses
):
    find = importlib.util.find_spec
    missing = lambda module: None if module == name else find(module)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    config = make_config(speech, train__trackers=("tensorboard", name))
    task, tokenizer, corpora = prepare(config)
    with refuses("train.trackers=('tensorboard', ", f"pip install 'jaxpt[{name}]'"):
        train(task, tokenizer, corpora, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("names", [("comet",), ("wandb", "wandb")])
def test_other_names_are_refused(names, speech, refuses):
    with refuses("train.trackers=", "one of tensorboard, wandb, mlflow, each once"):
        make_plan(make_config(speech, train__trackers=names))


def test_a_damaged_file_of_ids_is_said(tmp_path, refuses):
    (tmp_path / "trackers.json").write_text("[1]")
    with refuses("trackers.json: damaged"):
        trackers._read_ids(tmp_path)


def require(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(
            f"no {name}; would show that a resumed run goes on in one {name} run"
        )


def read_records(data):
    """The records of a .wandb file: LevelDB's log, blocks of 32 KiB with headers."""
    place, parts = 7, b""  # behind the file's own header
    while place + 7 <= len(data):
        room = 2**15 - place % 2**15
        if room < 7:
            place += room
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def read_wandb(folder):
    """The ids, the rows and the config of the runs that W&B wrote offline."""
    from wandb.proto import wandb_internal_pb2

    ids, rows, config = set(), [], {}
    files = folder.glob("wandb/offline-run-*/*.wandb")
    for path in sorted(files, key=os.path.getmtime):
        for data in read_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            ids |= {record.run.run_id} if record.HasField("run") else set()
            for item in record.run.config.update:
                config[item.key] = json.loads(item.value_json)
            if record.HasField("history"):
                items = record.history.item
                names = [item.key or ".".join(item.nested_key) for item in items]
                values = [json.loads(item.value_json) for item in items]
                rows.append(dict(zip(names, values)))
    return ids, rows, config


def test_wandb_offline_goes_on_in_one_run(tmp_path, monkeypatch):
    require("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(KeyboardInterrupt):
        write_steps(tmp_path, range(6), names=("wandb",), end=KeyboardInterrupt())
    write_steps(tmp_path, range(4, 8), resume_step=3, names=("wandb",))
    ids, rows, config = read_wandb(tmp_path)
    assert len(ids) == 1
    assert [row["_step"] for row in rows] == list(range(8))
    assert [row["loss"] for row in rows] == [1 / (step + 1) for step in range(8)]
    assert rows[2]["sample"] == "fills: 2"
    assert config["a.b"] == 1


def test_mlflow_goes_on_in_one_run(tmp_path, monkeypatch):
    require("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "tests")
    with pytest.raises(KeyboardInterrupt):
        write_steps(
            tmp_path / "r", range(6), names=("mlflow",), end=KeyboardInterrupt()
        )
    client = MlflowClient()
    place = client.get_experiment_by_name("tests").experiment_id
    (run,) = client.search_runs([place])
    assert run.info.status == "KILLED"
    write_steps(tmp_path / "r", range(4, 8), resume_step=3, names=("mlflow",))
    (run,) = client.search_runs([place])
    assert run.info.status == "FINISHED" and run.data.params == {"a.b": "1"}
    for name in ("loss", "seconds"):
        history = client.get_metric_history(run.info.run_id, name)
        assert [metric.step for metric in history] == list(range(8))
    # The second line of a step adds what the first had not.
    with MetricWriter(tmp_path / "r", 7, ("mlflow",)) as writer:
        writer.write(8, {"loss": 1.0, "seconds": 8})
        writer.write(8, {"valid_loss": 2.0, "seconds": 8})
    steps = {
        name: [m.step for m in client.get_metric_history(run.info.run_id, name)]
        for name in ("loss", "valid_loss", "seconds")
    }
    assert steps == {"loss": [*range(9)], "valid_loss": [8], "seconds": [*range(9)]}

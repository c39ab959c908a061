"""Experiment trackers: TensorBoard, Weights & Biases, MLflow (`train.trackers`).

All share one interface, `Tracker`. A resumed run continues the same W&B and MLflow run,
whose id is in the run's folder. The trackers' own environment variables set the
destination: WANDB_MODE, WANDB_PROJECT, MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME.
"""

import contextlib
import json
import os
import secrets
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar
from tensorboardX.summary import text as text_summary

from jaxpt import optional
from jaxpt.config.sections import TRACKERS
from jaxpt.errors import CheckpointError, ConfigError, UserError
from jaxpt.files import disk, schema

TRACKERS_FILE = "trackers.json"
PROJECT = "jaxpt"  # default project of W&B and MLflow
MOST_PARAMS = 100  # that MLflow takes at once


class Tracker(Protocol):
    """The interface of a tracker.

    Attributes:
      last: the last step that it has of the run's log; -1 for none.
    """

    last: int

    def write(
        self, step: int, numbers: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """Adds the metrics of a step."""

    def flush(self) -> None:
        """Writes everything to disk."""

    def close(self, is_finished: bool) -> None:
        """Closes the tracker; `is_finished` if the run has reached its end."""


def check_installed(names: tuple[str, ...]) -> None:
    """Raises UserError for a tracker whose package is not installed."""
    for name in names:
        if name != "tensorboard":
            optional.check(name, name, f"train.trackers={names}", ConfigError)


def make_trackers(
    names: tuple[str, ...], workdir: Path, resume_step: int, config: Mapping[str, Any]
) -> list[Tracker]:
    """The trackers of a run that starts or resumes at a step.

    Args:
      config: the run's settings by full name, logged as its hyperparameters.
    """
    check_installed(names)
    trackers: list[Tracker] = []
    for name in TRACKERS:
        if name == "tensorboard" and name in names:
            trackers.append(TensorBoard(workdir, resume_step))
        elif name in names:
            kind: type[WandB] | type[MLflow] = WandB if name == "wandb" else MLflow
            trackers.append(_call(name, lambda kind=kind: kind(workdir, config)))
    return trackers


def _call(name: str, act: Callable) -> Any:
    """The result of a call to a tracker's library; its errors as one line."""
    try:
        return act()
    except (UserError, OSError):
        raise
    except Exception as error:  # each library has its own error classes
        message = " ".join(str(error).split())
        raise ConfigError(f"train.trackers={name}: {message}") from error


class TensorBoard:
    """Event files in `<workdir>/tensorboard`."""

    def __init__(self, workdir: Path, resume_step: int):
        folder = workdir / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_links(folder)
        # Not SummaryWriter: it sends pickled events to a thread. When that dies,
        # the run waits forever. The suffix separates two runs of the same second.
        self._events = EventsWriter(str(folder / "events"), f".{resume_step}")
        # Hides the events of earlier files from this step on.
        first = resume_step + 1 if resume_step > 0 else 0
        self.last = first - 1
        self._write(step=first, session_log=SessionLog(status=SessionLog.START))

    def write(self, step, numbers, texts):
        for key, value in numbers.items():
            self._write(step=step, summary=scalar(key, value))
        for (
            key,
            words,
        ) in texts.items():  # indented, because TensorBoard renders Markdown
            summary = text_summary(key, textwrap.indent(words, " " * 4))
            self._write(step=step, summary=summary)

    def flush(self):
        self._events.flush()

    def close(self, is_finished):
        try:
            self._events.close()
        except OSError:
            # It has only flushed. Python 3.13 would print the error again when the file
            # is freed.
            with contextlib.suppress(OSError):
                self._events._py_recordio_writer.close()
            raise

    def _write(self, **content) -> None:
        self._events.write_event(Event(wall_time=time.time(), **content))


class WandB:
    """A run of Weights & Biases; WANDB_MODE=offline writes only to the folder.

    W&B commits a row when a later step is logged. The last committed step is stored
    with the id, and a resumed run logs the steps after it.
    """

    def __init__(self, workdir: Path, config: Mapping[str, Any]):
        import wandb

        self._workdir = workdir
        known = _read_ids(workdir).get("wandb", {})
        self._id = known.get("id") or secrets.token_hex(4)
        self.last = self._step = known.get("step", -1)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", workdir.resolve().name),
            id=self._id,
            resume="allow",
            dir=str(workdir),
            config=dict(config),
            allow_val_change=True,  # a change of settings that do not affect results
            settings=wandb.Settings(console="off"),
        )
        self._note(self.last)

    def write(self, step, numbers, texts):
        _call("wandb", lambda: self._run.log({**numbers, **texts}, step=step))
        if step > self._step:
            self._note(self._step)
            self._step = step

    def flush(self):
        """Nothing to do: W&B's own process writes."""

    def close(self, is_finished):
        _call("wandb", lambda: self._run.finish(exit_code=0 if is_finished else 1))
        self._note(self._step)

    def _note(self, step: int) -> None:
        _write_id(self._workdir, "wandb", {"id": self._id, "step": step})


class MLflow:
    """A run in an MLflow store, which knows the last step that it has.

    Two log lines of one step share some metrics; each metric is logged once.
    """

    def __init__(self, workdir: Path, config: Mapping[str, Any]):
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._client, self._metric = MlflowClient(), Metric
        self._step, self._sent = -1, set[str]()
        self._id = _read_ids(workdir).get("mlflow", {}).get("id", "")
        if self._id:
            self._client.update_run(self._id, status="RUNNING")
            self._find_last()
        else:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self._client.get_experiment_by_name(name)
            place = experiment.experiment_id if experiment else None
            place = place or self._client.create_experiment(name)
            run = self._client.create_run(place, run_name=workdir.resolve().name)
            self._id = run.info.run_id
            _write_id(workdir, "mlflow", {"id": self._id})
            params = [Param(key, str(value)) for key, value in config.items()]
            for i in range(0, len(params), MOST_PARAMS):
                self._client.log_batch(self._id, params=params[i : i + MOST_PARAMS])

        self.last = max(
            self._step - 1, -1
        )  # the process may have ended between two lines of a step

    def _find_last(self) -> None:
        """The last step in the store, and the metrics that it has of that step."""
        steps = {
            name: max(m.step for m in self._client.get_metric_history(self._id, name))
            for name in self._client.get_run(self._id).data.metrics
        }
        self._step = max(steps.values(), default=-1)
        self._sent = {name for name, step in steps.items() if step == self._step}

    def write(self, step, numbers, texts):
        if step != self._step:
            self._step, self._sent = step, set()
        fresh = {k: value for k, value in numbers.items() if k not in self._sent}
        self._sent |= set(fresh)
        now = int(time.time() * 1000)
        metrics = [self._metric(k, value, now, step) for k, value in fresh.items()]
        _call("mlflow", lambda: self._client.log_batch(self._id, metrics=metrics))
        for key, words in texts.items():
            path = f"{key}/{step:08d}.txt"
            _call(
                "mlflow",
                lambda words=words, path=path: self._client.log_text(
                    self._id, words, path
                ),
            )

    def flush(self):
        """Nothing to do: the store has everything that was written."""

    def close(self, is_finished):
        status = "FINISHED" if is_finished else "KILLED"
        _call("mlflow", lambda: self._client.set_terminated(self._id, status))


def _refuse_links(folder: Path) -> None:
    """Refuses links, which TensorBoard's writer would follow."""
    for path in folder.iterdir():
        if path.is_symlink():
            raise CheckpointError(
                f"metrics: {path}: is a link: must be a regular file or missing"
            )


def _read_ids(workdir: Path) -> dict[str, dict]:
    """The id of the run in each tracker."""
    path = workdir / TRACKERS_FILE
    if not path.exists():
        return {}
    try:
        return schema.parse(disk.read(path), {str: {str: object}})
    except ValueError as error:
        raise CheckpointError(
            f"{path}: damaged ({error}); remove it to start new tracker runs"
        ) from None


def _write_id(workdir: Path, name: str, known: dict) -> None:
    ids = _read_ids(workdir) | {name: known}
    disk.replace(workdir / TRACKERS_FILE, (json.dumps(ids) + "\n").encode())

"""Runs that are stopped by a signal after a number of calls, and resumed."""

import signal

import jax
import numpy as np
import pytest
from tiny import prepare

from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.program import Program
from jaxpt.runs.signals import SignalWatch, Stopped
from jaxpt.training import loop


def stop_after(num_calls: int) -> type[SignalWatch]:
    """What stands for `loop.SignalWatch`: pretends that a signal came after calls."""

    class StopAfter(SignalWatch):
        @property
        def signum(self):
            self.asked += 1
            return signal.SIGTERM if self.asked > num_calls else None

        @signum.setter
        def signum(self, value):
            self.asked = 0

    return StopAfter


def run(config, workdir):
    """The task of a run, and its result."""
    task, tokenizer, corpora = prepare(config)
    return task, loop.train(task, tokenizer, corpora, workdir)


def last_state(task, folder):
    """The state that a finished run has saved."""
    with Checkpointer(folder / "checkpoints") as checkpointer:
        state, step = checkpointer.restore(Program(task).abstract_state())
    assert step == task.plan.train.steps
    return state


def check_stopped_run(config, num_calls, whole, folder, monkeypatch):
    """Stops a run in `folder`, resumes it, and compares it with an undisturbed one.

    Args:
      num_calls: after which it stops, of two steps each.
      whole: the folder, the task and the result of the other.
    """
    whole_folder, task, result = whole
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(num_calls))
        with pytest.raises(Stopped):
            run(config, folder)
    with Checkpointer(folder / "checkpoints") as checkpointer:
        assert checkpointer.steps()[-1] == 2 * (num_calls + 1)
    _, resumed = run(config, folder)
    assert resumed["metrics"] == result["metrics"]
    states = last_state(task, folder), last_state(task, whole_folder)
    jax.tree.map(np.testing.assert_array_equal, *states)
    losses = [
        {row["step"]: row["loss"] for row in read_metrics(path) if "loss" in row}
        for path in (folder, whole_folder)
    ]
    assert losses[0] == losses[1]

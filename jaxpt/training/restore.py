"""The state from which a run starts, resumes, or continues after a bad update."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from jaxpt.by_name import load_place
from jaxpt.errors import DivergedError
from jaxpt.learn.state import TrainState
from jaxpt.runs.initial_state import make_start
from jaxpt.runs.metrics_file import read_last_line
from jaxpt.runs.program import Program
from jaxpt.runs.workdir import load_divergence
from jaxpt.text.feed import Feed, Ranges, pad_ranges, unpad_ranges
from jaxpt.training.rewind import Rewind
from jaxpt.training.setup import Setup


class Restored(NamedTuple):
    """Where training continues.

    Attributes:
      state: in the form that is saved; None for a run without a checkpoint.
      feed: the run's rows, without the batches that it leaves out.
      num_skipped: the number of updates that were skipped so far.
    """

    state: TrainState | None
    step: int
    feed: Feed
    num_skipped: int


def restore(run: Setup, rewind: Rewind | None = None) -> Restored:
    """The last checkpoint, or the last one before a bad update; and its training time.

    Raises:
      DivergedError: the run has diverged in an earlier process.
    """
    if rewind is not None:
        return _go_back(run, rewind)
    if record := run.read(load_divergence):
        raise DivergedError(
            f"{record['reason']} at step {record['diverged_at']} "
            f"(optim.lr={run.task.plan.optim.lr}): the run has diverged; remove "
            f"{run.workdir} to train it again, or use other settings"
        )
    state, step = _find_state(run) or (None, 0)
    last = run.read(read_last_line, step)
    run.watch.resume(last.get("seconds", 0.0), last.get("first_step_seconds", 0.0))
    return _continue(state, step, run.feed)


def _find_state(run: Setup, until: int | None = None) -> tuple[TrainState, int] | None:
    """The newest state up to a step: of the run, or of the trunk it branches from."""
    template = run.program.abstract_state()
    own = run.checkpointer.restore(template, until=until)
    if own is not None or run.branching.trunk is None:
        return own
    begin_branch = load_place("jaxpt.training.branches:begin_branch")
    begun: tuple[TrainState, int] | None = begin_branch(
        run.workdir, run.branching.trunk, run.branching.until, template, until
    )
    return begun


def _continue(state: TrainState | None, step: int, feed: Feed) -> Restored:
    """A state, and the updates and batches that it has skipped."""
    num_skipped = 0
    if state is not None and state.skips is not None:
        num_skipped = int(np.asarray(state.skips.total))
    if state is not None and state.skipped_batches is not None:
        feed = feed.without(unpad_ranges(np.asarray(state.skipped_batches)))
    return Restored(state, step, feed, num_skipped)


def _go_back(run: Setup, rewind: Rewind) -> Restored:
    """A state before a bad update; the time that was trained since then counts."""
    run.watch.pause()
    found = _find_state(run, rewind.until)
    state, step = found or (make_start(run.program, run.task.plan.train), 0)
    num_skipped = _continue(state, step, run.feed).num_skipped
    state = _leave_out(run.program, state, rewind.skipped)
    return Restored(state, step, run.feed.without(rewind.skipped), num_skipped)


def _leave_out(program: Program, state: TrainState, ranges: Ranges) -> TrainState:
    """The state with these ranges of skipped batches, which its checkpoints keep."""
    padded = pad_ranges(ranges)
    template = program.abstract_state().skipped_batches
    assert template is not None  # with `train.rewind`
    layout = template.sharding
    batches = jax.make_array_from_callback(
        padded.shape, layout, lambda index: padded[index]
    )
    return dataclasses.replace(state, skipped_batches=batches)

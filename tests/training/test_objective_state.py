"""What an objective keeps from step to step: stored, restored, equal on all devices."""

import dataclasses

import jax
import numpy as np
import pytest
from stops import stop_after
from tiny import make_config, prepare, slow_but

from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.program import Program
from jaxpt.runs.signals import Stopped
from jaxpt.runs.workdir import load_run
from jaxpt.training import loop

# Of 12 steps, in calls of 2, with updates after 4, 8 and 12.
CHANGES = {
    "adaptive_mlm__update_every": 4,
    "model__dropout": 0.1,
    "optim__lr": 1e-2,
    "train__keep_checkpoints": 9,
}


def run(speech, workdir, **more):
    config = make_config(speech, "adaptive_mlm", **CHANGES, **more)
    task, tokenizer, corpora = prepare(config)
    return task, loop.train(task, tokenizer, corpora, workdir)


def state_at(task, folder, step=None):
    with Checkpointer(folder / "checkpoints") as checkpointer:
        state, _ = checkpointer.restore(Program(task).abstract_state(), step)
    return state


@pytest.fixture(scope="module")
def whole(tmp_path_factory, speech):
    """The folder of the run, its task and its result."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, *run(speech, folder)


def test_it_is_counted_and_updated_during_the_run(whole):
    folder, task, _ = whole
    middle, last = (state_at(task, folder, n).objective_state for n in (4, 12))
    assert not middle.num_hidden.any()  # just updated
    assert np.unique(middle.weights).size > 2
    assert (middle.weights != last.weights).any()
    initial = task.spec.init_state(task.vocab, None).weights
    assert (initial != middle.weights).all()


@pytest.mark.parametrize("num_calls", slow_but((1,), range(3)))
def test_a_run_that_stops_around_an_update_ends_the_same(
    num_calls, whole, tmp_path, speech, monkeypatch
):
    """Before the first update, at it, after it."""
    folder, task, result = whole
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(num_calls))
        with pytest.raises(Stopped):
            run(speech, tmp_path)
    stopped_at = 2 * (num_calls + 1)
    stopped = state_at(task, tmp_path, stopped_at).objective_state
    assert bool(stopped.num_hidden.any()) == (stopped_at != 4)
    _, resumed = run(speech, tmp_path)
    assert resumed["metrics"] == result["metrics"]
    states = state_at(task, tmp_path), state_at(task, folder)
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_a_run_of_another_objective_has_none(whole, speech, tmp_path):
    folder, task, _ = whole
    config = make_config(speech, "mlm", train__steps=2)
    plain, tokenizer, corpora = prepare(config)
    loop.train(plain, tokenizer, corpora, tmp_path)
    state = state_at(plain, tmp_path)
    assert state.objective_state is None
    kept = state_at(task, folder)
    fewer = dataclasses.replace(kept, objective_state=None)
    assert jax.tree.structure(state) == jax.tree.structure(fewer)
    # A run is used without it.
    _, _, params, _ = load_run(folder)
    jax.tree.map(np.testing.assert_array_equal, params, kept.params)

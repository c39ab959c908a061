"""The train call is compiled in a thread while the start is made and measured."""

import dataclasses
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import make_config, prepare

from jaxpt.learn.state import make_state
from jaxpt.rng import split_step, stream
from jaxpt.runs.data import make_feed
from jaxpt.runs.program import Program
from jaxpt.runs.train_calls import TrainCalls, make_train_call
from jaxpt.training import loop

NUM_STEPS = 2


@pytest.fixture(scope="module")
def text(speech):
    return prepare(make_config(speech, "clm", train__steps=NUM_STEPS))


def test_each_step_of_a_call_has_its_own_keys():
    """Those of the seed and its number in the run, wherever the call begins."""

    def train_step(state, rows, rngs, **kwargs):
        keys = {name: (jax.random.key_data(key), 1) for name, key in rngs.items()}
        return dataclasses.replace(state, step=state.step + 1), keys

    task = types.SimpleNamespace(
        objective=types.SimpleNamespace(train_step=train_step),
        model=types.SimpleNamespace(frozen=()),
        vocab=None,
        spec=types.SimpleNamespace(READS=()),
        average_params=lambda state: state,
        make_update=lambda axis: None,
    )
    call = jax.jit(make_train_call(task))
    state = dataclasses.replace(make_state({}, optax.identity()), step=jnp.int32(5))
    state, result = call(state, {"tokens": jnp.zeros((3, 1))}, 7)
    assert state.step == 8
    for place, step in enumerate((5, 6, 7)):
        for name, key in split_step(stream(7, step, "train")).items():
            np.testing.assert_array_equal(
                result[name][0][place], jax.random.key_data(key)
            )
    for keys, _ in result.values():
        assert len({tuple(key) for key in keys.tolist()}) == 3


def test_begun_call_gives_the_same_numbers(text):
    task, _, corpora = text
    feed, result = make_feed(task, corpora["train"]), []
    for is_begun in (False, True):
        program = Program(task)
        if is_begun:
            program.train_call.begin(feed[0], NUM_STEPS)
        stack = program.place(feed.stack(0, NUM_STEPS))
        assert stack not in program.train_call
        state, _ = program.train_call(program.init_state(0), stack, 0)
        assert stack in program.train_call
        result.append(jax.tree.leaves(state))
    for one, other in zip(*result, strict=True):
        np.testing.assert_array_equal(one, other)


def test_error_of_the_thread_reaches_who_waits(text, monkeypatch):
    task, _, corpora = text
    program, feed = Program(task), make_feed(task, corpora["train"])
    threads = []

    def fail(*args, **kwargs):
        threads.append(threading.current_thread().name)
        raise MemoryError("no room")

    monkeypatch.setattr(TrainCalls, "_make", fail)
    program.train_call.begin(feed[0], NUM_STEPS)
    stack = program.place(feed.stack(0, NUM_STEPS))
    with pytest.raises(MemoryError, match="no room"):
        program.train_call.compile(program.abstract_state(), stack)
    assert [name.startswith("jaxpt-compile") for name in threads] == [True]


def test_run_compiles_once_and_before_its_start(text, tmp_path, monkeypatch):
    task, tokenizer, corpora = text
    begin, make, init = TrainCalls.begin, TrainCalls._make, Program.init_state
    done = []

    def note(name, function):
        def noted(self, *args):
            done.append(name)
            return function(self, *args)

        return noted

    monkeypatch.setattr(TrainCalls, "begin", note("begin", begin))
    monkeypatch.setattr(TrainCalls, "_make", note("make", make))
    monkeypatch.setattr(Program, "init_state", note("init", init))
    loop.train(task, tokenizer, corpora, tmp_path)
    assert done.index("begin") < done.index("init")
    assert done.count("make") == 1

"""What a call of the library changes in its process, apart from what it is for."""

import logging
import os
import signal
import sys
import threading
import warnings

import jax
import numpy as np
import pytest
from stores import new_url
from tiny import make_config

import jaxpt
from jaxpt.files.loggers import silenced
from jaxpt.files.objects import LOUD, ObjectStore
from jaxpt.runs.checkpoint import Checkpointer

# Of a process, which any call may set if nobody has (`jaxpt.load`).
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min")


def snapshot():
    """Settings of the process that other code may rely on."""
    loggers = [logging.getLogger(name) for name in ("absl", *LOUD)]
    loggers += [logging.getLogger(), logging.getLogger("jaxpt")]
    loggers += list(logging.root.manager.loggerDict.values())
    settings = jax.config.values.items()
    return {
        "levels": {
            each.name: (each.level, each.disabled, each.propagate, len(each.handlers))
            for each in loggers
            if isinstance(each, logging.Logger) and each.level
        },
        "warnings": list(warnings.filters),
        "numpy": np.geterr(),
        "print": np.get_printoptions(),
        "signals": [signal.getsignal(each) for each in signal.valid_signals()],
        "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "path": list(sys.path),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "jax": {k: v for k, v in settings if not k.startswith(CACHE)},
    }


def run_all(speech, folder):
    config = make_config(speech, "mlm", train__steps=2)
    jaxpt.train(config, folder, quiet=True)
    run = jaxpt.load(folder)
    run.fill("the [MASK]en")
    run.evaluate()
    jaxpt.evaluate(folder)
    made = jaxpt.prepare(config)
    jax.jit(made.train_step)(made.init_state(), made.feed[0])


def test_a_call_leaves_the_process_as_it_was(speech, tmp_path):
    run_all(speech, tmp_path / "first")  # imports what it needs
    logging.getLogger("absl").setLevel(logging.INFO)
    before = snapshot()
    run_all(speech, tmp_path / "second")
    assert snapshot() == before


def test_a_call_that_fails_does_so_too(speech, tmp_path):
    jaxpt.train(make_config(speech, train__steps=2), tmp_path / "run", quiet=True)
    for file in (tmp_path / "run" / "checkpoints").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    logging.getLogger("absl").setLevel(logging.INFO)
    before = snapshot()
    with pytest.raises(jaxpt.CheckpointError):
        jaxpt.load(tmp_path / "run")
    with pytest.raises(jaxpt.ConfigError):
        jaxpt.train(make_config(speech, train__steps=-1), tmp_path / "other")
    assert snapshot() == before


def test_loggers_are_silent_only_within(tmp_path):
    for names, use in (
        (("absl",), lambda: Checkpointer(tmp_path)),
        (("absl", "botocore"), lambda: silenced("absl", "botocore")),
    ):
        loggers = [logging.getLogger(name) for name in names]
        for each in loggers:
            each.setLevel(logging.DEBUG)
        with pytest.raises(KeyError), use():
            assert not any(each.isEnabledFor(logging.ERROR) for each in loggers)
            with use():  # as for a teacher's checkpoint
                pass
            assert not any(each.isEnabledFor(logging.ERROR) for each in loggers)
            raise KeyError
        assert [each.level for each in loggers] == [logging.DEBUG] * len(loggers)


def test_silences_that_overlap_end_with_the_last():
    logger = logging.getLogger("overlapping")
    first, second = silenced("overlapping"), silenced("overlapping")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not logger.isEnabledFor(logging.ERROR)
    second.__exit__(None, None, None)
    assert logger.level == logging.NOTSET


def test_drivers_of_object_stores_are_silent_during_requests():
    levels, loggers = [], [logging.getLogger(name) for name in LOUD]
    for each in loggers:
        each.setLevel(logging.INFO)
    store = ObjectStore(new_url())

    class Driver:
        def __getattr__(self, name):
            levels.extend(each.level for each in loggers)
            raise OSError("no connection")

    store._fs = Driver()
    with pytest.raises(jaxpt.CheckpointError):
        store.list()
    assert set(levels) == {logging.CRITICAL}
    assert {each.level for each in loggers} == {logging.INFO}

"""A Ctrl-C is never lost."""

import gc
import signal
import sys
import time

import pytest

from jaxpt import interrupts


def collect_interrupted():
    """Ctrl-C comes in a callback of the garbage collector, as JAX has one."""

    def interrupted(phase, info):
        gc.callbacks.remove(interrupted)
        raise KeyboardInterrupt

    gc.callbacks.append(interrupted)
    gc.collect()


def wait():
    for _ in range(100):
        time.sleep(0.05)


def test_one_that_python_drops_is_sent_again():
    with interrupts.repeated(), pytest.raises(KeyboardInterrupt):
        collect_interrupted()
        wait()


def test_other_errors_of_callbacks_are_still_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    class Broken:
        def __del__(self):
            raise ZeroDivisionError

    with interrupts.repeated():
        Broken()
        gc.collect()
    assert [each.exc_type for each in reported] == [ZeroDivisionError]


def test_one_during_imports_comes_after_them():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            done.append("imported")
    assert done == ["imported"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_is_not_waited_for():
    with pytest.raises(KeyboardInterrupt):
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("it was waited for")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

"""A Ctrl-C is never lost."""

import gc
import signal
import sys
import threading
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


def test_a_thread_imports_without_handlers():
    """Only the main thread may set them."""
    errors, done = [], []

    def enter():
        try:
            with interrupts.deferred():
                done.append(signal.getsignal(signal.SIGINT))
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert not errors and done == [signal.default_int_handler]


def test_a_handler_of_the_program_is_kept():
    received = []
    before = signal.signal(signal.SIGINT, lambda *args: received.append(args))
    try:
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            assert len(received) == 1
    finally:
        signal.signal(signal.SIGINT, before)

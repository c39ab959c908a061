"""A Ctrl-C is never lost; a callback that comes too late is no error."""

import asyncio
import gc
import signal
import sys
import threading
import time
import types

import pytest
import tensorstore

from jaxpt import interrupts
from jaxpt.cli import main as command_line
from jaxpt.errors import UserError


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


def answer_late():
    """tensorstore ends a write whose event loop another write has ended."""

    async def wait_for(write):
        await write

    async def fail(write):
        await asyncio.gather(wait_for(write), failed)

    promise, write = tensorstore.Promise.new()
    loop = asyncio.new_event_loop()
    failed = loop.create_future()
    failed.set_exception(OSError("No space left on device"))
    with pytest.raises(OSError, match="No space"):
        loop.run_until_complete(fail(write))
    loop.close()
    promise.set_result(None)


def test_a_callback_that_comes_too_late_is_dropped(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    with interrupts.late_callbacks_dropped():
        answer_late()
    assert reported == []
    answer_late()
    assert [each.exc_type for each in reported] == [RuntimeError]


@pytest.mark.parametrize(
    "error", [RuntimeError("Event loop is closed"), RuntimeError("x"), OSError()]
)
def test_any_other_error_in_it_is_reported(error, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    class Broken:
        def __del__(self):
            raise error

    with interrupts.late_callbacks_dropped():
        Broken()
        gc.collect()
    assert [each.exc_value for each in reported] == [error]


def test_another_error_of_a_callback_from_c_is_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    def fail(write):
        raise RuntimeError("another")

    promise, write = tensorstore.Promise.new()
    write.add_done_callback(fail)
    with interrupts.late_callbacks_dropped():
        promise.set_result(None)
    assert [str(each.exc_value) for each in reported] == ["another"]


def test_a_command_prints_nothing_of_it(monkeypatch, capsys):
    def run(command, words):
        answer_late()
        raise UserError("new: cannot be written")

    command = types.SimpleNamespace(run=run)
    monkeypatch.setattr(command_line, "COMMANDS", {"list": command})
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    assert command_line.main(["list"]) == 2
    assert capsys.readouterr().err == "jaxpt: error: new: cannot be written\n"


def test_a_command_drops_what_nothing_awaits(monkeypatch, capsys, recwarn):
    """A coroutine in a cycle of references, as Orbax leaves them, is not for later."""

    async def write():
        pass

    def run(command, words):
        held = [write()]
        held.append(held)
        raise UserError("new: cannot be written")

    command = types.SimpleNamespace(run=run)
    monkeypatch.setattr(command_line, "COMMANDS", {"list": command})
    assert command_line.main(["list"]) == 2
    gc.collect()
    assert recwarn.list == []
    assert capsys.readouterr().err == "jaxpt: error: new: cannot be written\n"


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

"""Ctrl-C in imports and callbacks, where Python would lose it; late callbacks."""

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator

SECONDS = 0.05  # until an interrupt is sent again


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Within, a first Ctrl-C is raised only at the end; a second one immediately.

    Raised within an import, it may leave a library in a state that hides it.

    Raises:
      KeyboardInterrupt: at the end.
    """
    old = signal.getsignal(signal.SIGINT)
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or old is not signal.default_int_handler:
        yield
        return
    was_received = False

    def remember(signum, frame):
        nonlocal was_received
        was_received = True
        signal.signal(signal.SIGINT, old)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
    if was_received:
        raise KeyboardInterrupt


@contextlib.contextmanager
def repeated() -> Iterator[None]:
    """Within, a Ctrl-C that Python prints and drops is sent again.

    Python drops exceptions in callbacks of the garbage collector, of which JAX has one,
    in `__del__` and in callbacks of C code.
    """
    old = sys.unraisablehook

    def send_again(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            old(unraisable)
            return
        args = os.getpid(), signal.SIGINT
        timer = threading.Timer(SECONDS, os.kill, args)
        timer.daemon = True
        timer.start()

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = old


@contextlib.contextmanager
def late_callbacks_dropped() -> Iterator[None]:
    """Within, callbacks to an event loop that has ended print nothing.

    If one of several writes fails, Orbax raises its error and ends its loop. Python
    would print that it is closed each time that tensorstore ends one of the others,
    and that no loop awaits a coroutine that Orbax has not started.
    """
    old = sys.unraisablehook

    def drop(unraisable: "sys.UnraisableHookArgs") -> None:
        # Of a callback from C; that of a `__del__` would name an object.
        is_late = issubclass(unraisable.exc_type, RuntimeError)
        is_late &= str(unraisable.exc_value) == "Event loop is closed"
        if not is_late or unraisable.object is not None:
            old(unraisable)

    sys.unraisablehook = drop
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = old

"""Logging: what commands print while they work, unless they are quiet.

Modules log to children of the logger "jaxpt". Importing jaxpt installs no handler. A
command, or a function such as `jaxpt.train`, installs them while it runs:

    INFO                 progress, to standard output; `set_quiet` drops it
    WARNING and above    to standard error, as "jaxpt: warning: ..."
    run.log              both, with the time, in the run's folder (`runs.log_file`)

A command's result is printed to standard output and is not logged.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxpt.by_name import load_place
from jaxpt.files.copies import printable

if TYPE_CHECKING:
    import rich.console

LOGGER = logging.getLogger("jaxpt")
# Marks an update of a progress bar, which is not printed while the bar is shown.
UPDATE = {"is_update": True}


class TerminalHandler(logging.Handler):
    """Prints records to the current standard streams, above a progress bar.

    Attributes:
      console: of the progress bar that is shown, if any.
    """

    console: "rich.console.Console | None" = None

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a record; progress that cannot be printed is dropped."""
        try:
            self._print(record)
        except OSError as error:
            if record.levelno < logging.WARNING:
                drop_output(error)

    def _print(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage())
        is_progress = record.levelno < logging.WARNING
        if not is_progress:
            text = f"jaxpt: {record.levelname.lower()}: {text}"
        if is_progress and self.console is not None:
            if not getattr(record, "is_update", False):
                self.console.print(
                    text, markup=False, highlight=False, emoji=False, soft_wrap=True
                )
            return
        print(text, file=sys.stdout if is_progress else sys.stderr, flush=True)


class _Above(logging.Handler):
    """Passes records to the handlers that the root logger has now.

    Handlers that libraries install later would print each line a second time.

    Args:
      level: that of the logger before.
    """

    def __init__(self, level: int):
        super().__init__(level)
        self._handlers = tuple(logging.getLogger().handlers)

    def emit(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            if record.levelno >= handler.level:
                handler.handle(record)


_terminal: TerminalHandler | None = None
_wholes: tuple[str, ...] = ()  # the positions in longer works, the outermost first
_lost: OSError | None = None  # of standard output


def drop_output(error: OSError) -> None:
    """Sends standard output, which cannot be written, to /dev/null from now on."""
    global _lost
    _lost = _lost or error
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()  # what could not be written


def flush_output() -> OSError | None:
    """Flushes standard output; the error because of which it was dropped, if any."""
    global _lost
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_output(error)
    lost, _lost = _lost, None
    return lost


@contextlib.contextmanager
def terminal(is_quiet: bool = False) -> Iterator[None]:
    """Prints what is logged within; if quiet, only warnings and errors.

    >>> with terminal():
    ...     LOGGER.info("step 1")
    step 1
    >>> with terminal(is_quiet=True):
    ...     LOGGER.info("step 1")
    """
    global _terminal
    outer, handler = _terminal, TerminalHandler(logging.INFO)
    if outer is not None:
        LOGGER.removeHandler(outer)
    _terminal = handler
    try:
        with attach(handler):
            set_quiet(is_quiet)
            yield
    finally:
        _terminal = outer
        if outer is not None:
            LOGGER.addHandler(outer)


def set_quiet(is_quiet: bool) -> None:
    """Sets whether the terminal shows progress, until the end of `terminal`."""
    if _terminal is not None:
        _terminal.setLevel(logging.WARNING if is_quiet else logging.INFO)


def is_quiet() -> bool:
    """Whether no terminal shows progress."""
    return _terminal is None or _terminal.level > logging.INFO


def open_bar() -> "rich.console.Console | None":
    """The console for a progress bar; None if standard output is not a terminal.

    Until `close_bar`, lines are printed above the bar.
    """
    if _terminal is None or is_quiet() or not sys.stdout.isatty():
        return None
    console = load_place("rich.console:Console")(file=sys.stdout)
    if console.is_dumb_terminal:
        return None
    _terminal.console = console
    return console


def close_bar() -> None:
    """Lines are printed as they come again."""
    if _terminal is not None:
        _terminal.console = None


@contextlib.contextmanager
def part_of(position: str) -> Iterator[None]:
    """Progress bars within also show a position in a longer work, unless it is ""."""
    global _wholes
    before, _wholes = _wholes, (*_wholes, position)
    try:
        yield
    finally:
        _wholes = before


def list_wholes() -> str:
    """The positions of `part_of`, each with two spaces behind it.

    >>> with part_of("run 3 of 10"), part_of(""):
    ...     list_wholes()
    '[run 3 of 10]  '
    """
    return "".join(f"[{position}]  " for position in _wholes if position)


@contextlib.contextmanager
def attach(handler: logging.Handler) -> Iterator[None]:
    """Adds a handler for progress; the handlers above still get what they would."""
    level, propagate = LOGGER.level, LOGGER.propagate
    above = _Above(LOGGER.getEffectiveLevel())
    if propagate:
        LOGGER.addHandler(above)
        LOGGER.propagate = False
    LOGGER.setLevel(min(LOGGER.getEffectiveLevel(), logging.INFO))
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.removeHandler(above)
        LOGGER.propagate = propagate
        LOGGER.setLevel(level)

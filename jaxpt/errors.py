"""Exceptions that a user may see; the command line prints one line and exits with 2.

    UserError               any of these
      ConfigError           a setting, an argument or a flag
      DataError             text, a tokenizer, labelled examples, an imported model
      CheckpointError       a run's folder, its checkpoints and logs, any file to write
      DeviceError           devices, meshes, memory, several processes
      DivergedError         the loss is not finite; the exit code is 3

So does an error for lack of memory (`is_out_of_memory`), which is one line, too.

Other exit codes: 0 success, 1 a bug (with a traceback), 128 + N stopped by signal N
after the run was saved (129 SIGHUP, 130 Ctrl-C, 143 SIGTERM), 141 the reader of a
pipe is gone.
"""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import NamedTuple


class Spelling(NamedTuple):
    """How a message writes an argument for its reader.

    Attributes:
      name: of the argument's name; that of a setting begins with "config.".
      value: of a value that the caller may copy into the call.
    """

    name: Callable[[str], str]
    value: Callable[[str], str]


def _without_config(name: str) -> str:
    return name.removeprefix("config.")


PYTHON = Spelling(_without_config, ascii)
_spelling = ContextVar("spelling", default=PYTHON)


def argument(name: str, value: str | None = None) -> str:
    """An argument, as the messages of errors and the log name it to the caller.

    The library names arguments. The command line makes them flags, in one place
    (`jaxpt.cli.main`), and a function of `jaxpt` its own parameters (`jaxpt.api`).

    Args:
      name: of the flag, without dashes; "config.SECTION.NAME" is a setting.
      value: to be copied into the call, as code or quoted for a shell.

    >>> f"{argument('top_k')}=0: must be at least 1"
    'top_k=0: must be at least 1'
    >>> f"use {argument('config.data.path')}=FILE, or add {argument('trust', 'a.b')}"
    "use data.path=FILE, or add trust='a.b'"
    """
    spelling = _spelling.get()
    written = spelling.name(name)
    return written if value is None else f"{written}={spelling.value(value)}"


def current_spelling() -> Spelling:
    """The spelling of this call, to be passed to another process."""
    return _spelling.get()


@contextlib.contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Within it, messages write arguments in this way (`argument`).

    >>> with spelled(Spelling("--{}".format, repr)):
    ...     argument("top_k")
    '--top_k'
    """
    token = _spelling.set(spelling)
    try:
        yield
    finally:
        _spelling.reset(token)


_CUT = " [...] "


def shorten(text: str, length: int = 2000) -> str:
    """A text without its middle if it is longer: one line may list 100,000 names.

    >>> shorten("abcdefghijklmnopqrstuvwxyz", 14)
    'abcdef [...] z'
    """
    end = length // 10
    start = length - end - len(_CUT)
    return text if len(text) <= length else f"{text[:start]}{_CUT}{text[-end:]}"


class UserError(Exception):
    """Bad input. The message is one line: setting or file, value, allowed values.

    Raised where the fault is found and before anything is written; never for a bug.

    Attributes:
      exit_code: of a command that ends with this error.

    >>> print(UserError("train.steps=0: must be above 0"))
    train.steps=0: must be above 0
    """

    exit_code = 2

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


class ConfigError(UserError):
    """A setting, an argument or a flag has a value that is not allowed.

    >>> import jaxpt
    >>> try:
    ...     jaxpt.read_config("quickstart", {"train.step": 5})
    ... except jaxpt.ConfigError as error:
    ...     print(error)
    settings: train.step: unknown setting (did you mean train.steps?)
    """


class DataError(UserError):
    """Text, a tokenizer, labelled examples or an imported model cannot be used.

    >>> try:
    ...     raise DataError("data.path=my.txt: not found")
    ... except UserError as error:
    ...     print(error)
    data.path=my.txt: not found
    """


class CheckpointError(UserError):
    """A run's folder or one of its files is missing, damaged or in use.

    >>> issubclass(CheckpointError, UserError)
    True
    """


class LostLease(CheckpointError):
    """Another process has taken over a folder on an object store."""


class DeviceError(UserError):
    """The devices, their memory or the processes do not fit the request.

    >>> issubclass(DeviceError, UserError)
    True
    """


class DivergedError(UserError):
    """The loss is not finite; the run stops and keeps its last good checkpoint.

    Of several runs, those of a comparison or a grid, all have diverged.

    >>> issubclass(DivergedError, UserError)
    True
    """

    exit_code = 3
    is_known = True  # to all processes (`processes.guarded`)


class RandomWeightsWarning(UserWarning):
    """An imported network has randomly initialized parts, missing in its checkpoint.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", RandomWeightsWarning)
    ...     warnings.warn("no head", RandomWeightsWarning)
    Traceback (most recent call last):
    jaxpt.errors.RandomWeightsWarning: no head
    """


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or XLA could not allocate memory.

    >>> is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating"))
    True
    """
    is_full = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    return is_full or isinstance(error, MemoryError)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is spelt most like this one, or "" if none is close.

    >>> nearest("mml", ["clm", "mlm"]), nearest("x", ["clm", "mlm"])
    ('mlm', '')
    """
    return "".join(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6))


def suggest(name: str, known: Iterable[str]) -> str:
    """ " (did you mean X?)" if a known name is spelt almost like this one, else "".

    >>> suggest("train.step", ["train.steps", "train.seed"])
    ' (did you mean train.steps?)'
    """
    suggestion = nearest(name, known)
    return f" (did you mean {suggestion}?)" if suggestion else ""


class Ended(Exception):
    """A command has printed what there is to say, and ends with this exit code."""

    is_known = True  # to all processes (`processes.guarded`)

    def __init__(self, exit_code: int = 0):
        super().__init__(exit_code)
        self.exit_code = exit_code

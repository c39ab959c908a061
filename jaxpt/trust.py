"""Code outside jaxpt that this process may execute, by the names that the user gave.

A run's files can name a module (an objective, a class of a TFDS data set) or a config
file (a fine-tuning of a comparison). To import or execute it is to run its code, and
the run may come from someone else. So `check` refuses every name that the user has not
given: on the command line, in an argument in Python, or in a config file, which is code
itself. Nothing in a stored file adds a name.
"""

import shlex
from collections.abc import Iterable

from jaxpt.errors import ConfigError

_trusted: set[str] = set()


def trust(names: str | Iterable[str]) -> None:
    """Lets this process execute the code with these names."""
    _trusted.update([names] if isinstance(names, str) else names)


def list_trusted() -> list[str]:
    """The names, sorted, to be passed to another process of the same command."""
    return sorted(_trusted)


def check(name: str, setting: str) -> None:
    """Refuses code that the user has not named.

    Args:
      name: a dotted module or the path of a config file.
      setting: where the name is from, as "objective=mine.shuffled".

    Raises:
      ConfigError: the name is not trusted.

    >>> check("own.half", "objective=own.half")
    Traceback (most recent call last):
    jaxpt.errors.ConfigError: objective=own.half: own.half is code outside jaxpt, ...
    """
    if name in _trusted:
        return
    quoted = shlex.quote(ascii(name)[1:-1])  # a stored name may hold anything
    raise ConfigError(
        f"{setting}: {quoted} is code outside jaxpt, and a stored file cannot have it "
        f"executed; if you trust it, add --trust={quoted} (in Python: trust={name!r})"
    )

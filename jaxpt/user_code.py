"""Runs a user's Python: config files and modules of objectives.

Whatever such code raises becomes one line with exit code 2, `sys.exit` included: it
ends the code that calls it and not jaxpt. A Ctrl-C remains one.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from jaxpt.errors import ConfigError, UserError


@contextlib.contextmanager
def explain(name: str, reason: str) -> Iterator[None]:
    """Turns any error of the code within into a ConfigError.

    Args:
      name: of the code, such as "config=my.py".
      reason: such as "cannot be loaded".

    >>> with explain("config=my.py", "cannot be loaded"):
    ...     sys.exit("no data here")
    Traceback (most recent call last):
    jaxpt.errors.ConfigError: config=my.py: cannot be loaded: sys.exit: no data here
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise ConfigError(f"{name}: {reason}: {describe_exit(error)}") from error
    except BaseException as error:  # whatever is wrong in a user's file
        kind = type(error).__name__
        raise ConfigError(f"{name}: {reason}: {kind}: {error}") from error


def describe_exit(error: SystemExit) -> str:
    """What a call of `sys.exit` says.

    >>> describe_exit(SystemExit("no data here")), describe_exit(SystemExit(3))
    ('sys.exit: no data here', 'sys.exit(3)')
    """
    code = error.code
    return f"sys.exit: {code}" if isinstance(code, str) else f"sys.exit({code!r})"


@contextlib.contextmanager
def load_file(path: Path) -> Iterator[ModuleType]:
    """Executes a Python file; within, it and the modules next to it can be imported.

    Afterwards these modules are forgotten, so that two files with one name, or with
    neighbours of one name, do not get each other's. What the file itself does to
    `sys.path` remains.
    """
    path = path.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    name = f"jaxpt_config_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    outer, known = sys.modules.get(name), set(sys.modules)
    sys.modules[name] = module  # dataclasses look up their module
    importlib.invalidate_caches()  # a neighbour may be new
    with importable(str(path.parent), first=True):
        try:
            spec.loader.exec_module(module)
            yield module
        finally:
            for other in _list_new(known, path.parent):
                del sys.modules[other]
            sys.modules.pop(name, None)
            if outer is not None:  # a file that reads itself as a config
                sys.modules[name] = outer


@contextlib.contextmanager
def importable(folder: str, first: bool = False) -> Iterator[None]:
    """Within, modules of a folder can be imported; "" is the current folder.

    Args:
      first: before all other modules of the same name, instead of after them.
    """
    sys.path.insert(0 if first else len(sys.path), folder)
    try:
        yield
    finally:  # not by its place, which may have become that of another entry
        places = [i for i, entry in enumerate(sys.path) if entry == folder]
        if places:
            del sys.path[places[0 if first else -1]]


def _list_new(known: set[str], folder: Path) -> list[str]:
    """The modules in a folder, or in a package in it, that were imported since.

    Args:
      known: the names of all modules before.
    """
    return [
        name
        for name in sys.modules
        if (top := name.partition(".")[0]) not in known
        and _find_folder(sys.modules.get(top)) == str(folder)
    ]


def _find_folder(module: ModuleType | None) -> str:
    """The folder that a module or package is in; "" if it is not a file."""
    for path in getattr(module, "__path__", ()):
        return os.path.dirname(path)
    return os.path.dirname(getattr(module, "__file__", None) or "")

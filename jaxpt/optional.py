"""Packages of extras, which are imported when they are used."""

import importlib
import importlib.util
from typing import Any

from jaxpt.errors import DataError, UserError


def need(
    module: str, extra: str, purpose: str, error: type[UserError] = DataError
) -> Any:
    """Imports a module of an extra of jaxpt.

    Args:
      module: may be inside a package, "seqeval.metrics".
      extra: which installs it; "" of a package that every jaxpt has.
      purpose: the subject of the message.
      error: the class of the error.

    Returns:
      The package, "seqeval".

    >>> need("no_such.module", "eval", "entity F1")
    Traceback (most recent call last):
    jaxpt.errors.DataError: entity F1: needs no-such: pip install 'jaxpt[eval]'
    """
    package = module.partition(".")[0]
    try:
        found = importlib.import_module(package)
        importlib.import_module(module)
    except ImportError as cause:
        raise error(_explain(package, extra, purpose)) from cause
    return found


def check(
    package: str, extra: str, purpose: str, error: type[UserError] = DataError
) -> None:
    """As `need`, without importing the package: raises UserError if it is missing."""
    if importlib.util.find_spec(package) is None:
        raise error(_explain(package, extra, purpose))


def _explain(package: str, extra: str, purpose: str) -> str:
    name = package.replace("_", "-")
    source = f"'jaxpt[{extra}]'" if extra else name
    return f"{purpose}: needs {name}: pip install {source}"

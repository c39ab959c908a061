"""Conventions of the Python API: settings as attributes, errors that name arguments."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from jaxpt.errors import UserError
from jaxpt.files import remote

P = ParamSpec("P")
R = TypeVar("R")
FLAG = re.compile(r"--(config\.(?=\w)|[a-z_]+)")
TRUST = re.compile(r"--trust=\S+ \(in Python: (trust=.*?)\)")


class Settings(dict):
    """Settings by section: a dict whose items are attributes, too.

    >>> config = Settings({"objective": "mlm", "train": {"steps": 5}})
    >>> config.train.steps, config["train"]["steps"], config.objective
    (5, 5, 'mlm')
    """

    def __init__(self, values: Mapping[str, Any] = {}):
        super().__init__(
            {k: Settings(v) if isinstance(v, dict) else v for k, v in values.items()}
        )

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"no setting or section {name!r}")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def name_arguments(*names: str, **renamed: str) -> Callable:
    """A decorator: errors name the function's arguments in place of flags.

    Args:
      names: further arguments, which the function takes by `**`.
      renamed: arguments that have another name than their flag.

    >>> @name_arguments()
    ... def fill(text):
    ...     raise UserError(f"--text={text}: must hold at least one [MASK]")
    >>> fill("a")
    Traceback (most recent call last):
    jaxpt.errors.UserError: text=a: must hold at least one [MASK]
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = {
            name: name for name in (*inspect.signature(function).parameters, *names)
        }
        known |= renamed

        def rename(match: re.Match) -> str:
            is_setting = match[1] == "config."
            return "" if is_setting else known.get(match[1], match[0])

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except UserError as error:
                text = TRUST.sub(r"\1", str(error))
                error.args = (remote.describe(FLAG.sub(rename, text)),)
                raise

        return call

    return decorate

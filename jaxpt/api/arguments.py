"""Conventions of the Python API: settings as attributes, errors that name arguments."""

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from jaxpt import trust as trust_list
from jaxpt.config.settings import to_dict
from jaxpt.errors import UserError
from jaxpt.files import copies

P = ParamSpec("P")
R = TypeVar("R")
FLAG = re.compile(r"--(config\.(?=\w)|[a-z_]+)")
TRUST = re.compile(r"--trust=.+? \(in Python: (trust=.*?)\)")


class SettingsDict(dict):
    """Settings by section: a dict whose items are attributes, too.

    >>> config = SettingsDict({"objective": "mlm", "train": {"steps": 5}})
    >>> config.train.steps, config["train"]["steps"], config.objective
    (5, 5, 'mlm')
    """

    def __init__(self, values: Mapping[str, Any] = {}):
        super().__init__(
            {
                k: SettingsDict(v) if isinstance(v, dict) else v
                for k, v in values.items()
            }
        )

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"no setting or section {name!r}")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def name_arguments(*names: str, **renamed: str) -> Callable:
    """A decorator: errors name the function's arguments in place of flags.

    If the function has an argument `trust`, the remote places in its arguments are
    trusted, except those in a dict `config`, which may be a stored one.

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
        signature = inspect.signature(function)
        known = {name: name for name in (*signature.parameters, *names)}
        known |= renamed

        def rename(match: re.Match) -> str:
            is_setting = match[1] == "config."
            return "" if is_setting else known.get(match[1], match[0])

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                if "trust" in signature.parameters:
                    trust_list.trust_places(_list_written(signature, args, kwargs))
                return function(*args, **kwargs)
            except UserError as error:
                text = TRUST.sub(r"\1", str(error))
                error.args = (copies.describe(FLAG.sub(rename, text)),)
                raise

        return call

    return decorate


def _list_written(signature: inspect.Signature, args: Any, kwargs: Any) -> list:
    """The values of a call's arguments, without a config that is a dict."""
    values = signature.bind_partial(*args, **kwargs).arguments
    config = values.pop("config", {})
    if isinstance(config, Mapping):
        config = ()
    elif not isinstance(config, str | os.PathLike):  # a ConfigDict, which is code
        config = to_dict(config)
    return [config, *values.values()]

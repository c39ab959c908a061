"""Conventions of the Python API: settings as attributes, errors that name arguments."""

import errno
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from jaxpt import trust as trust_list
from jaxpt.config.settings import to_dict
from jaxpt.errors import (
    PYTHON,
    Spelling,
    UserError,
    current_spelling,
    shorten,
    spelled,
)
from jaxpt.files import copies

P = ParamSpec("P")
R = TypeVar("R")
# Errors of a path that no file can have. Others, such as a full disk, stay `OSError`.
BAD_NAMES = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP)


class SettingsDict(dict[str, Any]):
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


class _Parameters(Spelling):
    """The spelling of a function of `jaxpt`, also within others that it calls."""


def name_arguments(**renamed: str) -> Callable:
    """A decorator: errors name the function's parameters (`jaxpt.errors.argument`).

    If the function has an argument `trust`, the remote places in its arguments are
    trusted, except those in a dict `config`, which may be a stored one.

    Args:
      renamed: {name in messages: parameter} of those that differ.

    >>> from jaxpt.errors import argument
    >>> @name_arguments(prompt="prompts")
    ... def generate(prompts):
    ...     raise UserError(f"{argument('prompt')}='': must hold one character")
    >>> generate("")
    Traceback (most recent call last):
    jaxpt.errors.UserError: prompts='': must hold one character
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = _Parameters(lambda name: renamed.get(name, PYTHON.name(name)), ascii)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                if "trust" in signature.parameters:
                    trust_list.trust_places(_list_written(signature, args, kwargs))
                outer = current_spelling()
                with spelled(outer if isinstance(outer, _Parameters) else own):
                    return function(*args, **kwargs)
            except UserError as error:
                error.args = (copies.with_urls(error),)
                raise
            except OSError as error:
                if error.errno not in BAD_NAMES:
                    raise
                name = shorten(copies.with_urls(error.filename))
                raise UserError(f"{name}: {error.strerror}") from None

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

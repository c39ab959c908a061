"""Reads a config file by its name, as `--config` does."""

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path

import ml_collections

from jaxpt import trust
from jaxpt.config.settings import list_code, to_dict
from jaxpt.config.shipped import find_config
from jaxpt.errors import UserError


def read_config_file(told: str) -> ml_collections.ConfigDict:
    """The config of `FILE.py` or `FILE.py:ARGUMENT`; the file is executed.

    One that comes with jaxpt is named without its folder and suffix: "quickstart:mlm".
    The code that the config names is trusted from then on (`jaxpt.trust`).

    Raises:
      UserError: the file is missing, gives no config, or takes no argument.
    """
    name, mark, argument = find_config(told).partition(":")
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        raise UserError(f"{name}: is no config file; must be a .py file")
    spec = importlib.util.spec_from_file_location(f"jaxpt_config_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # a config may begin with another
    try:
        spec.loader.exec_module(module)
        if mark and not inspect.signature(module.get_config).parameters:
            data = module.get_config().get("data", {})
            raise UserError(_describe_argument(told, argument, data))
        config = module.get_config(argument) if mark else module.get_config()
        trust.trust(list_code(to_dict(config)))
    except UserError:
        raise
    except Exception as error:  # whatever is wrong in a user's file
        raise UserError(
            f"{told}: cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.pop(0)
    return config


def _describe_argument(told: str, argument: str, data: Mapping) -> str:
    """The error of a config without an argument: the flags that name its data."""
    names = [name for name in ("path", "train", "dev") if name in data]
    flags = " and ".join(f"--config.data.{name}=PATH" for name in names)
    cure = f"; name your own data by {flags}" if flags else ""
    return f"{told}: must have no {argument!r} after the colon{cure}"

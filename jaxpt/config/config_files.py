"""Reads a config by its name: a Python file, a shipped config, or a run's JSON."""

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path

from ml_collections import ConfigDict

from jaxpt import trust, user_code
from jaxpt.by_name import load_place
from jaxpt.config.settings import (
    SECTIONS,
    default_config,
    default_section,
    find_types,
    list_code,
    list_outside,
    to_dict,
)
from jaxpt.config.shipped import find_config
from jaxpt.errors import ConfigError, argument, suggest
from jaxpt.files.folder import load_config as load_json_config
from jaxpt.files.remote import fetch
from jaxpt.objectives import find, find_section
from jaxpt.setting_types import as_tuples, check_value


def load_config(source: str, outside: Iterable[str] = ()) -> ConfigDict:
    """The config of a Python file, of a run's config.json, or of "", the defaults.

    Args:
      outside: objectives outside jaxpt, whose settings are added.
    """
    if source.endswith(".json"):
        config = load_stored(source)
    else:
        config = (
            read_config_file(source, f"{argument('config')}=")
            if source
            else default_config()
        )
        trust.trust_places(to_dict(config))
    for name in outside:
        if (section := find_section(name)) not in config:
            config[section] = ConfigDict(default_section(find(name).Spec))
    return config


def read_config_file(source: str, place: str = "") -> ConfigDict:
    """The config of `FILE.py` or `FILE.py:ARGUMENT`; the file is executed.

    One that comes with jaxpt is named without its folder and suffix: "quickstart:mlm".
    The code that the config names is trusted from then on (`jaxpt.trust`).

    Args:
      place: what errors write before the name, such as "config=".
    """
    name, mark, words = find_config(source).partition(":")
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        suggest_config = load_place("jaxpt.config.suggestions:suggest_config")
        raise ConfigError(
            f"{place}{source}: not found; must be a .py file, a run's config.json, or "
            "a config that comes with jaxpt (jaxpt list configs)"
            f"{suggest_config(source)}"
        )
    with (
        user_code.explain(f"{place}{source}", "cannot be loaded"),
        user_code.load_file(path) as module,
    ):
        if mark and not inspect.signature(module.get_config).parameters:
            data = module.get_config().get("data", {})
            raise ConfigError(_describe_argument(place + source, words, data))
        config = module.get_config(words) if mark else module.get_config()
        trust.trust(list_code(to_dict(config)))
    return config


def _describe_argument(source: str, words: str, data: Mapping) -> str:
    """The error of a config without an argument: the settings that name its data."""
    names = [name for name in ("path", "train", "dev") if name in data]
    settings = " and ".join(f"{argument(f'config.data.{name}')}=PATH" for name in names)
    hint = f"; name your own data by {settings}" if settings else ""
    return f"{source}: must have no {words!r} after the colon{hint}"


def load_stored(path: str) -> ConfigDict:
    """The config of a run's config.json; settings that it lacks have their defaults."""
    config = default_config()
    hint = f"{argument('config')}=FILE.json must be a run's config.json"
    stored = load_json_config(fetch(path), hint)
    if not isinstance(stored, dict):
        raise ConfigError(
            f"{argument('config')}={path}: must hold sections of settings"
        )
    outside = {find_section(name): find(name).Spec for name in list_outside(stored)}
    types = find_types(stored)
    for name, value in stored.items():
        if name == "objective":
            config.objective = value
            continue
        if name in outside:
            config[name] = ConfigDict(default_section(outside[name]))
        if name not in config:
            suggestion = suggest(name, SECTIONS)
            raise ConfigError(
                f"{argument('config')}={path}: {name}: unknown section{suggestion}"
            )
        for field, setting in value.items():
            if field not in config[name]:
                suggestion = suggest(field, config[name])
                raise ConfigError(
                    f"{argument('config')}={path}: {name}.{field}: unknown "
                    f"setting{suggestion}"
                )
            kind = types[name][field]
            check_value(f"{argument('config')}={path}: {name}.{field}", setting, kind)
            config[name][field] = as_tuples(setting)
    return config

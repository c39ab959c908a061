"""The settings of generation that an imported model has: `generation.json` of its run.

They are those of the checkpoint's generation_config.json which `SampleSpec` has, and
are used where a user sets none.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpt.by_name import load_place
from jaxpt.errors import CheckpointError, UserError
from jaxpt.files.folder import load_json, write_json

NAME = "generation.json"
Defaults = tuple[tuple[str, Any], ...]  # names of `SampleSpec` and their values


def write_defaults(workdir: Path, defaults: Mapping[str, Any]) -> None:
    """Writes the file, if there is any setting."""
    if defaults:
        write_json(workdir / NAME, dict(defaults))


def read_defaults(workdir: Path) -> Defaults:
    """The settings of a run; () for one that was not imported."""
    path = workdir / NAME
    if not path.exists():
        return ()
    try:
        return check_defaults(load_json(path, {str: object}, "import the model again"))
    except UserError as error:
        raise CheckpointError(f"{path}: {error}; import the model again") from None


def check_defaults(values: Any) -> Defaults:
    """Settings as read from JSON, checked."""
    spec = load_place("jaxpt.evaluation.scores:SampleSpec")
    fields = {field.name: field.default for field in dataclasses.fields(spec)}
    if not isinstance(values, dict) or not values.keys() <= fields.keys():
        raise CheckpointError(f"must have no other names than {', '.join(fields)}")
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(fields[name], tuple):
            allowed = "a list of ids"
            is_good = isinstance(value, list) and all(type(x) is int for x in value)
        elif isinstance(fields[name], int):
            is_good, allowed = type(value) is int, "an integer"
        else:
            is_good, allowed = type(value) in (int, float), "a number"
        if not is_good:
            raise CheckpointError(f"{name}={value!r}: must be {allowed}")
        checked[name] = tuple(value) if isinstance(value, list) else value
    spec(**checked)
    return tuple(checked.items())

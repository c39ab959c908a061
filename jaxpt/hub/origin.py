"""Extra files of an export, from which the run can be imported again.

    <folder>/jaxpt/run.json            the objective, and its section of the settings
                   model.safetensors   parameters that are in no network: heads that
                                       only pretraining uses

transformers ignores subfolders. A teacher's parameters are not included, as they are
those of another run, which the setting `teacher` names.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxpt.config.settings import DERIVED_FIELDS
from jaxpt.errors import DataError
from jaxpt.hub.convert import flatten
from jaxpt.hub.files import MODEL, read_json, read_tensors, write_json, write_tensors
from jaxpt.objectives import OBJECTIVES, is_outside
from jaxpt.training.task import Task

FOLDER, RUN, FORMAT = "jaxpt", "run.json", 1


@dataclasses.dataclass(frozen=True)
class Origin:
    """The run that a folder was exported from.

    Attributes:
      path: the file that this was read from.
      objective: the objective's name.
      settings: its section of the settings, as in JSON.
      rest: by path, the parameters that are in none of the folder's networks.
    """

    path: Path
    objective: str
    settings: dict
    rest: Mapping[str, np.ndarray]


def write_origin(folder: Path, task: Task, params: Any, parts: dict) -> None:
    """Writes the files that `read_origin` reads.

    Args:
      params: the run's parameters.
      parts: its networks, as `Network.export_parts` gives them.

    Raises:
      UserError: a file cannot be written.
    """
    objective = task.plan.objective_name
    if is_outside(objective):  # a folder names no code to import
        return
    section = task.plan.config[objective]
    settings = {
        name: value for name, value in section.items() if name not in DERIVED_FIELDS
    }
    about = {"format": FORMAT, "objective": objective, "settings": settings}
    write_json(folder / FOLDER, RUN, about)
    # The paths that an import reads from the networks.
    known = flatten(task.model.join_parts({k: part for k, (_, part) in parts.items()}))
    rest = {
        path: np.asarray(leaf)
        for path, leaf in flatten(params).items()
        if path not in known and not is_under(path, task.model.frozen)
    }
    if rest:
        write_tensors(folder / FOLDER, rest)


def read_origin(folder: Path) -> Origin | None:
    """The run that a folder was exported from; None if jaxpt did not export it.

    Raises:
      UserError: the files cannot be read or have another format.
    """
    path = folder / FOLDER / RUN
    if not path.exists():
        return None
    about = read_json(folder / FOLDER, RUN)
    if about.get("format") != FORMAT:
        raise DataError(
            f"{path}: format={about.get('format')!r}: this jaxpt reads {FORMAT}"
        )
    objective, settings = about.get("objective"), about.get("settings")
    if not isinstance(objective, str) or objective not in list(OBJECTIVES):
        raise DataError(
            f"{path}: objective={objective!r}: must be one of {', '.join(OBJECTIVES)}"
        )
    if not isinstance(settings, dict):
        raise DataError(f"{path}: settings={settings!r}: must be a section of settings")
    has_rest = (folder / FOLDER / MODEL).exists()
    rest = read_tensors(folder / FOLDER) if has_rest else {}
    settings = OBJECTIVES[objective].Spec.read_earlier(settings)
    return Origin(path, objective, settings, rest)


def is_under(path: str, roots: tuple[str, ...]) -> bool:
    """Whether a path is one of the roots, or below one.

    >>> is_under("teacher/embed", ("teacher",)), is_under("teachers", ("teacher",))
    (True, False)
    """
    return any(path == root or path.startswith(root + "/") for root in roots)

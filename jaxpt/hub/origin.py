"""Where a model comes from: the base model of a run, and the run of an export.

    <run>/base_model.json              repository and commit that the run was imported
                                       from
    <export>/jaxpt/run.json            the objective, its section of the settings, and
                                       the run's base model
                   model.safetensors   parameters that are in no network: heads that
                                       only pretraining uses

With the folder `jaxpt`, the run can be imported again; transformers ignores subfolders.
A teacher's parameters are not included, as they are those of another run, which the
setting `teacher` names, and no part that an import drew at random.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxpt.config.settings import list_derived, list_parts
from jaxpt.errors import DataError
from jaxpt.files import folder as folders
from jaxpt.hub.convert import flatten
from jaxpt.hub.files import MODEL, read_json, read_tensors, write_json, write_tensors
from jaxpt.objectives import OBJECTIVES, is_outside
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import BASE_MODEL

FOLDER, RUN, FORMAT = "jaxpt", "run.json", 1


@dataclasses.dataclass(frozen=True)
class BaseModel:
    """A model of the Hugging Face Hub that a run was imported from.

    Attributes:
      repository: ORG/NAME.
      revision: the branch, tag or commit that was named; "" is the default branch.
      commit: that the revision was resolved to.
    """

    repository: str
    revision: str
    commit: str


def write_base_model(workdir: Path, base: BaseModel) -> None:
    """Records the base model of a run."""
    folders.write_json(workdir / BASE_MODEL, dataclasses.asdict(base))


def read_base_model(workdir: Path) -> BaseModel | None:
    """The base model of a run; None if it was not imported from the Hub."""
    path = workdir / BASE_MODEL
    if not path.exists():
        return None
    return _parse_base(
        path, folders.load_json(path, {str: object}, "import the model again")
    )


def _parse_base(path: Path, values: Any) -> BaseModel:
    names = [field.name for field in dataclasses.fields(BaseModel)]
    is_valid = isinstance(values, dict) and sorted(values) == sorted(names)
    if not is_valid or not all(isinstance(value, str) for value in values.values()):
        raise DataError(f"{path}: base model {values!r}: must have {', '.join(names)}")
    return BaseModel(**values)


@dataclasses.dataclass(frozen=True)
class Origin:
    """The run that a folder was exported from.

    Attributes:
      path: the file that this was read from.
      objective: the objective's name.
      settings: its section of the settings, as in JSON.
      parts: the sections of the objectives that it mixes, by name.
      rest: by path, the parameters that are in none of the folder's networks.
      base: the base model of the run, if it was imported from the Hub.
    """

    path: Path
    objective: str
    settings: dict
    rest: Mapping[str, np.ndarray]
    base: BaseModel | None = None
    parts: Mapping[str, dict] = dataclasses.field(default_factory=dict)


def write_origin(
    folder: Path, task: Task, params: Any, parts: dict, base: BaseModel | None = None
) -> None:
    """Writes the files that `read_origin` reads.

    Args:
      params: the run's parameters.
      parts: its networks, as `Network.export_parts` gives them.
      base: the run's base model.
    """
    objective = task.plan.objective_name
    if is_outside(objective):  # a folder names no code to import
        return
    section, derived = task.plan.config[objective], list_derived(type(task.spec))
    settings = {name: value for name, value in section.items() if name not in derived}
    about = {"format": FORMAT, "objective": objective, "settings": settings}
    config = task.plan.config
    if mixed := {name: config[name] for name in list_parts(config, objective)}:
        about["parts"] = mixed
    if base:
        about["base_model"] = dataclasses.asdict(base)
    write_json(folder / FOLDER, RUN, about)
    # The paths that an import reads from the networks.
    known = flatten(task.model.join_parts({k: part for k, (_, part) in parts.items()}))
    unsaved = (*task.model.frozen, *task.random_parts)
    rest = {
        path: np.asarray(leaf)
        for path, leaf in flatten(params).items()
        if path not in known and not is_under(path, unsaved)
    }
    # The networks are written with standard factors, which these do not have.
    if rest and task.plan.model.parametrization == "standard":
        write_tensors(folder / FOLDER, rest)


def read_origin(folder: Path) -> Origin | None:
    """The run that a folder was exported from; None if jaxpt did not export it."""
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
    mixed = about.get("parts", {})
    is_good = isinstance(mixed, dict) and mixed.keys() <= OBJECTIVES.names.keys()
    if not is_good or not all(isinstance(each, dict) for each in mixed.values()):
        raise DataError(f"{path}: parts={mixed!r}: must be sections of objectives")
    has_rest = (folder / FOLDER / MODEL).exists()
    rest = read_tensors(folder / FOLDER) if has_rest else {}
    stored = about.get("base_model")
    base = None if stored is None else _parse_base(path, stored)
    return Origin(path, objective, settings, rest, base, mixed)


def is_under(path: str, roots: tuple[str, ...]) -> bool:
    """Whether a path is one of the roots, or below one.

    >>> is_under("teacher/embed", ("teacher",)), is_under("teachers", ("teacher",))
    (True, False)
    """
    return any(path == root or path.startswith(root + "/") for root in roots)

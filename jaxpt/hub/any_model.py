"""Loads a model from a run's folder, or imports it from transformers."""

import tempfile
from pathlib import Path

from jaxpt.config.settings import default_config
from jaxpt.hub.files import read_json
from jaxpt.hub.imports import import_run
from jaxpt.hub.shipped import find_model
from jaxpt.runs.workdir import LoadedRun, load_run


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, not of transformers."""
    return folder.is_dir() and "model_type" not in read_json(folder, "config.json")


def load_model(source: str) -> LoadedRun:
    """The model of a run's folder, of a folder of transformers, or of a name.

    Args:
      source: as of `jaxpt.load`.
    """
    name = find_model(source)
    if Path(name).is_dir() and is_run(Path(name)):
        return load_run(Path(name))
    with tempfile.TemporaryDirectory() as place:
        import_run(name, Path(place) / "run", default_config())
        return load_run(Path(place) / "run")

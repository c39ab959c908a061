"""Opens a model of transformers as a run, for one command or as a program.

Nothing of the hub's conversion is loaded for a folder that is a run's.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jaxpt.by_name import load_place
from jaxpt.errors import Spelling, current_spelling, spelled
from jaxpt.files import disk, schema

if TYPE_CHECKING:
    from jaxpt.runs.workdir import LoadedRun

PREFIX = "demo:"  # of the names of models that come with jaxpt (`jaxpt.hub.shipped`)


def is_model(source: str) -> bool:
    """Whether a source is a model of transformers: a folder, `demo:NAME` or a Hub name.

    A path below a folder that exists is not a name, so that a mistyped run is not
    looked for on the Hub.

    >>> is_model("demo:mlm"), is_model("gs://bucket/run"), is_model("")
    (True, False, False)
    >>> is_model("gpt2"), is_model("ORG/NAME@v1"), is_model(f"{os.sep}tmp/nonesuch")
    (True, True, False)
    """
    if source.startswith(PREFIX):
        return True
    if os.path.isdir(source):
        is_adapter = os.path.isfile(os.path.join(source, "adapter_config.json"))
        return is_adapter or _has_model(Path(source, "config.json"))
    parent = source.partition("/")[0]
    if not source or "://" in source or os.path.exists(parent):
        return False
    return bool(load_place("jaxpt.hub.download:is_name")(source))


def _has_model(path: Path) -> bool:
    """Whether a config.json is one of transformers."""
    try:
        config = schema.parse(disk.read(path))
    except (OSError, ValueError):
        return False  # what reads the folder as a run's reports it
    return isinstance(config, dict) and "model_type" in config


@contextlib.contextmanager
def open_model(source: str) -> Iterator[Path]:
    """A run that exists within the context, imported from a model of transformers."""
    outer = current_spelling()

    def name(argument: str) -> str:
        return outer.name("workdir" if argument == "from" else argument)

    with tempfile.TemporaryDirectory() as place:
        with spelled(Spelling(name, outer.value)):
            workdir = _import(source, place)
        yield workdir


def _import(source: str, place: str) -> Path:
    workdir = Path(place) / "run"
    config = load_place("jaxpt.config.settings:default_config")()
    load_place("jaxpt.hub.imports:import_run")(source, workdir, config)
    return workdir


def is_run(source: str) -> bool:
    """Whether a source is a folder, and not one of transformers."""
    return os.path.isdir(source) and not is_model(source)


def load_model(source: str) -> "LoadedRun":
    """The model of a run's folder, of a folder of transformers, or of a name.

    Args:
      source: as of `jaxpt.load`.
    """
    load_run = load_place("jaxpt.runs.workdir:load_run")
    name = load_place("jaxpt.hub.shipped:find_model")(source)
    if is_run(name):
        return load_run(Path(name))
    with tempfile.TemporaryDirectory() as place:
        return load_run(_import(name, place))

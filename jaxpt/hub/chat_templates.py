"""Chat templates of a checkpoint, which its run keeps and its export has again.

    chat_template.jinja                       the template
    additional_chat_templates/NAME.jinja      further ones
    tokenizer_config.json, `chat_template`    a template or a list of named ones, which
                                              count if there are no files
    <run>/chat_templates.json                 all of them by name

They change no ids and jaxpt applies none. Source: `_from_pretrained` and
`save_chat_templates` of transformers 5.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpt.errors import DataError
from jaxpt.files import disk
from jaxpt.files.folder import load_json
from jaxpt.files.folder import write_json as write_run_json
from jaxpt.hub.files import read_json, write_file
from jaxpt.runs.workdir import CHAT_TEMPLATES
from jaxpt.text.tokens.folder_options import CONFIG

DEFAULT, FILE, FOLDER = "default", "chat_template.jinja", "additional_chat_templates"


def read_templates(folder: Path) -> dict[str, str]:
    """The chat templates of a checkpoint by name; {} without any."""
    files = {path.stem: path for path in sorted((folder / FOLDER).glob("*.jinja"))}
    if (folder / FILE).is_file():
        files[DEFAULT] = folder / FILE
    if files:
        return {name: _read(path) for name, path in files.items()}
    if not (folder / CONFIG).is_file():
        return {}
    value = read_json(folder, CONFIG).get("chat_template")
    return _parse(value, f"{folder / CONFIG}: chat_template")


def keep_templates(workdir: Path, templates: Mapping[str, str]) -> None:
    """Writes the templates into a run's folder, if there are any."""
    if templates:
        write_run_json(workdir / CHAT_TEMPLATES, dict(templates))


def export_templates(workdir: Path, folder: str | os.PathLike) -> None:
    """Writes the templates of a run for transformers."""
    path = workdir / CHAT_TEMPLATES
    if not path.exists():
        return
    values = load_json(path, {str: str}, "import the model again")
    for name, text in values.items():
        if not _is_name(name):
            raise DataError(f"{path}: {name!r}: must be a name without a folder")
        file = FILE if name == DEFAULT else f"{FOLDER}/{name}.jinja"
        write_file(folder, file, text.encode())


def _read(path: Path) -> str:
    try:
        return disk.read(path).decode()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from error


def _is_name(name: Any) -> bool:
    """Whether a file in a folder can have this name; those of a run can be forged."""
    return (
        isinstance(name, str) and name == Path(name).name != "" and name.isprintable()
    )


def _parse(value: Any, where: str) -> dict[str, str]:
    """Templates by name: of one template, or of a list with `name` and `template`."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    try:
        named = {each["name"]: each["template"] for each in value}
    except (TypeError, KeyError):
        named = {"": None}
    for name, text in named.items():
        if not _is_name(name) or not isinstance(text, str):
            raise DataError(
                f"{where}: must be a template, or a list of objects with name and "
                "template"
            )
    return named

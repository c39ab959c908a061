"""Manifests of saved steps: which are finished, and whether their bytes are intact.

    <directory>/<step>/                the files of a step
    <directory>/<step>.manifest.json   their sizes and crc32; every leaf's shape, dtype

The manifest is written last and removed first. So a step is finished if and only if it
has one, even if the process is killed at any time.

All other files have their checksums in `jaxpt.files.checksums`. Those are written
before each file, next to the checksum of its earlier content, and say nothing about
whether a folder is complete. A manifest describes a folder that another library has
written, as a whole and once.
"""

import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

from jaxpt.errors import CheckpointError
from jaxpt.files import disk, schema

FORMAT = 1
_FORM = {
    "format": object,
    "step": int,
    "crc32": int,
    "files": {str: {"size": int, "crc32": int}},
    "leaves": {str: {"shape": [int], "dtype": str}},
}
_STEP = re.compile(r"0|[1-9][0-9]*")
_SUFFIX = ".manifest.json"
_ORBAX_SUFFIX = ".orbax-checkpoint-tmp"


class Damaged(Exception):
    """A finished step is damaged; the message names the file and the fault."""


def list_finished(directory: Path) -> list[int]:
    """The steps that have a manifest, ascending; `verify` checks their files."""
    steps = []
    for entry in _scan(directory):
        name = entry.name.removesuffix(_SUFFIX)
        if name == entry.name or not entry.is_file(follow_symlinks=False):
            continue
        if _STEP.fullmatch(name):
            steps.append(int(name))
    return sorted(steps)


def list_unfinished(directory: Path) -> list[Path]:
    """Directories of Orbax without a manifest, complete or partial."""
    finished = set(map(str, list_finished(directory)))
    paths = []
    for entry in _scan(directory):
        path, is_partial = Path(entry.path), entry.name.endswith(_ORBAX_SUFFIX)
        if entry.name in finished or path.is_symlink() or not path.is_dir():
            continue
        if _STEP.fullmatch(entry.name.removesuffix(_ORBAX_SUFFIX)):
            if is_partial or _is_orbax(path):
                paths.append(path)
    return sorted(paths)


def write(directory: Path, step: int, leaves: dict[str, Any]) -> None:
    """Finishes a step: flushes its files to the disk, then writes the manifest.

    Args:
      directory: holds the steps.
      step: its files are complete.
      leaves: {"shape": [...], "dtype": "..."} by path of the saved tree.
    """
    root = directory / str(step)
    for path in [directory, root, *root.rglob("*")]:
        disk.flush(path)
    files = {name: _measure(root / name) for name in _list_files(root)}
    body = {"format": FORMAT, "step": step, "files": files, "leaves": leaves}
    text = json.dumps({"crc32": _crc(body), **body}, indent=1)
    disk.replace(_path(directory, step), text.encode())


def verify(directory: Path, step: int) -> dict[str, Any]:
    """Reads every file of a finished step and returns its `leaves`.

    Raises:
      Damaged: a file, or the manifest, is missing, added, altered or unreadable.
      UserError: the manifest is intact and of a format this version does not know.
    """
    manifest = _read(_path(directory, step), step)
    root = directory / str(step)
    if root.is_symlink() or not root.is_dir():
        raise Damaged(f"{root} is not a directory")
    stored, paths = manifest["files"], _list_files(root)
    for name in sorted(stored.keys() ^ set(paths)):
        problem = "is missing" if name in stored else "was added"
        raise Damaged(f"{root / name} {problem}")
    for name in paths:
        try:
            measured = _measure(root / name)
        except OSError as error:
            raise Damaged(f"{root / name} cannot be read: {error.strerror}") from error
        if measured != stored[name]:
            raise Damaged(f"{root / name} was altered or cut short")
    return manifest["leaves"]


def remove(directory: Path, step: int) -> None:
    """Removes a step, finished or not; never the target of a link."""
    path = directory / str(step)
    _path(directory, step).unlink(missing_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def remove_unfinished(directory: Path) -> None:
    """Removes the remains of killed saves."""
    for path in list_unfinished(directory):
        shutil.rmtree(path)
    disk.sweep(directory)


def find_foreign(directory: Path, step: int) -> Path | None:
    """A file or folder with the step's name that is not a checkpoint."""
    path, partial = (directory / f"{step}{end}" for end in ("", _ORBAX_SUFFIX))
    if partial.is_symlink():  # Orbax writes there first
        return partial
    if path.is_symlink() or not path.is_dir():
        return path if path.is_symlink() or path.exists() else None
    return path if not _is_orbax(path) and any(path.iterdir()) else None


def _path(directory: Path, step: int) -> Path:
    return directory / f"{step}{_SUFFIX}"


def _scan(directory: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(
            f"checkpoint directory: {directory}: {error.strerror}"
        ) from error


def _is_orbax(path: Path) -> bool:
    return (path / "_CHECKPOINT_METADATA").is_file()


def _read(path: Path, step: int) -> dict[str, Any]:
    try:
        manifest = schema.parse(disk.read(path), _FORM)
        crc = manifest.pop("crc32")
        is_intact = crc == _crc(manifest) and manifest["step"] == step
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    if not is_intact:
        raise Damaged(f"{path} was altered")
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{path}: format {manifest['format']}; this version reads {FORMAT}"
        )
    return manifest


def _crc(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _list_files(root: Path) -> list[str]:
    """Relative paths of all files below `root`; links count as files."""
    return sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )


def _measure(path: Path) -> dict[str, int]:
    size = crc = 0
    # A link is never part of a checkpoint, so it is not followed.
    for chunk in disk.read_chunks(path, follows_links=False):
        size += len(chunk)
        crc = zlib.crc32(chunk, crc)
    return {"size": size, "crc32": crc}

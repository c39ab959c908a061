"""Checksums of a folder's files, stored in checksums.json.

    <folder>/checksums.json   {"files": {name: [{"bytes": n, "sha256": hex}, ...]},
                               "sha256": of the rest}

The new checksum is written before the file, next to the checksum of its current
content, so a process may be killed between the two. A growing log has the checksum of
a prefix. Checkpoints have a manifest instead (`jaxpt.runs.manifest`), whose presence
says that they are complete.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from jaxpt.errors import CheckpointError, UserError
from jaxpt.files import disk, schema

FILE = "checksums.json"
_FORM = {"files": {str: [{"bytes": int, "sha256": str}]}, "sha256": str}
REMEDY = "restore it, or use another folder"


def write(path: Path, data: bytes) -> None:
    """Writes a file and its checksum; only one process may write to a folder."""
    files, new = _load(path.parent), _measure(data)
    try:
        here = _measure(disk.read(path)) if path.exists() else None
        stored = files.get(path.name, [])
        if here == new and new in stored and not path.is_symlink():
            return
        files[path.name] = [new, *(old for old in stored if old == here != new)]
        disk.replace(path.parent / FILE, _encode(files))
        disk.replace(path, data)
    except OSError as error:
        raise _fault(path, f"cannot be written: {error.strerror}") from error


def read(path: Path, remedy: str = REMEDY) -> bytes:
    """Reads a file and compares it with its checksum, if it has one.

    Args:
      remedy: the advice in the error about an altered file.

    Raises:
      OSError: it cannot be read.
      UserError: the file or the folder's checksums were altered.
    """
    data = disk.read(path)  # first, as a writer stores the checksum before the data
    stored = _load(path.parent).get(path.name)
    if stored is not None and _measure(data) not in stored:
        raise _altered(path, remedy)
    return data


def read_log(path: Path, remedy: str = REMEDY) -> bytes:
    """Like `read`, for a log: compares the recorded prefix only."""
    stored = _load(path.parent).get(path.name, [])
    data = disk.read(path) if path.exists() or not stored else b""
    if stored and _measure(data[: stored[0]["bytes"]]) not in stored:
        raise _altered(path, remedy)
    return data


def record_prefix(path: Path, num_bytes: int, sha256: str) -> None:
    """Records the checksum of a log's first bytes, which must be flushed to disk."""
    files = _load(path.parent)
    files[path.name] = [{"bytes": num_bytes, "sha256": sha256}]
    _store(path.parent, files)


def record(folder: Path, names: Iterable[str]) -> None:
    """Records the checksums of finished files as they are now."""
    files = _load(folder)
    for name in names:
        try:
            files[name] = [_measure_file(folder / name)]
        except OSError as error:
            raise _fault(folder / name, f"cannot be read: {error.strerror}") from error
    _store(folder, files)


def record_tree(root: Path) -> None:
    """Records all files of a finished folder and its subfolders but hidden ones."""
    for folder, _, names in os.walk(root):
        record(Path(folder), [n for n in sorted(names) if n != FILE and n[0] != "."])


def remove(path: Path) -> None:
    """Removes a file, if it is there, and its checksum."""
    files = _load(path.parent)
    path.unlink(missing_ok=True)
    if files.pop(path.name, None):
        _store(path.parent, files)


def find_faults(folder: Path, logs: Collection[str] = ()) -> dict[str, str]:
    """Compares all files of a folder that have checksums; only reads.

    Args:
      logs: names of files of which only the recorded prefix is compared.

    Returns:
      The problem of each damaged file by its name. With an altered checksums.json, that
      is the only one, as no other file can be compared.
    """
    try:
        files = _load(folder)
    except UserError:
        return {FILE: "was altered"}
    faults = {}
    for name, stored in sorted(files.items()):
        limit = stored[0]["bytes"] if name in logs else None
        try:
            if _measure_file(folder / name, limit) not in stored:
                faults[name] = "was altered"
        except FileNotFoundError:
            faults[name] = "is missing"
        except OSError as error:
            faults[name] = f"cannot be read: {error.strerror}"
    return faults


def list_recorded(folder: Path) -> set[str]:
    """The names of the files that have checksums; none if those were altered."""
    try:
        return set(_load(folder))
    except UserError:
        return set()


def has_checksum(path: Path) -> bool:
    """Whether a file has a checksum."""
    return path.name in _load(path.parent)


def _measure(data: bytes) -> dict:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _measure_file(path: Path, limit: int | None = None) -> dict:
    """As `_measure`, of a file, or of its first `limit` bytes."""
    digest, size = hashlib.sha256(), 0
    for chunk in disk.read_chunks(path, limit):
        digest.update(chunk)
        size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _load(folder: Path) -> dict[str, list[dict]]:
    path = folder / FILE
    try:
        data = disk.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from error
    try:
        files = schema.parse(data, _FORM)["files"]
        is_whole = data == _encode(files)
    except ValueError:
        is_whole = False
    if not is_whole:
        advice = "restore it, or delete it: then the files"
        raise _fault(path, f"was altered; {advice} of {folder} have no checksums")
    return files


def _store(folder: Path, files: dict[str, list[dict]]) -> None:
    try:
        disk.replace(folder / FILE, _encode(files))
    except OSError as error:
        path = folder / FILE
        raise _fault(path, f"cannot be written: {error.strerror}") from error


def _encode(files: dict[str, list[dict]]) -> bytes:
    text = json.dumps(files, sort_keys=True)
    sealed = {"files": files, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return (json.dumps(sealed, indent=1, sort_keys=True) + "\n").encode()


def _altered(path: Path, remedy: str) -> UserError:
    problem = f"was altered after it was written (its checksum in {FILE} differs)"
    return _fault(path, f"{problem}; {remedy}")


def _fault(path: Path, problem: str) -> UserError:
    return CheckpointError(f"{os.fspath(path)}: {problem}")

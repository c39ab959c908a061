"""checksums.json: what the files of a folder were when they were written.

    <folder>/checksums.json   {"files": {name: [{"bytes": n, "sha256": hex}, ...]},
                               "sha256": of the rest}

A file's checksum is there before the file is, beside that of the file as it stands, so
a process may be killed between the two. Of a log that grows, the first so many bytes
are vouched for.
"""

import hashlib
import json
import os
from pathlib import Path

from jaxpt.errors import UserError
from jaxpt.files import disk

FILE = "checksums.json"
CURE = "put it back as it was, or use another folder"


def write(path: Path, data: bytes) -> None:
    """Writes a file and its checksum; only one process may do so in a folder.

    Raises:
      UserError: it cannot be written, or the folder's checksums were altered.
    """
    files, new = _load(path.parent), _measure(data)
    try:
        here = _measure(path.read_bytes()) if path.exists() else None
        told = files.get(path.name, [])
        if here == new and new in told and not path.is_symlink():
            return
        files[path.name] = [new, *(old for old in told if old == here != new)]
        _store(path.parent, files)
        disk.replace(path, data)
    except OSError as error:
        raise _fault(path, f"cannot be written: {error.strerror}") from error


def read(path: Path, cure: str = CURE) -> bytes:
    """A file's bytes, which are those that were written if its folder says.

    Args:
      cure: what to do about a file that was altered.

    Raises:
      OSError: it cannot be read.
      UserError: it was altered, or the folder's checksums were.
    """
    data = path.read_bytes()  # first: what is written meanwhile is vouched for before
    told = _load(path.parent).get(path.name)
    if told is not None and _measure(data) not in told:
        raise _altered(path, cure)
    return data


def read_log(path: Path, cure: str = CURE) -> bytes:
    """As `read`, of a log: its beginning is compared, as far as it was noted."""
    told = _load(path.parent).get(path.name, [])
    data = path.read_bytes() if path.exists() or not told else b""
    if told and _measure(data[: told[0]["bytes"]]) not in told:
        raise _altered(path, cure)
    return data


def note(path: Path, num_bytes: int, sha256: str) -> None:
    """Vouches for the first bytes of a log, which must be on the medium."""
    files = _load(path.parent)
    files[path.name] = [{"bytes": num_bytes, "sha256": sha256}]
    try:
        _store(path.parent, files)
    except OSError as error:
        raise _fault(path, f"cannot be written: {error.strerror}") from error


def adopt(folder: Path, names: tuple[str, ...]) -> None:
    """Vouches from now on for those of the files that are there.

    Raises:
      UserError: one cannot be read, or the checksums not be written.
    """
    files = _load(folder)
    try:
        for name in names:
            if name not in files and (folder / name).is_file():
                files[name] = [_measure((folder / name).read_bytes())]
        _store(folder, files)
    except OSError as error:
        raise _fault(folder / FILE, f"cannot be written: {error.strerror}") from error


def is_vouched(path: Path) -> bool:
    """Whether the folder says what the file was.

    Raises:
      UserError: the folder's checksums were altered.
    """
    return path.name in _load(path.parent)


def _measure(data: bytes) -> dict:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _load(folder: Path) -> dict[str, list[dict]]:
    path = folder / FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from error
    try:
        files = json.loads(data)["files"]
        is_whole = data == _encode(files)
    except (ValueError, TypeError, LookupError, RecursionError):
        is_whole = False
    if not is_whole:
        what = "put it back as it was, or delete it: then nothing vouches for the files"
        raise _fault(path, f"was altered; {what} of {folder}")
    return files


def _store(folder: Path, files: dict[str, list[dict]]) -> None:
    disk.replace(folder / FILE, _encode(files))


def _encode(files: dict[str, list[dict]]) -> bytes:
    text = json.dumps(files, sort_keys=True)
    sealed = {"files": files, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return (json.dumps(sealed, indent=1, sort_keys=True) + "\n").encode()


def _altered(path: Path, cure: str) -> UserError:
    fault = f"was altered after it was written (its checksum in {FILE} differs)"
    return _fault(path, f"{fault}; {cure}")


def _fault(path: Path, what: str) -> UserError:
    return UserError(f"{os.fspath(path)}: {what}")

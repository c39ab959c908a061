"""Atomic file writes, which never follow a symbolic link.

A link in the place of a file is replaced, or refused; its target is never changed.
"""

import contextlib
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import BinaryIO

_PARTIAL = re.compile(r"\..+\.[0-9a-f]{16}\.partial")


def replace(path: str | os.PathLike, data: bytes) -> None:
    """Writes a file atomically and flushes it to disk.

    The data are written to a new temporary file, which is then renamed.

    Raises:
      OSError: it cannot be written; `filename` is the path. The old file is kept.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(partial, flags, 0o666)
        try:
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(partial, path)
        flush(path.parent)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def write_all(handle: int, data: bytes | memoryview) -> int:
    """Writes all bytes of a buffer to a descriptor and returns their number."""
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
    return len(data)


def open_append(path: str | os.PathLike) -> BinaryIO:
    """Opens a file to append to, and creates it if it is missing.

    Raises:
      OSError: it cannot be opened, or it is a link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "ab")


def remove(path: Path) -> None:
    """Removes a file, a link or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Removes the temporary files of killed calls of `replace`.

    No other process may write to the folder.
    """
    for path in folder.iterdir():
        if _PARTIAL.fullmatch(path.name):
            path.unlink()


def flush(path: Path) -> None:
    """Flushes a file, or a folder's list of names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

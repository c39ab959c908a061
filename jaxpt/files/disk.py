"""Atomic file writes, which never follow a symbolic link.

A link in the place of a file is replaced, or refused; its target is never changed.
"""

import contextlib
import ctypes
import errno
import fcntl
import io
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 20  # of a file that is read in parts
WHOLE_BYTES = 1 << 31  # the most of a file that is read into memory as a whole
TOO_LARGE = f"is larger than {WHOLE_BYTES >> 30} GiB, which is not read as a whole"
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_AT_FDCWD, _EXCHANGE = -100, 2  # of renameat2; renamex_np's flag is the same
_ENDING = r"[0-9a-f]{16}\.partial"
_PARTIAL = re.compile(rf"\..+\.{_ENDING}")


def replace(path: str | os.PathLike, data: bytes) -> None:
    """Writes a file atomically and flushes it to disk.

    The data are written to a new temporary file, which is then renamed. That of a call
    whose process was killed is removed by the next call for the same path.

    Raises:
      OSError: it cannot be written; `filename` is the path. The old file is kept.
    """
    path, partial = Path(path), None
    try:
        _remove_remains(path)
        partial, handle = _create_partial(path)
        try:
            write_all(handle, data)
            os.fsync(handle)
            os.replace(partial, path)  # while it is locked
        finally:
            os.close(handle)
        flush(path.parent)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        if partial:
            with contextlib.suppress(OSError):
                os.unlink(partial)


def _create_partial(path: Path) -> tuple[Path, int]:
    """Creates a temporary file next to a path, and opens it.

    It is locked while it is open, so that other calls do not remove it.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    while True:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
        handle = os.open(partial, flags, 0o666)
        with contextlib.suppress(OSError):  # of a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return partial, handle
        os.close(handle)  # another call removed it before it was locked


def _remove_remains(path: Path) -> None:
    """Removes the temporary files of killed calls of `replace` for one path."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{_ENDING}")
    for name in os.listdir(path.parent):
        if pattern.fullmatch(name):
            with contextlib.suppress(OSError):  # it is locked, or a link
                _remove_unlocked(path.with_name(name))


def _remove_unlocked(path: Path) -> None:
    """Removes a file unless a process has locked it, which is an OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(handle)


def open_regular(
    path: str | os.PathLike, follows_links: bool = True
) -> io.BufferedReader:
    """Opens a file to read, which must be a regular one or a link to one.

    A FIFO or a terminal would be waited for, and a device such as /dev/zero has no end.

    Raises:
      OSError: it cannot be opened, or is not a regular file; `strerror` is the reason.
    """
    try:
        # Without waiting for the other end of a FIFO.
        flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follows_links else os.O_NOFOLLOW)
        handle = os.open(path, flags)
    except ValueError as error:  # of a name with NUL, or that cannot be encoded
        raise OSError(errno.EINVAL, f"is not a file's name: {error}", path) from error
    if stat.S_ISREG(mode := os.fstat(handle).st_mode):
        return open(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kind = _KINDS.get(stat.S_IFMT(mode), "not a file")
    raise OSError(errno.EINVAL, f"is {kind}; must be a regular file", path)


def read(path: str | os.PathLike) -> bytes:
    """Reads a whole file of at most `WHOLE_BYTES`.

    Raises:
      OSError: as `open_regular`, or the file is larger.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > WHOLE_BYTES:
            raise OSError(errno.EFBIG, TOO_LARGE, path)
        return file.read()


def read_chunks(
    path: str | os.PathLike, limit: int | None = None, follows_links: bool = True
) -> Iterator[bytes]:
    """Yields a file of any size in parts; with a limit, its first `limit` bytes.

    Raises:
      OSError: as `open_regular`.
    """
    with open_regular(path, follows_links) as file:
        left = math.inf if limit is None else limit
        while data := file.read(int(min(CHUNK_BYTES, left))):
            left -= len(data)
            yield data


def read_text(path: str | os.PathLike) -> str:
    """Reads a whole text file in UTF-8, with "\\n" for every kind of line end.

    Raises:
      OSError: as `read`.
      UnicodeDecodeError: it is not UTF-8.
    """
    return io.TextIOWrapper(io.BytesIO(read(path)), encoding="utf-8").read()


def move(source: Path, target: Path, names: Iterable[str]) -> None:
    """Moves files and folders into another folder of the same file system."""
    flush(source)
    for name in names:
        os.replace(source / name, target / name)
    flush(target)


def rename(source: Path, target: Path) -> None:
    """Renames a file, whose readers keep an old target, or a folder."""
    os.replace(source, target)


def link(source: Path, target: Path) -> None:
    """Links a file, or all files of a folder, under another name."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, copy_function=os.link)
    else:
        os.link(source, target, follow_symlinks=False)


def exchange(one: Path, other: Path) -> None:
    """Exchanges the names of two files or folders at once.

    Raises:
      OSError: the system or the file system cannot do it; nothing has changed.
    """
    names = os.fsencode(one), os.fsencode(other)
    libc = ctypes.CDLL(None, use_errno=True)
    calls = {
        "renameat2": (_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE),  # Linux
        "renamex_np": (*names, _EXCHANGE),  # macOS
    }
    for name, args in calls.items():
        if function := getattr(libc, name, None):
            if function(*args) == 0:
                return
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(other))
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other))


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


def find_irregular(folder: str | os.PathLike) -> Iterator[Path]:
    """The links to folders, FIFOs, devices and sockets below a folder, at any depth.

    Links are not followed, except the folder itself.
    """
    open_folders = [os.fspath(folder)]
    while open_folders:
        try:
            entries = list(os.scandir(open_folders.pop()))
        except FileNotFoundError:  # another process has just removed it
            continue
        for entry in entries:
            if entry.is_symlink():
                if os.path.isdir(entry.path):
                    yield Path(entry.path)
            elif entry.is_dir():
                open_folders.append(entry.path)
            elif not entry.is_file():
                yield Path(entry.path)


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

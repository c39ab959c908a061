"""Drafts, the unfinished stores: growing files and a journal of their valid lengths.

    <folder>.partial/journal.json   lengths and checksums of the files, and the state

On resuming, everything after the last journal entry is cut off, so the process may be
killed at any moment. `seal` writes the card, the last file.
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxpt.errors import DataError
from jaxpt.files import disk, schema
from jaxpt.text.stores.store import CARD, FILES, is_part, seal_card

JOURNAL = "journal.json"
_FORM = {"key": str, "state": {str: object}, "files": FILES, "sha256": str}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CHUNK_BYTES = 1 << 20


class Unusable(Exception):
    """An unfinished store cannot be resumed, for the reason in the message."""


@dataclass
class _StoreFile:
    """A growing file.

    Attributes:
      handle: its file descriptor, or None when it is closed.
    """

    handle: int | None
    num_bytes: int
    digest: Any


class Draft:
    """The files of an unfinished store. Make one by `begin` or `resume`.

    Its methods raise UserError if a file cannot be written. If the disk is full, they
    remove the folder first.
    """

    def __init__(self, path: Path):
        self.path = path
        self._files: dict[str, _StoreFile] = {}

    @classmethod
    def begin(cls, path: Path) -> "Draft":
        """Begins an empty draft; an old one at the same path is removed."""
        draft = cls(path)
        with draft.writing():
            disk.remove(path)
            path.mkdir(parents=True)
            disk.flush(path.parent)
        return draft

    @classmethod
    def resume(cls, path: Path, key: str) -> tuple["Draft", dict]:
        """Resumes a draft as of its last `commit`; returns it and the committed state.

        Args:
          key: the key given to `commit`.

        Raises:
          Unusable: the journal has another key, or it or a file is not intact.
        """
        if path.is_symlink():
            raise Unusable("it is a link")
        journal = _read_journal(path / JOURNAL)
        if journal["key"] != key:
            raise Unusable("it was of other settings, text or tokenizer")
        draft = cls(path)
        with draft.writing():
            for entry in sorted(path.iterdir()):
                if entry.name not in {JOURNAL, *journal["files"]}:
                    disk.remove(entry)
            for name, entry in journal["files"].items():
                draft._files[name] = _reopen(path / name, entry)
        return draft, journal["state"]

    @property
    def num_bytes(self) -> int:
        """The total size of all files."""
        return sum(file.num_bytes for file in self._files.values())

    @property
    def files(self) -> dict[str, dict]:
        """Each file's length and checksum, in the form of a card."""
        return {
            name: {"bytes": file.num_bytes, "sha256": file.digest.hexdigest()}
            for name, file in sorted(self._files.items())
        }

    def append(self, name: str, data: Any) -> None:
        """Appends a buffer of bytes or numbers to a file, created if necessary."""
        left = memoryview(data).cast("B") if len(data) else memoryview(b"")
        with self.writing():
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = _StoreFile(None, 0, hashlib.sha256())
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                file.handle = os.open(self.path / name, flags, 0o666)
            elif file.handle is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
                file.handle = os.open(self.path / name, flags)
            file.digest.update(left)
            while left:
                written = os.write(file.handle, left)
                file.num_bytes += written
                left = left[written:]

    def end(self, name: str) -> None:
        """Flushes a file to disk and closes it."""
        file = self._files[name]
        with self.writing():
            if file.handle is not None:
                os.fsync(file.handle)
                self._close(file)

    def take(self, name: str) -> None:
        """Adds a finished file that was written into the folder by other code."""
        path = self.path / name
        with self.writing():
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            self._files[name] = file = _StoreFile(handle, 0, hashlib.sha256())
            file.num_bytes = os.fstat(handle).st_size
            _read_into(file.digest, handle, file.num_bytes)
        self.end(name)

    def commit(self, key: str, state: dict) -> None:
        """Flushes all files and records them in the journal, with a state in JSON."""
        with self.writing():
            for file in self._files.values():
                if file.handle is not None:
                    os.fsync(file.handle)
            body = {"key": key, "state": state, "files": self.files}
            text = json.dumps({"sha256": _sum(body), **body}, indent=1) + "\n"
            disk.replace(self.path / JOURNAL, text.encode())

    def seal(self, card: dict) -> None:
        """Flushes all files and writes the card, which completes the store."""
        for name in self._files:
            self.end(name)
        with self.writing():
            disk.replace(self.path / CARD, seal_card({**card, "files": self.files}))

    def close(self) -> None:
        """Closes all files; the draft can be resumed from the last `commit`."""
        for file in self._files.values():
            self._close(file)

    def discard(self) -> None:
        """Removes everything."""
        self.close()
        with self.writing():
            disk.remove(self.path)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turns errors of the file system into a one-line `UserError`."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                num_bytes = self.num_bytes
                self.close()
                disk.remove(self.path)
                raise DataError(
                    f"{self.path}: {os.strerror(error.errno)} after {num_bytes} bytes "
                    "were written; they are removed"
                ) from error
            file = error.filename or self.path
            raise DataError(f"{file}: cannot be written: {error.strerror}") from error

    def _close(self, file: _StoreFile) -> None:
        handle, file.handle = file.handle, None
        if handle is not None:
            os.close(handle)


def publish(path: Path, folder: Path) -> None:
    """Renames a sealed draft to the store's folder.

    Raises:
      OSError: this failed; then no such folder exists.
    """
    os.replace(path, folder)
    try:
        (folder / JOURNAL).unlink(missing_ok=True)
        disk.flush(folder)
        disk.flush(folder.parent)
    except OSError:
        disk.remove(folder)
        raise


def _sum(body: dict) -> str:
    text = json.dumps(body, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_journal(path: Path) -> dict:
    try:
        journal = schema.parse(disk.read(path), _FORM)
        checksum = journal.pop("sha256")
    except FileNotFoundError as error:
        raise Unusable("it has no journal yet") from error
    except (OSError, ValueError) as error:
        raise Unusable("its journal cannot be read") from error
    if checksum != _sum(journal):
        raise Unusable("its journal was altered")
    if foreign := [name for name in journal["files"] if not is_part(name)]:
        raise Unusable(f"its journal names {foreign[0]!r}, not a file of a store")
    return journal


def _reopen(path: Path, entry: dict) -> _StoreFile:
    """Truncates a file to its length in the journal.

    Raises:
      Unusable: the checksum differs from the journal's.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise Unusable(f"{path.name} cannot be opened: {error.strerror}") from error
    file = _StoreFile(None, entry["bytes"], hashlib.sha256())
    try:
        if os.fstat(handle).st_nlink > 1:
            raise Unusable(f"{path.name} is linked to a name elsewhere")
        is_whole = _read_into(file.digest, handle, entry["bytes"])
        if not is_whole or file.digest.hexdigest() != entry["sha256"]:
            raise Unusable(f"{path.name} was altered or cut short")
        os.ftruncate(handle, entry["bytes"])
    finally:
        os.close(handle)
    return file


def _read_into(digest: Any, handle: int, num_bytes: int) -> bool:
    """Feeds a file's first bytes to a digest; False if the file is shorter."""
    while num_bytes:
        data = os.read(handle, min(num_bytes, _CHUNK_BYTES))
        if not data:
            return False
        digest.update(data)
        num_bytes -= len(data)
    return True

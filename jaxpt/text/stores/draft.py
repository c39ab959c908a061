"""An unfinished store: files that grow, and a journal of how far they are sound.

    <folder>.partial/journal.json   lengths and checksums of the files, and the state

What was written after the last entry is cut off when the work goes on, so a process may
be killed at any moment. `seal` writes the card, the last of all files.
"""

import contextlib
import errno
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxpt import disk
from jaxpt.errors import UserError
from jaxpt.text.stores.store import CARD, is_part, seal_card

JOURNAL = "journal.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CHUNK_BYTES = 1 << 20


class Unusable(Exception):
    """Why an unfinished store cannot be gone on with."""


@dataclass
class _File:
    """A growing file.

    Attributes:
      handle: its descriptor, None once it is closed.
    """

    handle: int | None
    num_bytes: int
    digest: Any


class Draft:
    """The files of an unfinished store. Make one by `begin` or `resume`.

    Its methods raise UserError where a file cannot be written. Where the disk is full,
    they remove the folder first, and say how much it held.
    """

    def __init__(self, path: Path):
        self.path = path
        self._files: dict[str, _File] = {}

    @classmethod
    def begin(cls, path: Path) -> "Draft":
        """A draft of no files; what lay there is removed."""
        draft = cls(path)
        with draft.writing():
            disk.remove(path)
            path.mkdir(parents=True)
            disk.flush(path.parent)
        return draft

    @classmethod
    def resume(cls, path: Path, key: str) -> tuple["Draft", dict]:
        """The draft that a journal tells of, and the state it was given last.

        Args:
          key: as `commit` was given it.

        Raises:
          Unusable: the journal is of another key, or not intact, or the files not.
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
            for name, told in journal["files"].items():
                draft._files[name] = _take_up(path / name, told)
        return draft, journal["state"]

    @property
    def num_bytes(self) -> int:
        """Bytes in all files."""
        return sum(file.num_bytes for file in self._files.values())

    @property
    def files(self) -> dict[str, dict]:
        """Each file's length and checksum, as a card lists them."""
        return {
            name: {"bytes": file.num_bytes, "sha256": file.digest.hexdigest()}
            for name, file in sorted(self._files.items())
        }

    def append(self, name: str, data) -> None:
        """Appends a buffer of bytes or numbers to a file, made where there is none."""
        data = memoryview(data).cast("B") if len(data) else memoryview(b"")
        with self.writing():
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = _File(None, 0, hashlib.sha256())
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                file.handle = os.open(self.path / name, flags, 0o666)
            elif file.handle is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
                file.handle = os.open(self.path / name, flags)
            file.digest.update(data)
            while data:
                written = os.write(file.handle, data)
                file.num_bytes += written
                data = data[written:]

    def end(self, name: str) -> None:
        """Flushes a file to the medium and closes it."""
        file = self._files[name]
        with self.writing():
            if file.handle is not None:
                os.fsync(file.handle)
                self._close(file)

    def take(self, name: str) -> None:
        """Counts a finished file that someone else has written here."""
        path = self.path / name
        with self.writing():
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            self._files[name] = file = _File(handle, 0, hashlib.sha256())
            file.num_bytes = os.fstat(handle).st_size
            _read_into(file.digest, handle, file.num_bytes)
        self.end(name)

    def commit(self, key: str, state: dict) -> None:
        """Flushes all files and notes them in the journal, with a state in JSON."""
        with self.writing():
            for file in self._files.values():
                if file.handle is not None:
                    os.fsync(file.handle)
            body = {"key": key, "state": state, "files": self.files}
            text = json.dumps({"sha256": _sum(body), **body}, indent=1) + "\n"
            disk.replace(self.path / JOURNAL, text.encode())

    def seal(self, card: dict) -> None:
        """Writes the card of the store that the files now are, all flushed."""
        for name in self._files:
            self.end(name)
        with self.writing():
            disk.replace(self.path / CARD, seal_card({**card, "files": self.files}))

    def close(self) -> None:
        """Closes all files; they can be gone on with from the last `commit`."""
        for file in self._files.values():
            self._close(file)

    def discard(self) -> None:
        """Removes everything."""
        self.close()
        with self.writing():
            disk.remove(self.path)

    @contextlib.contextmanager
    def writing(self):
        """Turns errors of the file system into one line."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                num_bytes = self.num_bytes
                self.close()
                disk.remove(self.path)
                raise UserError(
                    f"{self.path}: {os.strerror(error.errno)} after {num_bytes} bytes "
                    "were written; they are removed"
                ) from error
            file = error.filename or self.path
            raise UserError(f"{file}: cannot be written: {error.strerror}") from error

    def _close(self, file: _File) -> None:
        handle, file.handle = file.handle, None
        if handle is not None:
            os.close(handle)


def publish(path: Path, folder: Path) -> None:
    """Gives a sealed draft the store's name.

    Raises:
      OSError: it cannot have it; then nothing has the name.
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
        journal = json.loads(path.read_bytes())
        told = journal.pop("sha256")
    except FileNotFoundError as error:
        raise Unusable("it had not got far") from error
    except (OSError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise Unusable("its journal cannot be read") from error
    if told != _sum(journal):
        raise Unusable("its journal was altered")
    if foreign := [name for name in journal["files"] if not is_part(name)]:
        raise Unusable(f"its journal names {foreign[0]!r}, which is no store's file")
    return journal


def _take_up(path: Path, told: dict) -> _File:
    """A file as it was when it was told of.

    Raises:
      Unusable: it is not.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise Unusable(f"{path.name} cannot be opened: {error.strerror}") from error
    file = _File(None, told["bytes"], hashlib.sha256())
    try:
        if os.fstat(handle).st_nlink > 1:
            raise Unusable(f"{path.name} is linked to a name elsewhere")
        is_whole = _read_into(file.digest, handle, told["bytes"])
        if not is_whole or file.digest.hexdigest() != told["sha256"]:
            raise Unusable(f"{path.name} was altered or cut short")
        os.ftruncate(handle, told["bytes"])
    finally:
        os.close(handle)
    return file


def _read_into(digest, handle: int, num_bytes: int) -> bool:
    """Feeds a file's first bytes to a digest; False where there are not so many."""
    while num_bytes:
        data = os.read(handle, min(num_bytes, _CHUNK_BYTES))
        if not data:
            return False
        digest.update(data)
        num_bytes -= len(data)
    return True

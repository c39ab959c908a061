"""The local copy of a URL of an object store, and its uploads.

    $JAXPT_CACHE/remote/KEY/NAME          the copy; KEY is a hash of the URL
    $JAXPT_CACHE/remote/KEY/index.json    {"id", "files": {name: [object, file]}}: what
                                          both were when they were last the same
    $JAXPT_CACHE/remote/KEY/locks/        of the processes that write the copy

If the store has changed since, the copy becomes what the store has; else the copy is
kept, with work that was not uploaded. An upload is one commit:

    1. .push.zip, with the names of new large files    2. these files
    3. .push.zip, with all other changes, replaces it  4. these changes
    5. .push.zip is removed

A reader ignores the files of 2 until there is 3, and prefers the contents of 3 to what
is there. The next writer completes 3, or removes the files of 2. So a process that is
killed at any time leaves the state before the upload or the one after it.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import secrets
import shutil
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from jaxpt.errors import CheckpointError
from jaxpt.files import disk, lock, schema
from jaxpt.files.lease import Lease, find_leased, is_lease
from jaxpt.files.objects import ObjectStore, StoredObject, is_plain

_log = logging.getLogger(__name__)
PUSH = ".push.zip"
LARGE_BYTES = 1 << 16  # new files above this are not in .push.zip
_MAX_TRIES = 20
_INDEX = {"id": str, "files": {str: [str]}}
_PLAN = {"is_committed": bool, "added": [str], "removed": [str]}
_UNFINISHED = ".orbax-checkpoint-tmp"

T = TypeVar("T")


class _Push(NamedTuple):
    """The content of a .push.zip; all names are below the URL."""

    is_committed: bool
    added: list[str]
    removed: list[str]
    files: dict[str, bytes]


class Mirror:
    """The local copy of a URL. Folders are below it: "" or with a final slash.

    Attributes:
      root: the local path, below `cache`.
    """

    def __init__(self, url: str, cache: Path):
        self.store, self.url, self.cache = ObjectStore(url), url, cache
        key = hashlib.sha256(url.encode()).hexdigest()[:16]
        self._place = Path(os.path.realpath(cache)) / "remote" / key
        self.root = self._place / url.rpartition("/")[2]

    def writer_lock(self, folder: str) -> Path:
        """The file that the process locks which writes a folder of this copy."""
        return self._place / "locks" / folder / "writer"

    @property
    def id(self) -> str:
        """The id of this copy, which is different on each machine."""
        with self._exclusive():
            index = self._read_index()
            self._write_index(index)
        return index["id"]

    def pull(
        self,
        folder: str = "",
        leaves_out: str = "",
        keeps_work: bool = True,
        lease: Lease | None = None,
    ) -> None:
        """Makes the copy of a folder what the store has, if the store has changed.

        Subfolders with a lease are left as they are: their process has the newest.

        Args:
          leaves_out: a subfolder that is also left as it is.
          keeps_work: keep changes that were not uploaded, if the store is as it was.
          lease: of the folder, if this process writes it. It then completes the upload
            of a process that was killed.
        """
        with self._exclusive():
            if lease:
                self._finish_push(folder)
            elif lock.is_held(self.writer_lock(folder)):
                return  # its process has the newest files here
            for _ in range(_MAX_TRIES):
                if self._pull(folder, leaves_out, keeps_work):
                    return
                time.sleep(0.5)
        raise CheckpointError(
            f"{self.url}/{folder}: is changed by another process all the time; repeat "
            f"the command when that has ended"
        )

    def _pull(self, folder: str, leaves_out: str, keeps_work: bool) -> bool:
        """Whether the copy is up to date: the store has not changed meanwhile."""
        busy, state, overlay = content = self._read_content(folder, leaves_out)
        files = _below(self._walk(folder), folder, busy)
        known = _below(self._read_index()["files"], folder, busy)
        stamps = {name: each.stamp for name, each in state.items()}
        is_same = stamps == {name: pair[0] for name, pair in known.items()}
        if is_same and not overlay and keeps_work:
            return True
        kept = {
            name: pair
            for name, pair in known.items()
            if pair == [stamps.get(name), files.get(name)] and name not in overlay
        }
        # In this order: files that are not in the index count as work of this process.
        for name in files.keys() - state.keys() - overlay.keys():
            _remove(self.root, name)
        self._replace_entries(known, kept)
        wanted = state.keys() - kept.keys() - overlay.keys()
        copied = self._download({name: state[name] for name in wanted})
        for name, data in overlay.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            disk.replace(self.root / name, data)
        after, now = self._read_content(folder, leaves_out), self._walk(folder)
        # If others have changed meanwhile, these are not copied again.
        names = {n for n in kept.keys() | copied if state[n] == after[1].get(n)}
        pairs = {n: [stamps[n], now[n]] for n in names & now.keys()}
        self._replace_entries(kept, pairs)
        return after == content and pairs.keys() == state.keys() - overlay.keys()

    def _read_content(
        self, folder: str, leaves_out: str
    ) -> tuple[set[str], dict[str, StoredObject], dict[str, bytes]]:
        """What is left out, the objects that count, and contents that replace them."""
        entries, pushes, busy = self._list(folder)
        if leaves_out:
            busy = busy | {leaves_out}
        state = _below(entries, folder, busy)
        overlay: dict[str, bytes] = {}
        for push in pushes.values():
            for name in push.removed if push.is_committed else push.added:
                state.pop(name, None)
            overlay |= _below(push.files, folder, busy)
        return busy, state, overlay

    def _download(self, wanted: dict[str, StoredObject]) -> set[str]:
        """Copies files; returns their names but for those that have changed."""
        if not wanted:
            return set()
        num_bytes = sum(each.size for each in wanted.values())
        free = shutil.disk_usage(self._place).free
        if num_bytes > free:
            raise CheckpointError(
                f"{self.url}: has {num_bytes / 1e9:,.1f} GB to copy to {self._place}, "
                f"and that disk has {free / 1e9:,.1f} GB left; set JAXPT_CACHE to a "
                f"folder on a larger one"
            )
        _log.info(f"{self.url}: copying {len(wanted)} files, {num_bytes / 1e6:,.1f} MB")
        disk.remove(self._place / "download")  # of a process that was killed
        copied = set()
        with self._make_scratch("download") as scratch:
            paths = {name: scratch / str(i) for i, name in enumerate(sorted(wanted))}
            self.store.download(paths)
            for name, path in paths.items():
                if path.exists() and path.stat().st_size == wanted[name].size:
                    target = self.root / name if name else self.root
                    target.parent.mkdir(parents=True, exist_ok=True)
                    disk.rename(path, target)
                    copied.add(name)
        return copied

    def push(self, folder: str, lease: Lease) -> None:
        """Uploads what has changed in a folder, as one commit.

        Subfolders with a lease are left out: their process uploads them.
        """
        lease.check()
        self._finish_push(folder)
        entries, pushes, busy = self._list(folder)
        busy |= {name.removesuffix(PUSH) for name in pushes}  # a killed process's
        entries = _below(entries, folder, busy)
        known = _below(self._read_index()["files"], folder, busy)
        with self._make_scratch(f"upload-{secrets.token_hex(8)}") as scratch:
            files, changed = self._copy_changes(folder, busy, entries, known, scratch)
            removed = (known.keys() & entries.keys()) - files.keys()
            if not changed and not removed:
                return
            added = {n for n in changed if not (scratch / n).exists()}
            self._commit(folder, lease, added, changed - added, removed, scratch)
        now = self.store.list(folder)
        pairs = {name: pair for name, pair in known.items() if name in files}
        pairs |= {n: [now[n].stamp, files[n]] for n in changed & now.keys()}
        with self._exclusive():
            self._replace_entries(known, pairs)

    def _copy_changes(
        self,
        folder: str,
        busy: Iterable[str],
        entries: Mapping[str, StoredObject],
        known: Mapping[str, list[str]],
        scratch: Path,
    ) -> tuple[dict[str, str], set[str]]:
        """The local files, and which have changed; copies these as of one moment.

        New large files are not copied, as they are written once.
        """
        for _ in range(_MAX_TRIES):
            guards, files = self._read_guards(folder), self._walk(folder)
            files = _below(files, folder, busy)
            changed = {
                name
                for name, stamp in files.items()
                if name not in entries
                or known.get(name) != [entries[name].stamp, stamp]
            }
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                for name in changed:
                    if name in entries or not self._is_large(name):
                        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(self.root / name, scratch / name)
                if guards == self._read_guards(folder):
                    return files, changed
            for each in list(scratch.iterdir()):
                disk.remove(each)
            time.sleep(0.1)
        raise CheckpointError(f"{self.root / folder}: changes all the time")

    def _commit(
        self,
        folder: str,
        lease: Lease,
        added: set[str],
        changed: set[str],
        removed: set[str],
        scratch: Path,
    ) -> None:
        """The five steps of an upload; `scratch` has the changed files."""
        place = folder + PUSH
        if added:
            self.store.write(place, _pack(folder, _Push(False, sorted(added), [], {})))
            self.store.upload({name: self.root / name for name in sorted(added)})
        data = {name: (scratch / name).read_bytes() for name in sorted(changed)}
        packed = _pack(folder, _Push(True, [], sorted(removed), data))
        lease.check()
        self.store.write(place, packed)
        self.store.upload({name: scratch / name for name in sorted(changed)})
        self.store.remove([*sorted(removed), place])

    def _finish_push(self, folder: str) -> None:
        """Completes an unfinished upload if it has step 3, else undoes it."""
        data = self.store.read(folder + PUSH)
        if data is None:
            return
        push = _unpack(self.url, folder, data)
        for name, content in push.files.items():
            self.store.write(name, content)
        self.store.remove(push.removed if push.is_committed else push.added)
        self.store.remove([folder + PUSH])

    def _list(
        self, folder: str
    ) -> tuple[dict[str, StoredObject], dict[str, _Push], set[str]]:
        """The objects of a folder, its unfinished uploads, and subfolders with a lease.

        Objects of these subfolders are left out.
        """
        entries = self.store.list(folder)
        busy = find_leased(entries) - {folder}
        entries, pushes = _below(entries, folder, busy, has_hidden=True), {}
        for name in entries:
            if name.rpartition("/")[2] == PUSH:
                if (data := self.store.read(name)) is not None:
                    pushes[name] = _unpack(self.url, name.removesuffix(PUSH), data)
        return entries, pushes, busy

    def _is_large(self, name: str) -> bool:
        # JSON files are small and refer to others.
        is_json = name.endswith((".json", ".jsonl"))
        return not is_json and (self.root / name).stat().st_size > LARGE_BYTES

    def _read_guards(self, folder: str) -> dict[str, str]:
        """The state of all checksums.json: if it is the same, their files fit them."""
        files = self._walk(folder).items()
        return {n: stamp for n, stamp in files if n.endswith("checksums.json")}

    def _walk(self, folder: str) -> dict[str, str]:
        """The local files of a folder; a text of each one's state."""
        files: dict[str, str] = {}
        start = self.root / folder
        if start.is_file():
            return {"": _stamp(start)}
        for place, _, names in os.walk(start):
            for path in (Path(place, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if not path.is_symlink():
                        files[path.relative_to(self.root).as_posix()] = _stamp(path)
        return files

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One process at a time changes the copy from the store, or its index."""
        with lock.hold(self._place / "transfer.lock", lambda: None):
            yield

    @contextlib.contextmanager
    def _make_scratch(self, name: str) -> Iterator[Path]:
        """A temporary folder on the disk of the copy."""
        place = self._place / name
        try:
            place.mkdir(parents=True)
            yield place
        except OSError as error:
            path = error.filename or self.root
            raise CheckpointError(
                f"{self.url}: cannot be copied from or to {path}: {error.strerror}"
            ) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _read_index(self) -> dict:
        with contextlib.suppress(OSError, ValueError):
            return schema.parse(disk.read(self._place / "index.json"), _INDEX)
        return {"id": secrets.token_hex(8), "files": {}}

    def _replace_entries(self, old: Iterable[str], new: Mapping[str, list]) -> None:
        """Replaces entries of the index; the caller has the lock of the copy."""
        index = self._read_index()
        gone = set(old)
        others = {n: p for n, p in index["files"].items() if n not in gone}
        self._write_index(index | {"files": others | dict(new)})

    def _write_index(self, index: dict) -> None:
        self._place.mkdir(parents=True, exist_ok=True)
        disk.replace(self._place / "index.json", json.dumps(index, indent=1).encode())


def _pack(folder: str, push: _Push) -> bytes:
    """The bytes of a .push.zip, whose names are relative to its folder."""
    data, start = io.BytesIO(), len(folder)
    plan = {
        "is_committed": push.is_committed,
        "added": [name[start:] for name in push.added],
        "removed": [name[start:] for name in push.removed],
    }
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("push.json", json.dumps(plan))
        for name, content in push.files.items():
            file.writestr(f"files/{name[start:]}", content)
    return data.getvalue()


def _unpack(url: str, folder: str, data: bytes) -> _Push:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            plan = schema.parse(file.read("push.json"), _PLAN)
            names = [n[6:] for n in file.namelist() if n.startswith("files/")]
            files = {folder + name: file.read(f"files/{name}") for name in names}
        if not all(map(is_plain, (*names, *plan["added"], *plan["removed"]))):
            raise ValueError("a name leaves the folder")
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{url}/{folder}{PUSH}: is damaged ({error}); remove it to continue "
            f"without it"
        ) from None
    added, removed = ([folder + n for n in plan[key]] for key in ("added", "removed"))
    return _Push(plan["is_committed"], added, removed, files)


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


def _below(
    names: Mapping[str, T],
    folder: str,
    busy: Iterable[str],
    has_hidden: bool = False,
) -> dict[str, T]:
    """The items of a folder without those of busy subfolders and without leases.

    Hidden files are left out, too: locks, temporary files, unfinished uploads.
    """
    left_out = tuple(busy)
    return {
        name: value
        for name, value in names.items()
        if name.startswith(folder) and not name.startswith(left_out)
        if not (is_lease(name) if has_hidden else _is_hidden(name))
    }


def _is_hidden(name: str) -> bool:
    return any(part[:1] == "." or _UNFINISHED in part for part in name.split("/"))


def _remove(root: Path, name: str) -> None:
    """Removes a file of a copy, and the folders that become empty."""
    path = root / name if name else root
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if not folder.is_relative_to(root) or folder == root:
            return
        with contextlib.suppress(OSError):
            folder.rmdir()

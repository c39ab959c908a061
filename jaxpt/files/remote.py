"""Folders of an object store, of which each process uses a local copy (a mirror).

A URL is turned into a local path where it enters jaxpt (`fetch`), so locks, memory maps
and atomic renames work as on any disk:

    $JAXPT_CACHE/remote/KEY/NAME          the copy of URL; KEY is a hash of the URL
    $JAXPT_CACHE/remote/KEY/index.json    {"id", "files": {name: [object, file]}}: what
                                          both were when they were last the same

If the store has changed since, the copy becomes what the store has; else the copy is
kept, with work that was not uploaded. A writer holds the local lock and a lease
(`jaxpt.files.lease`), see `jaxpt.files.folder.claim`. An upload is one commit:

    1. .push.zip, with the names of new large files    2. these files
    3. .push.zip, with all other changes, replaces it  4. these changes
    5. .push.zip is removed

A reader ignores the files of 2 until there is 3, and prefers the contents of 3 to what
it finds. So a process that is killed at any time leaves the state before the upload or
the one after it.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import secrets
import shutil
import time
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from jaxpt.errors import CheckpointError, UserError
from jaxpt.files import disk, lock, schema
from jaxpt.files.lease import PREFIX, Lease, LostLease, find_foreign, take
from jaxpt.files.objects import Entry, ObjectStore, is_plain, is_url, normalise

_log = logging.getLogger(__name__)
PUSH = ".push.zip"
LARGE_BYTES = 1 << 16  # new files above this are not in .push.zip
_MAX_TRIES = 20
_INDEX = {"id": str, "files": {str: [str]}}
_PLAN = {"is_committed": bool, "added": [str], "removed": [str]}
_UNFINISHED = ".orbax-checkpoint-tmp"


T = TypeVar("T")


class _Push(NamedTuple):
    """The content of a .push.zip."""

    is_committed: bool
    added: list[str]
    removed: list[str]
    files: dict[str, bytes]


class Mirror:
    """The local copy of a URL.

    Attributes:
      root: the local path.
    """

    def __init__(self, url: str):
        self.store = ObjectStore(url)
        self.url = url
        key = hashlib.sha256(url.encode()).hexdigest()[:16]
        self._place = cache_root() / "remote" / key
        self.root = self._place / url.rpartition("/")[2]

    def pull(
        self, folder: str = "", keeps_work: bool = True, leaves_out: str = ""
    ) -> None:
        """Makes the copy of a folder what the store has, if the store has changed.

        Subfolders that another process writes into are left as they are.

        Args:
          folder: "" or a name with a final slash.
          keeps_work: keep changes that were not uploaded, if the store is as it was.
          leaves_out: a subfolder that is left as it is, with a final slash.

        Raises:
          UserError: the store cannot be read, or changes all the time.
        """
        omitted = {leaves_out} - {""}
        with self._exclusive():
            if self._is_busy(folder):
                return  # its process has the newest files here
            for _ in range(_MAX_TRIES):
                if self._pull(folder, keeps_work, omitted):
                    return
                time.sleep(0.5)
        raise CheckpointError(
            f"{self.url}/{folder}: is changed by another process all the time; repeat "
            f"the command when that has ended"
        )

    def _pull(self, folder: str, keeps_work: bool, omitted: set[str]) -> bool:
        """Whether the copy is up to date, and not that the store changed meanwhile."""
        files, index = self._walk(folder), self._read_index()
        entries, pushes, busy = self._list(folder, files, omitted)
        state, overlay = _resolve(entries, pushes)
        known = _below(index["files"], folder, busy)
        stamps = {name: each.stamp for name, each in state.items()}
        is_same = stamps == {name: pair[0] for name, pair in known.items()}
        if is_same and not overlay and keeps_work:
            return True
        kept = {
            name: pair
            for name, pair in known.items()
            if pair == [stamps.get(name), files.get(name)] and name not in overlay
        }
        # First: a killed download must not pass for work that was not uploaded.
        self._write_index(index, folder, kept, busy)
        wanted = state.keys() - kept.keys() - overlay.keys()
        self._download({name: state[name] for name in wanted})
        for name, data in overlay.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            disk.replace(self.root / name, data)
        for name in _below(files, folder, busy).keys() - state.keys() - overlay.keys():
            _remove(self.root, name)
        if _below(self.store.list(folder), folder, busy) != entries:
            return False
        now = self._walk(folder)
        pairs = {
            name: [stamp, now[name]]
            for name, stamp in stamps.items()
            if name not in overlay and name in now
        }
        self._write_index(index, folder, pairs, busy)
        return True

    def _download(self, wanted: dict[str, Entry]) -> None:
        if not wanted:
            return
        num_bytes = sum(each.size for each in wanted.values())
        _log.info(f"{self.url}: {len(wanted)} files, {num_bytes / 1e6:,.1f} MB to read")
        place = self._place / f"pull-{secrets.token_hex(8)}"
        try:
            paths = {name: place / str(i) for i, name in enumerate(sorted(wanted))}
            self.store.download(paths)
            for name, path in paths.items():
                if path.stat().st_size != wanted[name].size:
                    return  # it has changed, which the caller notices
                target = self.root / name if name else self.root
                target.parent.mkdir(parents=True, exist_ok=True)
                disk.rename(path, target)
        except OSError as error:
            raise CheckpointError(
                f"{self.url}: cannot be copied to {self.root}: {error.strerror}"
            ) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def push(self, folder: str, lease: Lease) -> None:
        """Uploads what has changed in a folder, as one commit.

        Raises:
          UserError: the store cannot be written, or the lease was lost.
        """
        place = self._place / f"push-{secrets.token_hex(8)}"
        try:
            self._push(folder, lease, place)
        except OSError as error:
            raise CheckpointError(
                f"{self.url}/{folder}: cannot be uploaded: {error.strerror}"
            ) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _push(self, folder: str, lease: Lease, place: Path) -> None:
        for _ in range(_MAX_TRIES):
            guards, files = self._read_guards(folder), self._walk(folder)
            entries, pushes, busy = self._list(folder, files)
            state, overlay = _resolve(entries, pushes)
            files, index = _below(files, folder, busy), self._read_index()["files"]
            changed = {
                name
                for name, stamp in files.items()
                if name in overlay
                or name not in state
                or index.get(name) != [state[name].stamp, stamp]
            }
            added = {name for name in changed - entries.keys() if self._is_large(name)}
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                for name in changed - added:
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self.root / name, place / name)
                if guards == self._read_guards(folder):
                    break
            shutil.rmtree(place, ignore_errors=True)
            time.sleep(0.1)
        else:
            raise CheckpointError(f"{self.root / folder}: changes all the time")
        removed = {n for n in entries.keys() - files.keys() if not _is_hidden(n)}
        if not changed and not removed and not pushes:
            return
        self._commit(folder, lease, place, added, changed - added, removed)
        self.store.remove(pushes.keys() - {folder + PUSH})  # of subfolders
        now = self.store.list(folder)
        pairs = {name: pair for name, pair in index.items() if name in files}
        pairs |= {name: [now[name].stamp, files[name]] for name in changed}
        with self._exclusive():
            self._write_index(self._read_index(), folder, pairs, busy)

    def _commit(
        self,
        folder: str,
        lease: Lease,
        place: Path,
        added: set[str],
        changed: set[str],
        removed: set[str],
    ) -> None:
        """The five steps of an upload; `place` has a copy of each changed file."""
        local = {name: name.removeprefix(folder) for name in added | removed | changed}
        names = sorted(local[name] for name in added)
        if added:
            self.store.write(folder + PUSH, _pack(_Push(False, names, [], {})))
            self.store.upload({name: self.root / name for name in sorted(added)})
        gone = sorted(local[name] for name in removed)
        data = {local[name]: (place / name).read_bytes() for name in sorted(changed)}
        packed = _pack(_Push(True, names, gone, data))
        lease.check()
        self.store.write(folder + PUSH, packed)
        self.store.upload({name: place / name for name in sorted(changed)})
        self.store.remove(sorted(removed))
        self.store.remove([folder + PUSH])

    def _list(
        self, folder: str, files: Iterable[str], omitted: Collection[str] = ()
    ) -> tuple[dict[str, Entry], dict[str, _Push], set[str]]:
        """The objects of a folder, its unfinished uploads, and its busy subfolders.

        Objects of busy subfolders, into which another process writes, are left out.
        """
        entries = self.store.list(folder)
        busy = find_foreign(n for n in entries if _is_lease(n)) - {folder}
        folders = {f"{name.rpartition('/')[0]}/" for name in files if "/" in name}
        busy |= {each for each in folders - {folder} if self._is_busy(each)}
        busy |= set(omitted)
        entries, pushes = _below(entries, folder, busy), {}
        for name in entries:
            if name.rpartition("/")[2] == PUSH:
                data = self.store.read(name)
                if data is not None:
                    pushes[name] = _unpack(self.url, name, data)
        return entries, pushes, busy

    def _is_large(self, name: str) -> bool:
        # JSON files are small and refer to others.
        is_json = name.endswith((".json", ".jsonl"))
        try:
            return not is_json and (self.root / name).stat().st_size > LARGE_BYTES
        except FileNotFoundError:
            return False

    def _read_guards(self, folder: str) -> dict[str, str]:
        """The state of all checksums.json: if it is the same, their files fit them."""
        return {
            n: s for n, s in self._walk(folder).items() if n.endswith("checksums.json")
        }

    def _walk(self, folder: str) -> dict[str, str]:
        """The local files of a folder that are not hidden; a text of each one's state."""
        files: dict[str, str] = {}
        start = self.root / folder
        if start.is_file():
            return {"": _stamp(start)}
        for place, folders, names in os.walk(start):
            folders[:] = [name for name in folders if not _is_hidden(name)]
            for name in names:
                path = Path(place, name)
                relative = path.relative_to(self.root).as_posix()
                with contextlib.suppress(FileNotFoundError):
                    if not _is_hidden(name) and not path.is_symlink():
                        files[relative] = _stamp(path)
        return files

    def _is_busy(self, folder: str) -> bool:
        place = self.root / folder
        if os.path.realpath(place) in _writing:
            return False
        return lock.is_held(place / ".lock")

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One process at a time changes the copy from the store, or its index."""
        with lock.hold(self._place / "transfer.lock", lambda: None):
            yield

    @property
    def id(self) -> str:
        """The id of this copy, which is different on each machine."""
        with self._exclusive():
            index = self._read_index()
            if not (self._place / "index.json").exists():
                self._store_index(index)
        return index["id"]

    def _read_index(self) -> dict:
        with contextlib.suppress(OSError, ValueError):
            return schema.parse(disk.read(self._place / "index.json"), _INDEX)
        return {"id": secrets.token_hex(8), "files": {}}

    def _write_index(
        self, index: dict, folder: str, pairs: dict, busy: Collection[str]
    ) -> None:
        """Replaces the entries of a folder, except those of busy subfolders."""
        replaced = _below(index["files"], folder, busy)
        others = {n: p for n, p in index["files"].items() if n not in replaced}
        index["files"] = others | _below(pairs, folder, busy)
        self._store_index(index)

    def _store_index(self, index: dict) -> None:
        self._place.mkdir(parents=True, exist_ok=True)
        disk.replace(self._place / "index.json", json.dumps(index, indent=1).encode())


_mirrors: dict[str, Mirror] = {}  # by URL
_writing: dict[str, tuple[Mirror, str, Lease]] = {}  # by local folder, held here


def cache_root() -> Path:
    """$JAXPT_CACHE or ~/.cache/jaxpt."""
    root = os.environ.get("JAXPT_CACHE", "")
    return Path(root).absolute() if root else Path.home() / ".cache" / "jaxpt"


def fetch(path: str | os.PathLike) -> Path:
    """The local path of a file or folder; of a URL the copy, brought up to date.

    The last parts may have wildcards, which are kept.

    Raises:
      UserError: the store cannot be read.
    """
    if not is_url(path):
        return Path(path)
    # With wildcards, the copy is of the folder before the first of them.
    url, pattern = normalise(path), ""
    if match := re.search(r"[*?[]", url):
        url, _, rest = url[: match.start()].rpartition("/")
        pattern = rest + normalise(path)[match.start() :]
    place = next(
        (
            mirror.root / url[len(mirror.url) + 1 :]
            for mirror, folder, _ in list(_writing.values())
            if f"{url}/".startswith(f"{mirror.url}/{folder}")
        ),
        None,
    )
    if place is None:  # else this process writes it
        mirror = _find_mirror(url)
        mirror.pull()
        place = mirror.root
    return place / pattern if pattern else place


def open_folder(path: str | os.PathLike, leaves_out: str = "") -> Path:
    """As `fetch`, for a folder that jaxpt writes.

    Args:
      leaves_out: a subfolder that is not brought up to date.

    Raises:
      UserError: the store cannot be read, or has other files there.
    """
    if not is_url(path):
        return Path(path)
    mirror = _find_mirror(normalise(path))
    _check_is_ours(mirror, "")
    mirror.pull(leaves_out=leaves_out and f"{leaves_out}/")
    return mirror.root


def discard_work(folder: Path) -> None:
    """Makes a copy what the store has, without changes that were not uploaded."""
    if located := _locate(folder):
        located[0].pull(located[1], keeps_work=False)


def name(path: str | os.PathLike) -> str:
    """The URL of a local copy, or of a part of it; any other path as it is."""
    return describe(os.fspath(path))


def describe(text: str) -> str:
    """A text with URLs in the place of the paths of local copies."""
    for url, mirror in _mirrors.items():
        text = text.replace(str(mirror.root), url)
    return text


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a local path is a copy, or a part of one."""
    return _locate(path) is not None


@contextlib.contextmanager
def hold(folder: Path, waits: bool) -> Iterator[bool]:
    """Holds the lease of a copy's folder, of which the caller has the local lock.

    Brings the folder up to date at the start, and uploads it at the end. Does nothing
    for other folders.

    Args:
      waits: as of `lease.take`.

    Yields:
      False if another process holds the lease.

    Raises:
      UserError: the store cannot be read or written; or the folder has files that jaxpt
        has not written.
    """
    located = _locate(folder)
    if located is None:
        yield True
        return
    mirror, inner = located
    _check_is_ours(mirror, inner)
    lease = take(mirror.store, inner, mirror.id, waits)
    if lease is None:
        yield False
        return
    key = os.path.realpath(folder)
    _writing[key] = mirror, inner, lease
    try:
        mirror.pull(inner)
        try:
            yield True
        except BaseException:
            with contextlib.suppress(LostLease):
                _push_quietly(mirror, inner, lease)
            raise
        try:
            mirror.push(inner, lease)
        except UserError as error:
            raise type(error)(f"{error}; all files are kept in the cache") from error
    finally:
        del _writing[key]
        with contextlib.suppress(UserError):  # then it becomes stale
            lease.release()


@contextlib.contextmanager
def hold_output(folder: Path) -> Iterator[None]:
    """As `hold`, for a folder of which the caller has no lock; waits for others."""
    if not is_remote(folder):
        yield
        return
    path = folder.with_name(f".{folder.name}.lock")
    with lock.hold(path, lambda: None), hold(folder, waits=True) as is_ours:
        if not is_ours:
            raise CheckpointError(
                f"--to={name(folder)}: another process is writing into this folder; "
                f"wait until it has ended, or use another folder"
            )
        yield


def upload_new(path: Path, url: str) -> None:
    """Uploads a file as a new object.

    Raises:
      UserError: the object exists, or the store cannot be written.
    """
    check_new(url)
    ObjectStore(normalise(url)).upload({"": path})


def check_new(url: str) -> None:
    """Raises UserError if there is an object at a URL."""
    if ObjectStore(normalise(url)).list():
        raise CheckpointError(f"--to={url}: exists already; must be a new file")


def push(path: Path) -> None:
    """Uploads the innermost folder around a path that this process holds.

    An upload that fails is a warning: the next one has its files, too, and the one at
    the end raises.

    Raises:
      LostLease: another process has taken over the folder.
    """
    start = Path(os.path.realpath(path))
    for place in (start, *start.parents):
        if found := _writing.get(str(place)):
            _push_quietly(*found)
            return


def _push_quietly(mirror: Mirror, folder: str, lease: Lease) -> None:
    try:
        mirror.push(folder, lease)
    except LostLease:
        raise
    except UserError as error:
        _log.warning(f"{error}; not uploaded yet, and kept in the cache")


def _check_is_ours(mirror: Mirror, folder: str) -> None:
    entries = {n: e for n, e in mirror.store.list(folder).items() if not _is_lease(n)}
    markers = ("checksums.json", PUSH, "config.json", "compare.json")
    if entries and not any(n.rpartition("/")[2] in markers for n in entries):
        raise CheckpointError(
            f"{mirror.url}/{folder}: holds other files, such as {min(entries)}; use "
            f"another folder"
        )


def _find_mirror(url: str) -> Mirror:
    if url not in _mirrors or _mirrors[url].root.parents[2] != cache_root():
        _mirrors[url] = Mirror(url)
    return _mirrors[url]


def _locate(path: str | os.PathLike) -> tuple[Mirror, str] | None:
    place = Path(os.path.abspath(path))
    for mirror in _mirrors.values():
        if place.is_relative_to(mirror.root):
            inner = place.relative_to(mirror.root).as_posix()
            return mirror, "" if inner == "." else f"{inner}/"
    return None


def _resolve(
    entries: dict[str, Entry], pushes: dict[str, _Push]
) -> tuple[dict[str, Entry], dict[str, bytes]]:
    """The files of a folder in the store, and contents that replace or join them."""
    state = {n: each for n, each in entries.items() if not _is_hidden(n)}
    overlay: dict[str, bytes] = {}
    for each in pushes.values():
        for name in each.removed if each.is_committed else each.added:
            state.pop(name, None)
        overlay |= each.files
    return state, overlay


def _pack(push: _Push) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        plan = {k: v for k, v in push._asdict().items() if k != "files"}
        file.writestr("push.json", json.dumps(plan))
        for name, content in push.files.items():
            file.writestr(f"files/{name}", content)
    return data.getvalue()


def _unpack(url: str, place: str, data: bytes) -> _Push:
    """The content of an unfinished upload; names are those below the URL."""
    folder = place.removesuffix(PUSH)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            plan = schema.parse(file.read("push.json"), _PLAN)
            names = [name for name in file.namelist() if name.startswith("files/")]
            files = {folder + name[len("files/") :]: file.read(name) for name in names}
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{url}/{place}: is damaged ({error}); remove it to continue without it"
        ) from None
    for name in files:
        if not is_plain(name):
            raise CheckpointError(f"{url}/{place}: {name!r} is not a file's name")
    added, removed = ([folder + n for n in plan[key]] for key in ("added", "removed"))
    return _Push(plan["is_committed"], added, removed, files)


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


def _is_lease(name: str) -> bool:
    return name.rpartition("/")[2].startswith(PREFIX)


def _is_hidden(name: str) -> bool:
    """Whether a file is of this machine only: a lock, a temporary file, a lease."""
    return any(part[:1] == "." or _UNFINISHED in part for part in name.split("/"))


def _below(names: Mapping[str, T], folder: str, busy: Iterable[str]) -> dict[str, T]:
    """The items of a folder, without leases and without those of busy subfolders."""
    left_out = tuple(busy)
    return {
        name: value
        for name, value in names.items()
        if name.startswith(folder) and not name.startswith(left_out)
        if not _is_lease(name)
    }


def _remove(root: Path, name: str) -> None:
    """Removes a file of a copy, and the folders that become empty."""
    path = root / name if name else root
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if not folder.is_relative_to(root) or folder == root:
            return
        with contextlib.suppress(OSError):
            folder.rmdir()

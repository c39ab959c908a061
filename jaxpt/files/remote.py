"""Paths on object stores (`objects.SCHEMES`: gs://, s3:// and others).

A URL becomes the path of a local copy where it enters jaxpt (`fetch`;
`jaxpt.files.mirror`), so locks, memory maps and atomic renames work as on any disk. A
folder that is written is held by its local lock and a lease (`jaxpt.files.lease`), and
uploaded after each checkpoint and at the end (`jaxpt.files.folder.claim`). Where a path
leaves jaxpt, in messages and JSON files, `copies.with_urls` puts the URL back.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jaxpt.by_name import load_place
from jaxpt.errors import CheckpointError, LostLease, UserError, argument
from jaxpt.files import copies, lock
from jaxpt.trust import is_url, normalise

if TYPE_CHECKING:
    from jaxpt.files.lease import Lease
    from jaxpt.files.mirror import Mirror
    from jaxpt.files.objects import ObjectStore

_log = logging.getLogger(__name__)
_mirrors: "dict[str, Mirror]" = {}  # by URL
_writing: "dict[str, tuple[Mirror, str, Lease]]" = {}  # by local folder, held here


def cache_root() -> Path:
    """$JAXPT_CACHE or ~/.cache/jaxpt."""
    root = os.environ.get("JAXPT_CACHE", "")
    return Path(root).absolute() if root else Path.home() / ".cache" / "jaxpt"


def fetch(path: str | os.PathLike, leaves_out: str = "") -> Path:
    """The local path of a file or folder; of a URL the copy, brought up to date.

    The last parts may have wildcards, which are kept.

    Args:
      leaves_out: a subfolder of a URL that is not brought up to date.
    """
    if not is_url(path):
        return Path(path)
    # With wildcards, the copy is of the folder before the first of them.
    url, pattern = normalise(str(path)), ""
    if match := re.search(r"[*?[]", url):
        pattern = url[url.rindex("/", 0, match.start()) + 1 :]
        url = normalise(url[: -len(pattern)])
    # Also of a copy that an earlier call of this process has made.
    load_place("jaxpt.files.objects:check_url")(url)
    for mirror, folder, _ in list(_writing.values()):  # this process has the newest
        if f"{url}/".startswith(f"{mirror.url}/{folder}"):
            return mirror.root / url[len(mirror.url) + 1 :] / pattern
    mirror = _find_mirror(url)
    mirror.pull(leaves_out=leaves_out and f"{leaves_out}/")
    return mirror.root / pattern


def localise(path: str) -> str:
    """As `fetch`, of a text; a local path stays as it is."""
    return str(fetch(path)) if is_url(path) else path


def discard_work(folder: Path) -> None:
    """Makes a copy what the store has, without changes that were not uploaded."""
    if located := _locate(folder):
        located[0].pull(located[1], keeps_work=False)


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a local path is a copy, or a part of one."""
    return _locate(path) is not None


@contextlib.contextmanager
def hold(folder: Path, waits: bool) -> Iterator[bool]:
    """Holds the lock and the lease of a copy's folder; waits for the lock.

    Brings the folder up to date at the start, and uploads it at the end. Does nothing
    for other folders.

    Args:
      waits: as of `lease.take`.

    Yields:
      False if another process holds the lease.
    """
    located = _locate(folder)
    if located is None:
        yield True
        return
    mirror, inner = located
    with lock.hold(mirror.writer_lock(inner), lambda: None):
        take = load_place("jaxpt.files.lease:take")
        lease = take(mirror.store, inner, mirror.id, waits)
        if lease is None:
            yield False
            return
        with _upload_at_end(folder, mirror, inner, lease):
            yield True


@contextlib.contextmanager
def _upload_at_end(
    folder: Path, mirror: "Mirror", inner: str, lease: "Lease"
) -> Iterator[None]:
    key = os.path.realpath(folder)
    try:
        mirror.pull(inner, lease=lease)
        _writing[key] = mirror, inner, lease
        try:
            yield
        except BaseException:
            with contextlib.suppress(LostLease):
                push(folder)
            raise
        try:
            mirror.push(inner, lease)
        except UserError as error:
            raise type(error)(f"{error}; all files are kept in the cache") from error
    finally:
        _writing.pop(key, None)
        with contextlib.suppress(UserError):  # then it becomes stale
            lease.release()


@contextlib.contextmanager
def hold_output(folder: Path) -> Iterator[None]:
    """As `hold`, but raises CheckpointError if another process holds the lease."""
    with hold(folder, waits=True) as is_ours:
        if not is_ours:
            raise CheckpointError(
                f"{argument('to')}={copies.with_urls(folder)}: another process is "
                "writing into this folder; wait until it has ended, or use another "
                "folder"
            )
        yield


def push(path: Path) -> None:
    """Uploads the innermost folder around a path that this process holds.

    An upload that fails is a warning: its files are in the next one, too, and the last
    one raises.

    Raises:
      LostLease: another process has taken over the folder.
    """
    start = Path(os.path.realpath(path))
    for place in (start, *start.parents):
        if str(place) not in _writing:
            continue
        mirror, folder, lease = _writing[str(place)]
        try:
            mirror.push(folder, lease)
        except LostLease:
            raise
        except UserError as error:
            _log.warning(f"{error}; not uploaded yet, and kept in the cache")
        return


def check_new(url: str) -> None:
    """Raises UserError if there is an object at a URL."""
    if _open_store(url).list():
        raise CheckpointError(
            f"{argument('to')}={url}: exists already; must be a new file"
        )


def upload(path: Path, url: str) -> None:
    """Uploads a file."""
    _open_store(url).upload({"": path})


def _open_store(url: str) -> "ObjectStore":
    return load_place("jaxpt.files.objects:ObjectStore")(normalise(url))


def _find_mirror(url: str) -> "Mirror":
    if url not in _mirrors or _mirrors[url].cache != cache_root():
        _mirrors[url] = load_place("jaxpt.files.mirror:Mirror")(url, cache_root())
        copies.ROOTS[url] = str(_mirrors[url].root)
    return _mirrors[url]


def _locate(path: str | os.PathLike) -> "tuple[Mirror, str] | None":
    place = Path(os.path.abspath(path))
    for mirror in _mirrors.values():
        if place.is_relative_to(mirror.root):
            inner = place.relative_to(mirror.root).as_posix()
            return mirror, "" if inner == "." else f"{inner}/"
    return None

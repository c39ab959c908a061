"""A cache of the sha256 of files, which is valid until a file is modified.

The content of a file can change while its size and modification time stay the same. So
the cache compares the file's metadata, including the time of the inode's last change
(ctime), which users cannot set.
"""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from jaxpt.files import disk, schema
from jaxpt.text.sources.files import hash_file, reading

# A file modified more recently than this may be modified again without a change of its
# times, as file systems round them to milliseconds, or to 2 s (FAT).
STABLE_NS = 3_000_000_000
_FORM = {"sha256": str, "files": {str: [object]}}


def stamp(file: Path) -> list[int]:
    """Metadata that change with a file: size, mtime_ns, ctime_ns and inode."""
    with reading(file):
        stat = os.stat(file)
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


class Hashes:
    """A cache of file hashes; calling it with a file returns its sha256 in hex.

    Args:
      path: the cache's JSON file, which `save` writes; a damaged one is replaced.
    """

    def __init__(self, path: Path):
        self._path = path
        self._known = _read(path)
        self._requested: dict[str, list] = {}

    def __call__(self, file: Path) -> str:
        """The sha256 of a file's bytes, in hex."""
        name, before, now = os.path.abspath(file), stamp(file), time.time_ns()
        known = self._known.get(name)
        if known and known[:-1] == before:
            self._requested[name] = known
            return known[-1]
        digest = hash_file(file)
        if stamp(file) == before and now - before[2] > STABLE_NS:
            self._requested[name] = [*before, digest]
        return digest

    def save(self) -> None:
        """Writes the hashes of the files that were requested, if possible."""
        if self._requested == self._known:
            return
        body = {"files": self._requested}
        data = json.dumps({"sha256": _sum(body), **body}).encode("ascii")
        # If this fails, the files are merely hashed again next time.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            disk.replace(self._path, data)


def _sum(body: dict) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, list]:
    """Reads the cached hashes; {} if the cache file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        body = schema.parse(disk.read(path), _FORM)
        if body.pop("sha256") == _sum(body):
            return body["files"]
    return {}

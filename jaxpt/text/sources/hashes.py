"""A cache of the sha256 of files, valid while a file is not modified.

Only a file's content identifies its text: its size and modification time can stay the
same while the content changes. As reading a large file takes time, its hash is cached
with the file's metadata, which include the time of the inode's last change (ctime),
which no user can set.
"""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from jaxpt.files import disk
from jaxpt.text.sources.files import hash_file, reading

# A file modified more recently than this may be modified again without a change of its
# times, as file systems round them to milliseconds, or to 2 s (FAT).
STABLE_NS = 3_000_000_000


def stamp(file: Path) -> list[int]:
    """Metadata that change whenever a file does: size, mtime_ns, ctime_ns and inode.

    Raises:
      UserError: the file is missing or its metadata cannot be read.
    """
    with reading(file):
        found = os.stat(file)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


class Hashes:
    """A cache of file hashes; calling it with a file returns its sha256 in hex.

    Args:
      path: the cache's JSON file, with each file's stamp and sha256 and a checksum. It
        is written by `save`; a damaged one is ignored and replaced.
    """

    def __init__(self, path: Path):
        self._path = path
        self._known = _read(path)
        self._found: dict[str, list] = {}

    def __call__(self, file: Path) -> str:
        """The sha256 of a file's bytes, in hex.

        Raises:
          UserError: the file cannot be read.
        """
        name, before, now = os.path.abspath(file), stamp(file), time.time_ns()
        known = self._known.get(name)
        if known and known[:-1] == before:
            self._found[name] = known
            return known[-1]
        digest = hash_file(file)
        if stamp(file) == before and now - before[2] > STABLE_NS:
            self._found[name] = [*before, digest]
        return digest

    def save(self) -> None:
        """Writes the hashes of the files asked for, and no others, if possible."""
        if self._found == self._known:
            return
        body = {"files": self._found}
        data = json.dumps({"sha256": _sum(body), **body}).encode("ascii")
        # If this fails, the files are merely hashed again next time.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            disk.replace(self._path, data)


def _sum(body: dict) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, list]:
    """The cached hashes; none if the cache file is missing or damaged."""
    faults = (OSError, ValueError, LookupError, AttributeError, TypeError)
    with contextlib.suppress(*faults, RecursionError):
        body = json.loads(path.read_bytes())
        if body.pop("sha256") == _sum(body):
            return body["files"]
    return {}

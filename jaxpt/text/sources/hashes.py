"""The sha256 of files, remembered for as long as nobody has touched them.

What a file holds is the only thing that says which text it is: size and time of change
can be kept while the content is another. Reading a large file for that takes time, so
its hash is noted with what the system says of it, where the time of the last change of
the inode (ctime) is among it, which no user can set.
"""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from jaxpt import disk
from jaxpt.text.sources.files import hash_file, reading

# A file that was touched no longer ago than this may be touched again without that its
# times tell: the system counts them in steps of milliseconds, or of 2 s (FAT).
SETTLED_NS = 3_000_000_000


def stamp(file: Path) -> list[int]:
    """What changes whenever a file does: its size, mtime_ns, ctime_ns and inode.

    Raises:
      UserError: it is missing or cannot be asked for.
    """
    with reading(file):
        found = os.stat(file)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


class Hashes:
    """Hashes of files; called with a file it gives its sha256 in hex.

    Args:
      path: where they are remembered, JSON: each file's stamp and sha256, with a
        checksum. It is written by `save`; if it is damaged, it is made again.
    """

    def __init__(self, path: Path):
        self._path = path
        self._known = _read(path)
        self._found: dict[str, list] = {}

    def __call__(self, file: Path) -> str:
        """The sha256 of a file's bytes, in hex.

        Raises:
          UserError: it cannot be read.
        """
        name, before, now = os.path.abspath(file), stamp(file), time.time_ns()
        known = self._known.get(name)
        if known and known[:-1] == before:
            self._found[name] = known
            return known[-1]
        digest = hash_file(file)
        if stamp(file) == before and now - before[2] > SETTLED_NS:
            self._found[name] = [*before, digest]
        return digest

    def save(self) -> None:
        """Remembers the files asked for, and no others, if it can."""
        if self._found == self._known:
            return
        body = {"files": self._found}
        data = json.dumps({"sha256": _sum(body), **body}).encode("ascii")
        # Without it, files are only read once more.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            disk.replace(self._path, data)


def _sum(body: dict) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, list]:
    """What was remembered; nothing where that is missing or damaged."""
    faults = (OSError, ValueError, LookupError, AttributeError, TypeError)
    with contextlib.suppress(*faults, RecursionError):
        body = json.loads(path.read_bytes())
        if body.pop("sha256") == _sum(body):
            return body["files"]
    return {}

"""Finds the files of a path: one file, a glob, a folder, an archive or a part of it."""

import glob
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jaxpt.errors import DataError
from jaxpt.files.remote import localise
from jaxpt.text.sources.files import open_archive, reading, split_suffixes, unpack_whole
from jaxpt.text.sources.leftovers import is_leftover
from jaxpt.text.sources.reading import Reading

MAX_NAMED = 5  # files or folders in a message
TARS = ".tar, .tar.xz, .tar.gz, .tar.bz2 or .tgz"


@dataclass(frozen=True)
class File:
    """A file, or a file of an archive.

    Attributes:
      name: independent of the location of the files.
      path: of the file; of an archive's, the archive's path with its name added.
      label: of its text, or "".
      inside: of an archive, the folder or file whose files are read; "" for all.
      data: of an archive's file, its bytes, decompressed.
      start, stop: the bytes of a piece of the file (`jaxpt.text.sources.spans`); a stop
        of None is the whole file.
    """

    name: str
    path: Path
    label: str = ""
    inside: str = ""
    data: bytes | None = None
    start: int = 0
    stop: int | None = None


def is_archive(path: Path) -> bool:
    """Whether a file is a tar archive, by its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return ".tar" in suffixes or suffixes[-1:] in ([".tgz"], [".txz"], [".tbz2"])


def find_files(path: str, how: Reading) -> tuple[list[File], list[str]]:
    """The files of a path, sorted by name, and the names of those that are not read.

    An archive is one file (`open_files`).
    """
    if "\0" in path:
        raise DataError(f"{how.setting or 'path='}{path!r}: a path cannot hold a NUL")
    path = localise(path)
    place = Path(path)
    if os.path.isdir(path):
        return _list_folder(place, how)
    if re.search(r"[*?[]", path) and not os.path.lexists(path):
        return _list_glob(path, how.setting)
    archive = next((p for p in place.parents if os.path.isfile(p)), None)
    if archive is None:
        return [File(place.name, place)], []
    if not is_archive(archive):
        raise DataError(f"{how.setting}{path}: {archive} is not an archive ({TARS})")
    inside = place.relative_to(archive).as_posix()
    return [File(f"{archive.name}/{inside}", archive, inside=inside)], []


def list_names(names: list[str]) -> str:
    """Names for a message, of which some are left out if there are many."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _list_folder(root: Path, how: Reading) -> tuple[list[File], list[str]]:
    files, skipped = [], []
    with reading(root, how.setting):
        for folder, _, names in os.walk(root, onerror=_raise):
            for path in (Path(folder, name) for name in names):
                name = path.relative_to(root).as_posix()
                if _is_data(name, how.suffixes):
                    files.append(File(name, path))
                else:
                    skipped.append(name)
    if not files and how.is_strict:
        allowed = f"{', '.join(how.suffixes[:-1])} or {how.suffixes[-1]}"
        raise DataError(
            f"{how.setting}{root}: the folder has no {allowed} file; for others name "
            f"them, as {root}/*"
        )
    if not files:
        raise DataError(_describe_none(str(root), sorted(skipped), how))
    return sorted(files, key=lambda file: file.name), sorted(skipped)


def _describe_none(place: str, skipped: list[str], how: Reading) -> str:
    allowed = f": files must be {', '.join(how.suffixes)}" if how.suffixes else ""
    note = f"; skipped {list_names(skipped)}{allowed}" if skipped else ""
    return f"{how.setting}{place}: {how.nothing}{note}"


def _raise(error: OSError) -> None:
    raise error


def _is_data(name: str, suffixes: tuple[str, ...]) -> bool:
    has_suffix = not suffixes or split_suffixes(Path(name))[0] in suffixes
    return has_suffix and not is_leftover(name)


def _list_glob(pattern: str, setting: str) -> tuple[list[File], list[str]]:
    # Names are relative to the last folder before the first wildcard.
    root = os.path.dirname(re.split(r"[*?[]", pattern, maxsplit=1)[0])
    files, skipped = [], []
    for path in set(glob.glob(pattern, recursive=True)):
        if os.path.isfile(path):
            name = Path(os.path.relpath(path, root or ".")).as_posix()
            if is_leftover(name, os.path.basename(pattern)):
                skipped.append(name)
            else:
                files.append(File(name, Path(path)))
    if not files:
        also = f", but for {', '.join(sorted(skipped)[:3])}" if skipped else ""
        raise DataError(f"{setting}{pattern}: no file matches{also}")
    return sorted(files, key=lambda file: file.name), sorted(skipped)


def open_files(file: File, how: Reading) -> Iterator[File]:
    """The file itself, or the files of an archive, sorted by name."""
    if not is_archive(file.path):
        yield file
        return
    try:
        with open_archive(file.path) as archive:
            yield from _open_members(archive, file, how)
    except (OSError, tarfile.TarError, lzma.LZMAError, EOFError, zlib.error) as error:
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        reason = getattr(error, "strerror", None) or reason
        raise DataError(f"{how.setting}{file.path}: cannot be read: {reason}") from None


def _open_members(archive: tarfile.TarFile, file: File, how: Reading) -> Iterator[File]:
    files = {
        member.name.removeprefix("./"): member
        for member in archive.getmembers()
        if member.isfile()
    }
    inside = file.inside and f"{file.inside}/"
    named = [name for name in sorted(files) if f"{name}/".startswith(inside)]
    if files and not named:
        folders = sorted({name.rpartition("/")[0] or name for name in files})
        raise DataError(
            f"{how.setting}{file.path}/{file.inside}: the archive has no such folder; "
            f"it has {list_names(folders)}"
        )
    skipped = []
    for name in named:
        raw = archive.extractfile(files[name]) if _is_data(name, how.suffixes) else None
        if raw is None:
            skipped.append(name)
            continue
        path = file.path / name
        data = unpack_whole(raw.read(), path, how.setting)
        yield File(f"{file.path.name}/{name}", path, data=data)
    if len(skipped) == len(named):
        raise DataError(_describe_none(str(file.path / file.inside), skipped, how))

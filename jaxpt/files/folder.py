"""A run's folder: one writing process, JSON files with checksums, stored configs."""

import contextlib
import errno
import json
import logging
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NoReturn

from jaxpt.distributed import processes
from jaxpt.errors import CheckpointError, DeviceError, argument
from jaxpt.files import checksums, copies, disk, lock, remote, schema
from jaxpt.version import __version__

LOCK = ".lock"
READABLE = ("0.2",)  # the versions whose stored configs this one reads
REPORT = "runs.json"  # in the folder of a report: the runs that it compares
# In a folder that `new_folder` writes: its files so far, then the names of all.
PARTIAL, MOVED = ".partial", ".partial.json"
CHECKPOINTS = "checkpoints"
# Of a stored config; `jaxpt.config` checks the settings of its sections.
CONFIG = {"version?": str, "objective?": str, str: {str: object}}

_held: set[Path] = set()  # locked by this process
_warned: set[Path] = set()  # warned about missing checksums


class _HeldElsewhere(Exception):
    """Another process has locked the folder."""


@contextlib.contextmanager
def hold(workdir: Path, name: str = "workdir") -> Iterator[None]:
    """Locks a folder for writing; reentrant. Reading needs no lock.

    Of several processes of a run, process 0 holds the lock.

    Args:
      name: of the argument that names the folder, for errors.
    """

    def refuse() -> NoReturn:
        raise CheckpointError(
            f"{argument(name)}={workdir}: another process is writing into this folder; "
            "wait until it has ended, or use another folder"
        )

    with claim(workdir, waits=True) as is_ours:
        if not is_ours:
            processes.on_first(refuse)
        yield


@contextlib.contextmanager
def claim(workdir: Path, waits: bool = False) -> Iterator[bool]:
    """Like `hold`, but yields False if another process holds the lock.

    The copy of a folder of an object store also needs its lease, is brought up to date,
    and is uploaded at the end (`jaxpt.files.remote`).

    The lock is the system's (`flock`) and ends with the process, even a killed one. On
    a shared disk the file server releases the locks of a lost machine; NFS 4, Lustre
    mounted with `flock`, GPFS and CephFS do.

    Args:
      waits: for up to a minute, to see whether the process that has the lease is alive.
    """
    with contextlib.ExitStack() as stack:
        yield processes.on_first(_take, workdir, stack, waits)


def _take(workdir: Path, stack: contextlib.ExitStack, waits: bool) -> bool:
    """Locks the folder until the stack is closed; False if another process has it."""
    place = Path(os.path.realpath(workdir))

    def give_up() -> NoReturn:
        raise _HeldElsewhere

    if remote.is_remote(workdir) and not processes.is_alone():
        raise DeviceError(
            f"{copies.with_urls(workdir)}: cannot be used by several processes of one "
            f"run, which must share a file system; use a disk that all of them mount, "
            f"such as NFS"
        )
    if place in _held:
        stack.callback(remote.push, workdir)
        return True
    try:
        stack.enter_context(lock.hold(workdir / LOCK, give_up))
    except _HeldElsewhere:
        return False
    _held.add(place)
    stack.callback(_held.discard, place)
    if not stack.enter_context(remote.hold(workdir, waits)):
        return False
    refuse_links(workdir)
    disk.sweep(workdir)
    _remove_remains(workdir)
    return True


def refuse_links(workdir: Path) -> None:
    """Refuses a folder through which files elsewhere could be written.

    The folder itself may be a link. In it, a link in the place of a file is allowed,
    because it is replaced and never followed (`jaxpt.files.disk`).
    """
    for path in disk.find_irregular(workdir):
        reason = "is a link, and links are not followed; put the folder itself there"
        if not path.is_symlink():
            reason = "is neither a file nor a folder; remove it"
        place = f"{copies.with_urls(workdir)}: {path.relative_to(workdir)}"
        raise CheckpointError(f"{argument('workdir')}={place} {reason}")


@contextlib.contextmanager
def new_folder(folder: Path, name: str = "to") -> Iterator[Path]:
    """Yields a place for the content of a new folder, which is moved there at the end.

    If the process is killed or fails, the folder is new to the next one that locks it,
    which removes what is left. So the same command can be repeated.

    Args:
      folder: missing or empty.
      name: of the argument that names it, for errors.
    """

    def refuse() -> NoReturn:
        raise CheckpointError(
            f"{argument(name)}={folder}: must be a new or an empty folder"
        )

    remote.discard_work(folder)
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    has_others = names - {LOCK} and not names & {PARTIAL, MOVED}
    if has_others or (os.path.lexists(folder) and not os.path.isdir(folder)):
        refuse()  # before a lock is written there
    with hold(folder, name):
        if not is_new(folder):
            refuse()
        place = folder / PARTIAL
        try:
            with _writing(folder, name):
                place.mkdir()
            yield place
            with _writing(folder, name):
                made = sorted(os.listdir(place))
                disk.replace(folder / MOVED, json.dumps(made).encode())
                disk.move(place, folder, made)
                place.rmdir()
                (folder / MOVED).unlink()  # last: now the folder is complete
        except BaseException:
            with contextlib.suppress(OSError):  # the next one removes the rest
                _remove_remains(folder)
            raise


@contextlib.contextmanager
def replaced_folder(
    folder: Path, marker: str, own: Collection[str] | None = None, name: str = "to"
) -> Iterator[Path]:
    """Yields a place for the content of a folder, which takes its place at the end.

    If the process is killed or fails, the folder has its earlier content, or the new
    one if all of it was written; the same command can be repeated.

    Args:
      folder: missing, empty, or with the content of an earlier call.
      marker: as of `check_output`.
      own: names of the files that the content has or may have; others of an earlier
        folder are kept. None: nothing is kept.
      name: of the argument that names the folder, for errors.
    """
    check_output(folder, marker)  # before a lock is written there
    real = Path(os.path.realpath(folder))
    place, aside = (real.with_name(f".{real.name}.{x}") for x in ("partial", "earlier"))
    with hold(folder, name):
        with _writing(folder, name):
            _restore(aside, real)
            disk.remove(place)  # of a process that was killed
            check_output(folder, marker)
            place.mkdir()
        try:
            yield place
            with _writing(folder, name):
                for path in real.iterdir():
                    is_kept = own is not None and path.name not in own
                    if path.name == LOCK or is_kept:
                        disk.link(path, place / path.name)
                disk.flush(place)
                _exchange(place, real, aside)
                disk.flush(real.parent)
        finally:
            with contextlib.suppress(OSError):  # the next one removes the rest
                disk.remove(place)
                disk.remove(aside)


def _exchange(place: Path, folder: Path, aside: Path) -> None:
    """Exchanges a folder with its new content; by two renames where it must be."""
    try:
        disk.exchange(place, folder)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise
        disk.rename(folder, aside)
        disk.rename(place, folder)


def _restore(aside: Path, folder: Path) -> None:
    """Puts an earlier folder back if a process was killed between two renames."""
    if aside.is_dir() and is_new(folder):
        disk.move(aside, folder, sorted(set(os.listdir(aside)) - {LOCK}))
    disk.remove(aside)


@contextlib.contextmanager
def _writing(folder: Path, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{argument(name)}={folder}: cannot be written: {error.strerror}"
        ) from error


def _remove_remains(folder: Path) -> None:
    """Removes what `new_folder` has left, if its process was killed."""
    with contextlib.suppress(OSError, ValueError):  # no file has been moved
        for name in schema.parse(disk.read(folder / MOVED), [str]):
            if Path(name).name == name:
                disk.remove(folder / name)
    disk.remove(folder / PARTIAL)
    disk.remove(folder / MOVED)


def is_new(folder: Path) -> bool:
    """Whether a folder does not exist, or has a lock or checksums only.

    The checksum of a first file is written before it, so a process that was killed in
    between may have left checksums.json.
    """
    if not folder.exists():
        return True
    kept = {LOCK, checksums.FILE}
    return folder.is_dir() and all(path.name in kept for path in folder.iterdir())


def check_output(folder: Path, marker: str) -> None:
    """Raises UserError if an output folder holds other files.

    Args:
      marker: a file that only this command writes; a folder with it may be overwritten.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{argument('to')}={folder}: is a file; must be a folder")
    if not is_new(folder) and not (folder / marker).exists():
        raise CheckpointError(
            f"{argument('to')}={folder}: holds other files; must be a new or empty "
            f"folder, or one with the {marker} of an earlier call"
        )


def write_json(path: Path, values: dict) -> None:
    """Writes a JSON file atomically, and its checksum.

    Paths of local copies of an object store become URLs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = copies.with_urls(json.dumps(values, indent=2))
    checksums.write(path, f"{text}\n".encode())


def load_json(
    path: Path,
    form: schema.Schema,
    hint: str,
    remedy: str = checksums.REMEDY,
) -> dict:
    """Reads a JSON file of a run; warns once if a run's folder has no checksums.

    Args:
      form: its schema (`jaxpt.files.schema`).
      hint: the advice in the error about a missing or unreadable file.
      remedy: the advice in the error about an altered file.
    """
    try:
        data = checksums.read(path, remedy)
        _warn_without_checksum(path)
        return schema.parse(data, form)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: not found; {hint}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}; {hint}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}; {hint}") from None


def write_config(path: Path, config: dict) -> None:
    """Writes a config and this version as JSON (`write_json`)."""
    write_json(path, {"version": __version__} | config)


def load_config(path: Path, hint: str) -> dict:
    """Reads a run's config, whose tokenizer file becomes the copy in the run's folder.

    So a run can be moved, and resumes without the original tokenizer file.
    """
    config = load_json(path, CONFIG, hint)
    version = config.pop("version", None)
    if version is None or ".".join(version.split(".")[:2]) not in READABLE:
        raise CheckpointError(
            f"{path}: version={version!r}: jaxpt {__version__} reads folders of "
            f"versions {', '.join(READABLE)}; use the version that wrote it"
        )
    section = config.get("tokenizer", {})
    tokenizer_path = path.with_name("tokenizer.json")
    if section.get("kind") == "file" and tokenizer_path.is_file():
        config["tokenizer"] = section | {"path": str(tokenizer_path)}
    return config


def load_measured(path: Path, form: schema.Schema) -> dict:
    """Reads a JSON file of measurements, which are repeated if it is deleted."""
    again = "delete it, and the command that wrote it measures again"
    return load_json(path, form, again, again)


def _warn_without_checksum(path: Path) -> None:
    folder = path.parent
    is_run = any((folder / name).is_dir() for name in (CHECKPOINTS, "runs"))
    if folder in _warned or not is_run or checksums.has_checksum(path):
        return
    _warned.add(folder)
    if processes.is_first():
        logging.getLogger(__name__).warning(
            f"{folder}: has no {checksums.FILE}, so altered files cannot be detected"
        )

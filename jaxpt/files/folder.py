"""A run's folder on the disk: one process writes into it, its files are vouched for."""

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from jaxpt.distributed import processes
from jaxpt.errors import UserError
from jaxpt.files import checksums, disk, lock
from jaxpt.version import __version__

LOCK = ".lock"
OLDEST = (0, 2)  # version whose runs are read
UNTOLD = "0.1.0"  # which wrote no version
REPORT = "runs.json"  # of a folder with a report: which runs it is of
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"

_held: set[Path] = set()  # by this process
_told: set[Path] = set()  # nothing vouches for them, and that was said


class _HeldElsewhere(Exception):
    """Another process writes into the folder."""


@contextlib.contextmanager
def hold(workdir: Path) -> Iterator[None]:
    """Keeps other processes from writing into a folder; within itself it is nothing.

    Of several processes of a run, process 0 holds it. Reading needs no lock.

    Raises:
      UserError: another process writes there, or a link stands in a folder's place;
        nothing has been written.
    """

    def refuse():
        raise UserError(
            f"--workdir={workdir}: another process is writing into this folder; wait "
            f"until it has ended, or use another folder"
        )

    with claim(workdir) as is_ours:
        if not is_ours:
            processes.on_first(refuse)
        yield


@contextlib.contextmanager
def claim(workdir: Path) -> Iterator[bool]:
    """As `hold`, but gives False where another process writes there.

    The lock is the system's (`flock`): it ends with the process, however that ends. On
    a disk that machines share it is the file server that lets go of a lost machine's:
    NFS of version 4, Lustre mounted with `flock`, GPFS and CephFS do.

    Raises:
      UserError: a link stands in a folder's place, or the disk has no locks.
    """
    with contextlib.ExitStack() as stack:
        yield processes.on_first(lambda: _take(workdir, stack))


def _take(workdir: Path, stack: contextlib.ExitStack) -> bool:
    """Whether the folder is this process's until the stack is closed."""
    place = Path(os.path.realpath(workdir))

    def give_up():
        raise _HeldElsewhere

    if place in _held:
        return True
    try:
        stack.enter_context(lock.hold(workdir / LOCK, give_up))
    except _HeldElsewhere:
        return False
    _held.add(place)
    stack.callback(_held.discard, place)
    for name in (CHECKPOINTS, TENSORBOARD):
        if (workdir / name).is_symlink():
            raise UserError(
                f"--workdir={workdir}: {name} is a link, and links are not "
                f"followed; put the folder itself there"
            )
    disk.sweep(workdir)
    return True


def is_new(folder: Path) -> bool:
    """Whether there is no such folder, or nothing in it but a lock."""
    if not folder.exists():
        return True
    return folder.is_dir() and all(path.name == LOCK for path in folder.iterdir())


def check_output(folder: Path, own: str) -> None:
    """Raises UserError where a command would write into what is not its own.

    Args:
      own: a file that only this command writes; a folder with it may be written again.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--to={folder}: is a file; must be a folder")
    if not is_new(folder) and not (folder / own).exists():
        raise UserError(
            f"--to={folder}: holds other files; must be a new or empty folder, or one "
            f"with the {own} of an earlier call"
        )


def write_json(path: Path, values: dict) -> None:
    """Writes JSON whole or not at all, and its checksum.

    Raises:
      UserError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    checksums.write(path, (json.dumps(values, indent=2) + "\n").encode())


def load_json(path: Path, what: str, cure: str = checksums.CURE) -> dict:
    """A JSON file that a run has written.

    Says once, of a folder of an earlier version, that nothing vouches for it.

    Args:
      what: said of a file that is missing or not JSON.
      cure: said of one that was altered.

    Raises:
      UserError: it is missing, was altered, or is not JSON.
    """
    try:
        data = checksums.read(path, cure)
        _look_for_sums(path)
        return json.loads(data.decode())
    except FileNotFoundError:
        raise UserError(f"{path}: not found; {what}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {what}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON ({error}); {what}") from None


def write_config(path: Path, config: dict) -> None:
    """Writes a config with the version that did, as `write_json`."""
    write_json(path, {"version": __version__} | config)


def load_config(path: Path, what: str) -> dict:
    """A config that was written; a tokenizer that was a file is the copy beside it.

    So a run resumes wherever it was moved, and without the file that it was given.

    Raises:
      UserError: as `load_json`; or a version wrote it whose settings are others.
    """
    config = load_json(path, what)
    if isinstance(config, dict):
        told = "" if "version" in config else " (it names no version)"
        written = str(config.pop("version", UNTOLD)) + told
        if _number(written) < OLDEST:
            raise UserError(
                f"{path}: was written by jaxpt {written}; jaxpt {__version__} reads "
                f"neither its settings nor its checkpoints: use that version, or train "
                f"again"
            )
    section = config.get("tokenizer") if isinstance(config, dict) else None
    own = path.with_name("tokenizer.json")
    if isinstance(section, dict) and section.get("kind") == "file" and own.is_file():
        config["tokenizer"] = section | {"path": str(own)}
    return config


def _number(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


def load_measured(path: Path) -> dict:
    """As `load_json`, of what is measured again where it is missing."""
    again = "delete it, and the command that wrote it measures again"
    return load_json(path, again, again)


def _look_for_sums(path: Path) -> None:
    folder = path.parent
    is_run = any((folder / name).is_dir() for name in (CHECKPOINTS, "runs"))
    if folder in _told or not is_run or checksums.is_vouched(path):
        return
    _told.add(folder)
    if processes.is_first():
        logging.getLogger(__name__).warning(
            f"{folder}: nothing vouches for its files: they were written without "
            f"{checksums.FILE}, so that an altered one cannot be detected"
        )

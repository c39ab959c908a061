"""File locks, which end with their process."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jaxpt.errors import CheckpointError

_held: set[int] = set()
MAX_FAILURES = 100  # to create the file in a row, as /proc has them


def _release_in_fork() -> None:
    """Closes inherited locks, which would otherwise outlive the parent."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_fork)


@contextlib.contextmanager
def hold(path: Path, when_held: Callable[[], None]) -> Iterator[None]:
    """Holds the lock of a file, which is created; a left-over file does not lock.

    Args:
      path: the file; its folder is created, and removed at the end if it is empty.
      when_held: called if another process holds the lock. If it does not raise, this
        process waits.
    """
    made: list[Path] = []
    owner = os.getpid()
    try:
        try:
            handle = _take(path, when_held, made)
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be locked: {error.strerror}"
            ) from error
        _held.add(handle)
        try:
            yield
        finally:
            if os.getpid() == owner:
                # Before the release, so that a waiting process sees that the file is
                # gone and locks a new one.
                with contextlib.suppress(OSError):
                    path.unlink()
                _held.discard(handle)
                os.close(handle)
    finally:
        if os.getpid() == owner:
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _take(path: Path, when_held: Callable[[], None], made: list[Path]) -> int:
    """Takes the lock; returns its descriptor and adds created folders to `made`."""
    has_called, num_failures = False, 0
    while True:
        places = (path.parent, *path.parent.parents)
        made[:0] = [folder for folder in places if not folder.exists()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        # The last holder has just removed the folder; mkdir may then call it a file.
        except (FileNotFoundError, FileExistsError):
            num_failures += 1
            if num_failures == MAX_FAILURES:  # no: the file system makes no files
                raise
            continue
        num_failures = 0
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not has_called:
                    when_held()
                has_called = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            # Else the last holder has removed the file that was waited for.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)

"""One process at a time at a folder; a lock ends with its process."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jaxpt.errors import UserError

_held: set[int] = set()


def _let_go() -> None:
    """In a fork, which would else keep its parent's locks after the parent's end."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def hold(path: Path, when_held: Callable[[], None]) -> Iterator[None]:
    """Holds a lock file, which need not exist; one that was left behind is no matter.

    Args:
      path: the file; its folder is made, and removed if it is still empty at the end.
      when_held: called where another process holds it: may raise, else it is waited.

    Raises:
      UserError: the file cannot be made or locked.
    """
    made: list[Path] = []
    owner = os.getpid()
    try:
        try:
            handle = _take(path, when_held, made)
        except OSError as error:
            reason = error.strerror
            raise UserError(f"{path}: cannot be locked: {reason}") from error
        _held.add(handle)
        try:
            yield
        finally:
            if os.getpid() == owner:
                # While it is held: who waits for it sees that it has gone, and takes a
                # new one.
                with contextlib.suppress(OSError):
                    path.unlink()
                _held.discard(handle)
                os.close(handle)
    finally:
        if os.getpid() == owner:
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _take(path: Path, when_held: Callable[[], None], made: list[Path]) -> int:
    """The descriptor that holds the lock; the folders that were made are noted."""
    has_said = False
    while True:
        places = (path.parent, *path.parent.parents)
        made[:0] = [folder for folder in places if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # the last holder has just removed the folder
            continue
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not has_said:
                    when_held()
                has_said = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)

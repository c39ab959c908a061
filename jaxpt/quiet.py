"""Lines of progress are printed, unless the one who asked wants the result alone."""

import contextlib
import io
from collections.abc import Iterator


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def hushed(is_quiet: bool = True) -> Iterator[None]:
    """Keeps what is printed within to itself, where it is to be quiet.

    >>> with hushed():
    ...     print("step 1")
    """
    if not is_quiet:
        yield
        return
    with contextlib.redirect_stdout(_Nowhere()):
        yield

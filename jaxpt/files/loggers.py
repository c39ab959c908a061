"""Loggers of other libraries that are silent for a while."""

import collections
import contextlib
import logging
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_numbers: collections.Counter[str] = collections.Counter()  # by logger, those within
_levels: dict[str, int] = {}  # before the first of them


@contextlib.contextmanager
def silenced(*names: str) -> Iterator[None]:
    """Within, these loggers print nothing; their levels are then as they were before.

    For libraries that log the errors that they raise. Threads may overlap.

    >>> logger = logging.getLogger("doctest.loud")
    >>> with silenced("doctest.loud"):
    ...     logger.isEnabledFor(logging.ERROR)
    False
    >>> logger.isEnabledFor(logging.ERROR)
    True
    """
    with _lock:
        for name in names:
            _numbers[name] += 1
            if _numbers[name] == 1:
                _levels[name] = logging.getLogger(name).level
                logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        with _lock:
            for name in names:
                _numbers[name] -= 1
                if not _numbers[name]:
                    logging.getLogger(name).setLevel(_levels.pop(name))

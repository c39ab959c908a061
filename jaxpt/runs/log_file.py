"""A run's `run.log`: what is logged while it trains, with the time."""

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from jaxpt import logs
from jaxpt.errors import CheckpointError
from jaxpt.files import disk
from jaxpt.files.copies import printable

RUN_LOG = "run.log"


class _FileHandler(logging.Handler):
    """Appends records to a file, with the time."""

    def __init__(self, path: Path):
        super().__init__(logging.INFO)
        self._file = disk.open_append(path)

    def emit(self, record: logging.LogRecord) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        line = f"{now} {record.levelname} {printable(record.getMessage())}\n"
        with contextlib.suppress(OSError):  # `MetricWriter` reports a full disk
            self._file.write(line.encode())
            self._file.flush()

    def close(self) -> None:
        self._file.close()
        super().close()


@contextlib.contextmanager
def run_log(folder: Path) -> Iterator[None]:
    """Appends what is logged within, and the error that ends it, to `run.log`."""
    path = folder / RUN_LOG
    try:
        handler = _FileHandler(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error.strerror}") from error
    with contextlib.closing(handler), logs.attach(handler):
        try:
            yield
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            record_args = (logs.LOGGER.name, logging.ERROR, __file__, 0, text, (), None)
            handler.emit(logging.LogRecord(*record_args))
            raise

"""Progress bars on a terminal: of text that is prepared, and of steps."""

import logging
import time
from collections.abc import Callable
from typing import Self

import rich.console
import rich.progress
import rich.table

from jaxpt import logs
from jaxpt.text.library import Reporter

_log = logging.getLogger(__name__)
LINE_SECONDS = 10.0
OTHERS = 56  # characters of a bar of text, without its title
SILENT = Reporter(log=lambda text: None)


def make_reporter(clock: Callable[[], float] = time.monotonic) -> Reporter:
    """A reporter that logs lines."""

    def progress(title: str, total_bytes: int) -> Callable:
        if console := logs.open_bar():
            return _bar(title, total_bytes, console)
        return _lines(title, total_bytes, _log.info, clock)

    return Reporter(log=_log.info, progress=progress)


def _lines(title: str, total_bytes: int, log: Callable, clock: Callable) -> Callable:
    start = last = clock()

    def update(done: tuple[int, int, int] | None) -> None:
        nonlocal last
        if done is None or clock() - last < LINE_SECONDS:
            return
        last = clock()
        num_bytes, documents, tokens = done
        share = f" ({num_bytes / total_bytes:.0%})" if total_bytes else ""
        log(
            f"{title}: {num_bytes / 1e6:,.1f} MB{share}, {documents:,} "
            f"document{'s' * (documents != 1)}, "
            f"{f'{tokens:,} tokens, ' if tokens else ''}"
            f"{num_bytes / 1e6 / (last - start):.1f} MB/s"
        )

    return update


def _bar(title: str, total_bytes: int, console: rich.console.Console) -> Callable:
    bar = rich.progress.Progress(
        rich.progress.TextColumn(
            "{task.description}",
            markup=False,
            table_column=_whole(max(12, console.width - OTHERS)),
        ),
        rich.progress.BarColumn(bar_width=20),
        rich.progress.DownloadColumn(table_column=_whole()),
        rich.progress.TransferSpeedColumn(table_column=_whole()),
        rich.progress.TimeRemainingColumn(table_column=_whole()),
        rich.progress.TextColumn(
            "{task.fields[tokens]}", markup=False, table_column=_whole()
        ),
        console=console,
    )
    task = bar.add_task(title, total=total_bytes or None, tokens="")
    bar.start()

    def update(done: tuple[int, int, int] | None) -> None:
        if done is None:
            bar.stop()
            logs.close_bar()
        else:
            tokens = f"{done[2]:,} tokens" if done[2] else ""
            bar.update(task, completed=done[0], tokens=tokens)

    return update


def _whole(max_width: int | None = None) -> rich.table.Column:
    """A column that is shortened and not broken into two lines."""
    return rich.table.Column(no_wrap=True, overflow="ellipsis", max_width=max_width)


class StepBar:
    """Shows the finished steps and a text below what is logged; a context manager.

    Args:
      total_steps: of the whole work.
      start_step: where it begins.
      text: shown until the first update.
    """

    def __init__(self, total_steps: int, start_step: int = 0, text: str = "") -> None:
        self._bar: rich.progress.Progress | None = None
        if console := logs.open_bar():
            self._bar = _make_step_bar(console)
            self._task = self._bar.add_task(
                text, total=total_steps, completed=start_step, whole=logs.list_wholes()
            )
            self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal."""
        return self._bar is not None

    def update(self, step: int, text: str) -> None:
        """Shows the number of finished steps and a text."""
        if self._bar is None:
            return
        try:
            self._bar.update(self._task, completed=step, description=text, refresh=True)
        except OSError as error:  # the terminal is gone
            logs.drop_output(error)

    def close(self) -> None:
        """Leaves the bar in its last state."""
        if self._bar is not None:
            self._bar.stop()
            logs.close_bar()


def _make_step_bar(console: rich.console.Console) -> rich.progress.Progress:
    """A bar, the position in a longer work, and the text of the last update."""
    return rich.progress.Progress(
        rich.progress.BarColumn(bar_width=20),
        rich.progress.TextColumn(
            "{task.fields[whole]}{task.description}",
            markup=False,
            table_column=rich.table.Column(),
        ),
        console=console,
        auto_refresh=False,  # no thread: an update redraws
    )

"""Progress of preparing text: a bar on a terminal, else a line every ten seconds."""

import logging
import time
from collections.abc import Callable

import rich.console
import rich.progress

from jaxpt import logs
from jaxpt.text.library import Reporter

_log = logging.getLogger(__name__)
LINE_SECONDS = 10.0
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
            f"{title}: {num_bytes / 1e6:,.1f} MB{share}, {documents:,} documents, "
            f"{f'{tokens:,} tokens, ' if tokens else ''}"
            f"{num_bytes / 1e6 / (last - start):.1f} MB/s"
        )

    return update


def _bar(title: str, total_bytes: int, console: rich.console.Console) -> Callable:
    bar = rich.progress.Progress(
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(bar_width=20),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.fields[tokens]}", markup=False),
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

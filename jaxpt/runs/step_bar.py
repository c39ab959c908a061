"""A progress bar of steps on a terminal; elsewhere nothing is shown."""

from typing import Self

import rich.console
import rich.progress
import rich.table

from jaxpt import logs


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
            self._bar = _make_bar(console)
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


def _make_bar(console: rich.console.Console) -> rich.progress.Progress:
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

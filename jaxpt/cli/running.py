"""What commands share: flags, processes, signals, and how results are printed."""

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from absl import flags

from jaxpt.errors import ConfigError, Ended
from jaxpt.files import copies, remote

PROCESSES = {
    "distributed": (False, "run as one of several processes"),
    "heartbeat_seconds": (
        100,
        "seconds without a heartbeat until a process counts as dead",
    ),
}
QUIET = {"quiet": (False, "print only the result, no progress")}
# Of tables: how they are printed.
FORMS = ("text", "markdown", "latex", "html", "csv", "json")
OUTPUT = QUIET | {"json": (False, "print only the result, as JSON")}
RUNS = {
    "runs": (
        (),
        "folders of finished runs, or globs of them: one or several, separated by "
        "spaces or commas; may be repeated",
    )
}


def show_result(values: flags.FlagValues, result: Any, lines: Iterable[str]) -> None:
    """Prints a result as JSON if --json was given, else as lines."""
    show([json.dumps(result)] if values.json else lines)


def show(lines: Iterable[str]) -> int:
    """Prints lines of a result, with URLs for local copies; returns the exit code 0."""
    for line in lines:
        print(copies.printable(line))
    return 0


def list_metrics(metrics: dict[str, float]) -> list[str]:
    """A line for each metric."""
    return [f"{name:28s} {value:.4f}" for name, value in metrics.items()]


@contextlib.contextmanager
def joined(values: flags.FlagValues) -> Iterator[None]:
    """Works together with the other processes, if there are any.

    A signal that stops a run gives the exit code 128 + its number.
    """
    start_jax()
    from jaxpt.distributed import processes
    from jaxpt.runs.signals import Stopped

    if "distributed" in values and values.distributed:
        processes.start(values.heartbeat_seconds)
    else:
        processes.check_alone()
    try:
        with processes.guarded():
            yield
    except Stopped as stop:
        if processes.is_first():
            logging.getLogger(__name__).warning(str(stop))
        raise Ended(128 + stop.signum) from None


def run_command(values: flags.FlagValues, function: Callable[[], int]) -> int:
    """Runs a command's work as `joined` does; returns its exit code."""
    with joined(values):
        return function()


def read_workdir(values: flags.FlagValues, leaves_out: str = "") -> Path:
    """The folder of --workdir; `leaves_out` as of `check_workdir`."""
    from jaxpt.runs.workdir import check_workdir

    return check_workdir(values.workdir, leaves_out)


@contextlib.contextmanager
def opened(values: flags.FlagValues) -> Iterator[Path]:
    """The run's folder of --workdir, for which a model of transformers is imported."""
    from jaxpt.hub.opened import is_model, open_model

    if not is_model(values.workdir):
        yield read_workdir(values)
        return
    start_jax()
    with open_model(values.workdir) as workdir:
        yield workdir


def read_to(values: flags.FlagValues) -> Path:
    """The path of --to; of a URL the local copy."""
    if not values.to:
        raise ConfigError("--to: must name the folder to write")
    return remote.fetch(values.to)


def refuse(values: flags.FlagValues, names: Iterable[str], reason: str) -> None:
    """Raises ConfigError if one of these flags was given."""
    for name in names:
        if values[name].present:
            value = values[name].value
            shown = ",".join(map(str, value)) if isinstance(value, list) else value
            raise ConfigError(f"--{name}={shown}: {reason}")


def start_jax() -> None:
    """As `jaxpt.distributed.processes.set_up_jax`, which imports JAX."""
    from jaxpt.distributed.processes import set_up_jax

    set_up_jax()

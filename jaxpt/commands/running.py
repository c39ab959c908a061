"""How commands begin and run: processes, folders, signals, what they print."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import flags

from jaxpt.quiet import hushed


def define_processes(values: flags.FlagValues) -> None:
    """The flags of commands that can run as one of several processes."""
    flags.DEFINE_boolean(
        "distributed", False, "run as one of several processes", flag_values=values
    )
    flags.DEFINE_integer(
        "heartbeat_seconds",
        100,
        "seconds without a heartbeat until a process counts as dead",
        flag_values=values,
    )


def define_quiet(values: flags.FlagValues) -> None:
    """The flag of commands that tell how far they are."""
    flags.DEFINE_boolean(
        "quiet", False, "print the result alone, no progress", flag_values=values
    )


def define_output(values: flags.FlagValues) -> None:
    """The flags of commands whose result others may read."""
    define_quiet(values)
    flags.DEFINE_boolean(
        "json", False, "print the result alone, as JSON", flag_values=values
    )


def hush(values: flags.FlagValues) -> contextlib.AbstractContextManager[None]:
    """Keeps what is printed within to itself, where the flags say so."""
    return hushed(values.quiet or values.json)


def show_result(values: flags.FlagValues, result: Any, show: Callable) -> None:
    """Prints a result as JSON, or as `show` does."""
    if values.json:
        print(json.dumps(result))
    else:
        show()


def run_command(values: flags.FlagValues, function) -> int:
    """Runs a command's work, together with the other processes if there are any."""
    start_jax()
    from jaxpt.distributed import processes
    from jaxpt.training.signals import Stopped

    if values.distributed:
        processes.start(values.heartbeat_seconds)
    else:
        processes.check_alone()
    try:
        return processes.guard(function)
    except Stopped as stop:
        if processes.is_first():
            print(f"jaxpt: {stop}", file=sys.stderr)
        return 128 + stop.signum


def read_workdir(values: flags.FlagValues) -> Path:
    """The folder of --workdir.

    Raises:
      UserError: none was given, or a file stands there.
    """
    from jaxpt.training.workdir import check_workdir

    return check_workdir(values.workdir)


def start_jax() -> None:
    """`jaxpt.distributed.processes.set_up_jax`, imported where it is needed."""
    from jaxpt.distributed.processes import set_up_jax

    set_up_jax()


def list_flag_names(argv: list[str]) -> set[str]:
    """The flags that are given; of settings only "config".

    >>> sorted(list_flag_names(["--config.train.steps=5", "--workdir", "a"]))
    ['a', 'config', 'workdir']
    """
    return {arg.lstrip("-").partition("=")[0].partition(".")[0] for arg in argv}


def say(line: str) -> None:
    """Prints a line of progress at once."""
    print(line, flush=True)


def run_alone(function) -> int:
    """Runs work of one process that a signal may stop."""
    start_jax()
    from jaxpt.distributed import processes
    from jaxpt.training.signals import Stopped

    processes.check_alone()
    try:
        return function()
    except Stopped as stop:
        print(f"jaxpt: {stop}", file=sys.stderr)
        return 128 + stop.signum


def print_metrics(metrics: dict[str, float]) -> None:
    """Prints a line for each metric."""
    for name, value in metrics.items():
        print(f"{name:28s} {value:.4f}")

"""Runs the command line: `jaxpt` and `python -m jaxpt`."""

import os
import sys

from jaxpt import interrupts


def open_streams() -> None:
    """Opens standard streams that were closed (`>&-`) as /dev/null.

    Otherwise, the next file that is opened would get their place. Some libraries keep a
    file open as soon as they are imported (libffi 3.5), so this comes first.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, closefd=False))


def main() -> int:
    """Runs one command; a Ctrl-C counts from here on, also while JAX is imported."""
    open_streams()
    try:
        with interrupts.deferred():
            from jaxpt.cli.main import main as run
    except KeyboardInterrupt:
        print("jaxpt: error: interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())

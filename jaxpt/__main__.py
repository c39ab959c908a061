"""Runs the command line: `jaxpt` and `python -m jaxpt`."""

import sys

from jaxpt import interrupts


def main() -> int:
    """Runs one command; a Ctrl-C counts from here on, also while JAX is imported."""
    try:
        with interrupts.deferred():
            from jaxpt.cli import main as run
    except KeyboardInterrupt:
        print("jaxpt: error: interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())

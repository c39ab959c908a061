"""Runs the command line: `python -m jaxpt`."""

import sys

from jaxpt.cli import main

if __name__ == "__main__":
    sys.exit(main())

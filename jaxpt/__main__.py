"""`python -m jaxpt` is the command line."""

import sys

from jaxpt.cli import main

if __name__ == "__main__":
    sys.exit(main())

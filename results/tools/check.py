"""Checks folders of results/: studies, and records of speedruns.

    python results/tools/check.py results/speedruns/cpu/mlm/adamw [FOLDER ...]

Checks that all files are present and unaltered, that the runs are of the study's
settings and their metrics the means of their values by example, and for a record the
rules of results/speedruns/targets.json. Prints a line for each folder; the exit code is
1 if one is not valid.
"""

import sys
from pathlib import Path

from speedruns import check_folder

from jaxpt.errors import UserError


def main(folders: list[str]) -> int:
    """Checks the folders; returns the exit code."""
    if not folders or folders[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if folders else 2
    is_valid = True
    for folder in folders:
        try:
            print(check_folder(Path(folder)))
        except UserError as error:
            print(f"{folder}: NOT valid: {error}")
            is_valid = False
    return 0 if is_valid else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

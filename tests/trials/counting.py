"""Counts trials: each script prints "tried N, held M" and fails unless all held."""

import argparse
import os
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")


class Count:
    """The trials of a script and those that held."""

    def __init__(self) -> None:
        self.tried = self.held = 0

    def add(self, holds: bool, what: str) -> None:
        """Counts a trial, and prints what it was if it did not hold."""
        self.tried += 1
        self.held += bool(holds)
        if not holds:
            print(f"did not hold: {what}", flush=True)

    def close(self) -> int:
        """Prints the count; the exit code."""
        print(f"tried {self.tried}, held {self.held}")
        return int(self.tried != self.held or not self.tried)


def read_arguments(description: str | None, repeat: int) -> argparse.Namespace:
    """`--repeat` and `--seed` of a script of random trials; prints the seed.

    Args:
      repeat: the default number of repetitions.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=repeat, help="repetitions")
    parser.add_argument("--seed", type=int, help="of the random trials; default: drawn")
    values = parser.parse_args()
    if values.seed is None:
        values.seed = secrets.randbelow(10**6)
    print(f"--repeat {values.repeat} --seed {values.seed}", flush=True)
    return values

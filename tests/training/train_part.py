"""Runs `jaxpt ARGUMENTS` as if a signal came to the last process after some calls.

Started by test_topologies: train_part.py NUM_CALLS ARGUMENTS...
"""

import signal
import sys

import jax

from jaxpt.cli import main as cli
from jaxpt.runs.signals import SignalWatch
from jaxpt.training import loop


class FakeWatch(SignalWatch):
    """Asked for the n-th time, has a signal; no other process has one."""

    num_calls = int(sys.argv[1])

    def ask(self):
        self.asked = getattr(self, "asked", 0) + 1
        is_last = jax.process_index() == jax.process_count() - 1
        if self.asked >= self.num_calls and is_last:
            self.signum = signal.SIGTERM
        return super().ask()


if __name__ == "__main__":
    loop.SignalWatch = FakeWatch
    sys.exit(cli.main(sys.argv[2:]))

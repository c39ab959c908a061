"""Runs that are stopped by a signal after a number of calls."""

import signal

from jaxpt.training.signals import SignalWatch


def stop_after(num_calls: int) -> type[SignalWatch]:
    """What stands for `loop.SignalWatch`: pretends that a signal came after calls."""

    class StopAfter(SignalWatch):
        @property
        def signum(self):
            self.asked += 1
            return signal.SIGTERM if self.asked > num_calls else None

        @signum.setter
        def signum(self, value):
            self.asked = 0

    return StopAfter

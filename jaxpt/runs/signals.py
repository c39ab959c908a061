"""Signals that stop a run: all processes stop between two calls."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from jaxpt.distributed import processes
from jaxpt.errors import DivergedError

# Of a scheduler, of Ctrl-C, and of a terminal that is closed.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(Exception):
    """A signal of `SIGNALS`: the run has saved its state and can be resumed."""

    is_known = True  # to all processes (`processes.guarded`)

    def __init__(self, step: int, signum: int):
        super().__init__(f"stopped at step {step}; start again to resume from there")
        self.signum = signum


class SignalWatch:
    """Remembers the first of `SIGNALS`; a second one acts immediately."""

    @contextlib.contextmanager
    def pass_on(self) -> Iterator[None]:
        """Raises a signal again that came too late to stop a run: its caller must stop.

        Around `with self`. All processes end the run together, as they do when it
        diverges.
        """
        try:
            yield
        except DivergedError:
            self._pass_on()
            raise
        self._pass_on()

    def _pass_on(self) -> None:
        if signum := processes.greatest(self.signum or 0):
            signal.raise_signal(signum)

    def __enter__(self):
        self.signum, self._old = None, {}
        self._vote, self._asked = None, None
        if threading.current_thread() is threading.main_thread():
            for signum in SIGNALS:
                # A job that `nohup` has started survives its terminal.
                if (
                    signum != signal.SIGHUP
                    or signal.getsignal(signum) != signal.SIG_IGN
                ):
                    self._old[signum] = signal.signal(signum, self._remember)
        return self

    def ask(self) -> int | None:
        """The signal that was received, the same on all processes; called once a call.

        With several processes the answer is that of the previous call, so that no
        process waits for the others.
        """
        if processes.is_alone():
            return self.signum
        self._vote = self._vote or processes.Vote()
        before, self._asked = self._asked, self._vote.cast(self.signum or 0)
        return None if before is None else int(before) or None

    def _remember(self, signum, frame):
        self.signum = signum
        self._restore()

    def _restore(self):
        for signum, handler in self._old.items():
            signal.signal(signum, handler)

    def __exit__(self, *exception):
        self._restore()

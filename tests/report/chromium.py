"""Chromium without another package: DevTools messages over a pipe.

The browser reads messages from file descriptor 3 and writes to 4, each ended by a zero
byte (`--remote-debugging-pipe`). `CHROMIUM` is its path, as for `web/e2e.mjs`.
"""

import json
import os
import subprocess
import time
from pathlib import Path

SECONDS = 60  # for an answer


class Chromium:
    """A page of a browser with a new profile; closed at the end of its context."""

    def __init__(self, profile: Path) -> None:
        program = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        flags += ["--disable-component-update", "--disable-background-networking"]
        theirs, self._write = os.pipe()
        self._read, ours = os.pipe()

        def place() -> None:
            # Both are moved away from 3 and 4 first.
            high = os.dup(theirs), os.dup(ours)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [program, *flags, "about:blank"],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(ours)
        self._rest, self._number, self.events = b"", 0, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Runtime.addBinding", name="hit")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **params: object) -> dict:
        """A method of the page."""
        return self.send(method, self._session, **params)

    def send(self, method: str, session: str = "", **params: object) -> dict:
        """Sends a message and returns its result; events are kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _receive(self) -> dict:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            assert time.monotonic() < deadline, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, f"{self._process.args[0]} has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def evaluate(self, code: str) -> object:
        """The value of JavaScript in the page."""
        done = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def open(self, path: Path, ignores_policy: bool) -> None:
        """Opens a file and waits for its end.

        Args:
          ignores_policy: of its `Content-Security-Policy`, so that what is not escaped
            runs.
        """
        self.call("Page.setBypassCSP", enabled=ignores_policy)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + SECONDS
        while not any(x.get("method") == "Page.loadEventFired" for x in self.events):
            assert time.monotonic() < deadline, f"{path} does not load"
            self.evaluate("1")

    @property
    def num_calls(self) -> int:
        """How often a script of the page has called `hit`, with a string."""
        return sum(x.get("method") == "Runtime.bindingCalled" for x in self.events)

    def list_requests(self) -> list[str]:
        """The addresses that pages have asked for, except the data in them."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]

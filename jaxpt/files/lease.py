"""Leases: locks of folders of an object store, which has no file locks.

    <folder>/.lease-ID    {"mirror", "host", "process", "renewals"}

A process writes a lease, then lists all. It holds the folder if every other lease is
stale. So of two processes at most one succeeds: the later one sees the earlier lease
(listings of GCS, S3 and Azure are consistent). A live process renews its lease every
RENEW_SECONDS. A lease is stale if it has not changed for LEASE_SECONDS on the clock of
the observer (clocks are not compared), or if it was written from the observer's own
mirror: then the mirror's lock, which the observer holds, proves that the process has
ended.
"""

import contextlib
import json
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterable

from jaxpt.errors import LostLease, UserError
from jaxpt.files.objects import ObjectStore

PREFIX = ".lease-"
LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
_log = logging.getLogger(__name__)
_seen: dict[tuple[str, str], tuple[str, float]] = {}  # stamp, when first seen
_held: set["Lease"] = set()
_lock = threading.Lock()
_renewer: threading.Thread | None = None


class Lease:
    """A lease that this process holds; `take` makes it.

    Attributes:
      folder: below the store's URL, "" or with a final slash.
    """

    def __init__(self, store: ObjectStore, folder: str, mirror: str):
        self.store, self.folder, self._mirror = store, folder, mirror
        self.name = f"{folder}{PREFIX}{secrets.token_hex(8)}"
        self._renewals, self._renewed = 0, 0.0
        self._lock = threading.Lock()
        self._is_released = False

    def write(self) -> None:
        """Writes the lease with another content than before."""
        values = {
            "mirror": self._mirror,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "renewals": self._renewals,
        }
        self._renewals += 1
        self.store.write(self.name, json.dumps(values).encode())
        self._renewed = time.monotonic()

    def check(self) -> None:
        """Raises LostLease if another process has taken the folder over."""
        if self.name not in _list(self.store, self.folder):
            raise LostLease(
                f"{self.store.url}/{self.folder}: another process has taken over this "
                f"folder, because this process had not renewed its lease for "
                f"{LEASE_SECONDS:.0f} seconds"
            )

    def renew(self) -> None:
        """Renews the lease unless it was released or another process removed it."""
        with self._lock:
            last = self._renewed
            if self._is_released or self.name not in _list(self.store, self.folder):
                return
            self.write()
            if self._renewed - last > LEASE_SECONDS / 2:
                # Another process may have removed it since it was listed, after it
                # had written its own lease. Then this lease must not come back.
                if len(_list(self.store, self.folder)) > 1:
                    self.store.remove([self.name])

    def release(self) -> None:
        """Removes the lease."""
        with _lock:
            _held.discard(self)
        with self._lock:
            self._is_released = True
            self.store.remove([self.name])


def take(store: ObjectStore, folder: str, mirror: str, waits: bool) -> Lease | None:
    """Takes the lease of a folder; None if another process holds it.

    Args:
      mirror: the id of the local copy; this process holds its lock of the folder.
      waits: until it is known whether another lease is alive; else a lease counts as
        alive until this process has seen it unchanged for LEASE_SECONDS.
    """
    first = _list(store, folder)
    announced = False
    while True:
        others = _list(store, folder)
        live = {name for name in others if not _is_stale(store, name, others, mirror)}
        if not live:
            lease = Lease(store, folder, mirror)
            lease.write()
            now = _list(store, folder)
            if all(
                others.get(n) == stamp for n, stamp in now.items() if n != lease.name
            ):
                store.remove(others)
                _start(lease)
                return lease
            store.remove([lease.name])
        if not waits or any(
            first.get(name, others[name]) != others[name] for name in live
        ):
            return None
        if live and not announced:
            _log.info(
                f"{store.url}/{folder}: has the lease of another process; waiting up "
                f"to {LEASE_SECONDS:.0f} seconds to see whether it is alive"
            )
            announced = True
        first = others | first
        time.sleep(random.uniform(0.2, 1.0))


def is_lease(name: str) -> bool:
    """Whether an object is a lease."""
    return name.rpartition("/")[2].startswith(PREFIX)


def find_leased(names: Iterable[str]) -> set[str]:
    """The folders, with a final slash, that have a lease; "" is the URL itself."""
    return {name[: name.rfind("/") + 1] for name in names if is_lease(name)}


def _list(store: ObjectStore, folder: str) -> dict[str, str]:
    """The stamps of a folder's leases by name."""
    entries = store.list_leases(folder, PREFIX)
    return {name: each.stamp for name, each in entries.items()}


def _is_stale(store: ObjectStore, name: str, stamps: dict, mirror: str) -> bool:
    key, stamp, now = (store.url, name), stamps[name], time.monotonic()
    if _seen.get(key, ("", 0.0))[0] != stamp:
        _seen[key] = stamp, now
    data = store.read(name)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        values = json.loads(data or b"{}")
        if [values["mirror"], values["host"]] == [mirror, socket.gethostname()]:
            return True  # the host, as an image of a disk may be on many
    return now - _seen[key][1] >= LEASE_SECONDS


def _start(lease: Lease) -> None:
    """Renews a lease from now on, in a thread."""
    global _renewer
    with _lock:
        _held.add(lease)
        if _renewer is None or not _renewer.is_alive():
            _renewer = threading.Thread(target=_renew_all, name="leases", daemon=True)
            _renewer.start()


def _renew_all() -> None:
    while True:
        time.sleep(RENEW_SECONDS)
        with _lock:
            if not _held:
                global _renewer
                _renewer = None
                return
            leases = list(_held)
        for lease in leases:
            with contextlib.suppress(UserError):  # `check` reports a lost lease
                lease.renew()

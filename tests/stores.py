"""Object stores for tests: fsspec's in memory, and machines that use one."""

import contextlib
import itertools

import fsspec

from jaxpt import trust
from jaxpt.files import lease, objects, remote
from jaxpt.files.objects import ObjectStore

objects.SCHEMES = (*objects.SCHEMES, "memory")
_numbers = itertools.count()


def new_url(name="run"):
    """The URL of a new folder of the store in memory, as if the user had named it."""
    url = f"memory://bucket{next(_numbers)}"
    trust.trust_places(url)
    return f"{url}/{name}"


def read_all(url):
    """The objects below a URL by name, without leases."""
    fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    names = {path[len(root) + 1 :]: path for path in fs.find(root)}
    return {n: fs.cat(p) for n, p in names.items() if not lease.is_lease(n)}


@contextlib.contextmanager
def machine(monkeypatch, place):
    """This process is one of another machine, whose cache lies at `place`."""
    with monkeypatch.context() as patch:
        patch.setenv("JAXPT_CACHE", str(place))
        patch.setattr(remote, "_mirrors", {})
        patch.setattr(remote, "_writing", {})
        yield


class Killed(BaseException):
    """What stands for SIGKILL: no request reaches the store any more."""


@contextlib.contextmanager
def killed_at(monkeypatch, number, patched=("write", "upload", "remove")):
    """The process is killed before it changes the store for the nth time, from 0.

    Several files of an upload, or names to remove, are a change each. Leases, which a
    killed process leaves behind, do not count.
    """
    left = [number]

    def spend(name=""):
        if left[0] <= 0:
            raise Killed
        left[0] -= not lease.is_lease(name)

    write, upload, remove = (getattr(ObjectStore, name) for name in patched)

    def write_one(self, name, data):
        spend(name)
        write(self, name, data)

    def upload_each(self, files):
        for name, path in files.items():
            spend(name)
            upload(self, {name: path})

    def remove_each(self, names):
        for name in names:
            spend(name)
            remove(self, [name])

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "write", write_one)
        patch.setattr(ObjectStore, "upload", upload_each)
        patch.setattr(ObjectStore, "remove", remove_each)
        # A thread of this process would go on to renew what the killed one has left.
        patch.setattr(lease, "_start", lambda lease: None)
        try:
            yield
        except Killed:
            pass

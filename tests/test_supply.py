"""What is installed is locked by hashes; nothing is unpickled; tests are offline."""

import contextlib
import pickle
import shutil
import socket
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from jaxpt.cli.main import main
from jaxpt.version import __version__

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = ROOT / "tests" / "releases" / f"{__version__}.tar.xz"


class Guard:
    """Whether `refuse_unpickling` raises."""

    is_on = False


def refuse_unpickling(event, args):
    """Raises where unpickling would import a name, also in C, while it is enabled."""
    if Guard.is_on and event == "pickle.find_class":
        raise AssertionError(f"unpickles {'.'.join(map(str, args))}")


sys.addaudithook(refuse_unpickling)


@contextlib.contextmanager
def without_pickle():
    """Makes unpickling an error."""

    def refuse(*args, **options):
        raise AssertionError("unpickles")

    def load(*args, allow_pickle=False, **options):
        assert not allow_pickle
        return whole_load(*args, allow_pickle=False, **options)

    whole_load = np.load
    with pytest.MonkeyPatch.context() as patch:
        for name in ("load", "loads", "Unpickler"):
            patch.setattr(pickle, name, refuse)
        patch.setattr(np, "load", load)
        patch.setattr(Guard, "is_on", True)
        yield


def test_nothing_is_pickled(tmp_path):
    """A run is resumed, read, exported and reported without unpickling anything."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    run, data = tmp_path / "clm-seed0", pickle.dumps(socket.AF_INET)
    for path in (run / "checkpoints").glob("8*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("result.json", "examples.npz"):
        (run / name).unlink()
    with without_pickle():
        with pytest.raises(AssertionError, match="unpickles"):
            pickle.loads(data)  # noqa: S301
        assert main(["train", f"--workdir={run}", "--quiet"]) == 0
        assert main(["export", f"--workdir={run}", f"--to={tmp_path / 'out'}"]) == 0
        assert main(["doctor", str(run)]) == 0
    assert pickle.loads(data) is socket.AF_INET  # noqa: S301


@pytest.mark.parametrize("host", ["192.0.2.1", "example.org", "2001:db8::1"])
def test_only_loopback_can_be_reached(host):
    with pytest.raises(PermissionError, match=host):
        socket.create_connection((host, 80), timeout=1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()

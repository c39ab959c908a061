"""One process at a time, and no lock outlives the process that held it."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxpt.files import lock

ROOT = Path(__file__).resolve().parents[2]
HOLD = (
    "import os, sys, time; from pathlib import Path; from jaxpt.files import lock\n"
    "with lock.hold(Path(sys.argv[1]), print):\n"
    "    {}\n"
    "    print(flush=True); time.sleep(600)"
)


class HeldElsewhere(Exception):
    pass


def refuse():
    raise HeldElsewhere


def start(path, code="pass"):
    """A process that holds the lock, and runs some code while it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(code), str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    process.said = process.stdout.readline()
    return process


def is_free(path):
    try:
        with lock.hold(path, refuse):
            return True
    except HeldElsewhere:
        return False


def becomes_free(path):
    """Whether it does, soon: a fork lets go when it first runs, which may be later."""
    end = time.monotonic() + 20
    while not is_free(path):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_it_is_held_until_the_process_is_killed(tmp_path):
    path = tmp_path / "new" / "deep" / ".lock"
    process = start(path)
    assert not is_free(path) and path.exists()
    process.kill()
    process.communicate()
    assert path.exists()  # left behind, and no matter
    assert is_free(path)
    assert not path.exists() and path.parent.exists()


@pytest.mark.parametrize(
    "child",
    [
        "os.fork() or time.sleep(600)",
        "__import__('subprocess').Popen(['sleep', '600'], close_fds=False).pid",
    ],
)
def test_a_child_does_not_keep_it(tmp_path, child):
    """Of a process with workers that outlive it."""
    path = tmp_path / ".lock"
    process = start(path, f"print({child})")
    child = int(process.said)
    assert not is_free(path)
    process.kill()
    process.wait()
    try:
        assert becomes_free(path)
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_a_fork_that_ends_releases_nothing(tmp_path):
    path = tmp_path / ".lock"
    with lock.hold(path, refuse):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(HeldElsewhere):
            with lock.hold(path, refuse):
                pass
    assert is_free(path)


TURNS = """
import os, sys, time; from pathlib import Path; from jaxpt.files import lock
path, count, children = Path(sys.argv[1]), Path(sys.argv[2]), []
for _ in range(6):
    if child := os.fork():
        children.append(child)
        continue
    for _ in range(50):
        with lock.hold(path, lambda: None):
            number = int(count.read_text())
            time.sleep(2e-4)
            count.write_text(f"{number + 1}")
    os._exit(0)
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_many_processes_take_turns(tmp_path):
    """Each removes the file and its folder, for which the others wait."""
    path, count = tmp_path / "new" / "deep" / ".lock", tmp_path / "count"
    count.write_text("0")
    done = subprocess.run(
        [sys.executable, "-c", TURNS, str(path), str(count)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == f"{[0] * 6}\n", done.stderr
    assert count.read_text() == "300"


def test_what_was_made_for_it_goes_with_it(tmp_path):
    path = tmp_path / "new" / "deep" / ".lock"
    with lock.hold(path, refuse):
        assert path.exists()
    assert not (tmp_path / "new").exists()
    with lock.hold(path, refuse):
        (path.parent / "file").touch()
    assert os.listdir(path.parent) == ["file"]


def test_a_link_or_folder_in_its_place_is_one_line(tmp_path, refuses):
    (tmp_path / "victim").write_text("dear diary")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "link", tmp_path / "folder", tmp_path / "victim" / "x"):
        with refuses(f"{path}: cannot be locked"):
            with lock.hold(path, refuse):
                pass
    assert (tmp_path / "victim").read_text() == "dear diary"


def test_a_file_system_without_files_is_one_line(refuses):
    with refuses("/proc/x.lock: cannot be locked"):
        with lock.hold(Path("/proc/x.lock"), refuse):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EIO])
def test_a_file_system_without_locks_is_one_line(code, tmp_path, monkeypatch, refuses):
    """As NFS without a lock server. The file stays, as another process may hold it."""

    def fail(*args):
        raise OSError(code, os.strerror(code))

    path, entered = tmp_path / "new" / "x.lock", []
    with monkeypatch.context() as patch:
        patch.setattr(lock.fcntl, "flock", fail)
        with refuses(f"{path}: cannot be locked: {os.strerror(code)}"):
            with lock.hold(path, refuse):
                entered.append(path)
    assert not entered and os.listdir(path.parent) == ["x.lock"]
    assert is_free(path)

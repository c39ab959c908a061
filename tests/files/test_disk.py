"""A file is written whole or not at all, and nothing is written through a link."""

import ast
import errno
import os
import re
import stat
from pathlib import Path

import pytest

import jaxpt
from jaxpt.files import disk


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_bytes(b"dear diary")
    return path


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "x.json"
    for data in (b"one", b"", b"three" * 100_000):
        disk.replace(path, data)
        assert path.read_bytes() == data
        assert os.listdir(tmp_path) == ["x.json"]


def test_a_link_in_its_place_is_replaced(tmp_path, victim):
    (tmp_path / "x").symlink_to(victim)
    disk.replace(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    assert not (tmp_path / "x").is_symlink()
    assert victim.read_bytes() == b"dear diary"


def test_the_name_it_is_written_under_is_new(tmp_path, victim, monkeypatch):
    """A link at the temporary name is not followed."""
    monkeypatch.setattr(disk.secrets, "token_hex", lambda num: "0" * (2 * num))
    (tmp_path / f".x.{'0' * 16}.partial").symlink_to(victim)
    with pytest.raises(FileExistsError) as error:
        disk.replace(tmp_path / "x", b"new")
    assert error.value.filename == str(tmp_path / "x")
    assert victim.read_bytes() == b"dear diary"


def test_no_log_is_opened_through_a_link(tmp_path, victim):
    for target in (victim, tmp_path / "nowhere"):
        (tmp_path / "log").symlink_to(target)
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            disk.open_append(tmp_path / "log")
        (tmp_path / "log").unlink()
    assert victim.read_bytes() == b"dear diary"
    assert not (tmp_path / "nowhere").exists()
    for part in (b"a", b"b"):
        with disk.open_append(tmp_path / "log") as file:
            file.write(part)
    assert (tmp_path / "log").read_bytes() == b"ab"


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_what_fails_leaves_what_was_there(tmp_path, monkeypatch, name):
    disk.replace(tmp_path / "x", b"old")

    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(OSError) as error:
            disk.replace(tmp_path / "x", b"new")
    assert error.value.filename == str(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_folders_are_flushed_before_and_after_files_are_moved(tmp_path, monkeypatch):
    """So that after a loss of power no name is gone from both."""
    one, other, flushed = tmp_path / "one", tmp_path / "other", []
    one.mkdir()
    other.mkdir()
    (one / "x").write_text("x")

    def fsync(handle):
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        flushed.append((place.name, os.listdir(place)))

    monkeypatch.setattr(os, "fsync", fsync)
    disk.move(one, other, ["x"])
    assert flushed == [("one", ["x"]), ("other", ["x"])]


def test_a_folder_is_linked_with_its_links(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "x").write_text("x")
    (tmp_path / "one" / "to").symlink_to(tmp_path)
    disk.link(tmp_path / "one", tmp_path / "other")
    assert os.path.samefile(tmp_path / "one" / "x", tmp_path / "other" / "x")
    assert (tmp_path / "other" / "to").readlink() == tmp_path


def test_names_are_exchanged(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    disk.exchange(tmp_path / "a", tmp_path / "b")
    assert [(tmp_path / name).read_text() for name in "ab"] == ["b", "a"]
    with pytest.raises(OSError, match=os.strerror(errno.ENOENT)) as caught:
        disk.exchange(tmp_path / "a", tmp_path / "gone")
    assert caught.value.filename == str(tmp_path / "gone")
    assert (tmp_path / "a").read_text() == "b"


def test_modes_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        disk.replace(tmp_path / "x", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_only_what_killed_calls_left_is_swept(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        patch.setattr(os, "unlink", lambda path: None)
        with pytest.raises(Killed):
            disk.replace(tmp_path / "x.json", b"half")
    kept = ["mine.partial", ".notes.partial", ".x.12.partial"]
    for name in kept:
        (tmp_path / name).touch()
    assert len(os.listdir(tmp_path)) == 4
    disk.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


def abandon(path):
    """What `replace` leaves if its process is killed."""
    partial, handle = disk._create_partial(path)
    os.close(handle)
    return partial


def test_the_next_call_removes_what_a_killed_one_left(tmp_path):
    abandon(tmp_path / "x.json")
    kept = {abandon(tmp_path / name).name for name in ("x", "x.json.y", "y.x.json")}
    kept |= {".x.json.12.partial", ".x_json.0123456789abcdef.partial"}
    for name in kept:
        (tmp_path / name).touch()
    disk.replace(tmp_path / "x.json", b"new")
    assert set(os.listdir(tmp_path)) == kept | {"x.json"}


def test_what_another_call_is_writing_is_kept(tmp_path):
    partial, handle = disk._create_partial(tmp_path / "x")
    disk.replace(tmp_path / "x", b"new")
    assert partial.exists()
    os.close(handle)
    disk.replace(tmp_path / "x", b"newer")
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_is_locked_until_it_has_its_name(tmp_path, monkeypatch):
    rename = os.replace

    def sweep_and_rename(source, target):
        disk._remove_remains(target)
        rename(source, target)

    monkeypatch.setattr(os, "replace", sweep_and_rename)
    disk.replace(tmp_path / "x", b"new")
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch
):
    lock, removed = disk.fcntl.flock, []

    def remove_and_lock(handle, kind):
        if not removed:
            removed.extend(os.listdir(tmp_path))
            disk._remove_unlocked(tmp_path / removed[0])
        lock(handle, kind)

    monkeypatch.setattr(disk.fcntl, "flock", remove_and_lock)
    monkeypatch.setattr(disk, "_remove_unlocked", lambda path: path.unlink())
    disk.replace(tmp_path / "x", b"new")
    assert len(removed) == 1
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"new"


def test_without_locks_a_file_is_written_and_nothing_is_removed(tmp_path, monkeypatch):
    def refuse(handle, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    partial = abandon(tmp_path / "x")
    monkeypatch.setattr(disk.fcntl, "flock", refuse)
    disk.replace(tmp_path / "x", b"new")
    assert sorted(os.listdir(tmp_path)) == [partial.name, "x"]


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path, victim):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").touch()
    (tmp_path / "a").symlink_to(victim)
    (tmp_path / "b").symlink_to(tmp_path / "folder")
    for name in ("a", "b", "folder", "gone"):
        disk.remove(tmp_path / name)
        if name == "b":
            assert (tmp_path / "folder" / "x").exists()
    assert os.listdir(tmp_path) == ["victim"]


def make_odd(folder):
    """What is not a regular file, and what is said of it."""
    os.mkfifo(folder / "fifo")
    (folder / "to_fifo").symlink_to("fifo")
    return [
        (folder / "fifo", "is a FIFO"),
        (folder / "to_fifo", "is a FIFO"),
        ("/dev/zero", "is a device"),
        (folder, "Is a directory"),
        (folder / "missing", "No such file"),
        (folder / ("x" * 300), "File name too long"),
        (folder / "a\0b", "is not a file's name"),
        (folder / "a\ud800", "is not a file's name"),
    ]


def test_only_regular_files_are_read(tmp_path):
    for path, reason in make_odd(tmp_path):
        with pytest.raises(OSError) as caught:
            disk.read(path)
        assert caught.value.strerror.startswith(reason)
        assert caught.value.filename in (path, str(path))


def test_a_link_to_a_file_is_followed_unless_it_must_not_be(tmp_path, victim):
    (tmp_path / "link").symlink_to(victim)
    assert disk.read(tmp_path / "link") == b"dear diary"
    with pytest.raises(OSError):
        disk.open_regular(tmp_path / "link", follows_links=False)


def test_a_file_without_end_is_not_read_as_a_whole(tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(disk.WHOLE_BYTES + 1)
    with pytest.raises(OSError, match="larger than 2 GiB"):
        disk.read(tmp_path / "sparse")


def test_text_has_one_kind_of_line_end(tmp_path):
    (tmp_path / "x").write_bytes("é\r\nb\rc\n".encode())
    assert disk.read_text(tmp_path / "x") == "é\nb\nc\n"


# Files that read the package's or the system's own files, or open to write.
OWN = {
    "jaxpt/__main__.py": "its standard streams",
    "jaxpt/comparison/prepare_on_ray.py": "a store that this process has written",
    "jaxpt/comparison/record.py": "the package's code",
    "jaxpt/config/shipped.py": "the package's configs",
    "jaxpt/files/disk.py": "what is checked to be regular",
    "jaxpt/files/mirror.py": "a scratch folder",
    "jaxpt/hub/applets/site.py": "the package's page",
    "jaxpt/hub/export.py": "a card that this process has written",
    "jaxpt/hub/shipped.py": "the package's models",
    "jaxpt/report/drawing.py": "the package's styles",
    "jaxpt/training/fit/target.py": "the package's targets",
    "jaxpt/training/machine.py": "/proc/cpuinfo",
    "jaxpt/training/memory.py": "files of cgroups",
}


def list_readers(root):
    """The modules that open a file themselves, instead of `jaxpt.files.disk`."""
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name == "open" or re.search(r"\.read_(text|bytes)$", name):
                    if not name.startswith("disk."):
                        yield path.relative_to(root.parent).as_posix()


def test_files_of_users_are_read_by_what_waits_for_no_fifo():
    """And which ends at a device without end: `disk.read`, `open_regular`."""
    assert {*list_readers(Path(jaxpt.__file__).parent)} == OWN.keys()

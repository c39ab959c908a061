"""Hashes of files: remembered while nothing changes, never beyond."""

import hashlib
import json
import os

import pytest

from jaxpt.text.sources import hashes
from jaxpt.text.sources.hashes import Hashes


def sha256(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def reads(monkeypatch):
    """The files that are read whole, as they are; all count as stable."""
    result, hash_file = [], hashes.hash_file

    def read(path):
        result.append(path.name)
        return hash_file(path)

    monkeypatch.setattr(hashes, "hash_file", read)
    monkeypatch.setattr(hashes, "STABLE_NS", -1)
    return result


def ask(memo, *paths):
    """Their hashes, by a new `Hashes` that saves them."""
    made = Hashes(memo)
    assert [made(path) for path in paths] == [sha256(path) for path in paths]
    made.save()


def test_what_was_not_touched_is_not_read_again(tmp_path, reads):
    memo, one, two = tmp_path / "deep" / "memo", tmp_path / "one", tmp_path / "two"
    one.write_text("one")
    two.write_text("two")
    ask(memo, one, two)
    assert reads == ["one", "two"]
    written = memo.stat().st_mtime_ns
    ask(memo, one, two)
    assert reads == ["one", "two"] and memo.stat().st_mtime_ns == written
    ask(memo, one)
    ask(memo, one, two)  # forgotten since
    assert reads == ["one", "two", "two"]
    assert os.listdir(memo.parent) == ["memo"]


@pytest.mark.parametrize("how", ["in place", "moved over"])
def test_another_content_is_seen_behind_the_same_size_and_time(tmp_path, reads, how):
    memo, path = tmp_path / "memo", tmp_path / "text"
    path.write_text("old text")
    before = path.stat()
    ask(memo, path)
    if how == "in place":
        path.write_text("new text")
    else:
        (tmp_path / "new").write_text("new text")
        os.utime(tmp_path / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(tmp_path / "new", path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    ask(memo, path)
    assert reads == ["text", "text"]


def test_what_was_just_touched_is_not_trusted_yet(tmp_path, reads, monkeypatch):
    monkeypatch.undo()
    path = tmp_path / "text"
    path.write_text("text")
    ask(tmp_path / "memo", path)
    assert not (tmp_path / "memo").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "[]",
        lambda text: "[" * 9999,
        lambda text: text[:-9],
        lambda text: text.replace("files", "fires"),
        lambda text: json.dumps({"files": json.loads(text)["files"]}),
        # A digit of a hash, as a disk flips it.
        lambda text: text[:-5] + ("1" if text[-5] == "0" else "0") + text[-4:],
    ],
)
def test_a_damaged_memory_is_made_again(tmp_path, reads, damage):
    memo, path = tmp_path / "memo", tmp_path / "text"
    path.write_text("text")
    ask(memo, path)
    whole = memo.read_text()
    memo.write_text(damage(whole))
    ask(memo, path)
    assert reads == ["text", "text"] and memo.read_text() == whole


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path, reads):
    (tmp_path / "file").write_text("")
    ask(tmp_path / "file" / "memo", tmp_path / "file")
    victim, planted = tmp_path / "victim", tmp_path / f"memo.{os.getpid()}.partial"
    victim.write_text("mine")
    planted.symlink_to(victim)
    ask(tmp_path / "memo", victim)
    assert victim.read_text() == "mine" and (tmp_path / "memo").is_file()


def test_a_file_that_is_not_there(tmp_path, refuses):
    with refuses(f"data.path={tmp_path / 'gone'}: No such file"):
        Hashes(tmp_path / "memo")(tmp_path / "gone")

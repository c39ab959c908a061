"""What was altered is found; a process that is killed makes nothing look altered."""

import itertools
import json
import os

import pytest

from jaxpt.files import checksums


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "new" / "a.json"
    path.parent.mkdir()
    for data in (b"one", b"two", b"one", b""):
        checksums.write(path, data)
        assert checksums.read(path) == data and checksums.has_checksum(path)
    assert sorted(os.listdir(path.parent)) == ["a.json", checksums.FILE]


@pytest.mark.slow_except("a.json")
@pytest.mark.parametrize("name", ["a.json", checksums.FILE])
def test_every_flipped_bit_is_found(tmp_path, name, refuses):
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    checksums.write(path, b'{"norm_epsilon": 1e-05}')
    checksums.write(other, b"{}")
    whole = (tmp_path / name).read_bytes()
    for place, bit in itertools.product(range(len(whole)), (0, 3)):
        data = bytearray(whole)
        data[place] ^= 1 << bit
        (tmp_path / name).write_bytes(data)
        with refuses(str(tmp_path / name), "was altered", "restore it"):
            checksums.read(path)
    (tmp_path / name).write_bytes(whole)
    assert checksums.read(path) and checksums.read(other)


def test_a_file_without_a_checksum_is_read(tmp_path):
    (tmp_path / "new.json").write_bytes(b"{}")
    assert checksums.read(tmp_path / "new.json") == b"{}"
    assert not checksums.has_checksum(tmp_path / "new.json")


class Killed(BaseException):
    pass


def killed_at(number, monkeypatch, function):
    """Whether the function ended before that change of the folder."""
    changes, replace = itertools.count(), os.replace

    def stop(*arguments):
        if next(changes) == number:
            raise Killed
        return replace(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        try:
            function()
        except Killed:
            return False
    return True


def test_killed_anywhere_it_is_the_old_or_the_new(tmp_path, monkeypatch):
    """And so when the next ones are killed as well."""
    path = tmp_path / "a.json"
    checksums.write(path, b"0")
    seen = []
    for at in itertools.product(range(3), repeat=3):
        for number, kill in enumerate(at):
            data = f"{at} {number}".encode()
            old = path.read_bytes()
            is_done = killed_at(
                kill, monkeypatch, lambda d=data: checksums.write(path, d)
            )
            assert checksums.read(path) == (data if is_done else old)
            seen.append(is_done)
    assert any(seen) and not all(seen)


def test_a_log_may_grow_and_not_change(tmp_path, refuses):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    checksums.record_prefix(path, 4, checksums._measure(b"one\n")["sha256"])
    assert checksums.read_log(path) == b"one\ntwo\n"
    path.write_bytes(b"one\n2wo\ncut")
    assert checksums.read_log(path).endswith(b"cut")
    for damaged in (b"ona\ntwo\n", b"one", b""):
        path.write_bytes(damaged)
        with refuses(str(path), "was altered", "cure"):
            checksums.read_log(path, "cure")
    path.unlink()
    with refuses(str(path), "was altered"):
        checksums.read_log(path)
    with pytest.raises(FileNotFoundError):
        checksums.read_log(tmp_path / "other")


@pytest.mark.parametrize("text", ["", "[]", "3", '{"files": 3}', "[" * 10**5])
def test_checksums_that_are_none(tmp_path, text, refuses):
    (tmp_path / checksums.FILE).write_text(text)
    (tmp_path / "a").write_text("")
    with refuses(str(tmp_path / checksums.FILE), "was altered", "delete it"):
        checksums.read(tmp_path / "a")


def test_links_and_folders_in_its_place(tmp_path, refuses):
    victim = tmp_path / "victim"
    victim.write_text(json.dumps({"mine": 1}))
    path = tmp_path / "a.json"
    path.symlink_to(victim)
    checksums.write(path, victim.read_bytes())
    assert not path.is_symlink() and checksums.read(path) == victim.read_bytes()
    (tmp_path / "b.json").mkdir()
    with refuses(str(tmp_path / "b.json"), "cannot be written"):
        checksums.write(tmp_path / "b.json", b"")


def test_a_tree_is_recorded_but_for_hidden_files(tmp_path):
    for name in ("a", "inner/b", "inner/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    checksums.record_tree(tmp_path)
    assert checksums.list_recorded(tmp_path) == {"a"}
    assert checksums.list_recorded(tmp_path / "inner") == {"b"}


def test_only_a_log_may_have_grown(tmp_path):
    for name in ("log", "result"):
        (tmp_path / name).write_text("one")
    checksums.record(tmp_path, ["log", "result"])
    assert checksums.find_faults(tmp_path, ["log"]) == {}
    for name in ("log", "result"):
        (tmp_path / name).write_text("one, two")
    assert checksums.find_faults(tmp_path, ["log"]) == {"result": "was altered"}
    assert set(checksums.find_faults(tmp_path)) == {"log", "result"}
    (tmp_path / "log").write_text("uno, two")
    assert set(checksums.find_faults(tmp_path, ["log"])) == {"log", "result"}

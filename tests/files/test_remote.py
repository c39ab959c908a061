"""Folders of object stores: copies, uploads, leases."""

import errno
import json
import os
import shutil
import sys

import pytest
from stores import Killed, killed_at, machine, new_url, read_all

from jaxpt import trust
from jaxpt.errors import CheckpointError, LostLease, UserError
from jaxpt.files import checksums, copies, lease, mirror, objects, remote
from jaxpt.files.folder import claim, hold, new_folder, write_json
from jaxpt.files.objects import ObjectStore

LARGE = mirror.LARGE_BYTES + 1
START_RENEWING = lease._start


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    # A process is killed here, and no machine loses its power.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    # Tests leave leases behind as killed processes do; this one would renew them.
    monkeypatch.setattr(lease, "_held", set())
    monkeypatch.setattr(lease, "_start", lambda lease: None)
    with machine(monkeypatch, tmp_path / "home"):
        yield


@pytest.fixture
def away(monkeypatch, tmp_path):
    """Makes the process one of another machine for a block."""
    return lambda name="away": machine(monkeypatch, tmp_path / name)


def write(folder, version):
    """A version of a folder, of 1 to 3: what changes, comes and goes."""
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", {"version": version})
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(f"{version}\n")
    step = folder / "checkpoints" / str(version)
    step.mkdir(parents=True)
    (step / "array").write_bytes(bytes([version]) * LARGE)
    (step / "_METADATA").write_text("small")
    (step.parent / f"{version}.manifest.json").write_text(str(version))
    if version > 1:
        (step.parent / f"{version - 1}.manifest.json").unlink()
        shutil.rmtree(step.with_name(str(version - 1)))


def read(folder):
    """The files of a folder, after their checksums are verified; {} without any."""
    if (folder / "config.json").exists():
        checksums.read(folder / "config.json")
    paths = [p for p in folder.rglob("*") if p.is_file() and p.name != ".lock"]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}


def test_another_machine_reads_what_was_written(away):
    url = new_url()
    folder = remote.fetch(url)
    for version in (1, 2):
        with hold(folder):
            write(folder, version)
        assert read_all(url) == read(folder)
        with away():
            assert read(remote.fetch(url)) == read_all(url)
    assert {*read(folder)} == {
        *("config.json", "checksums.json", "metrics.jsonl"),
        *("checkpoints/2/array", "checkpoints/2/_METADATA"),
        "checkpoints/2.manifest.json",
    }


def test_a_folder_that_exists_is_not_copied_twice(monkeypatch):
    url = new_url()
    folder = remote.fetch(url)
    with hold(folder):
        write(folder, 1)
    monkeypatch.setattr(ObjectStore, "download", None)
    monkeypatch.setattr(ObjectStore, "upload", None)
    assert remote.fetch(url) == folder
    with hold(folder):
        pass


def make_versions():
    """What the files of versions 0 (none), 1 and 2 are."""
    versions = [{}]
    folder = remote.fetch(new_url())
    for version in (1, 2):
        with hold(folder):
            write(folder, version)
        versions.append(read(folder))
    return versions


@pytest.mark.parametrize("version", [1, 2])
def test_killed_at_any_moment_leaves_the_old_or_the_new(away, monkeypatch, version):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    versions = make_versions()
    old, new = versions[version - 1], versions[version]
    seen, number, is_done = [], 0, False
    while not is_done:
        url = new_url()
        folder = remote.fetch(url)
        if version > 1:
            with hold(folder):
                write(folder, 1)
        with killed_at(monkeypatch, number):
            with hold(folder):
                write(folder, version)
            is_done = True
        with away(f"reader{number}"):
            seen.append(read(remote.fetch(url)))
            assert seen[-1] in (old, new), number
        # The next writer, on another machine or on this one, begins with the same.
        with away(f"writer{number}") if number % 2 else monkeypatch.context():
            folder = remote.fetch(url)
            # Here the work of the killed process is kept if the store is as it was.
            assert read(folder) in (seen[-1], seen[-1] if number % 2 else new)
            with hold(folder):
                before = read(folder)
                assert before in (seen[-1], new)
                (folder / "more").write_bytes(b"0" * LARGE)
            assert read_all(url) == before | {"more": b"0" * LARGE}
        number += 1
    assert old in seen and new in seen
    assert number > 8  # each file, each removal, and .push.zip thrice


def test_a_second_upload_after_a_killed_one_may_be_killed_too(away, monkeypatch):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    versions = make_versions()
    for first in range(3, 12, 2):
        for second in range(1, 12, 2):
            url = new_url()
            folder = remote.fetch(url)
            with hold(folder):
                write(folder, 1)
            with killed_at(monkeypatch, first), hold(folder):
                write(folder, 2)
            with away(f"writer{first}-{second}"):
                folder = remote.fetch(url)
                with killed_at(monkeypatch, second), hold(folder):
                    (folder / "large").write_bytes(b"0" * LARGE)
            with away(f"reader{first}-{second}"):
                files = read(remote.fetch(url))
                files.pop("large", None)
                assert files in versions[1:], (first, second)


def test_what_was_not_uploaded_is_kept_until_another_machine_goes_on(away, monkeypatch):
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    url = new_url()
    folder = remote.fetch(url)
    with hold(folder):
        write(folder, 1)
    with killed_at(monkeypatch, 0), hold(folder):
        write(folder, 2)
    work = read(folder)
    assert read(remote.fetch(url)) == work  # this machine has the newest
    with away():
        folder_away = remote.fetch(url)
        with hold(folder_away):
            write_json(folder_away / "config.json", {"version": 9})
    assert read(remote.fetch(url)) == read_all(url) != work


def test_a_new_folder_begins_again_where_its_upload_was_killed(monkeypatch):
    url = new_url("export")
    for number in range(3):
        with killed_at(monkeypatch, number):
            with new_folder(remote.fetch(url)) as place:
                (place / "model").write_bytes(b"1" * LARGE)
                (place / "config.json").write_text("{}")
    with new_folder(remote.fetch(url)) as place:
        (place / "config.json").write_text("{}")
    assert read_all(url) == {"config.json": b"{}"}
    with pytest.raises(CheckpointError, match=f"to={url}: must be a new or an empty"):
        try:
            with new_folder(remote.fetch(url)):
                pass
        except CheckpointError as error:
            raise CheckpointError(copies.with_urls(str(error))) from error


def test_one_machine_writes_at_a_time(away, monkeypatch):
    monkeypatch.setattr(lease, "_start", START_RENEWING)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lease, "_renewer", None)
    url = new_url()
    folder = remote.fetch(url)
    with hold(folder):
        write(folder, 1)
        with away():
            other = remote.fetch(url)
            with claim(other) as is_ours:
                assert not is_ours
            with pytest.raises(CheckpointError, match="another process is writing"):
                with hold(other):
                    pass
        write(folder, 2)
    with away(), claim(remote.fetch(url)) as is_ours:
        assert is_ours


def test_a_lost_lease_stops_the_first_process(away, monkeypatch):
    url = new_url()
    folder = remote.fetch(url)
    with pytest.raises(LostLease, match="another process has taken over"):
        with hold(folder):
            write(folder, 1)
            monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
            with away():
                other = remote.fetch(url)
                with hold(other):
                    write_json(other / "config.json", {"version": 5})
            after = read_all(url)
            remote.push(folder / "checkpoints")
    assert read_all(url) == after


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_late_renewal_yields_to_another_process(monkeypatch, is_taken_over):
    """Which takes the folder over after the late process has listed its lease."""
    store, write = ObjectStore(new_url()), ObjectStore.write
    held, others = lease.take(store, "", "here", waits=False), []

    def write_late(self, name, data):
        monkeypatch.setattr(ObjectStore, "write", write)
        if is_taken_over:
            with monkeypatch.context() as patch:
                patch.setattr(lease, "LEASE_SECONDS", 0.0)
                others.append(lease.take(store, "", "there", waits=False))
        write(self, name, data)

    monkeypatch.setattr(ObjectStore, "write", write_late)
    held._renewed -= lease.LEASE_SECONDS
    held.renew()
    if is_taken_over:
        others[0].check()
        with pytest.raises(LostLease):
            held.check()
    else:
        held.check()


def test_an_image_of_a_disk_on_another_host_is_another_machine(monkeypatch):
    store = ObjectStore(new_url())
    lease.take(store, "", "mirror", waits=False)
    with monkeypatch.context() as patch:
        patch.setattr(lease.socket, "gethostname", lambda: "elsewhere")
        assert lease.take(store, "", "mirror", waits=False) is None
    assert lease.take(store, "", "mirror", waits=False)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_of_two_that_take_a_lease_at_once_at_most_one_has_it(monkeypatch, moment):
    store, write, taken = ObjectStore(new_url()), ObjectStore.write, {}

    def write_with_another(self, name, data):
        """Another process takes the lease before, or after, this one writes its own."""
        monkeypatch.setattr(ObjectStore, "write", write)
        if moment == "after":
            write(self, name, data)
        taken["other"] = lease.take(store, "a/", "there", waits=False)
        if moment == "before":
            write(self, name, data)

    monkeypatch.setattr(ObjectStore, "write", write_with_another)
    taken["this"] = lease.take(store, "a/", "here", waits=False)
    assert {who for who, held in taken.items() if held} == {
        "other" if moment == "before" else "this"
    }
    assert len(store.list()) == 1


def test_a_reader_beside_the_writer_changes_none_of_its_files(monkeypatch):
    url = new_url()
    folder, upload = remote.fetch(url), ObjectStore.upload

    def upload_while_another_reads(self, files):
        upload(self, files)
        (folder / "metrics.jsonl").write_text("newer")
        with monkeypatch.context() as patch:
            patch.setattr(remote, "_writing", {})  # of another process
            assert remote.fetch(url) == folder

    with hold(folder):
        write(folder, 1)
        monkeypatch.setattr(ObjectStore, "upload", upload_while_another_reads)
        remote.push(folder)
        assert (folder / "metrics.jsonl").read_text() == "newer"
        monkeypatch.setattr(ObjectStore, "upload", upload)
    assert read_all(url)["metrics.jsonl"] == b"newer"


def test_a_reader_leaves_the_files_of_a_command_beside_it(monkeypatch):
    """Also of one that has no lock in its folder, such as jaxpt prepare."""
    url = new_url("store")
    folder = remote.fetch(url)
    with remote.hold_output(folder):
        folder.mkdir()
        (folder / "card.json").write_text("{}")
        ObjectStore(url).write("other", b"")
        with monkeypatch.context() as patch:
            patch.setattr(remote, "_writing", {})  # of another process
            assert remote.fetch(url) == folder
        assert (folder / "card.json").exists()
    assert {"card.json", "other"} == read_all(url).keys()


def test_a_writer_that_removes_files_during_a_copy(monkeypatch):
    """The others are not copied again."""
    url, download, copied = new_url(), ObjectStore.download, []
    with hold(remote.fetch(url)):
        write(remote.fetch(url), 1)

    def download_late(self, files):
        if not copied:
            self.remove(["checkpoints/1/array"])
        download(self, files)
        copied.append({name for name, path in files.items() if path.exists()})

    monkeypatch.setattr(ObjectStore, "download", download_late)
    monkeypatch.setattr(remote, "_mirrors", {})
    monkeypatch.setenv("JAXPT_CACHE", os.environ["JAXPT_CACHE"] + "-of-a-reader")
    monkeypatch.setattr(mirror.time, "sleep", lambda seconds: None)
    assert read(remote.fetch(url)) == read_all(url)
    assert "checkpoints/1/array" not in read_all(url)
    assert not set.intersection(*copied)


def test_a_folder_within_is_left_to_its_process(away):
    url = new_url("comparison")
    root = remote.fetch(url)
    with hold(root):
        write_json(root / "compare.json", {})
    with away("worker"):
        run = remote.fetch(url, leaves_out="runs") / "runs" / "a"
        with hold(run):
            write(run, 1)
            remote.push(run)
    with away("worker"):
        with hold(remote.fetch(url, leaves_out="runs") / "runs" / "a") as _:
            write_json(run / "config.json", {"version": 7})
            with away("root"):
                other = remote.fetch(url)
                assert not (other / "runs").exists()
                with hold(other):
                    write_json(other / "report.json", {})
    files = read_all(url)
    assert {"compare.json", "report.json", "runs/a/config.json"} < files.keys()
    assert json.loads(files["runs/a/config.json"]) == {"version": 7}


def test_a_cache_that_is_removed_removes_nothing_of_the_store(tmp_path):
    url = new_url()
    folder = remote.fetch(url)
    with hold(folder):
        write(folder, 1)
    files = read_all(url)
    with pytest.raises(UserError):
        with hold(folder):
            shutil.rmtree(tmp_path / "home")
            raise CheckpointError("some error")
    assert read_all(url) == files
    assert read(remote.fetch(url)) == files


def test_an_upload_that_fails_is_made_up_for(monkeypatch, caplog):
    url = new_url()
    folder = remote.fetch(url)
    upload, fails = ObjectStore.upload, [True]

    def fail_once(self, files):
        if fails.pop() if fails else False:
            raise CheckpointError("no network")
        upload(self, files)

    monkeypatch.setattr(ObjectStore, "upload", fail_once)
    with hold(folder):
        write(folder, 1)
        remote.push(folder)
        assert {*caplog.messages} == {
            "no network; not uploaded yet, and kept in the cache"
        }
        write(folder, 2)
    assert read_all(url) == read(folder)


def test_paths_of_copies_are_urls_in_json_and_messages():
    url = new_url()
    folder = remote.fetch(url)
    assert remote.is_remote(folder / "a") and not remote.is_remote("/tmp")
    assert copies.with_urls(folder / "a") == f"{url}/a"
    with hold(folder):
        write_json(folder / "config.json", {"path": str(folder / "x")})
    assert json.loads((folder / "config.json").read_text()) == {"path": f"{url}/x"}


def test_local_paths_stay_as_they_are():
    for path in ("runs/*/", "./a//b/", "a/../b", ""):
        assert remote.localise(path) == path
    url = new_url()
    assert remote.localise(url) == str(remote.fetch(url))


def test_wildcards(tmp_path):
    url = new_url("texts")
    store = ObjectStore(url)
    for name in ("a.txt", "b.txt", "c.md"):
        store.write(name, name.encode())
    pattern = remote.fetch(f"{url}/*.txt")
    assert sorted(p.name for p in pattern.parent.glob(pattern.name)) == [
        "a.txt",
        "b.txt",
    ]
    assert remote.fetch(f"{url}/a.txt").read_text() == "a.txt"
    store.write("a.txt", b"new")
    assert remote.fetch(f"{url}/a.txt").read_text() == "new"


def test_other_files_of_a_folder_are_kept():
    url = new_url("photos")
    ObjectStore(url).write("x.jpg", b"x")
    folder = remote.fetch(url)
    with hold(folder):
        ObjectStore(url).write("y.jpg", b"y")
        write(folder, 1)
    assert {"x.jpg", "y.jpg", "config.json"} < read_all(url).keys()


def test_a_disk_that_is_too_small_is_said_before(monkeypatch):
    url = new_url("text")
    ObjectStore(url).write("a.txt", b"x" * 1000)
    usage = shutil.disk_usage("/")._replace(free=999)
    monkeypatch.setattr(mirror.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(ObjectStore, "download", None)
    with pytest.raises(
        CheckpointError, match="set JAXPT_CACHE to a folder on a larger"
    ):
        remote.fetch(url)


@pytest.mark.parametrize("data", [b"", b"PK damaged"])
def test_a_damaged_upload_is_one_line(data):
    url = new_url()
    store = ObjectStore(url)
    store.write("config.json", b"{}")
    store.write(mirror.PUSH, data)
    with pytest.raises(CheckpointError, match=f"{url}/.push.zip: is damaged"):
        remote.fetch(url)


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a//b"])
def test_a_forged_name_leaves_no_folder(name):
    url = new_url()
    push = mirror._Push(True, [], [], {name: b"x"})
    ObjectStore(url).write(mirror.PUSH, mirror._pack("", push))
    with pytest.raises(CheckpointError, match="a name leaves the folder"):
        remote.fetch(url)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (PermissionError("Forbidden"), "access is denied (Forbidden); check the perm"),
        (type("NoCredentialsError", (Exception,), {})("none"), "access is denied"),
        (OSError("Forbidden: b/a"), "access is denied (Forbidden: b/a)"),
        (
            FileNotFoundError("b/Token: denied"),
            "does not exist (b/Token: denied); crea",
        ),
        (type("ConnectTimeoutError", (Exception,), {})("x"), "cannot be reached (x)"),
        (ConnectionError("refused"), "cannot be reached (refused); check the network"),
        (OSError(errno.ENOSPC, "No space left", "/a"), "/a: No space left"),
        (RuntimeError("odd\nthing"), "RuntimeError: odd thing"),
    ],
)
def test_errors_of_drivers_are_one_line(monkeypatch, error, meaning):
    url = new_url()
    store = ObjectStore(url)

    def fail(path, data):
        raise error

    monkeypatch.setattr(store._fs, "pipe_file", fail)
    with pytest.raises(CheckpointError) as caught:
        store.write("a", b"")
    assert str(caught.value).startswith(f"{url}: ") and "\n" not in str(caught.value)
    assert meaning in str(caught.value)


@pytest.mark.parametrize(
    ("url", "meaning"),
    [
        ("nosuch://a/b", "must be a local path, or a URL that begins with gs://"),
        ("memory://", "must name a bucket"),
        ("memory://*", "must name a bucket"),
    ],
)
def test_urls_that_name_nothing(url, meaning):
    trust.trust_places(url)
    with pytest.raises(UserError, match=meaning):
        remote.fetch(url)


@pytest.mark.parametrize("url", ["s3://bucket/a", "gs://bucket/a"])
def test_a_package_that_is_missing_is_named(monkeypatch, url):
    trust.trust_places(url)
    for name in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("s3", "gs"):
        registry = sys.modules["fsspec.registry"]._registry
        monkeypatch.delitem(registry, name, raising=False)
    with pytest.raises(
        CheckpointError, match=r"pip install 'jaxpt\[cloud\]'"
    ) as caught:
        remote.fetch(url)
    assert objects.INSTALL in str(caught.value)


def test_a_killed_process_is_killed(monkeypatch):
    """Of the helper: after the first kill nothing reaches the store."""
    store = ObjectStore(new_url())
    with killed_at(monkeypatch, 1):
        store.write("a", b"")
        for _ in range(2):
            with pytest.raises(Killed):
                store.write("b", b"")
    assert store.list().keys() == {"a"}

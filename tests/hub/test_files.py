"""Checkpoint folders: back as written, as transformers has them, faults in one line."""

import contextlib
import errno
import itertools
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from jaxpt.errors import UserError
from jaxpt.hub import files
from jaxpt.hub.files import (
    read_json,
    read_tensors,
    write_file,
    write_json,
    write_tensors,
)

ROOT = Path(__file__).resolve().parents[2]
TENSORS = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.bias": np.array([-0.0, np.inf], np.float32),
    "c": np.array(7, np.float32),
    "d": np.zeros((0, 3), np.float32),
}
FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))


@pytest.fixture
def sharded(tmp_path):
    """A checkpoint in two shards: b.weight in the first, the others in the second."""
    write_tensors(tmp_path, TENSORS, max_shard_bytes=24)
    assert list_files(tmp_path) == [FIRST, SECOND, files.INDEX]
    return tmp_path


def list_files(folder) -> list[str]:
    return sorted(os.listdir(folder))


def assert_same(result, tensors):
    assert set(result) == set(tensors)
    for name, tensor in tensors.items():
        assert result[name].dtype == np.float32
        assert result[name].shape == tensor.shape
        assert result[name].tobytes() == tensor.astype(np.float32).tobytes()


@contextlib.contextmanager
def refuses(*parts):
    with pytest.raises(UserError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert str(part) in message


def edit_index(folder, **changes):
    """Puts tensors elsewhere in the index; None takes them out."""
    path = folder / files.INDEX
    index = json.loads(path.read_text())
    index["weight_map"] |= changes
    index["weight_map"] = {k: v for k, v in index["weight_map"].items() if v}
    path.write_text(json.dumps(index))


def save_raw(path, header: dict, data: bytes):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# There and back.


@pytest.mark.parametrize("max_bytes", [5_000_000_000, 24, 1])
def test_tensors_come_back(tmp_path, max_bytes):
    write_tensors(tmp_path / "new" / "folder", TENSORS, max_bytes)
    assert_same(read_tensors(tmp_path / "new" / "folder"), TENSORS)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_comes_back_as_float32(tmp_path, dtype):
    # Every pattern of 16 bits, not-a-numbers left out: those need not keep theirs.
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(256, 256)
    values = np.where(np.isnan(values.astype(np.float32)), dtype(0), values)
    write_tensors(tmp_path, {"x": values})
    assert (tmp_path / files.MODEL).stat().st_size < 2 * values.size + 200
    assert_same(read_tensors(tmp_path), {"x": values})


def test_bfloat16_is_known_without_jax(tmp_path):
    write_tensors(tmp_path, {"x": np.array([1.5], ml_dtypes.bfloat16)})
    code = (
        "import sys; from jaxpt.hub.files import read_tensors\n"
        "assert 'jax' not in sys.modules\n"
        "assert read_tensors(sys.argv[1])['x'].tolist() == [1.5]"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True)


def test_strides_are_written_out(tmp_path):
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensors = {"turned": whole.T, "part": whole[::2, 1::2], "back": whole[::-1]}
    write_tensors(tmp_path, tensors)
    assert_same(read_tensors(tmp_path), tensors)


def test_tensors_are_read_when_asked_for(sharded):
    tensors = read_tensors(sharded)
    data = (sharded / FIRST).read_bytes()
    with open(sharded / FIRST, "r+b") as file:  # the same file, another last number
        file.seek(len(data) - 4)
        file.write(np.float32(99).tobytes())
    assert len(tensors) == 4 and "b.weight" in tensors and "nope" not in tensors
    assert tensors["b.weight"][1, 2] == 99
    with pytest.raises(KeyError):
        tensors["nope"]


def test_a_file_cut_off_while_open(tmp_path):
    write_tensors(tmp_path, {"x": np.ones(100_000, np.float32)})
    tensors = read_tensors(tmp_path)
    os.truncate(tmp_path / files.MODEL, 1000)
    with refuses(tmp_path / files.MODEL, "'x'", "cannot be read"):
        tensors["x"]


# As transformers has them.


def test_one_file(tmp_path):
    write_tensors(tmp_path, TENSORS)
    assert list_files(tmp_path) == [files.MODEL]
    with safe_open(tmp_path / files.MODEL, framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert sorted(file.keys()) == sorted(TENSORS)


def test_the_index(sharded):
    rest = ["a.bias", "c", "d"]
    index = {
        "metadata": {"total_parameters": 9, "total_size": 36},
        "weight_map": {"b.weight": FIRST} | dict.fromkeys(rest, SECOND),
    }
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    assert (sharded / files.INDEX).read_text() == text
    for name, held in ((FIRST, ["b.weight"]), (SECOND, rest)):
        with safe_open(sharded / name, framework="numpy") as file:
            assert file.metadata() == {"format": "pt"}
            assert sorted(file.keys()) == held


@settings(max_examples=20)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.integers(1, 90))
def test_shards_hold_all_once_and_are_not_over(sizes, max_bytes):
    tensors = {f"t{i}": np.full(n, i, np.float32) for i, n in enumerate(sizes)}
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(folder, tensors, max_bytes)
        assert_same(read_tensors(folder), tensors)
        held = [load_file(path) for path in Path(folder).glob("*.safetensors")]
    assert sorted(itertools.chain(*held)) == sorted(tensors)
    for shard in held:
        assert shard
        assert sum(x.nbytes for x in shard.values()) <= max_bytes or len(shard) == 1


def test_json_as_transformers_writes_it(tmp_path):
    write_json(tmp_path / "new", "config.json", {"b": [1.5, None], "a": "é"})
    text = (tmp_path / "new" / "config.json").read_text()
    assert text == ('{\n  "a": "\\u00e9",\n  "b": [\n    1.5,\n    null\n  ]\n}\n')
    assert list_files(tmp_path / "new") == ["config.json"]
    assert read_json(tmp_path / "new", "config.json") == {"b": [1.5, None], "a": "é"}


@pytest.mark.peers
@pytest.mark.parametrize("max_bytes", [5_000_000_000, 20_000])
def test_transformers_writes_the_same(tmp_path, max_bytes):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=2, n_head=2)
    reference = GPT2LMHeadModel(config)
    reference.save_pretrained(tmp_path / "theirs", max_shard_size=max_bytes)
    ours = read_tensors(tmp_path / "theirs")
    for name, tensor in reference.state_dict().items():
        if name != "lm_head.weight":  # tied
            np.testing.assert_array_equal(ours[name], tensor.numpy())
    ordered = {name: ours[name] for name in reference.state_dict() if name in ours}
    write_tensors(tmp_path / "ours", ordered, max_bytes)
    written = set(list_files(tmp_path / "theirs"))
    assert set(list_files(tmp_path / "ours")) == {
        name for name in written if name.startswith("model")
    }
    assert len(list_files(tmp_path / "ours")) == (1 if max_bytes > 20_000 else 3)
    for name in list_files(tmp_path / "ours"):
        result, expected = (
            (tmp_path / f / name).read_bytes() for f in ("ours", "theirs")
        )
        assert result == expected, name
    write_json(
        tmp_path / "ours", "config.json", read_json(tmp_path / "theirs", "config.json")
    )
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    for name, tensor in reference.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    reference.bfloat16().save_pretrained(tmp_path / "half", max_shard_size=max_bytes)
    for name, tensor in read_tensors(tmp_path / "half").items():
        np.testing.assert_array_equal(
            tensor, reference.state_dict()[name].float().numpy()
        )


# Whole or not at all.


def test_what_was_there_is_replaced(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for max_bytes, num_files in ((1, 5), (24, 3), (10**9, 1), (10**9, 1), (24, 3)):
        tensors = {name: tensor + max_bytes for name, tensor in TENSORS.items()}
        write_tensors(tmp_path, tensors, max_bytes)
        assert len(list_files(tmp_path)) == num_files + 1
        assert_same(read_tensors(tmp_path), tensors)


def test_what_a_killed_writer_left_is_removed(tmp_path):
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / FIRST).write_bytes(b"half")
    write_tensors(tmp_path, TENSORS)
    assert list_files(tmp_path) == [files.MODEL]


def test_all_is_on_the_medium_before_it_is_moved(tmp_path, monkeypatch):
    flushed, fsync, replace = set(), os.fsync, os.replace

    def note(handle):
        flushed.add(os.fstat(handle).st_ino)
        fsync(handle)

    def check(source, target):
        assert os.stat(source).st_ino in flushed
        replace(source, target)
        flushed.discard(os.stat(tmp_path).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", check)
    write_tensors(tmp_path, TENSORS, max_shard_bytes=24)
    assert os.stat(tmp_path).st_ino in flushed
    write_json(tmp_path, "config.json", {})
    assert os.stat(tmp_path).st_ino in flushed


def test_no_link_is_written_through(tmp_path):
    victim, into = tmp_path / "victim", tmp_path / "into"
    victim.write_text("dear diary")
    into.mkdir()
    names = (files.MODEL, ".config.json.partial", "config.json", ".model.partial")
    for name in names:
        (into / name).symlink_to(victim)
    write_tensors(into, TENSORS)
    write_json(into, "config.json", {"a": 1})
    write_file(into, "README.md", b"card")
    assert victim.read_text() == "dear diary"
    assert read_json(into, "config.json") == {"a": 1}
    assert_same(read_tensors(into), TENSORS)


def test_others_may_read_what_the_umask_lets_them(tmp_path):
    old = os.umask(0o027)
    try:
        write_tensors(tmp_path / "x", TENSORS, max_shard_bytes=24)
    finally:
        os.umask(old)
    for name in list_files(tmp_path / "x"):
        assert stat.S_IMODE((tmp_path / "x" / name).stat().st_mode) == 0o640


@pytest.mark.parametrize("max_bytes", [10**9, 100_000])
def test_a_full_disk_leaves_what_was_there(tmp_path, max_bytes):
    old = {"x": np.zeros(4, np.float32)}
    write_tensors(tmp_path, old)
    code = """if True:
        import resource, sys, numpy
        from jaxpt.errors import UserError
        from jaxpt.hub.files import write_tensors
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        small, large = numpy.ones(10, 'f4'), numpy.ones(50_000, 'f4')
        try:
            write_tensors(sys.argv[1], {'s': small, 'l': large}, int(sys.argv[2]))
        except UserError as error:
            print(error)
    """
    output = subprocess.run(
        [sys.executable, "-c", code, tmp_path, str(max_bytes)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    what = f"cannot be written: {os.strerror(errno.EFBIG)}"
    assert output == f"model folder {tmp_path}: {what}\n"
    assert list_files(tmp_path) == [files.MODEL]
    assert_same(read_tensors(tmp_path), old)


@pytest.mark.parametrize("before", [1, 10**9])
@pytest.mark.parametrize("after", [1, 10**9])
def test_killed_anywhere_it_is_the_old_the_new_or_none(
    tmp_path, monkeypatch, before, after
):
    """Stops at each change of the folder in turn, as a kill would."""

    class Killed(BaseException):
        pass

    old = {name: tensor + 1 for name, tensor in TENSORS.items()}
    seen = []
    for last in range(100):
        write_tensors(folder := tmp_path / str(last), old, before)
        changes = itertools.count()

        def stop_at_last(change):
            def call(*args, **kwargs):
                if next(changes) == last:
                    raise Killed
                return change(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stop_at_last(os.replace))
            patch.setattr(Path, "unlink", stop_at_last(Path.unlink))
            patch.setattr(files, "remove", lambda path: None)  # nor does it tidy up
            with contextlib.suppress(Killed):
                write_tensors(folder, TENSORS, after)
        try:
            tensors = read_tensors(folder)
        except UserError:
            seen.append("none")
        else:
            is_old = tensors["c"] == old["c"]
            assert_same(tensors, old if is_old else TENSORS)
            seen.append("old" if is_old else "new")
        if next(changes) <= last:
            break
    assert seen[0] == "old" and seen[-1] == "new"
    assert seen == sorted(seen, key=["old", "none", "new"].index)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_the_systems_reason_is_told(tmp_path, monkeypatch, code):
    def fail(*args, **kwargs):
        raise OSError(code, os.strerror(code), "x")

    monkeypatch.setattr(files.os, "fsync", fail)
    with refuses(tmp_path, f"cannot be written: {os.strerror(code)}"):
        write_tensors(tmp_path, TENSORS)
    assert list_files(tmp_path) == []
    with refuses(tmp_path / "config.json", os.strerror(code)):
        write_json(tmp_path, "config.json", {})
    assert list_files(tmp_path) == []


def test_a_file_where_the_folder_should_be(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with refuses(path, "File exists"):
        write_tensors(path, TENSORS)
    with refuses(path, "File exists"):
        write_json(path, "a.json", {})
    with refuses(path, "Not a directory"):
        read_tensors(path)


def test_what_cannot_be_written(tmp_path):
    with refuses("max_shard_bytes=0", "at least 1"):
        write_tensors(tmp_path, TENSORS, 0)
    for tensors in (
        {},
        {"x": np.zeros(2, np.int64)},
        {"x": np.zeros(2)},
        {"x": np.zeros(2, ">f4")},
    ):
        with pytest.raises(ValueError):
            write_tensors(tmp_path, tensors)
    with pytest.raises(ValueError):
        write_json(tmp_path, "config.json", {"x": float("nan")})
    assert list_files(tmp_path) == []


# Errors of reading.


def test_nothing_there(tmp_path):
    with refuses(tmp_path / "gone", "No such file or directory"):
        read_tensors(tmp_path / "gone")
    with refuses(tmp_path, "must have model.safetensors or model.safetensors.i"):
        read_tensors(tmp_path)
    (tmp_path / files.MODEL).symlink_to(tmp_path / "gone")
    with refuses(tmp_path / files.MODEL, "No such file or directory"):
        read_tensors(tmp_path)


PICKLE = "a pickle, which can run code when it is loaded: convert it to model.safet"
UNKNOWN = "not supported", "convert it to model.safetensors"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        *((f"x.{suffix}", [PICKLE]) for suffix in ("bin", "pt", "pth", "ckpt", "pkl")),
        ("pytorch_model.bin", [PICKLE]),
        ("flax_model.msgpack", UNKNOWN),
        ("tf_model.h5", UNKNOWN),
    ],
)
def test_other_formats(tmp_path, name, parts):
    (tmp_path / name).write_bytes(b"")
    with refuses(tmp_path / name, *parts):
        read_tensors(tmp_path)


def test_the_models_own_pickle_is_named(tmp_path):
    for name in ("optimizer.bin", "flax_model.msgpack", "pytorch_model.bin"):
        (tmp_path / name).write_bytes(b"")
    with refuses(tmp_path / "pytorch_model.bin"):
        read_tensors(tmp_path)


def test_a_pickle_beside_safetensors_is_left_alone(tmp_path):
    write_tensors(tmp_path, TENSORS)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert_same(read_tensors(tmp_path), TENSORS)


@pytest.mark.slow_cases("model-00002*")
@pytest.mark.parametrize("name", [files.MODEL, SECOND])
def test_every_cut_is_noticed(tmp_path, name):
    write_tensors(tmp_path, TENSORS, 24 if name == SECOND else 10**9)
    data = (tmp_path / name).read_bytes()
    for end in range(len(data)):
        (tmp_path / name).write_bytes(data[:end])
        with refuses(tmp_path / name, "truncated"):
            read_tensors(tmp_path)
    (tmp_path / name).write_bytes(data + b"0")
    with refuses(tmp_path / name):
        read_tensors(tmp_path)


def test_what_is_not_safetensors(tmp_path):
    path = tmp_path / files.MODEL
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with refuses(path, "git lfs pull"):
        read_tensors(tmp_path)
    path.write_bytes(b"\x80\x04pickled" * 100)
    with refuses(path, "not safetensors"):
        read_tensors(tmp_path)


@pytest.mark.skipif(not os.geteuid(), reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    write_tensors(tmp_path, TENSORS)
    os.chmod(tmp_path / files.MODEL, 0)
    with refuses(tmp_path / files.MODEL, "Permission"):
        read_tensors(tmp_path)


def test_other_dtypes(tmp_path):
    save_raw(
        tmp_path / files.MODEL,
        {
            "ids": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
            "half": {"dtype": "F16", "shape": [1], "data_offsets": [8, 10]},
            "tiny": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [10, 12]},
        },
        bytes(12),
    )
    tensors = read_tensors(tmp_path)
    assert sorted(tensors) == ["half", "ids", "tiny"]
    assert tensors["half"].tolist() == [0]
    path = tmp_path / files.MODEL
    with refuses(path, "'ids' is I64", "one of F32, F16, BF16"):
        tensors["ids"]
    with refuses(path, "'tiny' is F8_E4M3"):
        tensors["tiny"]


# Faults of the index.


def test_a_shard_is_missing(sharded):
    (sharded / SECOND).unlink()
    with refuses(sharded / SECOND, "missing", "a.bias"):
        read_tensors(sharded)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a JSON object: ["),
        ("{}", "weight_map"),
        ('{"weight_map": []}', "weight_map"),
        ('{"weight_map": {}}', "weight_map"),
        ('{"weight_map": {"x": 1}}', "weight_map['x']=1"),
        ('{"weight_map": {"x": "a", "x": "b"}}', "'x' appears twice"),
    ],
)
def test_an_index_that_is_none(sharded, text, what):
    (sharded / files.INDEX).write_text(text)
    with refuses(sharded / files.INDEX, what):
        read_tensors(sharded)


@pytest.mark.parametrize(
    "shard",
    [
        "{folder}/outside.safetensors",
        "../outside.safetensors",
        "sub/../../outside.safetensors",
        "sub/inside.safetensors",
        "..\\outside.safetensors",
        "C:outside.safetensors",
        "\\\\host\\share\\x.safetensors",
        "..",
        ".",
        "",
        "pytorch_model.bin",
    ],
)
def test_shards_must_be_files_of_the_folder(tmp_path, shard):
    folder = tmp_path / "model"
    write_tensors(folder, TENSORS, max_shard_bytes=24)
    (folder / "sub").mkdir()
    for place in ("outside", "model/sub/inside"):
        save_file({"x": np.zeros(1, np.float32)}, tmp_path / f"{place}.safetensors")
    shard = shard.format(folder=tmp_path)
    index = read_json(folder, files.INDEX)
    index["weight_map"]["x"] = shard
    write_json(folder, files.INDEX, index)
    with refuses(folder / files.INDEX, f"['x']={shard!r}", "of the folder"):
        read_tensors(folder)


@pytest.mark.parametrize("name", ["x" * 300, "\0", "\ud800"])
def test_names_that_no_system_allows(sharded, name):
    edit_index(sharded, x=f"{name}.safetensors")
    with refuses("missing"):
        read_tensors(sharded)


def test_links_must_stay_in_the_folder(tmp_path):
    folder = tmp_path / "model"
    write_tensors(folder, TENSORS, max_shard_bytes=24)
    (folder / "sub").mkdir()
    os.rename(folder / SECOND, folder / "sub" / SECOND)
    (folder / SECOND).symlink_to(folder / "sub" / SECOND)
    assert_same(read_tensors(folder), TENSORS)
    (tmp_path / "link").symlink_to(folder)
    assert_same(read_tensors(tmp_path / "link"), TENSORS)
    os.rename(folder / "sub" / SECOND, tmp_path / SECOND)
    (folder / SECOND).unlink()
    (folder / SECOND).symlink_to(tmp_path / SECOND)
    with refuses(folder / SECOND, "out of the folder", tmp_path):
        read_tensors(folder)


def test_the_cache_of_huggingface_hub(tmp_path):
    """Its folders have links to the files, which are in a folder next to them."""
    folder, blobs = tmp_path / "snapshots" / "f00d", tmp_path / "blobs"
    write_tensors(folder, TENSORS, max_shard_bytes=24)
    blobs.mkdir()
    for name in list_files(folder):
        os.rename(folder / name, blobs / name[::-1])
        (folder / name).symlink_to(Path("../../blobs") / name[::-1])
    assert_same(read_tensors(folder), TENSORS)
    os.rename(tmp_path / "snapshots", tmp_path / "others")
    with refuses("others", "out of the folder"):
        read_tensors(tmp_path / "others" / "f00d")
    os.rename(tmp_path / "others", tmp_path / "snapshots")
    os.rename(blobs / SECOND[::-1], tmp_path / "x")
    (folder / SECOND).unlink()
    (folder / SECOND).symlink_to(tmp_path / "x")
    with refuses(folder / SECOND, "out of the folder"):
        read_tensors(folder)


def test_one_file_has_precedence_over_shards(sharded):
    """As in transformers; both are in some repositories of the Hub."""
    save_file({"only": np.ones(2, np.float32)}, sharded / files.MODEL)
    assert list(read_tensors(sharded)) == ["only"]


@pytest.mark.parametrize(
    ("changes", "shard", "what"),
    [
        ({"x": FIRST}, FIRST, "lacks 'x'"),  # in no shard
        ({"c": FIRST}, FIRST, "lacks 'c'"),  # in another shard
        ({"c": None}, SECOND, "has 'c'"),  # not in the index
    ],
)
def test_an_index_of_other_shards(sharded, changes, shard, what):
    edit_index(sharded, **changes)
    with refuses(sharded / shard, what):
        read_tensors(sharded)


def test_a_tensor_in_two_shards(sharded):
    save_file({"b.weight": TENSORS["c"], "c": TENSORS["c"]}, sharded / FIRST)
    with refuses(files.INDEX, f"'c' is in {FIRST} and in {SECOND}"):
        read_tensors(sharded)


# Faults of JSON files.


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": NaN}', "not JSON: NaN"),
        (b'{"a": -Infinity}', "not JSON: -Infinity"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "the key 'b' appears twice"),
        (b"[1]", "not a JSON object: ["),
        (b"null", "not a JSON object: None"),
    ],
)
def test_json_that_is_none(tmp_path, data, what):
    (tmp_path / "config.json").write_bytes(data)
    with refuses(tmp_path / "config.json", what):
        read_json(tmp_path, "config.json")


def test_json_that_is_missing(tmp_path):
    with refuses(tmp_path / "config.json", "No such file"):
        read_json(tmp_path, "config.json")
    (tmp_path / "config.json").mkdir()
    with refuses(tmp_path / "config.json", "Is a directory"):
        read_json(tmp_path, "config.json")

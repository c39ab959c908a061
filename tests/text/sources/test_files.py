import bz2
import gzip
import hashlib
import lzma
import os
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.text.sources import files
from jaxpt.text.sources.files import hash_file, read_bytes, read_lines, read_text

TEXT = "".join(f"{i} p\u00e9\u20ac\U0001f600\r\n" for i in range(3000))


def pack_zst(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": pack_zst,
    ".bz2": bz2.compress,
}
PACKED = [*files.PACKINGS]
packings = pytest.mark.parametrize("packing", PACK)


@pytest.fixture
def write(tmp_path):
    """`write(".gz", data)`: a file of these bytes, packed by each name in turn."""

    def write_file(packing: str, data: bytes, packed: bool = False):
        path = tmp_path / f"a.txt{packing}"
        path.write_bytes(data if packed else PACK[packing](data))
        return path

    return write_file


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 1000)


@packings
def test_every_packing_gives_the_same_bytes(packing, write, small_blocks):
    path = write(packing, TEXT.encode())
    blocks = list(read_bytes(path))
    assert b"".join(blocks) == TEXT.encode()
    assert len(blocks) > 40 and max(map(len, blocks)) <= 1000
    assert "".join(read_text(path)) == TEXT


@pytest.mark.parametrize("packing", PACKED)
def test_joined_files_are_read_to_the_end(packing, write, small_blocks):
    data = PACK[packing](TEXT.encode()) + PACK[packing](b"") + PACK[packing](b"end")
    path = write(packing, data, packed=True)
    assert "".join(read_text(path)) == TEXT + "end"


def test_xz_streams_with_padding(write, small_blocks):
    data = lzma.compress(b"one ") + bytes(4096) + lzma.compress(b"two") + bytes(8)
    assert list(read_bytes(write(".xz", data, packed=True))) == [b"one ", b"two"]


@pytest.mark.slow_cases(".xz")
@pytest.mark.parametrize("packing", PACKED)
def test_little_packed_data_never_becomes_one_large_block(packing, write, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(files, "MIN_UNPACKED", 1 << 30)
    path = write(packing, bytes(20_000_000))  # packs to a few kB
    assert path.stat().st_size < 40_000
    sizes = list(map(len, read_bytes(path)))
    assert sum(sizes) == 20_000_000 and max(sizes) <= 1 << 16


@pytest.mark.parametrize("packing", PACKED)
def test_truncated_anywhere(packing, write, refuses):
    data = PACK[packing](TEXT.encode())
    for size in (1, 5, 11, len(data) // 2, len(data) - 5, len(data) - 1):
        path = write(packing, data[:size], packed=True)
        with refuses(f"data.path={path}: ", packing, "runcated"):
            list(read_text(path))


@pytest.mark.parametrize("packing", PACKED)
def test_damaged(packing, write, refuses):
    data = bytearray(PACK[packing](TEXT.encode()))
    data[0] ^= 1
    for wrong in (data, PACK[packing](b"one") + b"garbage" * 9, TEXT.encode()):
        path = write(packing, bytes(wrong), packed=True)
        with refuses(f"data.path={path}: damaged {packing} data"):
            list(read_text(path))


@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_checksums_are_looked_at(packing, write, refuses):
    data = bytearray(PACK[packing](b"abcabc" * 100))
    data[{".gz": -8, ".xz": -40}[packing]] ^= 1
    path = write(packing, bytes(data), packed=True)
    with refuses(f"data.path={path}: damaged {packing} data"):
        list(read_text(path))


@pytest.mark.parametrize("packing", [".gz", ".xz"])  # .zst may have no checksum
def test_damage_anywhere_is_one_line(packing, write, refuses):
    whole = PACK[packing](TEXT.encode())
    for place in range(12, len(whole) - 12, len(whole) // 20):
        data = bytearray(whole)
        data[place] ^= 0xFF
        path = write(packing, bytes(data), packed=True)
        with refuses(f"data.path={path}: "):
            list(read_text(path))


def test_damage_in_a_second_xz_stream_is_no_end(write, refuses):
    second = bytearray(lzma.compress(b"two"))
    second[0] ^= 1
    path = write(".xz", lzma.compress(b"one") + bytes(second), packed=True)
    with refuses("damaged .xz data"):
        list(read_text(path))


def test_zst_without_its_package(write, monkeypatch, refuses):
    path = write(".zst", b"abc")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refuses("data.path", "a.txt.zst", "pip install pyarrow"):
        list(read_text(path))


@packings
@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
def test_empty(packing, data, write, refuses):
    path = write(packing, data)
    with refuses(f"data.path={path}: the file is empty"):
        list(read_text(path))


def test_no_byte_at_all(write, refuses):
    for packing in PACK:
        path = write(packing, b"", packed=True)
        with refuses(f"data.path={path}: the file is empty"):
            list(read_text(path))


def test_byte_order_mark_is_dropped_only_at_the_start(write, monkeypatch):
    path = write("", "\ufeffa\ufeffb".encode())
    assert "".join(read_text(path)) == "a\ufeffb"
    monkeypatch.setattr(files, "BLOCK_BYTES", 1)
    assert "".join(read_text(path)) == "a\ufeffb"


@pytest.mark.parametrize(
    "packing, block",
    [("", 1), ("", 7), ("", 1 << 20), *((packing, 1000) for packing in PACK)],
)
@pytest.mark.parametrize("place", [0, 3, 998, 999, 1000])
@pytest.mark.parametrize(
    "wrong, reason",
    [
        (b"\xff", "invalid start byte"),
        (b"\xe2\x82x", "invalid continuation byte"),
        (b"\xed\xa0\x80", "invalid continuation byte"),  # half a surrogate pair
        (b"\xe2\x82", "unexpected end of data"),
    ],
)
def test_place_of_bad_utf8(
    packing, block, place, wrong, reason, write, monkeypatch, refuses
):
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    after = b"" if reason.startswith("unexp") else b" abc"
    path = write(packing, b"\xef\xbb\xbf"[:place] + b"y" * (place - 3) + wrong + after)
    unpacked = ", unpacked" if packing else ""
    with refuses(f"data.path={path}: not UTF-8 at byte {place}{unpacked}: {reason}"):
        list(read_text(path))


def test_missing_and_unreadable(tmp_path, refuses):
    with refuses(f"data.path={tmp_path}/gone.gz: No such file"):
        list(read_text(tmp_path / "gone.gz"))
    with refuses(f"data.path={tmp_path}: Is a directory"):
        list(read_text(tmp_path))
    with refuses("data.path", "gone"):
        hash_file(tmp_path / "gone")


LINES = st.text(st.sampled_from("ab\n\r\u2028\x0b\x85 "), max_size=60)


@given(LINES, st.integers(1, 9))
def test_lines_whatever_the_blocks(text, size):
    blocks = [text[i : i + size] for i in range(0, len(text), size)]
    lines = list(read_lines(blocks, float("inf")))
    assert [line for line, _ in lines] == re.findall("[^\n]*\n|[^\n]+", text)
    assert all(begins for _, begins in lines)


@given(LINES, st.integers(1, 9), st.integers(2, 5))
@settings(max_examples=300)
def test_long_lines_in_pieces(text, size, limit):
    blocks = [text[i : i + size] for i in range(0, len(text), size)]
    whole = []
    for piece, begins in read_lines(blocks, limit):
        assert len(piece) <= limit + 1 + size
        if begins:
            whole.append([])
        whole[-1].append(piece)
    lines = re.findall("[^\n]*\n|[^\n]+", text)
    assert ["".join(pieces) for pieces in whole] == lines
    for pieces in whole:
        assert len(pieces) == 1 or len(pieces[0]) > limit
        ends = zip(pieces, pieces[1:])
        assert not any(one.endswith("\r") and two == "\n" for one, two in ends)


def test_line_end_is_never_torn():
    pieces = list(read_lines(["abcdef\r", "\n", "x"], 3))
    assert pieces == [("abcdef", True), ("\r\n", False), ("x", True)]


def test_hash_is_of_the_file_as_it_lies_there(write):
    path = write(".gz", b"abc")
    assert hash_file(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert hash_file(write("", b"abc")) == digest


@pytest.mark.parametrize("packing", PACKED)
def test_what_unpacks_to_far_more_is_refused(write, packing, monkeypatch, refuses):
    monkeypatch.setattr(files, "MIN_UNPACKED", 1 << 20)
    path = write(packing, bytes(1 << 23))
    read = 0
    with refuses(f"data.path={path}: unpacks to more than 200 times its size"):
        for block in read_bytes(path):
            read += len(block)
    assert read < 1 << 22
    text = "".join(f"{i}\n" for i in range(1 << 18)).encode()
    path = write(packing, text)
    assert b"".join(read_bytes(path)) == text and len(text) > 1 << 20


def test_what_is_too_large_as_a_whole_is_refused(write, monkeypatch, refuses):
    monkeypatch.setattr(files.disk, "WHOLE_BYTES", 100)
    for packing in PACKED:
        assert files.read_whole(write(packing, bytes(100))) == bytes(100)
        assert files.unpack_whole(PACK[packing](b"a"), Path(f"a{packing}")) == b"a"
        path = write(packing, bytes(101))
        with refuses(f"data.path={path}: is larger"):
            files.read_whole(path)


def test_only_regular_files_are_read(tmp_path, refuses):
    os.mkfifo(tmp_path / "fifo.txt")
    for path in (tmp_path / "fifo.txt", Path("/dev/zero")):
        with refuses(f"data.path={path}: is a"):
            list(read_bytes(path))
        with refuses(f"data.path={path}: is a"):
            hash_file(path)

"""Reads the plainest HDF5: old groups of contiguous float arrays, as h5py writes them.

The HDF5 File Format Specification, version 0 of its superblock.
"""

import struct
from pathlib import Path

import numpy as np


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Every dataset of a file by its full name."""
    data = path.read_bytes()
    assert data[:9] == b"\x89HDF\r\n\x1a\n\0", path
    result = {}
    _walk(data, struct.unpack_from("<Q", data, 64)[0], "", result)
    return result


def _messages(data: bytes, address: int):
    """(type, place) of each message of an object's header, in all its blocks."""
    (count,) = struct.unpack_from("<H", data, address + 2)
    (size,) = struct.unpack_from("<I", data, address + 8)
    blocks = [(address + 16, size)]
    while blocks and count:
        place, size = blocks.pop(0)
        end = place + size
        while place < end and count:
            kind, length = struct.unpack_from("<HH", data, place)
            if kind == 0x10:  # continued elsewhere
                blocks.append(struct.unpack_from("<QQ", data, place + 8))
            yield kind, place + 8
            place, count = place + 8 + length, count - 1


def _walk(data: bytes, address: int, name: str, result: dict) -> None:
    places = dict(_messages(data, address))
    if 0x11 in places:
        tree, heap = struct.unpack_from("<QQ", data, places[0x11])
        (texts,) = struct.unpack_from("<Q", data, heap + 24)
        for text, child in _children(data, tree):
            end = data.index(b"\0", texts + text)
            below = data[texts + text : end].decode()
            _walk(data, child, f"{name}/{below}".lstrip("/"), result)
        return
    rank = data[places[1] + 1]
    start = places[1] + (8 if data[places[1]] == 1 else 4)
    shape = struct.unpack_from(f"<{rank}Q", data, start)
    kind, size = data[places[3]] & 15, data[places[3] + 4]
    version, layout = data[places[8]], data[places[8] + 1]
    assert (kind, version, layout) == (1, 3, 1), (name, kind, version, layout)
    (start,) = struct.unpack_from("<Q", data, places[8] + 2)
    flat = np.frombuffer(data, f"<f{size}", int(np.prod(shape)), start)
    result[name] = flat.reshape(shape)


def _children(data: bytes, address: int):
    """(place of the name in the heap, address) of each entry below a B-tree's node."""
    (count,) = struct.unpack_from("<H", data, address + 6)
    if data[address : address + 4] == b"TREE":
        for i in range(count):
            (child,) = struct.unpack_from("<Q", data, address + 32 + 16 * i)
            yield from _children(data, child)
        return
    assert data[address : address + 4] == b"SNOD"
    for i in range(count):
        yield struct.unpack_from("<QQ", data, address + 8 + 40 * i)

"""Divides the files of a text into spans, which several machines can read separately.

    a.txt  40 MiB  ->  bytes 0-16 | 16-32 | 32-40     span 0, span 1,
    b.txt   2 MiB                                     span 2: the rest of a.txt, b.txt

A span has about SPAN_BYTES: consecutive small files, or a piece of a large one. Pieces
of plain text and JSON lines begin at the first document, or line, of their bytes, and
pieces of Parquet have the row groups that begin in their bytes. One document of a whole
plain file is cut where tokenizers split. Other formats and compressed files are not
divided. Spans depend on the files alone, so a text has the same documents and parts of
documents however many machines read it.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from jaxpt.text.sources.documents import CUT, PART_CHARS, mark_lines
from jaxpt.text.sources.files import (
    read_lines,
    read_range,
    read_text,
    reading,
    split_suffixes,
)
from jaxpt.text.sources.places import File, is_archive
from jaxpt.text.sources.reading import find_kind

SPAN_BYTES = 1 << 24
# Of the text before a piece of a document: as far as the end of a sentence is searched.
_BEFORE_CHARS = 64


def divide(files: Iterable[File]) -> list[tuple[File, ...]]:
    """The spans of files, in order, each with its files or pieces of them."""
    spans: list[tuple[File, ...]] = []
    pieces: list[File] = []
    num_bytes = 0
    for piece, size in _cut_files(files):
        if pieces and num_bytes + size > SPAN_BYTES:
            spans.append(tuple(pieces))
            pieces, num_bytes = [], 0
        pieces.append(piece)
        num_bytes += size
    return [*spans, tuple(pieces)] if pieces else spans


def count_bytes(file: File) -> int:
    """The bytes of a file or of its piece, as stored."""
    return (_get_size(file.path) if file.stop is None else file.stop) - file.start


def _cut_files(files: Iterable[File]) -> Iterator[tuple[File, int]]:
    """Files and pieces of files with their bytes."""
    for file in files:
        try:
            size = os.stat(file.path).st_size
        except OSError:  # which reading it reports
            size = 0
        if size <= SPAN_BYTES or not is_divisible(file.path):
            yield file, size
            continue
        for start in range(0, size, SPAN_BYTES):
            stop = min(start + SPAN_BYTES, size)
            yield dataclasses.replace(file, start=start, stop=stop), stop - start


def _get_size(path: Path) -> int:
    with reading(path):
        return os.stat(path).st_size


def is_divisible(path: Path) -> bool:
    """Whether pieces of a file can be read separately.

    >>> is_divisible(Path("a.jsonl")), is_divisible(Path("a.jsonl.gz"))
    (True, False)
    """
    is_plain = not (is_archive(path) or split_suffixes(path)[1])
    return is_plain and find_kind(path.name) in ("", "jsonl", "parquet")


def find_bounds(file: File, rule: str) -> tuple[int, int | None]:
    """The bytes of a piece, from its first document to that of the next piece.

    Args:
      rule: `SourceSpec.documents`; "line" for JSON lines.

    Returns:
      its start and stop, which are equal if no document begins in it; (0, None) of a
      whole file.
    """
    if file.stop is None:
        return 0, None
    size = _get_size(file.path)
    start: int | None = 0
    if file.start:
        start = _find_border(file.path, file.start, rule)
    if start is None:
        return file.start, file.start
    for at in range(file.stop, size, SPAN_BYTES):
        stop = _find_border(file.path, at, rule)
        if stop is not None:
            return start, stop
    return start, size


def read_before(path: Path, start: int) -> str:
    """The last characters before a byte of a text."""
    first = max(0, start - 4 * _BEFORE_CHARS)
    data = b"".join(read_range(path, first, start))
    return data.decode("utf-8", "ignore")[-_BEFORE_CHARS:]


def _find_border(path: Path, at: int, rule: str) -> int | None:
    """The first byte in SPAN_BYTES from `at` on where a piece may begin, or None."""
    end = at + SPAN_BYTES
    if rule == "file":
        border = _find_cut(path, at, end)
    else:
        border = _find_line(path, at, end)
        if border is not None and rule != "line":
            border = _find_document(path, border, end, rule)
    return border if border is not None and border < end else None


def _find_line(path: Path, at: int, end: int) -> int | None:
    """Where the first line begins, unless it is empty as the file ends there."""
    place = at - 1
    for block in read_range(path, place, end):
        found = block.find(b"\n")
        if found >= 0:
            border = place + found + 1
            return border if border < _get_size(path) else None
        place += len(block)
    return None


def _find_document(path: Path, start: int, end: int, rule: str) -> int | None:
    """Where the second document begins, of the text from the line at `start` on.

    That one begins there in the whole text, too; of the first it is not known whether
    it continues a document.
    """
    begin = place = start

    def list_lines() -> Iterator[tuple[str, bool]]:
        nonlocal begin, place
        blocks = read_text(path, bounds=(start, None))
        for line, begins in read_lines(blocks, PART_CHARS):
            begin = place if begins else begin
            if begin >= end:
                return
            place += len(line.encode())
            yield line, begins

    first = None
    for number, _ in mark_lines(list_lines(), rule):
        first = number if first is None else first
        if number != first:
            return begin
    return None


def _find_cut(path: Path, at: int, end: int) -> int | None:
    """Where every tokenizer splits."""
    head = b"".join(read_range(path, at, at + 4))
    place = at + len(head) - len(head.lstrip(bytes(range(0x80, 0xC0))))
    last = ""
    for block in read_text(path, bounds=(place, None)):
        text = last + block
        if match := CUT.search(text):
            return place + len(text[: match.end()].encode())
        last = text[-1:]
        place += len(text[:-1].encode())
        if place >= end:
            return None
    return None

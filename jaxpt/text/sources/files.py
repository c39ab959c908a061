"""Streams files as blocks of bytes, characters and lines, decompressed and decoded.

x.txt.zst -> read_bytes -> read_text -> read_lines
             decompressed  UTF-8        with their newlines
"""

import bz2
import codecs
import contextlib
import gzip
import hashlib
import io
import itertools
import lzma
import math
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from jaxpt import optional
from jaxpt.errors import DataError
from jaxpt.files import disk, schema

# Larger blocks fragment the heap when text beyond ASCII is decoded: with 1 MB, memory
# grew by half of the bytes read, and reading took twice the time.
BLOCK_BYTES = 1 << 16
PACKINGS = (".gz", ".zst", ".xz", ".bz2")
# A file that unpacks to more than this many times its size is refused, after this
# number of bytes. Packed text has a third or a tenth of its size.
MAX_RATIO, MIN_UNPACKED = 200, 1 << 22


# The first bytes of formats that are not text, or whose text must be extracted.
_SIGNATURES = (
    ("gzip", b"\x1f\x8b"),
    ("zstd", b"\x28\xb5\x2f\xfd"),
    ("xz", b"\xfd7zXZ\0"),
    ("bzip2", b"BZh91AY&SY"),
    *(("bzip2", b"BZh%d1AY&SY" % level) for level in range(1, 9)),
    ("lz4", b"\x04\x22\x4d\x18"),
    ("zip", b"PK\x03\x04"),
    ("zip", b"PK\x05\x06"),
    ("7z", b"7z\xbc\xaf\x27\x1c"),
    ("RAR", b"Rar!\x1a\x07"),
    ("Parquet", b"PAR1\x15"),
    ("Arrow", b"ARROW1"),
    ("Arrow", b"\xff\xff\xff\xff"),
    ("ORC", b"ORC\x12"),
    ("Avro", b"Obj\x01"),
    ("HDF5", b"\x89HDF\r\n\x1a\n"),
    ("NumPy", b"\x93NUMPY"),
    ("SQLite", b"SQLite format 3\0"),
    ("pickle", b"\x80\x02"),
    ("pickle", b"\x80\x03"),
    ("pickle", b"\x80\x04"),
    ("pickle", b"\x80\x05"),
    ("UTF-16", b"\xff\xfe"),
    ("UTF-16", b"\xfe\xff"),
    ("PDF", b"%PDF-"),
    ("PostScript", b"%!PS"),
    ("RTF", b"{\\rtf"),
    ("Microsoft Office", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    ("DjVu", b"AT&TFORM"),
    ("PNG", b"\x89PNG\r\n\x1a\n"),
    ("JPEG", b"\xff\xd8\xff"),
    ("GIF", b"GIF87a"),
    ("GIF", b"GIF89a"),
    ("TIFF", b"II*\0"),
    ("ELF", b"\x7fELF"),
    ("Ogg", b"OggS\0"),
)


def split_suffixes(file: Path) -> tuple[str, str]:
    """The suffixes of a file's format and of its compression, in lower case.

    >>> split_suffixes(Path("a/B.TXT.gz")), split_suffixes(Path("b.tokens"))
    (('.txt', '.gz'), ('.tokens', ''))
    """
    suffix = file.suffix.lower()
    if suffix in PACKINGS:
        return file.with_suffix("").suffix.lower(), suffix
    return suffix, ""


@contextlib.contextmanager
def reading(file: Path, setting: str = "data.path=") -> Iterator[None]:
    """Turns errors of reading a file into a one-line `UserError` that names the file.

    Args:
      setting: the text before the file's name in the message.
    """
    packing = split_suffixes(file)[1] or file.suffix
    try:
        yield
    except EOFError as error:
        raise DataError(f"{setting}{file}: truncated {packing} data") from error
    except OSError as error:
        reason = error.strerror or f"damaged {packing} data: {error}"
        raise DataError(f"{setting}{file}: {reason}") from error
    except (lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{setting}{file}: damaged {packing} data: {error}") from error


def need_pyarrow(file: Path | str, setting: str = "data.path=") -> Any:
    """Imports pyarrow, which is slow and so done only when needed."""
    return optional.need("pyarrow.parquet", "", f"{setting}{file}")


@contextlib.contextmanager
def open_parquet(
    file: Path,
    setting: str = "data.path=",
    data: BinaryIO | None = None,
    **options: Any,
) -> Iterator[Any]:
    """Opens a Parquet file as a `pyarrow.parquet.ParquetFile`.

    Args:
      data: the content, if the file is one of an archive.
    """
    pyarrow = need_pyarrow(file, setting)
    try:
        with (
            reading(file, setting),
            data or disk.open_regular(file) as raw,
            pyarrow.parquet.ParquetFile(raw, **options) as table,
        ):
            yield table
    except pyarrow.ArrowException as error:
        raise DataError(f"{setting}{file}: damaged .parquet data: {error}") from error


@contextlib.contextmanager
def open_archive(file: Path) -> Iterator[tarfile.TarFile]:
    """Opens a tar archive, packed or not, with files of at most `disk.WHOLE_BYTES`."""
    with disk.open_regular(file) as raw, tarfile.open(fileobj=raw) as archive:
        num_bytes = 0
        for member in archive:  # which reads no more of it than is needed
            num_bytes += member.size
            if num_bytes > disk.WHOLE_BYTES:
                raise DataError(f"{file}: {disk.TOO_LARGE}")
        yield archive


def parse_object(text: str | bytes, where: str) -> dict[str, Any]:
    """Parses a JSON object.

    Args:
      where: the file and the line, which begin an error message.
    """
    try:
        return schema.parse(text, {str: object})
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error


def read_range(file: Path, start: int, stop: int | None) -> Iterator[bytes]:
    """Reads bytes start..stop-1 of a file as they are; None is its end."""
    with reading(file), disk.open_regular(file) as raw:
        raw.seek(start)
        left = math.inf if stop is None else stop - start
        while left > 0 and (block := raw.read(int(min(left, BLOCK_BYTES)))):
            left -= len(block)
            yield block


def read_bytes(file: Path, setting: str = "data.path=") -> Iterator[bytes]:
    """Reads a file in blocks of at most BLOCK_BYTES, decompressed by its suffix."""
    with reading(file, setting), disk.open_regular(file) as raw:
        yield from unpack(raw, file, setting)


def read_whole(file: Path, setting: str = "data.path=") -> bytes:
    """Reads a whole file of at most `disk.WHOLE_BYTES`, decompressed by its suffix."""
    if not split_suffixes(file)[1]:
        with reading(file, setting):
            return disk.read(file)
    return _join(read_bytes(file, setting), file, setting)


def unpack_whole(data: bytes, file: Path, setting: str = "data.path=") -> bytes:
    """As `read_whole`, of the content of a file."""
    with reading(file, setting):
        return _join(unpack(io.BytesIO(data), file, setting), file, setting)


def _join(blocks: Iterable[bytes], file: Path, setting: str) -> bytes:
    parts, num_bytes = [], 0
    for block in blocks:
        parts.append(block)
        num_bytes += len(block)
        if num_bytes > disk.WHOLE_BYTES:
            raise DataError(f"{setting}{file}: {disk.TOO_LARGE}")
    return b"".join(parts)


def unpack(raw: BinaryIO, file: Path, setting: str = "data.path=") -> Iterator[bytes]:
    """Decompresses an open file by its suffix, in blocks of at most BLOCK_BYTES."""
    packing = split_suffixes(file)[1]
    num_bytes = 0
    for block in _unpack(raw, packing, file, setting):
        yield block
        num_bytes += len(block)
        if packing and num_bytes > max(MIN_UNPACKED, MAX_RATIO * raw.tell()):
            raise DataError(
                f"{setting}{file}: unpacks to more than {MAX_RATIO} times its size; "
                f"if that is right, unpack it first"
            )


def _unpack(raw: BinaryIO, packing: str, file: Path, setting: str) -> Iterator[bytes]:
    if packing in _DECODERS:
        yield from _unpack_streams(raw, _DECODERS[packing])
        return
    with contextlib.ExitStack() as stack:
        stream: Any = raw
        if packing == ".gz":
            stream = stack.enter_context(gzip.GzipFile(fileobj=raw))
        elif packing == ".zst":
            # zstandard's own reader does not notice that a file is truncated.
            open_zstd = need_pyarrow(file, setting).CompressedInputStream
            stream = stack.enter_context(open_zstd(raw, "zstd"))
        while block := stream.read(BLOCK_BYTES):
            yield block


_DECODERS: dict[str, Callable[[], Any]] = {
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    ".bz2": bz2.BZ2Decompressor,
}


def _unpack_streams(raw: BinaryIO, make_decoder: Callable[[], Any]) -> Iterator[bytes]:
    """Unpacks all streams of a file; LZMAFile and BZ2File ignore a damaged second."""
    data = raw.read(BLOCK_BYTES)
    while data:
        decoder = make_decoder()
        while not decoder.eof:
            if decoder.needs_input and not data:
                data = raw.read(BLOCK_BYTES)
                if not data:
                    raise EOFError
            block = decoder.decompress(data, BLOCK_BYTES)
            data = b""
            if block:
                yield block
        data = decoder.unused_data.lstrip(b"\0")  # streams may be padded
        while not data and (padded := raw.read(BLOCK_BYTES)):
            data = padded.lstrip(b"\0")


def read_text(
    file: Path,
    data: bytes | None = None,
    bounds: tuple[int, int | None] = (0, None),
) -> Iterator[str]:
    """Reads a file as text in blocks, newlines unchanged, without a byte order mark.

    Args:
      data: the content, decompressed, if the file is one of an archive.
      bounds: the bytes to read of a file that is not compressed; they begin and end
        between two characters. A part of a file may be empty.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_whole = bounds == (0, None)
    num_bytes, is_empty, is_first = bounds[0], is_whole, not bounds[0]
    blocks = read_bytes(file) if data is None else _cut(data)
    if not is_whole:
        blocks = read_range(file, *bounds)
    for block in itertools.chain(blocks, [b""]):
        if not num_bytes and (kind := find_binary(block)):
            raise DataError(f"data.path={file}: has {kind} data, not text")
        num_held = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            where = f"byte {num_bytes - num_held + error.start}"
            where += ", unpacked" if split_suffixes(file)[1] else ""
            raise DataError(
                f"data.path={file}: not UTF-8 at {where}: {error.reason}; convert "
                f"it, such as with iconv -f latin1 -t utf-8"
            ) from error
        if b"\0" in block:
            at = num_bytes + block.index(b"\0")
            raise DataError(f"data.path={file}: not text: byte {at} is a NUL")
        num_bytes += len(block)
        if text and is_first:
            is_first = False
            text = text.removeprefix("\ufeff")
        if text:
            is_empty = False
            yield text
    if is_empty:
        raise DataError(f"data.path={file}: the file is empty")


def _cut(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), BLOCK_BYTES):
        yield data[start : start + BLOCK_BYTES]


def find_binary(head: bytes) -> str:
    """The name of the binary format of a file's first bytes, or "".

    >>> find_binary(b"PK\\3\\4..."), find_binary(b"PK is a name")
    ('zip', '')
    """
    if head[257:262] == b"ustar":
        return "tar"
    return next((name for name, mark in _SIGNATURES if head.startswith(mark)), "")


def read_lines(blocks: Iterable[str], limit: float) -> Iterator[tuple[str, bool]]:
    """Splits blocks into lines with their newline; very long lines come in pieces.

    Only "\\n" ends a line, not U+2028, which a JSON string may contain.

    Args:
      limit: a line with more characters may be yielded in pieces, which depend on
        `blocks`; its first piece has more than `limit` characters.

    Yields:
      a line or a piece, and whether a line begins with it.
    """
    buffer: list[str] = []
    begins = True
    for block in blocks:
        lines = block.split("\n")
        rest = lines.pop()
        if lines and buffer:
            lines[0] = "".join([*buffer, lines[0]])
            buffer = []
        for line in lines:
            yield line + "\n", begins
            begins = True
        if rest:
            buffer.append(rest)
        if buffer and sum(map(len, buffer)) > limit + 1:
            # The last character is held back, so that "\r\n" is never split.
            text = "".join(buffer)
            yield text[:-1], begins
            begins, buffer = False, [text[-1]]
    if buffer:
        yield "".join(buffer), begins


def hash_file(file: Path) -> str:
    """The sha256 of a file's bytes, not decompressed, in hex."""
    with reading(file), disk.open_regular(file) as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()

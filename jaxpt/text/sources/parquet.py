"""Reads the rows of Parquet files, a few at a time."""

import io
from collections.abc import Iterator
from typing import Any

from jaxpt.errors import DataError
from jaxpt.files import disk
from jaxpt.text.sources.files import BLOCK_BYTES, need_pyarrow, open_parquet
from jaxpt.text.sources.places import File
from jaxpt.text.sources.reading import Reading, Record

# How much of a Parquet file is in memory at a time; at least one row.
_BATCH_BYTES, _BATCH_ROWS = 1 << 18, 1024


def read_parquet(file: File, how: Reading) -> Iterator[Record]:
    """Reads the rows of a Parquet file, numbered from 0.

    Only the columns of `how` are read. A whole page of the file is held in memory: 1 MB
    of short texts, more of long ones.
    """
    where = f"{how.setting}{file.path}"
    number = 0
    # pre_buffer would load a whole row group, which may be the whole file.
    with open_parquet(
        file.path,
        how.setting,
        None if file.data is None else io.BytesIO(file.data),
        buffer_size=BLOCK_BYTES,
        pre_buffer=False,
        page_checksum_verification=True,
    ) as table:
        columns = how.choose_columns(table.schema_arrow.names, where)
        _check_types(table.schema_arrow, columns, how, where)
        groups = list(map(table.metadata.row_group, range(table.num_row_groups)))
        if (
            not how.is_strict
            and sum(g.total_byte_size for g in groups) > disk.WHOLE_BYTES
        ):
            raise DataError(f"{where}: {disk.TOO_LARGE}")
        for group, meta in enumerate(groups):
            if not _begins_within(meta, file):
                number += meta.num_rows
                continue
            num_rows = _BATCH_BYTES * meta.num_rows // max(meta.total_byte_size, 1)
            num_rows = min(max(num_rows, 1), _BATCH_ROWS)
            for batch in table.iter_batches(num_rows, [group], columns, False):
                for fields in _list_rows(batch, columns, how, where, number):
                    yield Record(number, f"row {number}", fields)
                    number += 1


def _begins_within(group: Any, file: File) -> bool:
    """Whether a row group belongs to this piece of a file, in which it begins."""
    if file.stop is None:
        return True
    return file.start <= group.column(0).data_page_offset < file.stop


def _check_types(schema: Any, columns: list[str], how: Reading, where: str) -> None:
    pyarrow = need_pyarrow(where, "")
    texts = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
    for column in columns:
        note = how.columns.get(column, "")
        if schema.names.count(column) > 1:
            raise DataError(f"{where}: has more than one {column!r}{note}")
        kind = schema.field(column).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if how.is_strict and kind not in texts:
            raise DataError(f"{where}: {column!r}{note} must be a string, is {kind}")


def _list_rows(
    batch: Any, columns: list[str], how: Reading, where: str, first: int
) -> Iterator[dict[str, Any]]:
    values = []
    for column in columns:
        try:
            values.append(batch.column(column).to_pylist())
        except UnicodeDecodeError:
            is_good = list(map(_is_utf8, batch.column(column)))
            row, note = first + is_good.index(False), how.columns.get(column, "")
            raise DataError(
                f"{where} row {row}: {column!r}{note} is not UTF-8"
            ) from None
    for fields in zip(*values, strict=True):
        yield dict(zip(columns, fields, strict=True))


def _is_utf8(scalar: Any) -> bool:
    try:
        scalar.as_py()
    except UnicodeDecodeError:
        return False
    return True

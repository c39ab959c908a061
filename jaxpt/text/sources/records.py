"""Documents out of records with named fields: JSON lines, Parquet, TFDS."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from jaxpt.errors import UserError
from jaxpt.text.sources.documents import Document, make_documents
from jaxpt.text.sources.files import (
    BLOCK_BYTES,
    need_pyarrow,
    read_lines,
    read_text,
    reading,
)

# What is taken into memory of a Parquet file at a time, one row at least.
_BATCH_BYTES, _BATCH_ROWS = 1 << 18, 1024


def read_json_lines(
    file: Path, name: str, text_field: str, label_field: str
) -> Iterator[Document]:
    """A JSON object a line; blank lines are skipped. Names are "name:LINE", from 1.

    A line is held whole.

    Raises:
      UserError: the file cannot be read, or a line is not such an object (says which).
    """
    has_document = False
    lines = read_lines(read_text(file), float("inf"))
    for number, (line, _) in enumerate(lines, 1):
        if line.isspace():
            continue
        has_document = True
        place = f"data.path={file} line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            reason = f"{error.msg} at column {error.colno}"
            raise UserError(f"{place}: not JSON: {reason}") from error
        except (ValueError, RecursionError) as error:  # numbers too long, too deep
            raise UserError(f"{place}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{place}: not a JSON object")
        text = _get_field(record, "data.text_field", text_field, place)
        label = ""
        if label_field:
            label = _get_field(record, "data.label_field", label_field, place)
        if "\\u" in line:
            _check_surrogates(text + label, place)
        yield from make_documents(text, f"{name}:{number}", label)
    if not has_document:
        raise UserError(f"data.path={file}: the file has no document")


def _get_field(record: dict, setting: str, field: str, place: str) -> str:
    if field not in record:
        raise UserError(_say_missing(place, setting, field, record))
    value = record[field]
    if not isinstance(value, str):
        raise UserError(_say_wrong(place, setting, field, type(value).__name__))
    return value


def _say_missing(place: str, setting: str, field: str, has: Iterable[str]) -> str:
    listed = ", ".join(map(repr, has)) or "none"
    return f"{place}: no field {field!r} ({setting}); it has {listed}"


def _say_wrong(place: str, setting: str, field: str, kind: str) -> str:
    return f"{place}: {field!r} ({setting}) must be a string, is {kind}"


def _check_surrogates(text: str, place: str) -> None:
    """JSON can name half a character, which no UTF-8 and no tokenizer can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise UserError(f"{place}: {half} is half a surrogate pair") from error


def read_parquet(
    file: Path, name: str, text_field: str, label_field: str
) -> Iterator[Document]:
    """A document a row, of which only the named columns are read, a few at a time.

    Names are "name:ROW", from 0. A page of the file is held whole: 1 MB of short texts,
    of long ones as many as the writer took at a time.

    Raises:
      UserError: the file is damaged, lacks a column or has one that is not of strings.
    """
    fields = {"data.text_field": text_field}
    if label_field:
        fields["data.label_field"] = label_field
    columns = list(fields.values())
    number = 0
    with _open_parquet(file) as table:
        _check_columns(table.schema_arrow, fields, file)
        for group in range(table.num_row_groups):
            meta = table.metadata.row_group(group)
            num_rows = _BATCH_BYTES * meta.num_rows // max(meta.total_byte_size, 1)
            num_rows = min(max(num_rows, 1), _BATCH_ROWS)
            for batch in table.iter_batches(num_rows, [group], columns, False):
                for texts in _get_rows(batch, fields, file, number):
                    yield from make_documents(
                        texts[0], f"{name}:{number}", texts[1] if label_field else ""
                    )
                    number += 1
    if not number:
        raise UserError(f"data.path={file}: the file has no document")


@contextlib.contextmanager
def _open_parquet(file: Path) -> Iterator:
    """A pyarrow ParquetFile; what it complains of inside becomes one line."""
    pyarrow = need_pyarrow(file)
    try:
        with (
            reading(file),
            open(file, "rb") as raw,
            # pre_buffer would hold a whole row group, which may be the whole file.
            pyarrow.parquet.ParquetFile(
                raw,
                buffer_size=BLOCK_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            ) as table,
        ):
            yield table
    except pyarrow.ArrowException as error:
        raise UserError(f"data.path={file}: damaged .parquet data: {error}") from error


def _check_columns(schema, fields: dict[str, str], file: Path) -> None:
    pyarrow, place = need_pyarrow(file), f"data.path={file}"
    for setting, field in fields.items():
        if field not in schema.names:
            raise UserError(_say_missing(place, setting, field, schema.names))
        if schema.names.count(field) > 1:
            raise UserError(f"{place}: has more than one {field!r} ({setting})")
        kind = schema.field(field).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        types = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        if kind not in types:
            raise UserError(_say_wrong(place, setting, field, str(kind)))


def _get_rows(
    batch, fields: dict[str, str], file: Path, first: int
) -> Iterator[tuple[str, ...]]:
    columns = []
    for setting, field in fields.items():
        column = batch.column(field)
        try:
            values = column.to_pylist()
        except UnicodeDecodeError:
            values = list(map(_decode_or_none, column))
            row = first + values.index(None)
            raise UserError(
                f"data.path={file} row {row}: {field!r} ({setting}) is not UTF-8"
            ) from None
        if column.null_count:
            place = f"data.path={file} row {first + values.index(None)}"
            raise UserError(_say_wrong(place, setting, field, "null"))
        columns.append(values)
    return zip(*columns, strict=True)


def _decode_or_none(scalar) -> str | None:
    try:
        return scalar.as_py() or ""
    except UnicodeDecodeError:
        return None


def read_tfds(
    path: str, text_field: str, label_field: str, data_dir: str
) -> Iterator[Document]:
    """The records of "tfds:NAME" (train) or "tfds:NAME:SPLIT".

    Raises:
      UserError: no such data set, split or field; TFDS cannot get or read it.
    """
    name, split = _split_tfds(path)
    source = open_tfds(path, data_dir)
    features = source.dataset_info.features
    for setting, field in (
        ("data.text_field", text_field),
        ("data.label_field", label_field),
    ):
        if field and field not in features:
            raise UserError(
                f"{setting}={field!r}: {path} has {', '.join(sorted(features))}"
            )
    for number in range(len(source)):
        place = f"data.path={path} record {number}"
        record = source[number]
        text = _decode_field(record, features, "data.text_field", text_field, place)
        label = ""
        if label_field:
            label = _decode_field(
                record, features, "data.label_field", label_field, place
            )
        yield from make_documents(text, f"{name}:{split}:{number}", label)


def _split_tfds(path: str) -> tuple[str, str]:
    name, _, split = path.removeprefix("tfds:").partition(":")
    return name, split or "train"


def open_tfds(path: str, data_dir: str):
    """A TFDS data source, downloaded and prepared first where TFDS can do it.

    Raises:
      UserError: as `read_tfds`.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"data.path={path} needs TFDS: pip install tensorflow-datasets array_record"
        ) from error
    name, split = _split_tfds(path)
    try:
        try:
            return tfds.data_source(name, split=split, data_dir=data_dir or None)
        except tfds.core.DatasetNotFoundError:
            # glue, c4, wikipedia and others are registered only by this import.
            import tensorflow_datasets.text

            return tfds.data_source(name, split=split, data_dir=data_dir or None)
    except Exception as error:  # A builder may fail in any way: network, disk, format.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"data.path={path}: {reason}") from error


def describe_tfds(path: str, data_dir: str) -> tuple[dict, list[Path]]:
    """A data set's full name, its split and number of records; and the files it reads.

    The files are those of the split, and those that say what its fields are; none of
    them where they do not lie on this machine.

    Raises:
      UserError: as `read_tfds`.
    """
    source = open_tfds(path, data_dir)
    info, split = source.dataset_info, _split_tfds(path)[1]
    about = {"tfds": info.full_name, "split": split, "records": len(source)}
    folder = Path(info.data_dir)
    paths = [Path(path) for path in info.splits[split].filepaths]
    paths += [*folder.glob("*.json"), *folder.glob("*.txt")]
    return about, sorted(path for path in paths if path.is_file())


def _decode_field(record, features, setting: str, field: str, place: str) -> str:
    """A field as text: a string itself, or a class by its name ("" for -1: none)."""
    value = record[field]
    if setting == "data.label_field" and hasattr(features[field], "int2str"):
        return features[field].int2str(int(value)) if value >= 0 else ""
    if isinstance(value, str):  # as from TFDS's own mock data
        return value
    if not isinstance(value, bytes):
        raise UserError(_say_wrong(place, setting, field, type(value).__name__))
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: {field!r} ({setting}) is not UTF-8 at byte {error.start}"
        ) from error

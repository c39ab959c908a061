"""Reads tables of labelled examples from files or TFDS data sets, by column.

"cola/*_domain_dev.tsv" -> lines of both files -> rows of fields -> {"1": [...], ...}

A file is decompressed by its suffix (.gz, .xz, .zst). Formats without types give
strings.
"""

import codecs
import dataclasses
import glob
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpt.errors import DataError
from jaxpt.files.remote import localise
from jaxpt.text.labelled.delimited import split_csv, split_lines, split_tsv
from jaxpt.text.labelled.records import read_json, read_parquet, read_squad, read_tfds
from jaxpt.text.sources.files import read_whole, split_suffixes

FORMATS = tuple("auto tsv csv jsonl squad parquet conll label_text sts tfds".split())
SUFFIXES = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "squad",
    ".parquet": "parquet",
    ".conll": "conll",
}
# Settings that only some formats have, and these formats.
OWN_SETTINGS = {
    "header": ("tsv", "csv"),
    "quoting": ("tsv",),
    "encoding": ("tsv", "csv", "jsonl", "squad", "conll", "label_text", "sts"),
    "split": ("tfds",),
    "data_dir": ("tfds",),
}

# GLUE's names of the fields of STS-B's original files; sources may follow.
STS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")

Row = tuple[int, dict[str, Any]]  # the number of its line or row, and its fields


@dataclass(frozen=True)
class TableSpec:
    """The path and the format of a table.

    Attributes:
      path: a file; a glob ("dev-*.tsv"), whose files are read in the order of their
        names; or "tfds:NAME".
      format: one of FORMATS; "auto" is by the suffix. "squad" is SQuAD's JSON; "conll"
        has a token per line, fields separated by tabs or spaces, and an empty line
        after a sentence; "label_text" a label, a space and the text; "sts" is the
        format of sts-train.csv: tabs between the fields `STS`, without a header.
      split: of a TFDS data set, such as "train" or "train[:10%]".
      header: whether the first line names the columns; otherwise, and in "conll", they
        are "0", "1" and so on. "label_text" has "label" and "text".
      quoting: whether a TSV's fields in double quotes may contain tabs and newlines, as
        in CSV; otherwise a double quote is an ordinary character.
      encoding: a Python codec.
      data_dir: the folder of TFDS's data sets; "" is its default.
    """

    path: str = ""
    format: str = "auto"
    split: str = ""
    header: bool = True
    quoting: bool = False
    encoding: str = "utf-8"
    data_dir: str = ""


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

    def texts(self, column: str) -> list[str]:
        """A column of strings; raises UserError if a value is not a string."""
        for row, value in enumerate(self.columns[column]):
            if not isinstance(value, str):
                kind = "null" if value is None else f"{value!r:.40}"
                raise DataError(
                    f"{self.where(row)}: {column!r} must be text, is {kind}"
                )
        return self.columns[column]


def read_table(spec: TableSpec, columns: Collection[str]) -> Table:
    """Reads columns of a table.

    Args:
      columns: their names; if empty, all columns, with None where a row has no value.

    Raises:
      UserError: the file is missing or damaged, does not have a column or any row, or a
        row does not have one field per column.
    """
    if spec.path.startswith("tfds:"):
        find_format(spec, spec.path)
        rows = read_tfds(spec.path, spec.split, spec.data_dir, columns)
        return _gather([(spec.path, "record", rows)], spec.path, columns)
    parts = []
    for file in _find_files(spec.path):
        kind = find_format(spec, str(file))
        unit = {"parquet": "row", "squad": "question"}.get(kind, "line")
        parts.append((str(file), unit, _read_rows(file, kind, spec, columns)))
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
    files = sorted(glob.glob(path, recursive=True))
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
        return read_json(text, file)
    if kind == "squad":
        return read_squad(text, file)
    if kind == "conll":
        return _read_sentences(text, file)
    if kind == "label_text":
        return _split_labels(text, file)
    if kind == "sts":
        return _name_sts(text, file)
    if kind == "csv" or spec.quoting:
        lines = split_csv(text, file, "\t" if kind == "tsv" else ",")
    else:
        lines = split_tsv(text)
    return _name_fields(lines, file, spec.header, columns)


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


def _name_fields(
    lines: Iterator[tuple[int, list[str]]],
    file: Path,
    has_header: bool,
    columns: Collection[str],
) -> Iterator[Row]:
    names: list[str] = []
    for number, fields in lines:
        if not names:
            names = fields if has_header else [str(i) for i in range(len(fields))]
            _check_names(names, file, has_header, columns)
            if has_header:
                continue
        if len(fields) != len(names):
            raise DataError(
                f"{file} line {number}: has {len(fields)} fields, the first line has "
                f"{len(names)}"
            )
        yield number, dict(zip(names, fields, strict=True))


def _check_names(
    names: list[str], file: Path, has_header: bool, columns: Collection[str]
) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{file}: the header has {twice[0]!r} twice")
    if missing := [column for column in columns if column not in names]:
        listed = ", ".join(map(repr, names))
        hint = "" if has_header else " (header=False numbers them)"
        raise DataError(f"{file}: no column {missing[0]!r}; it has {listed}{hint}")


def _split_labels(text: str, file: Path) -> Iterator[Row]:
    for number, line in split_lines(text):
        label, blank, rest = line.partition(" ")
        if not label or not blank:
            raise DataError(f"{file} line {number}: must be a label, a space, a text")
        yield number, {"label": label, "text": rest}


def _name_sts(text: str, file: Path) -> Iterator[Row]:
    for number, fields in split_tsv(text):
        if len(fields) < len(STS):
            raise DataError(
                f"{file} line {number}: has {len(fields)} fields between tabs; must "
                f"have {', '.join(STS)}"
            )
        yield number, dict(zip(STS, fields, strict=False))


def _read_sentences(text: str, file: Path) -> Iterator[Row]:
    """Reads sentences with a token per line, numbered by their first line.

    A line of whitespace ends a sentence, as in WNUT-17; CoNLL-2003's mark of a new
    document, -DOCSTART-, is skipped.
    """
    sentence: list[tuple[int, list[str]]] = []
    num_fields = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.rstrip("\r")
        if line.strip():
            fields = line.split("\t") if "\t" in line else line.split()
            num_fields = num_fields or len(fields)
            if len(fields) != num_fields or not all(fields):
                raise DataError(
                    f"{file} line {number}: must have {num_fields} fields as the "
                    f"first, none of them empty"
                )
            sentence.append((number, fields))
            continue
        if sentence and sentence[0][1][0] != "-DOCSTART-":
            values = zip(*(fields for _, fields in sentence), strict=True)
            yield (
                sentence[0][0],
                {str(i): list(column) for i, column in enumerate(values)},
            )
        sentence = []

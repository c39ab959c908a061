"""Splits the text of a table into fields: TSV without quoting, and CSV."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from jaxpt.errors import DataError


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """Splits a text into lines, numbered from 1; skips blank ones.

    Only "\\n" and "\\r\\n" end a line.

    >>> list(split_lines("a\\r\\n\\nb"))
    [(1, 'a'), (3, 'b')]
    """
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if line.strip():
            yield number, line


def split_tsv(text: str) -> Iterator[tuple[int, list[str]]]:
    """Splits each line at tabs; a double quote is an ordinary character.

    >>> list(split_tsv('1\\tsaid "no\\n'))
    [(1, ['1', 'said "no'])]
    """
    for number, line in split_lines(text):
        yield number, line.split("\t")


def split_csv(text: str, file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Splits records, numbered by their first line; a field may be in quotes.

    Raises:
      UserError: a quote is not closed, or text follows a closed one.

    >>> list(split_csv('1,"a ""b"", c"\\n', Path("a.csv"), ","))
    [(1, ['1', 'a "b", c'])]
    """
    # The default limit of csv, 131,072 characters a field, is too low.
    old_limit = csv.field_size_limit(max(len(text), 1))
    start = 1
    try:
        # A list and not a generator, as the limit is global.
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter, strict=True
        )
        records = []
        for fields in reader:
            if any(fields):
                records.append((start, fields))
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{file} line {start}: {error}") from error
    finally:
        csv.field_size_limit(old_limit)
    return iter(records)

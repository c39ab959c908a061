"""Cuts the text of a table into lines of fields: tabs as they stand, quoted fields."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from jaxpt.errors import UserError


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, numbered from 1; only "\\n" and "\\r\\n" end one.

    >>> list(split_lines("a\\r\\n\\nb"))
    [(1, 'a'), (3, 'b')]
    """
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if line.strip():
            yield number, line


def split_tsv(text: str) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line, in which a double quote is a character as any other.

    >>> list(split_tsv('1\\tsaid "no\\n'))
    [(1, ['1', 'said "no'])]
    """
    for number, line in split_lines(text):
        yield number, line.split("\t")


def split_csv(text: str, file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Fields of each record, numbered by its first line; a field may be in quotes.

    Raises:
      UserError: a quote is not closed, or text follows a closed one.

    >>> list(split_csv('1,"a ""b"", c"\\n', Path("a.csv"), ","))
    [(1, ['1', 'a "b", c'])]
    """
    # A field may be as long as the text: csv's own limit is 131,072 characters.
    old_limit = csv.field_size_limit(max(len(text), 1))
    start = 1
    try:
        # Made whole here, as the limit is the whole program's.
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter, strict=True
        )
        records = []
        for fields in reader:
            if any(fields):
                records.append((start, fields))
            start = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{file} line {start}: {error}") from error
    finally:
        csv.field_size_limit(old_limit)
    return iter(records)

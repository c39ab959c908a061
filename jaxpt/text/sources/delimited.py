"""Splits the text of a table into fields: TSV without quoting, and CSV."""

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from jaxpt.errors import DataError
from jaxpt.files import schema

# The whitespace of formats. `str.strip()` would also remove characters of a text, such
# as a no-break space or U+2028.
BLANKS = " \t\r\n"
_BEGINS_QUOTED = re.compile(r'(?:^|\t)"', re.MULTILINE)


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """Splits a text into lines, numbered from 1; skips blank ones.

    Only "\\n" and "\\r\\n" end a line.

    >>> list(split_lines("a\\r\\n\\nb"))
    [(1, 'a'), (3, 'b')]
    """
    return number_lines(text.split("\n"))


def number_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines without their ends, numbered from 1; skips blank ones."""
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\n").removesuffix("\r")
        if line.strip(BLANKS):
            yield number, line


def split_tsv(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Splits each line at tabs; a double quote is an ordinary character.

    >>> list(split_tsv(['1\\tsaid "no\\n']))
    [(1, ['1', 'said "no'])]
    """
    for number, line in number_lines(lines):
        yield number, line.split("\t")


def split_csv(
    lines: Iterable[str], where: str, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Splits records, numbered by their first line; a field may be in quotes.

    Args:
      lines: with their ends.
      where: the file, which begins an error message.

    >>> list(split_csv(['1,"a ""b"", c"\\n'], "a.csv", ","))
    [(1, ['1', 'a "b", c'])]
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    while True:
        try:
            with _long_fields():
                fields = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{where} line {start}: {error}") from error
        if fields is None:
            return
        if any(fields):
            yield start, fields
        start = reader.line_num + 1


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Raises the limit of csv, 131,072 characters a field, which is global."""
    old_limit = csv.field_size_limit(schema.MAX_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(old_limit)


def has_quoted_fields(head: str) -> bool:
    """Whether the beginning of a TSV is valid with fields in quotes, and has such.

    >>> has_quoted_fields('id\\ttext\\n1\\t"a\\tb"\\n')
    True
    >>> has_quoted_fields('id\\ttext\\n1\\t"No," he said.\\n')
    False
    """
    if not _BEGINS_QUOTED.search(head):
        return False
    lines = io.StringIO(head[: head.rfind("\n") + 1] or head, newline="")
    widths: set[int] = set()
    try:
        for _, fields in split_csv(lines, "", "\t"):
            widths.add(len(fields))
    except DataError as error:
        if not widths or "unexpected end of data" not in str(error):
            return False  # otherwise the beginning ends within quotes
    return len(widths) == 1


def name_fields(
    lines: Iterable[tuple[int, list[str]]], where: str, has_header: bool = True
) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of fields by the names of a header, or "0", "1" and so on without one.

    Args:
      where: the file, which begins an error message.

    >>> list(name_fields([(1, ["a", "b"]), (2, ["x", "y"])], "a.csv"))
    [(2, {'a': 'x', 'b': 'y'})]
    """
    names: list[str] = []
    for number, fields in lines:
        if not names:
            names = fields if has_header else [str(i) for i in range(len(fields))]
            if twice := Counter(names) - Counter(set(names)):
                raise DataError(f"{where}: the header has {next(iter(twice))!r} twice")
            if has_header:
                continue
        if len(fields) != len(names):
            raise DataError(
                f"{where} line {number}: has {len(fields)} fields, the first line has "
                f"{len(names)}"
            )
        yield number, dict(zip(names, fields, strict=True))

"""Reads the options and the right answer of a multiple-choice question."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxpt.errors import DataError
from jaxpt.text.labelled.tables import Table
from jaxpt.text.sources.missing import is_empty


class AnswerOptions(NamedTuple):
    """The options of one row.

    Attributes:
      texts: at least two.
      keys: their names, such as A to E; () if the table has none.
    """

    texts: tuple[str, ...]
    keys: tuple[str, ...] = ()


def read_options(table: Table, columns: Sequence[str], row: int) -> AnswerOptions:
    """Reads the options of a row from several columns, or from one column of lists.

    Args:
      columns: a column for each option; or one column, whose value is a list of texts
        or ARC's {"text": [...], "label": [...]}.
    """
    values: Any = [table.columns[name][row] for name in columns]
    keys: Any = ()
    if len(values) == 1:
        values = values[0]
    if isinstance(values, dict):
        values, keys = values.get("text"), values.get("label")
        if not isinstance(values, list) or not isinstance(keys, list):
            values = ()
    is_good = isinstance(values, Sequence) and not isinstance(values, str)
    is_good = is_good and len(values) > 1 and len(keys) in (0, len(values))
    if not is_good or not all(isinstance(value, str) for value in values):
        raise DataError(
            f"{table.where(row)}: {', '.join(columns)}: must be at least two texts"
        )
    if any(map(is_empty, [*values, *keys])):
        raise DataError(f"{table.where(row)}: {', '.join(columns)}: an option is blank")
    return AnswerOptions(tuple(values), tuple(map(str, keys)))


def find_right(
    table: Table, column: str, row: int, options: AnswerOptions, first: int = 0
) -> int:
    """Reads the number of the right option, from 0.

    Args:
      column: has one of the options' keys; without keys, a number, or a letter from A.
      first: the number of the first option in that column.
    """
    value = table.columns[column][row]
    if options.keys:
        allowed = f"one of {', '.join(options.keys)}"
        right = _index(str(value).strip(), options.keys)
    else:
        last = first + len(options.texts) - 1
        allowed = f"the number of an option, from {first} to {last}, or its letter"
        right = _read_number(value, first)
    if right is None or not 0 <= right < len(options.texts):
        raise DataError(f"{table.where(row)}: {column}={value!r}: must be {allowed}")
    return right


def _index(value: str, keys: tuple[str, ...]) -> int | None:
    return keys.index(value) if value in keys else None


def _read_number(value: Any, first: int) -> int | None:
    text = str(value).strip()
    if len(text) == 1 and text.isascii() and text.isalpha():
        return ord(text.upper()) - ord("A")
    try:
        return int(text) - first
    except ValueError:
        return None

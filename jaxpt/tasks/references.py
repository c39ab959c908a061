"""Reads the references of generated texts; each row may have several.

{"ref": ["A cheap pub.", "A pub, and cheap."]}         a list in one column
{"ref1": "A cheap pub.", "ref2": null}                 columns "ref*", some empty
mr,ref  a,A cheap pub.  a,"A pub, and cheap."          rows, grouped by a column
"""

import fnmatch
from collections.abc import Collection, Sequence
from typing import Any

from jaxpt.errors import DataError
from jaxpt.text.labelled.tables import Table

References = tuple[str, ...]


def read_references(
    table: Table, target: str, excluded: Collection[str], drop: str = ""
) -> list[References]:
    """The references of each row.

    Args:
      target: the name of a column, or a pattern of several, whose values are texts or
        lists of texts. Empty and missing values are skipped.
      excluded: columns that the pattern excludes.
      drop: a string that is removed from each text.
    """
    columns = sorted(fnmatch.filter(table.columns, target))
    columns = [column for column in columns if column not in excluded]
    if not columns:
        listed = ", ".join(map(repr, table.columns))
        raise DataError(f"{table.name}: no column {target!r}; it has {listed}")
    references = []
    for row in range(len(table)):
        texts: list[str] = []
        for column in columns:
            texts += _list_texts(table, column, row)
        # A table of one reference each may have an empty one.
        texts = [text for text in texts if text.strip()] or texts[:1]
        if not texts:
            raise DataError(
                f"{table.where(row)}: {target!r} must be a text, or several; is null"
            )
        references.append(tuple(x.replace(drop, "") if drop else x for x in texts))
    return references


def _list_texts(table: Table, column: str, row: int) -> list[str]:
    value = table.columns[column][row]
    if value is None:
        return []
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise DataError(
            f"{table.where(row)}: {column!r} must be text or a list of texts, is "
            f"{value!r:.40}"
        )
    return texts


def join_groups(
    table: Table, group: str, sources: Sequence[str], references: Sequence[References]
) -> list[tuple[str, References]]:
    """The source and all references of each group of rows with one value."""
    groups: dict[Any, tuple[str, References]] = {}
    for row, value in enumerate(table.columns[group]):
        source, before = groups.get(value, (sources[row], ()))
        if source != sources[row]:
            raise DataError(
                f"{table.where(row)}: {group}={value!r}: rows of one group must have "
                f"the same task.inputs"
            )
        groups[value] = source, before + references[row]
    return list(groups.values())

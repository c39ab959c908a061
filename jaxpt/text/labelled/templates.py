"""Templates of texts: `{name}` is replaced by the value of a column."""

import re
from collections.abc import Mapping

from jaxpt.errors import DataError
from jaxpt.text.labelled.tables import HOW_TO_DROP, Table
from jaxpt.text.sources.missing import is_empty

_SLOT = re.compile(r"\{([^{}]+)\}")


def list_slots(template: str) -> list[str]:
    """The names in braces.

    >>> list_slots("{premise} because {answer}")
    ['premise', 'answer']
    """
    return _SLOT.findall(template)


def fill(template: str, row: Mapping[str, str]) -> str:
    """Replaces the names in braces by their values."""
    return _SLOT.sub(lambda match: row[match[1]], template)


def read_texts(table: Table, text: str) -> list[str]:
    """A column of texts; or, if `text` names columns in braces, the filled template.

    >>> table = Table("a.tsv", {"a": ["x", "y"], "b": ["1", "2"]})
    >>> read_texts(table, "b"), read_texts(table, "{b}: {a}")
    (['1', '2'], ['1: x', '2: y'])
    """
    slots = list(dict.fromkeys(list_slots(text)))
    if not slots:
        return table.texts(text)
    columns = [table.texts(name, may_be_blank=True) for name in slots]
    filled = []
    for row, values in enumerate(zip(*columns, strict=True)):
        if all(map(is_empty, values)):
            raise DataError(
                f"{table.where(row)}: {', '.join(slots)}: must have text, is blank; "
                f"{HOW_TO_DROP}"
            )
        filled.append(fill(text, dict(zip(slots, values, strict=True))))
    return filled

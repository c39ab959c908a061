"""Templates of texts: `{name}` is replaced by the value of a column."""

import re
from collections.abc import Mapping

from jaxpt.text.labelled.tables import Table

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

    Raises:
      UserError: a value is not a string.

    >>> table = Table("a.tsv", {"a": ["x", "y"], "b": ["1", "2"]})
    >>> read_texts(table, "b"), read_texts(table, "{b}: {a}")
    (['1', '2'], ['1: x', '2: y'])
    """
    slots = list(dict.fromkeys(list_slots(text)))
    if not slots:
        return table.texts(text)
    columns = [table.texts(name) for name in slots]
    rows = zip(*columns, strict=True)
    return [fill(text, dict(zip(slots, row, strict=True))) for row in rows]

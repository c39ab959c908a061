"""The settings of text sources: a path and its fields, and mixtures of paths."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jaxpt.errors import DataError

SETTING = "data.path="


@dataclass(frozen=True)
class SourceSpec:
    """A text and its splitting into documents; the settings `data.*` of these names.

    Attributes:
      path: as in `jaxpt.text.text_spec.TextSpec`, but no prepared store.
      text_field, label_field, tfds_data_dir, documents: as there.
      is_partial: only the beginning is read, as with `limit_chars`.
    """

    path: str
    text_field: str = "text"
    label_field: str = ""
    tfds_data_dir: str = ""
    documents: str = "file"
    is_partial: bool = False


def parse_mixture(entries: Iterable[str]) -> list[tuple[str, float]]:
    """Parses entries "PATH=WEIGHT"; the last "=" separates.

    >>> parse_mixture(("a=b.txt=2", "tfds:c4=.5"))
    [('a=b.txt', 2.0), ('tfds:c4', 0.5)]
    """
    parsed = []
    for entry in entries:
        path, _, text = entry.rpartition("=")
        if not path:
            raise DataError(f"data.mixture={entry!r}: must be PATH=WEIGHT")
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not 0 < weight < math.inf:
            raise DataError(
                f"data.mixture={entry!r}: the weight must be a number above 0"
            )
        parsed.append((path, weight))
    return parsed

"""Detects missing values in data."""

import math
from typing import Any

from jaxpt.text.sources.delimited import BLANKS

# What programs write for a missing value: pandas, NumPy, R, spreadsheets, SQL, Python.
WORDS = frozenset(
    ("nan", "NaN", "NAN", "-nan", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaT")
    + ("null", "NULL", "Null", "None")
)


def is_empty(value: Any) -> bool:
    """Whether a value is null, NaN or a blank text.

    >>> [is_empty(value) for value in (None, float("nan"), " ", 0, "0", "None")]
    [True, True, True, False, False, False]
    """
    if isinstance(value, str):
        return not value.strip(BLANKS)
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_missing(value: Any) -> bool:
    """Whether a value is empty, or a word that programs write for a missing value.

    >>> [is_missing(value) for value in (None, "", "nan", "None", "none", "neutral")]
    [True, True, True, True, False, False]
    """
    is_word = isinstance(value, str) and value.strip(BLANKS) in WORDS
    return is_word or is_empty(value)

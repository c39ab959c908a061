"""Numbers as text, for tables, sentences and charts."""

import math
import numbers
from collections.abc import Iterable
from typing import TypeGuard

MISSING = "\N{EM DASH}"  # in a table, for a number that does not exist
# By character of data, its LaTeX, for any font encoding.
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{EM DASH}": "---",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of a report is a finite number; None replaces any other."""
    return isinstance(value, numbers.Real) and math.isfinite(value)


def format_count(number: float) -> str:
    """A count to three figures: 999, 12.3k, 4.56M, 7.89B, 1.23T."""
    for unit in ("", "k", "M", "B"):
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}T"


def format_flops(number: float) -> str:
    """A number to three figures: 1.23e15."""
    mantissa, _, exponent = f"{number:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def format_seconds(number: float) -> str:
    """Seconds to three figures, or whole ones: 0.05, 25.8, 1,234."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def format_number(value: float) -> str:
    """Three decimals, or two figures where these would hide a value.

    >>> format_number(-0.1278), format_number(0.00012), format_number(0)
    ('-0.128', '1.2e-04', '0.000')
    """
    # Adding 0 removes the sign of -0.
    return f"{value:.1e}" if 0 < abs(value) < 0.0005 else f"{value + 0.0:.3f}"


def format_p(p: float) -> str:
    """A p value to two figures, or that it is smaller than 0.0001.

    >>> format_p(0.0312), format_p(1e-9), format_p(1.0)
    ('0.031', '< 0.0001', '1')
    """
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def separate(items: Iterable[str]) -> str:
    """The separator of a list: a comma, or a semicolon if an item has a comma."""
    return "; " if any("," in item for item in items) else ", "


def escape(text: str) -> str:
    r"""Any text as LaTeX that shows it, on one line.

    >>> escape("a_b & 5% of {C:\\x}")
    'a\\_b \\& 5\\% of \\{C:\\textbackslash{}x\\}'
    """
    printable = "".join(c if c.isprintable() else " " for c in text)
    return "".join(ESCAPES.get(character, character) for character in printable)

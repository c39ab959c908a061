"""The colour and marker of each objective, the same in every plot and chart.

Okabe and Ito's colour-blind-safe palette, with darker and lighter shades beyond it.
"""

import itertools
from collections.abc import Iterable

BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#7A7A7A"

# (colour, marker) of each curve, in the order of a report's names.
PALETTE = (
    (BLUE, "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    # Beyond that palette: shades darker or lighter than its own colours.
    ("#8C2D04", "P"),
    ("#F4A582", "p"),
    ("#66C2A5", "v"),
    ("#56B4E9", "h"),
    ("#00513B", "<"),
    ("#6A3D9A", "X"),
    ("#B15928", "*"),
    ("#1F3A93", ">"),
    (ORANGE, "d"),
    ("#8A8A00", "x"),
    ("#7FBC41", "H"),
    ("#E7298A", "8"),
)


def choose_styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """(colour, marker) by name: as many as `PALETTE` has differ.

    >>> choose_styles(["words", "clm"])["words"] == PALETTE[0]
    True
    """
    styles = itertools.chain(PALETTE, itertools.repeat((GREY, "o")))
    return dict(zip(names, styles, strict=False))

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
    ("#00B5C4", "+"),
    ("#9E0142", "1"),
    ("#5E3C58", "2"),
    ("#B8A9E0", "3"),
    ("#4F7F00", "4"),
    ("#FF6F61", "|"),
    ("#C0CA33", "_"),
)


def choose_styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """(colour, marker) by name; those of `PALETTE` are all different.

    >>> choose_styles(["words", "clm"])["words"] == PALETTE[0]
    True
    """
    styles = itertools.chain(PALETTE, itertools.repeat((GREY, "o")))
    return dict(zip(names, styles, strict=False))


DASHES = ("none", "8 4", "2 3", "10 3 2 3")  # of lines, in turn
DARK_PAPER = "#16181b"  # the dark background in templates/style.css
MIN_CONTRAST = 4.5  # of WCAG 2, level AA


def lighten(color: str) -> str:
    """The colour, mixed with white until it can be read on dark paper.

    >>> lighten("#ffffff"), lighten("#000000")
    ('#ffffff', '#808080')
    """
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    for share in range(101):
        mixed = [part + (255 - part) * share / 100 for part in (red, green, blue)]
        mixed_color = "#" + "".join(f"{round(part):02x}" for part in mixed)
        if find_contrast(mixed_color, DARK_PAPER) >= MIN_CONTRAST:
            break
    return mixed_color


def find_contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 defines it, from 1 to 21."""
    bright, dark = sorted((_find_luminance(one), _find_luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _find_luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

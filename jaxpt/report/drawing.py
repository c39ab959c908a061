"""Draws pictures as SVG: elements, colours, panels, maps of cells, bars.

Charts with axes (`jaxpt.report.charts`) are made of the same elements and have the same
style sheet, so a file and a page follow the reader's light or dark theme. `tag` and
`escape_text` escape all text; `write` shows it on one line, with whitespace and
unprintable characters made visible.
"""

import html
import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

STYLE = Path(__file__).parent / "templates" / "chart.css"
LIGHT = "--ink: #1c1e21; --paper: #fff; --soft: #5c636b; --line: #d8dce0"
DARK = "--ink: #e4e6e9; --paper: #16181b; --soft: #a0a7af; --line: #3a3f45"
WHITESPACE = {" ": "␣", "\n": "⏎", "\t": "⇥"}
LETTER = 7.0  # width of one, roughly
SMALL = 6.2  # of a small one
LINE = 17.0  # height
GAP = 14.0
LEVELS = 12  # shades of a map
EMPTY = "#EEF1F4"


BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#7A7A7A"

# Okabe and Ito's colour-blind-safe palette, with shades beyond it.
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
    ("#A6761D", "5"),
    ("#4A6C8C", "6"),
    ("#F2A2E8", "l"),
    ("#3D8B6E", "-"),
    ("#7B1FA2", "7"),
    ("#C2185B", "9"),
    ("#5D4037", "0"),
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


def tag(kind: str, /, *children: str, **attributes: object) -> str:
    """An element as text; attributes are escaped, children are markup already.

    An underscore at an attribute's end is dropped, one within it becomes a hyphen.

    >>> tag("text", escape_text("a<b"), class_='"', x=1.25, text_anchor="end")
    '<text class="&quot;" x="1.2" text-anchor="end">a&lt;b</text>'
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_write(value))}"'
        for key, value in attributes.items()
    )
    inside = "".join(children)
    return (
        f"<{kind}{attribute_text}>{inside}</{kind}>"
        if inside
        else f"<{kind}{attribute_text}/>"
    )


def escape_text(text: object) -> str:
    """Text from data as markup."""
    return html.escape(str(text))


def _write(value) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)


class Picture(NamedTuple):
    """Elements of SVG in a box of `width` by `height` units."""

    svg: str
    width: float
    height: float


def document(
    picture: Picture, label: str, num_colors: int = 0, description: str = ""
) -> str:
    """The file of a picture.

    Args:
      label: names it for screen readers.
      num_colors: the number of objectives with a colour.
      description: its content, in words.
    """
    colors = [color for color, _ in PALETTE[:num_colors]]
    light = "".join(
        f".o{i} {{ --c: {color}; --d: {DASHES[i % len(DASHES)]}; }}\n"
        for i, color in enumerate(colors)
    )
    dark = "".join(
        f".o{i} {{ --c: {lighten(color)}; }}\n" for i, color in enumerate(colors)
    )
    style = (
        f"svg {{ {LIGHT}; }}\n{light}{STYLE.read_text(encoding='utf-8')}"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {DARK}; }}\n{dark}}}\n"
    )
    width, height = math.ceil(picture.width), math.ceil(picture.height)
    paper = tag("rect", width=width, height=height, style="fill: var(--paper)")
    return tag(
        "svg",
        *describe(label, description),
        tag("style", style),
        paper,
        picture.svg,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
    )


def describe(label: str, description: str) -> list[str]:
    """The title and the description of a picture for a screen reader, if any."""
    if not description:
        return []
    return [
        tag("title", escape_text(label)),
        tag("desc", escape_text(description)),
    ]


def grid(pictures: Sequence[Picture], columns: int, heading: str = "") -> Picture:
    """Pictures in rows, with a heading that may have several lines."""
    lines = heading.split("\n") if heading else []
    parts = [write(line, 8, LINE * (i + 1), "heading") for i, line in enumerate(lines)]
    down, widest = LINE * len(lines) + (8 if lines else 0), 0.0
    for start in range(0, len(pictures), columns):
        row, across = pictures[start : start + columns], 0.0
        for picture in row:
            size = {"width": picture.width, "height": picture.height}
            parts.append(tag("svg", picture.svg, x=across, y=down, **size))
            across += picture.width + GAP
        widest = max(widest, across - GAP)
        down += max(picture.height for picture in row) + GAP
    widest = max([widest, *(LETTER * len(line) + 16 for line in lines)])
    return Picture("".join(parts), widest, down - GAP * bool(pictures))


def write(
    text: str, x: float, y: float, kind: str = "", anchor: str = "start", turn: int = 0
) -> str:
    """A line of text at a place; `turn` in degrees."""
    at: dict[str, object] = {"x": x, "y": y, "text_anchor": anchor}
    if kind:
        at["class_"] = kind
    if turn:
        at["transform"] = f"rotate({turn} {x:.1f} {y:.1f})"
    return tag("text", escape_text(show(text)), **at)


def show(text: str) -> str:
    """Text with spaces kept, line ends and tabs as symbols, the unprintable escaped."""
    chars = (char if char == " " else WHITESPACE.get(char, char) for char in text)
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in chars
    )


def show_token(token: str) -> str:
    """A token as a label: whitespace visible, at most 20 characters.

    >>> show_token(" a\\n")
    '␣a⏎'
    """
    text = show("".join(WHITESPACE.get(char, char) for char in token))
    return text if len(text) <= 20 else text[:19] + "…"


def wrap(text: str, width: int, num_lines: int) -> str:
    """Text in lines of a width, the rest of it cut."""
    lines = textwrap.wrap(show(text), width, max_lines=num_lines, placeholder=" …")
    return "\n".join(lines)


def shade(value: float) -> str:
    """The colour of a share: from white to blue, in `LEVELS` shades.

    >>> shade(0.0), shade(1.0)
    ('#EEF1F4', '#0072b2')
    """
    level = round(min(max(value, 0.0), 1.0) * LEVELS) / LEVELS
    if not level:
        return EMPTY
    ends = zip(*(_parse(color) for color in (EMPTY, BLUE)), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * level):02x}" for a, b in ends)


def _parse(color: str) -> list[int]:
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def draw_cells(fills: Sequence[Sequence[str]], x: float, y: float, size: float) -> str:
    """A cell for each colour of a table; those of one colour are one path."""
    paths: dict[str, list[str]] = {}
    inner = size - 1 if size > 4 else size
    for row, line in enumerate(fills):
        for column, fill in enumerate(line):
            at = f"M{x + column * size:.1f} {y + row * size:.1f}"
            paths.setdefault(fill, []).append(f"{at}h{inner:g}v{inner:g}h-{inner:g}z")
    return "".join(
        tag("path", class_="bar", style=f"--cell: {fill}", d="".join(path))
        for fill, path in paths.items()
    )


def heat_map(
    title: str,
    values: Iterable[Iterable[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    size: float = 15.0,
    splits: Sequence[tuple[int, int]] = (),
    has_numbers: bool = False,
    axes: tuple[str, str] = ("", ""),
) -> Picture:
    """A table of shares as shades, with the names of its rows and columns.

    Args:
      title: may have several lines.
      splits: (row, column) before which a line divides the table.
      has_numbers: whether each cell has its value.
      axes: names of the rows and of the columns.
    """
    table = np.asarray(values, float)
    lines = title.split("\n")
    names = max((len(name) for name in rows), default=0)
    left = SMALL * names + 12 + (16 if axes[0] else 0)
    top = LINE * len(lines) + 8
    below = top + size * len(table)
    right = left + size * table.shape[1]
    parts = [write(line, 8, LINE * (i + 1), "heading") for i, line in enumerate(lines)]
    parts.append(
        draw_cells([[shade(v) for v in row] for row in table], left, top, size)
    )
    middle = size / 2 + 4
    for i, name in enumerate(rows):
        parts.append(
            write(name, left - 5, top + i * size + middle, "small-text", "end")
        )
    for i, name in enumerate(columns):
        at = left + i * size + middle, below + 6
        parts.append(write(name, *at, "small-text", "end", turn=-90))
    if has_numbers:
        parts += [
            write(
                f"{value:.2f}".removeprefix("0"),
                left + (column + 0.5) * size,
                top + row * size + middle,
                "small-text on" if value > 0.5 else "small-text",
                "middle",
            )
            for row, line in enumerate(table)
            for column, value in enumerate(line)
        ]
    for row, column in splits:
        down, across = top + row * size - 0.5, left + column * size - 0.5
        path = f"M{left:.1f} {down:.1f}H{right:.1f}M{across:.1f} {top:.1f}V{below:.1f}"
        parts.append(tag("path", class_="split", d=path))
    bottom = below + SMALL * max((len(name) for name in columns), default=0) + 14
    if axes[0]:
        parts.append(write(axes[0], 14, (top + below) / 2, "title", "middle", turn=-90))
    if axes[1]:
        bottom += LINE
        parts.append(write(axes[1], (left + right) / 2, bottom - 6, "title", "middle"))
    widest = max(right, *(LETTER * len(line) + 16 for line in lines))
    return Picture("".join(parts), widest + 8, bottom)


def bars(
    title: str,
    labels: Sequence[str],
    values: Sequence[float],
    colors: Sequence[str],
    most: float = 1.0,
    note: str = "",
) -> Picture:
    """Horizontal bars with their values in percent.

    Args:
      most: the value at the end of the longest bar that fits; pictures to be compared
        have the same.
      note: below the bars.
    """
    lines = title.split("\n")
    parts = [write(line, 8, LINE * (i + 1), "heading") for i, line in enumerate(lines)]
    left = LETTER * max((len(label) for label in labels), default=0) + 16
    top, room = LINE * len(lines) + 10, 150.0
    for i, (label, value, color) in enumerate(zip(labels, values, colors, strict=True)):
        down, length = top + i * 20, room * min(value / most, 1.0)
        parts.append(write(label, left - 6, down + 12, "name", "end"))
        size = {"width": max(length, 0.5), "height": 15}
        fill = f"--cell: {color}"
        parts.append(tag("rect", class_="bar", x=left, y=down, style=fill, **size))
        parts.append(write(f"{value:.1%}", left + length + 5, down + 12))
    bottom = top + 20 * len(labels) + 4
    if note:
        parts.append(write(note, left, bottom + 12, "title"))
        bottom += LINE
    texts = [*(LETTER * len(line) + 16 for line in lines), left + LETTER * len(note)]
    return Picture("".join(parts), max(left + room + 60, *texts), bottom + 8)

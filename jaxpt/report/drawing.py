"""Pictures as SVG files: panels of charts, maps of cells, and bars.

They are made of the same parts as the charts of a page (`jaxpt.report.charts`) and have
the same style sheet, so a picture follows the reader's light or dark theme. Text from
data is escaped and on one line, with whitespace and what cannot be printed made
visible.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxpt.report.charts import (
    BLUE,
    DASHES,
    HEIGHT,
    PALETTE,
    WIDTH,
    escape_text,
    lighten,
    tag,
)

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


class Picture(NamedTuple):
    """Elements of SVG in a box of `width` by `height` units."""

    svg: str
    width: float
    height: float


def document(picture: Picture, label: str, num_colors: int = 0) -> str:
    """The file of a picture.

    Args:
      label: describes it for screen readers.
      num_colors: the number of objectives with a colour.
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


def place_chart(svg: str, heading: str = "") -> Picture:
    """A chart of `charts.draw_chart` below a heading."""
    top = LINE + 6 if heading else 0.0
    text = write(heading, 8, LINE, kind="heading") if heading else ""
    box = tag("svg", svg, y=top, width=WIDTH, height=HEIGHT)
    return Picture(text + box, WIDTH, HEIGHT + top)


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

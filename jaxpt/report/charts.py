"""Draws charts as SVG: axes with round ticks, lines with bands, markers, labels.

A chart is 620 by 360 units; the page scales it. An objective is a CSS class, `o0`, `o1`
and so on in a report's order; its colour and marker are the same in every chart.
Colours and dashes are in the style sheet, so that one drawing serves light, dark, print
and hidden objectives.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from jaxpt.report.drawing import LINE, Picture, choose_styles, escape_text, tag, write

WIDTH, HEIGHT = 620, 360
# The plot's area; the names of lines are to the right of it.
LEFT, RIGHT, TOP, BOTTOM = 68, 486, 14, 302
FULL = 572  # the right edge of a plot with its names inside
LABEL_GAP = 17.0  # between the baselines of two names
LEVEL_GAP = 14.0  # between the bases of two names of levels
ASCENT = 10.0  # of a letter of these, in units
LONGEST = 16  # characters of a name in a chart; the tooltip has the whole name

# Markers: corners, turn in degrees, inner radius, width. An
# inner radius below 1 makes a star; no corners are a circle.
MARKERS = {
    "o": (0, 0, 1.0, 1.0),
    "s": (4, 45, 1.0, 1.0),
    "^": (3, 0, 1.0, 1.0),
    "D": (4, 0, 1.0, 1.0),
    "P": (4, 0, 0.45, 1.0),
    "p": (5, 0, 1.0, 1.0),
    "v": (3, 180, 1.0, 1.0),
    "h": (6, 0, 1.0, 1.0),
    "<": (3, -90, 1.0, 1.0),
    "X": (4, 45, 0.45, 1.0),
    "*": (5, 0, 0.42, 1.0),
    ">": (3, 90, 1.0, 1.0),
    "d": (4, 0, 1.0, 0.6),
    "x": (4, 45, 0.2, 1.0),
    "H": (6, 30, 1.0, 1.0),
    "8": (8, 22.5, 1.0, 1.0),
    "+": (4, 0, 0.2, 1.0),
    "1": (3, 180, 0.2, 1.0),
    "2": (3, 0, 0.2, 1.0),
    "3": (3, -90, 0.2, 1.0),
    "4": (3, 90, 0.2, 1.0),
    "|": (2, 90, 0.2, 1.0),
    "_": (2, 0, 0.2, 1.0),
    "5": (5, 0, 0.2, 1.0),
    "6": (6, 0, 0.2, 1.0),
    "l": (4, 0, 1.0, 0.3),
    "-": (4, 90, 1.0, 0.3),
    "7": (7, 0, 0.2, 1.0),
    "9": (3, 90, 0.45, 1.0),
    "0": (4, 0, 0.45, 0.6),
}


class AxisScale(NamedTuple):
    """Where a value is drawn: `low` at `start`, `high` at `end`, both in units.

    >>> AxisScale(0, 10, 100, 200)(2.5)
    125.0
    >>> AxisScale(1, 100, 0, 50, is_log=True)(10)
    25.0
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def choose_ticks(low: float, high: float, num: int = 5) -> list[float]:
    """About `num` round numbers that enclose the range, evenly spaced.

    They are 1, 2, 2.5 or 5 times a power of ten apart.

    >>> choose_ticks(0.12, 0.49)
    [0.1, 0.2, 0.3, 0.4, 0.5]
    >>> choose_ticks(3, 3)
    [2.5, 3.0, 3.5]
    """
    if not high - low > 1e-9 * max(abs(low), abs(high)):  # one value, or rounding
        reach = abs(low) / 10 or 1.0
        low, high, num = low - reach, high + reach, 2
    rough = (high - low) / num
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k * power for k in (1, 2, 2.5, 5, 10) if k * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def choose_log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that enclose the range, or powers alone.

    >>> choose_log_ticks(0.3, 6)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 3 else (1,)
    ticks = [float(f"{k}e{power}") for power in powers for k in factors]
    first = max(i for i, tick in enumerate(ticks) if tick <= low * 1.000001)
    last = min(i for i, tick in enumerate(ticks) if tick >= high * 0.999999)
    return ticks[first : max(last, first + 1) + 1]


class Axis(NamedTuple):
    """A scale with its ticks, what is measured along it, and how a tick is written."""

    scale: AxisScale
    ticks: list[float]
    label: str
    write: Callable[[float], str]


def make_axis(
    values: Iterable[float],
    label: str,
    write: Callable[[float], str],
    start: float,
    end: float,
    is_log: bool = False,
) -> Axis:
    """An axis whose first and last tick enclose the values; 0 to 1 without values.

    Its range is wide enough for any two ticks to be written differently, so that a
    difference that the numbers cannot show does not look large either.
    """
    numbers = [float(value) for value in values] or [0.0, 1.0]
    low, high = min(numbers), max(numbers)
    ticks = choose_log_ticks(low, high) if is_log else choose_ticks(low, high)
    while len({write(tick) for tick in ticks}) < len(ticks):
        reach = (ticks[-1] - ticks[0]) / 2
        ticks = choose_ticks(low - reach, high + reach)
    return Axis(AxisScale(ticks[0], ticks[-1], start, end, is_log), ticks, label, write)


def make_layer_axis(deepest: int) -> Axis:
    """The axis of layers 0 to `deepest`, with ticks at whole numbers only."""
    title = "layer (0: embeddings)"
    x = make_axis((0, max(deepest, 1)), title, "{:g}".format, LEFT, RIGHT)
    return x._replace(ticks=[tick for tick in x.ticks if tick == int(tick)])


def draw_frame(x: Axis, y: Axis) -> str:
    """Grid lines, the ticks' numbers, and the labels of both axes."""
    parts = []
    for value in y.ticks:
        place = y.scale(value)
        parts.append(tag("path", class_="grid", d=f"M{LEFT} {place:.1f}H{x.scale.end}"))
        number = escape_text(y.write(value))
        parts.append(tag("text", number, x=LEFT - 8, y=place + 4, text_anchor="end"))
    # The numbers along x are wide: of many, every other one is written.
    every = 2 if len(x.ticks) > 6 else 1
    for i, value in enumerate(x.ticks):
        place = x.scale(value)
        parts.append(tag("path", class_="grid", d=f"M{place:.1f} {TOP}V{BOTTOM}"))
        if i % every == 0:
            number = escape_text(x.write(value))
            at = {"x": place, "y": BOTTOM + 19}
            parts.append(tag("text", number, text_anchor="middle", **at))
    parts.append(tag("path", class_="axis", d=f"M{LEFT} {TOP}V{BOTTOM}H{x.scale.end}"))
    middle = (x.scale.start + x.scale.end) / 2
    parts.append(
        tag(
            "text",
            escape_text(x.label),
            class_="title",
            x=middle,
            y=BOTTOM + 43,
            text_anchor="middle",
        )
    )
    middle = (TOP + BOTTOM) / 2
    parts.append(
        tag(
            "text",
            escape_text(y.label),
            class_="title",
            transform=f"translate(15 {middle:g}) rotate(-90)",
            text_anchor="middle",
        )
    )
    return "".join(parts)


Point = tuple[float, float]


def draw_levels(
    levels: Mapping[str, float], x: Axis, y: Axis, at_end: bool = False
) -> str:
    """A dotted line across the plot at each value, with its name above or below it.

    Args:
      at_end: names are at the right.
    """
    place_x = x.scale.end - 6 if at_end else x.scale.start + 6
    anchor = "end" if at_end else "start"
    names = sorted(levels, key=lambda name: y.scale(levels[name]))
    heights = [y.scale(levels[name]) for name in names]
    places = place_levels(heights)
    parts = []
    for name, height, place in zip(names, heights, places, strict=True):
        line = [(x.scale.start, height), (x.scale.end, height)]
        parts.append(draw_line("constant", line))
        at = {"x": place_x, "y": place, "text_anchor": anchor, "class_": "level"}
        parts.append(tag("text", escape_text(name), **at))
    return "".join(parts)


def place_levels(heights: Sequence[float]) -> list[float]:
    """Where the names of lines are written, so that no line crosses a name.

    A name is above its line. Of lines that are too near to each other for that, the
    first half have their names above all of them and the others below, in their order.

    Args:
      heights: of the lines, in ascending order; the result has the base of each name.

    >>> place_levels([100, 200])
    [96.0, 196.0]
    >>> place_levels([100, 102, 109])
    [82.0, 96.0, 121.0]
    >>> place_levels([TOP, TOP + 1])  # no room above
    [27.0, 41.0]
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _reach(groups[-2])[1] > _reach(groups[-1])[0]:
            last = groups.pop()
            groups[-1] += last
    return [place for group in groups for place in _place_names(group)]


def _reach(group: Sequence[float]) -> tuple[float, float]:
    """The upper and lower edge of some lines and their names."""
    places = _place_names(group)
    return min(group[0], places[0] - ASCENT), max(group[-1], places[-1] + 3)


def _place_names(group: Sequence[float]) -> list[float]:
    """The bases of names around lines that are near to each other."""
    room_above = max(0, int((group[0] - 4 - TOP - ASCENT) // LEVEL_GAP) + 1)
    room_below = max(0, int((BOTTOM - group[-1] - 15) // LEVEL_GAP) + 1)
    below = min(len(group) // 2, room_below)
    above = min(len(group) - below, room_above)
    first, last = group[0] - 4.0, group[-1] + 12.0
    return [first - LEVEL_GAP * i for i in reversed(range(above))] + [
        last + LEVEL_GAP * i for i in range(len(group) - above)
    ]


def draw_line(kind: str, points: Sequence[Point | None]) -> str:
    """A line through points in units; None interrupts it."""
    path, is_open = "", False
    for point in points:
        if point is not None:
            path += f"{'L' if is_open else 'M'}{point[0]:.1f} {point[1]:.1f}"
        is_open = point is not None
    return tag("path", class_=kind, d=path) if path else ""


def draw_band(lows: Sequence[Point | None], highs: Sequence[Point | None]) -> str:
    """The area between two lines in units; None in both interrupts it."""
    parts: list[list[tuple[Point, Point]]] = [[]]
    for low, high in zip(lows, highs, strict=True):
        if low is None or high is None:
            parts.append([])
        else:
            parts[-1].append((low, high))
    path = ""
    for part in parts:
        if len(part) > 1:
            corners = [low for low, _ in part] + [high for _, high in part[::-1]]
            path += f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in corners)}Z"
    return tag("path", class_="band", d=path) if path else ""


def draw_marker(
    marker: str, x: float, y: float, radius: float, title: str = "", kind: str = "dot"
) -> str:
    """A marker of `MARKERS` with a tooltip, centred at x, y in units."""
    corners, turn, inner, width = MARKERS[marker]
    tooltip = tag("title", escape_text(title)) if title else ""
    if not corners:
        return tag("circle", tooltip, class_=kind, cx=x, cy=y, r=radius)
    radii = [1.0] if inner == 1 else [1.0, inner]
    num = corners * len(radii)
    # A circle's area, roughly, whatever the number of corners.
    grown = {3: 1.3, 4: 1.2, 5: 1.1}.get(corners, 1.0) if inner == 1 else 1.6
    reach = radius * grown
    path = []
    for i in range(num):
        angle = math.radians(turn + 360 * i / num)
        out = reach * radii[i % len(radii)]
        across, down = width * out * math.sin(angle), -out * math.cos(angle)
        path.append(f"{x + across:.1f} {y + down:.1f}")
    return tag("path", tooltip, class_=kind, d=f"M{'L'.join(path)}Z")


def shorten(name: str) -> str:
    """A name, cut to the room in a chart."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def spread(
    positions: Sequence[float], gap: float, low: float, high: float
) -> list[float]:
    """Places near those wanted, `gap` apart if there is room, within low to high.

    >>> spread([50, 52, 90], 10, 0, 100)
    [46.0, 56.0, 90.0]
    """
    if not positions:
        return []
    gap = min(gap, (high - low) / max(1, len(positions) - 1))
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # Groups of neighbours that touch: each as near to its members' wishes as it can be.
    groups: list[list[int]] = []
    for place in order:
        groups.append([place])
        while len(groups) > 1 and (
            _start(groups[-1], positions, gap, low, high)
            < _start(groups[-2], positions, gap, low, high) + gap * len(groups[-2])
        ):
            last = groups.pop()
            groups[-1] += last
    places = [0.0] * len(positions)
    for group in groups:
        start = _start(group, positions, gap, low, high)
        for i, place in enumerate(group):
            places[place] = start + i * gap
    return places


def _start(group, positions, gap, low, high):
    """The place of a group's first member, if all are `gap` apart and in range."""
    first = sum(positions[place] - i * gap for i, place in enumerate(group)) / len(
        group
    )
    return max(low, min(first, high - gap * (len(group) - 1)))


def draw_names(ends: Mapping[str, Point]) -> dict[str, str]:
    """Each name to the right of the plot, with a thread to the end of its line.

    Args:
      ends: by name, the last point of its line in units.
    """
    positions = [down for _, down in ends.values()]
    places = spread(positions, LABEL_GAP, TOP + 4, BOTTOM)
    drawn = {}
    for (name, (across, down)), place in zip(ends.items(), places, strict=True):
        thread = draw_line("thread", [(across + 5, down), (RIGHT + 14, place)])
        text = tag("title", escape_text(name)) + escape_text(shorten(name))
        at = {"x": RIGHT + 18, "y": place + 4}
        drawn[name] = thread + tag("text", text, class_="name", **at)
    return drawn


def draw_lines(
    lines: Mapping[str, Sequence[float | None]], x: Axis, y: Axis, label: str
) -> Markup:
    """A chart with a line for each name, over 0, 1, 2, ...

    Args:
      lines: by name, in the order of the colours; an empty one is left out.
      label: describes the chart for screen readers.
    """
    points = {
        name: [
            None if value is None else (x.scale(place), y.scale(value))
            for place, value in enumerate(line)
        ]
        for name, line in lines.items()
    }
    ends = {n: known[-1] for n, at in points.items() if (known := [p for p in at if p])}
    names, styles, parts = draw_names(ends), choose_styles(lines), [draw_frame(x, y)]
    for i, (name, line) in enumerate(lines.items()):
        if name not in ends:
            continue
        drawn = [draw_line("mean", points[name])]
        for place, (point, value) in enumerate(zip(points[name], line, strict=True)):
            if point:
                tooltip = f"{name}, {x.label.partition(' ')[0]} {place}: {value:.3f}"
                drawn.append(draw_marker(styles[name][1], *point, 4, tooltip))
        parts.append(tag("g", *drawn, names[name], class_=f"s o{i}"))
    return draw_chart(label, *parts)


def draw_chart(label: str, *parts: str) -> Markup:
    """The SVG of a chart; `label` describes it for screen readers."""
    svg = tag(
        "svg",
        *parts,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=label,
    )
    return Markup(svg)


def place_chart(svg: str, heading: str = "") -> Picture:
    """A chart of `charts.draw_chart` below a heading."""
    top = LINE + 6 if heading else 0.0
    text = write(heading, 8, LINE, kind="heading") if heading else ""
    box = tag("svg", svg, y=top, width=WIDTH, height=HEIGHT)
    return Picture(text + box, WIDTH, HEIGHT + top)

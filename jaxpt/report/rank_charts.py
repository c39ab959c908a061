"""The critical-difference picture: systems along an axis, joined if they do not differ.

Means are marks on the axis, the better to the right. A bar below the axis joins the
systems of a group that share a letter: none of its pairs differs significantly. It is
the diagram of Demšar (2006), with means instead of mean ranks, and with the tests of
the table's letters instead of one critical difference.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from jaxpt.judge.letters import list_members
from jaxpt.report import charts
from jaxpt.report.charts import Axis, shorten
from jaxpt.report.drawing import (
    PALETTE,
    Picture,
    describe,
    document,
    escape_text,
    grid,
    tag,
    write,
)
from jaxpt.report.formats import format_number

WIDTH = 620
SIDE = 158  # room of names to the left and to the right of the axis
TOP, TICK = 46.0, 5.0
BAR, ROW = 9.0, 20.0  # heights of a bar and of a name


class RankedMeans(NamedTuple):
    """What is drawn: the mean and the letters of each system, the best first.

    Attributes:
      numbers: of the systems among all that have a colour.
    """

    label: str
    higher_is_better: bool
    means: Mapping[str, float]
    letters: Mapping[str, str]
    numbers: Mapping[str, int]

    def list_bars(self) -> list[list[str]]:
        """The groups of two or more systems that do not differ significantly."""
        groups = list_members(self.letters).values()
        return [group for group in groups if len(group) > 1]

    def describe(self) -> str:
        """The picture in words."""
        means = (f"{name} {format_number(x)}" for name, x in self.means.items())
        joined = "; ".join(", ".join(group) for group in self.list_bars())
        better = "higher" if self.higher_is_better else "lower"
        same = f"Not significantly different: {joined}" if joined else "All differ"
        return f"Means, {better} is better: {', '.join(means)}. {same}."


def draw_file(metrics: Sequence[RankedMeans]) -> str:
    """The pictures of some metrics as an SVG file."""
    num_colors = 1 + max(max(each.numbers.values()) for each in metrics)
    panels = [grid([_draw(ranked)], 1) for ranked in metrics]
    label = f"critical differences: {', '.join(each.label for each in metrics)}"
    words = " ".join(f"{each.label}: {each.describe()}" for each in metrics)
    return document(grid(panels, 1), label, num_colors, words)


def draw_chart(ranked: RankedMeans) -> Markup:
    """The picture as a chart of a page."""
    svg, width, height = _draw(ranked)
    label = f"critical differences: {ranked.label}"
    return Markup(
        tag(
            "svg",
            *describe(label, ranked.describe()),
            svg,
            class_="chart ranks",
            viewBox=f"0 0 {width:g} {height:g}",
            role="img",
            aria_label=label,
        )
    )


def _draw(ranked: RankedMeans) -> Picture:
    """Axis, bars, and each name with its mark."""
    sides = (SIDE, WIDTH - SIDE)
    sides = sides if ranked.higher_is_better else sides[::-1]
    label = f"{ranked.label}: better to the right"
    axis = charts.make_axis(ranked.means.values(), label, "{:g}".format, *sides)
    bars = ranked.list_bars()
    first = TOP + 14 + BAR * len(bars) + 14  # of the names
    names = list(ranked.means)
    # The better half is to the right; the outermost name is the highest.
    num_right = (len(names) + 1) // 2
    right, left = names[:num_right], names[num_right:][::-1]
    parts = [_draw_axis(axis, sides), _draw_bars(bars, ranked.means, axis)]
    for column, anchor in ((right, "start"), (left, "end")):
        for row, name in enumerate(column):
            drawn = _draw_name(name, anchor, first + ROW * row, ranked, axis)
            mark, number = (axis.scale(ranked.means[name]), TOP), ranked.numbers[name]
            drawn += charts.draw_marker(_find_marker(number), *mark, 5)
            parts.append(tag("g", drawn, class_=f"s o{number}"))
    return Picture("".join(parts), WIDTH, first + ROW * max(num_right, 1) - 4)


def _find_marker(number: int) -> str:
    """The marker of a system, as `drawing.choose_styles` has it."""
    return PALETTE[number][1] if number < len(PALETTE) else "o"


def _draw_axis(axis: Axis, sides: tuple[float, float]) -> str:
    low, high = sorted(sides)
    every = 2 if len(axis.ticks) > 6 else 1
    parts = [tag("path", class_="axis", d=f"M{low} {TOP:g}H{high}")]
    for i, value in enumerate(axis.ticks):
        at = axis.scale(value)
        parts.append(tag("path", class_="axis", d=f"M{at:.1f} {TOP - TICK:g}V{TOP:g}"))
        if i % every == 0:
            parts.append(write(axis.write(value), at, TOP - 10, anchor="middle"))
    parts.append(write(axis.label, WIDTH / 2, 14, "title", "middle"))
    return "".join(parts)


def _draw_bars(
    bars: Sequence[Sequence[str]], means: Mapping[str, float], axis: Axis
) -> str:
    parts = []
    for i, group in enumerate(bars):
        at = [axis.scale(means[name]) for name in group]
        place = TOP + 14 + BAR * i
        path = f"M{min(at) - 4:.1f} {place:g}H{max(at) + 4:.1f}"
        tooltip = tag("title", escape_text(f"{', '.join(group)} do not differ"))
        parts.append(tag("path", tooltip, class_="same", d=path))
    return "".join(parts)


def _draw_name(
    name: str, anchor: str, down: float, ranked: RankedMeans, axis: Axis
) -> str:
    """A thread from the axis down to a row and out to the side, and the name there."""
    is_right = anchor == "start"
    mean = ranked.means[name]
    end = WIDTH - SIDE + 8 if is_right else SIDE - 8
    path = f"M{axis.scale(mean):.1f} {TOP:g}V{down:.1f}H{end}"
    words = f"{name}: {format_number(mean)}"
    text = tag("title", escape_text(words)) + escape_text(shorten(name))
    at = {"x": end + (4 if is_right else -4), "y": down + 4, "text_anchor": anchor}
    return tag("path", class_="stem", d=path) + tag("text", text, class_="name", **at)

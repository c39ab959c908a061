"""Forest plots: one row per difference, with its interval, its margin, and its outcome.

Each row is a row of a table whose picture is a strip of SVG, so that its words wrap on
a narrow screen and a row can be hidden with its objective.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from jaxpt.report import charts
from jaxpt.report.baselines import FREQUENCIES, FREQUENCY, REFERENCE, UNTRAINED
from jaxpt.report.charts import Scale, escape_text, tag
from jaxpt.report.formats import format_number, format_p
from jaxpt.report.report_charts import is_number
from jaxpt.report.summary import MISSING

WIDTH, HEIGHT, AXIS_HEIGHT = 320, 22, 26
FEW = 16  # rows that are shown at once; the others open on a click


class Row(NamedTuple):
    """By how much `first` is better than `second`; negative where it is worse.

    Attributes:
      low, high: of its simultaneous interval; None if there is none.
      members: the numbers of the objectives that it is about.
    """

    first: str
    second: str
    difference: float | None
    low: float | None
    high: float | None
    p: float
    outcome: str
    members: list[int]


def list_pairs(yardstick: dict, numbers: Mapping[str, int]) -> list[Row]:
    """Every two objectives, the better one first; those of the best come first."""
    rows = []
    for pair in yardstick["pairs"]:
        better, worse = pair["better"], pair["worse"]
        ends = _read(pair["low"]), _read(pair["high"])
        members = [numbers[better], numbers[worse]]
        words = _word_outcome(pair, yardstick["margin"])
        difference = _read(pair["difference"])
        rows.append(Row(better, worse, difference, *ends, pair["p"], words, members))
    best = rows[0].first if rows else ""
    return sorted(rows, key=lambda row: best not in (row.first, row.second))


def _word_outcome(pair: dict, margin: float) -> str:
    if pair["outcome"] == "ahead":
        return f"{pair['better']} is ahead"
    if pair["outcome"] == "equivalent":
        return f"equivalent within {margin:g}"
    if pair["outcome"] == "untested":
        return "no verdict: one seed"
    if pair["seeds_needed"]:
        return f"tie; a new comparison needs about {pair['seeds_needed']} seeds"
    return "tie"


def list_baselines(yardstick: dict, numbers: Mapping[str, int]) -> list[Row]:
    """Each objective over what teaches nothing, also where it is the worse of them."""
    rows = []
    for pair in yardstick["baselines"]:
        is_better = pair["better"] in numbers
        name = pair["better" if is_better else "worse"]
        control = pair["worse" if is_better else "better"]
        words = {
            UNTRAINED: "its own untrained parameters",
            FREQUENCY: FREQUENCIES,
            REFERENCE: yardstick["reference"],
        }
        ends = _read(pair["low"]), _read(pair["high"])
        difference = _read(pair["difference"])
        if not is_better:
            ends = _negate(ends[1]), _negate(ends[0])
            difference = _negate(difference)
        outcome = {
            "ahead": f"{name} is {'ahead' if is_better else 'behind'}",
            "equivalent": f"equivalent within {yardstick['margin']:g}",
            "untested": "no verdict: one seed",
        }.get(pair["outcome"], "tie")
        second = words.get(control, control)
        p, members = pair["p"], [numbers[name]]
        rows.append(Row(name, second, difference, *ends, p, outcome, members))
    return rows


def _read(value) -> float | None:
    """A finite number, or None: null in JSON stands for one that is not finite."""
    return value if is_number(value) else None


def _negate(value: float | None) -> float | None:
    return None if value is None else -value


def draw_forest(rows: list[Row], margin: float, heading: str) -> str:
    """The rows as a table with one common scale; those beyond `FEW` in a fold."""
    known = [v for row in rows for v in (row.difference, row.low, row.high)]
    values = [v for v in known if v is not None] + [0.0, -margin, margin]
    ticks = charts.choose_ticks(min(values), max(values), 4)
    scale = Scale(ticks[0], ticks[-1], 14, WIDTH - 14)
    head = (
        f'<tr><th class="text">{escape_text(heading)}</th>'
        f"<th>{_draw_axis(scale, ticks)}</th>"
        '<th class="text">difference and interval</th>'
        '<th class="text">p (Holm)</th><th class="text">outcome</th></tr>'
    )
    lines = [_draw_row(row, scale, margin) for row in rows]
    shown = len(lines)
    if len(lines) > FEW:
        shown = FEW
    table = _make_table(head, lines[:shown])
    if lines[shown:]:
        rest = _make_table(head, lines[shown:])
        table += (
            f'<details class="more"><summary>the other {len(lines) - shown} '
            f"differences</summary>{rest}</details>"
        )
    return table


def _make_table(head: str, lines: list[str]) -> str:
    body = "\n".join(lines)
    return (
        f'<table class="forest">\n<thead>{head}</thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )


def _draw_axis(scale: Scale, ticks: list[float]) -> str:
    every = math.ceil(len(ticks) / 5)
    start = ticks.index(0.0) % every if 0.0 in ticks else 0  # 0 has its number
    parts = []
    for i, value in enumerate(ticks):
        place = scale(value)
        kind = "axis" if value == 0 else "grid"
        parts.append(tag("path", class_=kind, d=f"M{place:.1f} 20V{AXIS_HEIGHT}"))
        if i % every == start:
            number = escape_text(f"{value:g}")
            parts.append(tag("text", number, x=place, y=14, text_anchor="middle"))
    box = f"0 0 {WIDTH} {AXIS_HEIGHT}"
    told = "scale of the differences"
    return tag("svg", *parts, viewBox=box, role="img", aria_label=told)


def _draw_row(row: Row, scale: Scale, margin: float) -> str:
    if row.difference is None:
        interval = MISSING
    elif row.low is None or row.high is None:
        interval = format_number(row.difference)
    else:
        interval = f"{format_number(row.difference)} " + format_interval(row)
    kinds = " ".join(f"p{number}" for number in row.members)
    p = MISSING if row.outcome.startswith("no verdict") else format_p(row.p)
    told = f"{row.first} over {row.second}: {interval}, {row.outcome}"
    return (
        f'<tr class="{kinds}"><td class="text pair">{escape_text(row.first)} '
        f"over {escape_text(row.second)}</td>"
        f"<td>{_draw_strip(row, scale, margin, told)}</td>"
        f'<td class="text">{interval}</td><td class="text p">{p}</td>'
        f'<td class="text outcome">{escape_text(row.outcome)}</td></tr>'
    )


def _draw_strip(row: Row, scale: Scale, margin: float, told: str) -> str:
    middle, zero = HEIGHT / 2, scale(0.0)
    parts = [tag("title", escape_text(told))]
    if margin:
        left, right = scale(-margin), scale(margin)
        size = {"width": right - left, "height": HEIGHT}
        parts.append(tag("rect", class_="margin", x=left, y=0, **size))
    parts.append(tag("path", class_="axis", d=f"M{zero:.1f} 0V{HEIGHT}"))
    if row.low is not None and row.high is not None:
        low, high = scale(row.low), scale(row.high)
        caps = "".join(f"M{x:.1f} {middle - 4:g}v8" for x in (low, high))
        line = f"M{low:.1f} {middle:g}H{high:.1f}"
        parts.append(tag("path", class_="interval", d=line + caps))
    if row.difference is not None:
        is_told = row.outcome.endswith(("is ahead", "is behind"))
        kind = "dot" if is_told else "hollow"
        place = scale(row.difference)
        parts.append(charts.draw_marker("o", place, middle, 4.5, kind=kind))
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *parts, viewBox=box, role="img", aria_label=told)


def format_interval(row: Row) -> str:
    """[low, high] of a row that has both."""
    return f"[{format_number(row.low or 0.0)}, {format_number(row.high or 0.0)}]"

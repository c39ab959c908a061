"""Draws forest plots: a row per difference with its interval, margin and outcome.

Each row is a row of an HTML table with a strip of SVG, so that its text wraps on a
narrow screen and a row can be hidden with its objective.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from jaxpt.report import charts
from jaxpt.report.charts import AxisScale, escape_text, tag
from jaxpt.report.formats import MISSING, format_number, format_p
from jaxpt.report.types import Metric, Verdict
from jaxpt.report.wording import WORDS, name_baselines, word_outcome, word_seeds

WIDTH, HEIGHT, AXIS_HEIGHT = 320, 22, 26
FEW = 16  # rows that are shown at once; the others open on a click


class ForestRow(NamedTuple):
    """The difference by which `first` is better than `second`; negative if worse.

    Attributes:
      low, high: of its simultaneous interval; None if there is none.
      members: the numbers of the objectives in it.
    """

    first: str
    second: str
    difference: float | None
    low: float | None
    high: float | None
    p: float
    outcome: str
    members: list[int]


def list_pairs(metric: Metric, numbers: Mapping[str, int]) -> list[ForestRow]:
    """Every two objectives, the better one first; pairs with the best come first."""
    rows = [
        ForestRow(
            *pair.names,
            pair.difference,
            pair.low,
            pair.high,
            pair.p,
            _word_outcome(pair, metric.margin),
            [numbers[name] for name in pair.names],
        )
        for pair in metric.pairs
    ]
    best = rows[0].first if rows else ""
    return sorted(rows, key=lambda row: best not in (row.first, row.second))


def _word_outcome(pair: Verdict, margin: float) -> str:
    words = word_outcome(pair, margin)
    if pair.outcome == "tie" and pair.seeds_needed:
        return f"{words}; {word_seeds(pair)}"
    return words


def list_baselines(metric: Metric, numbers: Mapping[str, int]) -> list[ForestRow]:
    """Each objective minus each baseline, also if the baseline is better."""
    rows, words = [], name_baselines(metric)
    for pair in metric.baselines:
        is_better = pair.better in numbers
        name = pair.better if is_better else pair.worse
        control = pair.other(name)
        ends = pair.difference, pair.low, pair.high
        outcome = word_outcome(pair, metric.margin)
        if not is_better:
            first, low, high = (None if end is None else -end for end in ends)
            ends = first, high, low
            outcome = WORDS["behind"] if pair.outcome == "ahead" else outcome
        second = words.get(control, control)
        rows.append(ForestRow(name, second, *ends, pair.p, outcome, [numbers[name]]))
    return rows


def draw_rows(
    rows: list[ForestRow], margin: float
) -> tuple[Markup, list[dict[str, Any]]]:
    """The axis of a forest plot, and its rows as the macro `forest_table` reads them.

    All rows have one scale.
    """
    known = [v for row in rows for v in (row.difference, row.low, row.high)]
    values = [v for v in known if v is not None] + [0.0, -margin, margin]
    ticks = charts.choose_ticks(min(values), max(values), 4)
    scale = AxisScale(ticks[0], ticks[-1], 14, WIDTH - 14)
    return _draw_axis(scale, ticks), [_draw_row(row, scale, margin) for row in rows]


def _draw_axis(scale: AxisScale, ticks: list[float]) -> Markup:
    every = math.ceil(len(ticks) / 5)
    start = ticks.index(0.0) % every if 0.0 in ticks else 0  # 0 has a number
    parts = []
    for i, value in enumerate(ticks):
        place = scale(value)
        kind = "axis" if value == 0 else "grid"
        parts.append(tag("path", class_=kind, d=f"M{place:.1f} 20V{AXIS_HEIGHT}"))
        if i % every == start:
            number = escape_text(f"{value:g}")
            parts.append(tag("text", number, x=place, y=14, text_anchor="middle"))
    box = f"0 0 {WIDTH} {AXIS_HEIGHT}"
    label = "scale of the differences"
    return Markup(tag("svg", *parts, viewBox=box, role="img", aria_label=label))


def _draw_row(row: ForestRow, scale: AxisScale, margin: float) -> dict[str, Any]:
    if row.difference is None:
        interval = MISSING
    elif row.low is None or row.high is None:
        interval = format_number(row.difference)
    else:
        ends = f"[{format_number(row.low)}, {format_number(row.high)}]"
        interval = f"{format_number(row.difference)} {ends}"
    label = f"{row.first} over {row.second}: {interval}, {row.outcome}"
    is_untested = row.outcome.startswith(WORDS["untested"])
    return {
        "classes": " ".join(f"p{number}" for number in row.members),
        "first": row.first,
        "second": row.second,
        "strip": _draw_strip(row, scale, margin, label),
        "interval": interval,
        "p": MISSING if is_untested else format_p(row.p),
        "outcome": row.outcome,
    }


def _draw_strip(row: ForestRow, scale: AxisScale, margin: float, label: str) -> Markup:
    middle, zero = HEIGHT / 2, scale(0.0)
    parts = [tag("title", escape_text(label))]
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
        is_significant = row.outcome in (WORDS["ahead"], WORDS["behind"])
        kind = "dot" if is_significant else "hollow"
        place = scale(row.difference)
        parts.append(charts.draw_marker("o", place, middle, 4.5, kind=kind))
    box = f"0 0 {WIDTH} {HEIGHT}"
    return Markup(tag("svg", *parts, viewBox=box, role="img", aria_label=label))

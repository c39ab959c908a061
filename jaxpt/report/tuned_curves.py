"""Fine-tuning curves: a task's metric against the number of labelled examples, as SVG.

A line for each objective, the mean over its seeds with Student's t interval; dashed,
the same network from fresh parameters; dotted, the answer that is always the same.
"""

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from jaxpt.finetuning.summary import mean_interval
from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis
from jaxpt.report.formats import format_count
from jaxpt.report.styles import choose_styles

Groups = Mapping[str, list[dict]]
SUFFIXES = {"": "pretrained", "_random": "fresh parameters"}


class CurvePoint(NamedTuple):
    """The mean over seeds at a number of labels, and its interval's ends, if any."""

    num_labels: int
    mean: float
    low: float
    high: float


def list_tuned(groups: Groups) -> list[str]:
    """The tasks that runs were fine-tuned on, in order; not where all runs diverged."""
    return list(
        dict.fromkeys(
            task["task"]
            for group in groups.values()
            for run in group
            for task in run.get("tasks", [])
            if "num_labels" in task
            and any(
                run["metrics"].get(task["metric"] + suffix) is not None
                for suffix in SUFFIXES
            )
        )
    )


def collect_points(group: list[dict], task: str, suffix: str) -> list[CurvePoint]:
    """A task's curve of one objective.

    Args:
      group: its runs, one for each seed.
      suffix: of the metric, a key of `SUFFIXES`.
    """
    found: dict[int, list[float]] = {}
    for run in group:
        for entry in run.get("tasks", []):
            if entry["task"] == task and "num_labels" in entry:
                value = run["metrics"].get(entry["metric"] + suffix)
                if value is not None:
                    found.setdefault(entry["num_labels"], []).append(value)
    return [
        CurvePoint(num, statistics.fmean(values), *mean_interval(values))
        for num, values in sorted(found.items())
    ]


def draw_tuned(groups: Groups, task: str) -> str:
    """The curves of a task, every objective's beside its fresh parameters'."""
    entries = [
        entry
        for group in groups.values()
        for run in group
        for entry in run.get("tasks", [])
        if entry["task"] == task and "num_labels" in entry
    ]
    constant, measure = entries[0]["constant"], entries[0]["measure"]
    curves = {
        (name, suffix): collect_points(group, task, suffix)
        for name, group in groups.items()
        for suffix in SUFFIXES
    }
    points = [point for curve in curves.values() for point in curve]
    values = [constant] + [point.mean for point in points]
    values += [end for p in points if p.low == p.low for end in (p.low, p.high)]
    nums = [point.num_labels for point in points]
    x = charts.make_axis(nums, "labels", format_count, LEFT, RIGHT, is_log=True)
    y = charts.make_axis(values, measure, "{:g}".format, BOTTOM, TOP)
    parts = [charts.draw_frame(x, y)]
    level = y.scale(constant)
    parts.append(charts.draw_line("constant", [(LEFT, level), (RIGHT, level)]))
    ends = {n: y.scale(curves[n, ""][-1].mean) for n in groups if curves[n, ""]}
    places = charts.spread(list(ends.values()), charts.LABEL_GAP, TOP + 4, BOTTOM)
    by_name = dict(zip(ends, places, strict=True))
    styles = choose_styles(groups)
    for i, name in enumerate(groups):
        if name not in by_name:
            continue
        drawn = "".join(
            _draw_curve(name, styles[name][1], curves[name, suffix], suffix, x, y)
            for suffix in SUFFIXES
        )
        across = x.scale(curves[name, ""][-1].num_labels)
        thread = [(across + 5, ends[name]), (RIGHT + 14, by_name[name])]
        drawn += charts.draw_line("thread", thread)
        text = charts.escape_text(charts.shorten(name))
        at = {"x": RIGHT + 18, "y": by_name[name] + 4}
        drawn += charts.tag("text", text, class_="name", **at)
        parts.append(charts.tag("g", drawn, class_=f"s o{i}"))
    told = f"{task}, {measure} by number of labels: {', '.join(by_name)}"
    return charts.draw_chart(told, *parts)


def _draw_curve(
    name: str, marker: str, curve: list[CurvePoint], suffix: str, x: Axis, y: Axis
) -> str:
    """One line with its band and its markers."""
    line = [(x.scale(p.num_labels), y.scale(p.mean)) for p in curve]
    parts = [charts.draw_line("fresh" if suffix else "mean", line)]
    if not suffix:
        known = [p for p in curve if p.low == p.low]  # not NaN: several seeds
        lows = [(x.scale(p.num_labels), y.scale(p.low)) for p in known]
        highs = [(x.scale(p.num_labels), y.scale(p.high)) for p in known]
        parts.insert(0, charts.draw_band(lows, highs))
    for place, point in zip(line, curve, strict=True):
        told = f"{name}, {SUFFIXES[suffix]}, {point.num_labels:,}: {point.mean:.3f}"
        if point.low == point.low:
            told += f" [{point.low:.3f}, {point.high:.3f}]"
        radius = 2.5 if suffix else 4
        parts.append(charts.draw_marker(marker, *place, radius, told))
    return "".join(parts)

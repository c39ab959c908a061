"""Fine-tuning curves: a task's metric against the number of labelled examples, as SVG.

Each objective has a line, the mean over its seeds with Student's t interval. Dashed is
the same network from random initialization, dotted grey the constant baseline, dashed
grey the n-gram baseline, which is the same for all objectives.
"""

import statistics
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from markupsafe import Markup

from jaxpt.finetuning.summary import mean_interval
from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis
from jaxpt.report.formats import format_count, is_number
from jaxpt.report.styles import choose_styles
from jaxpt.report.wording import BAG_OF_NGRAMS, NGRAMS_SUFFIX

Groups = Mapping[str, list[dict]]
SUFFIXES = {"": "pretrained", "_random": "random initialization"}


class CurvePoint(NamedTuple):
    """The mean over seeds at a number of labels, and its interval's ends, if any."""

    num_labels: int
    mean: float
    low: float
    high: float


def list_tuned(groups: Groups) -> list[str]:
    """The tasks that runs were fine-tuned on, unless all of their runs diverged."""
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


def find_entry(groups: Groups, task: str) -> dict:
    """The first run's entry of a task that runs were fine-tuned on."""
    return next(_list_entries(groups, task))


def list_sizes(groups: Groups, task: str) -> list[int]:
    """The numbers of labels that runs were fine-tuned on."""
    return sorted({entry["num_labels"] for entry in _list_entries(groups, task)})


def _list_entries(groups: Groups, task: str) -> Iterator[dict]:
    for group in groups.values():
        for run in group:
            for entry in run.get("tasks", []):
                if entry["task"] == task and "num_labels" in entry:
                    yield entry


def collect_points(group: list[dict], task: str, suffix: str) -> list[CurvePoint]:
    """A task's curve of one objective.

    Args:
      group: its runs; those of one seed have the same value.
      suffix: of the metric.
    """
    by_num: dict[int, dict[int, float]] = {}
    for run in group:
        for entry in run.get("tasks", []):
            if entry["task"] == task and "num_labels" in entry:
                value = run["metrics"].get(entry["metric"] + suffix)
                if value is not None:
                    by_num.setdefault(entry["num_labels"], {})[run["seed"]] = value
    return [
        CurvePoint(
            num, statistics.fmean(by_seed.values()), *mean_interval([*by_seed.values()])
        )
        for num, by_seed in sorted(by_num.items())
    ]


def collect_ngrams(groups: Groups, task: str) -> list[CurvePoint]:
    """The curve of the n-gram baseline, over the seeds of all objectives.

    It depends on the labelled examples alone, so runs of one seed have the same value.
    """
    runs = [run for group in groups.values() for run in group]
    return collect_points(runs, task, NGRAMS_SUFFIX)


def draw_tuned(groups: Groups, task: str) -> Markup:
    """The curves of a task, each objective's with that of its random initialization."""
    entry = find_entry(groups, task)
    curves = {
        (name, suffix): collect_points(group, task, suffix)
        for name, group in groups.items()
        for suffix in SUFFIXES
    }
    ngrams = collect_ngrams(groups, task)
    points = [point for curve in (*curves.values(), ngrams) for point in curve]
    values = [entry["constant"]] + [point.mean for point in points]
    values += [end for p in points for end in (p.low, p.high) if is_number(end)]
    nums = [point.num_labels for point in points]
    x = charts.make_axis(nums, "labels", format_count, LEFT, RIGHT, is_log=True)
    y = charts.make_axis(values, entry["measure"], "{:g}".format, BOTTOM, TOP)
    level = y.scale(entry["constant"])
    parts = [
        charts.draw_frame(x, y),
        charts.draw_line("constant", [(LEFT, level), (RIGHT, level)]),
        _draw_ngrams(ngrams, x, y),
    ]
    last = {name: curves[name, ""][-1] for name in groups if curves[name, ""]}
    ends = {n: (x.scale(p.num_labels), y.scale(p.mean)) for n, p in last.items()}
    names, styles = charts.draw_names(ends), choose_styles(groups)
    for i, name in enumerate(groups):
        if name in names:
            drawn = "".join(
                _draw_curve(name, styles[name][1], curves[name, suffix], suffix, x, y)
                for suffix in SUFFIXES
            )
            parts.append(charts.tag("g", drawn, names[name], class_=f"s o{i}"))
    label = f"{task}, {entry['measure']} by number of labels: {', '.join(names)}"
    return charts.draw_chart(label, *parts)


def _draw_curve(
    name: str, marker: str, curve: list[CurvePoint], suffix: str, x: Axis, y: Axis
) -> str:
    """One line with its band and its markers."""
    line = _place(curve, x, y)
    parts = [charts.draw_line("fresh" if suffix else "mean", line)]
    if not suffix:
        known = [p for p in curve if is_number(p.low)]
        lows = [(x.scale(p.num_labels), y.scale(p.low)) for p in known]
        highs = [(x.scale(p.num_labels), y.scale(p.high)) for p in known]
        parts.insert(0, charts.draw_band(lows, highs))
    for place, point in zip(line, curve, strict=True):
        label = _describe_point(f"{name}, {SUFFIXES[suffix]}", point)
        radius = 2.5 if suffix else 4
        parts.append(charts.draw_marker(marker, *place, radius, label))
    return "".join(parts)


def _draw_ngrams(curve: list[CurvePoint], x: Axis, y: Axis) -> str:
    """The line of the n-gram baseline, with its values."""
    line = _place(curve, x, y)
    marks = [
        charts.draw_marker("o", *place, 2.5, _describe_point(BAG_OF_NGRAMS, point))
        for place, point in zip(line, curve, strict=True)
    ]
    return charts.draw_line("ngrams", line) + "".join(marks)


def _place(curve: list[CurvePoint], x: Axis, y: Axis) -> list[tuple[float, float]]:
    return [(x.scale(p.num_labels), y.scale(p.mean)) for p in curve]


def _describe_point(name: str, point: CurvePoint) -> str:
    """A point's label: its number of labels, its value and its interval."""
    label = f"{name}, {point.num_labels:,}: {point.mean:.3f}"
    if is_number(point.low):
        label += f" [{point.low:.3f}, {point.high:.3f}]"
    return label

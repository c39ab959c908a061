"""The two main charts of a report: learning curves, and final quality against cost.

Both show seeds thin or small, and their mean thick or large. Against cost, a metric of
which lower values are better has a reversed axis: up and to the left is better.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, FULL, LEFT, RIGHT, TOP, Axis, Point, place_chart
from jaxpt.report.drawing import (
    Picture,
    choose_styles,
    document,
    escape_text,
    grid,
    tag,
    write,
)
from jaxpt.report.formats import format_count, format_flops, format_seconds, is_number
from jaxpt.report.metrics import METRICS, find_metric
from jaxpt.report.types import Groups, Metric, RunEntry
from jaxpt.zero_shot.names import is_curve

MOST_MARKERS = 10  # along one line
EVEN = 1.05  # ratio of the largest and the smallest cost that are equal to the eye


# What a curve or a final value can be drawn against: label, and how it is written.
CURVE_COSTS = {
    "flops": ("FLOPs", format_flops),
    "raw_tokens": ("raw tokens", format_count),
    "seconds": ("training seconds", format_seconds),
}
FINAL_COSTS = {
    "flops": ("FLOPs", format_flops),
    "train_seconds": ("training seconds", format_seconds),
    "params": ("parameters", format_count),
}
# By cost of a curve, what a whole run spent.
END_COSTS = {"raw_tokens": "raw_tokens", "flops": "flops", "seconds": "train_seconds"}
# Of each objective's own task.
OWN_CURVES = ("valid_loss", "valid_accuracy", "valid_masked_accuracy")


class CurveMean(NamedTuple):
    """The mean of all seeds at one step: cost, value, and the value's deviation.

    `std` is the sample standard deviation, None of one seed.
    """

    cost: float
    value: float
    std: float | None


def read_curve(run: RunEntry, cost: str, metric: str) -> dict[int, Point | None]:
    """{step: (cost, value)} of one run; None if the value is not finite.

    A validation loss is divided by its first value: the objectives' losses have
    different units, and the largest would flatten the others. A metric that was
    measured only before and after training has these two points.
    """
    curve: dict[int, Point | None] = {}
    for point in run.curve:
        if metric in point.values:
            at, value = point.values.get(cost), point.values[metric]
            curve[point.step] = None
            if is_number(at) and is_number(value):
                curve[point.step] = at, value
    if not curve and not is_own_task(metric):
        first, last = (run.metrics.get(name) for name in (f"{metric}_random", metric))
        spent = run.cost(END_COSTS[cost])
        if is_number(first):
            curve[0] = (0.0, first)
        if is_number(last) and is_number(spent):
            curve[run.facts["steps"]] = (spent, last)
    if metric != "valid_loss":
        return curve
    first = next((point[1] for point in curve.values() if point), None)
    return {
        step: (point[0], point[1] / first) if point and first else None
        for step, point in curve.items()
    }


def is_own_task(metric: str) -> bool:
    """Whether a metric is of each objective's own task, so not comparable."""
    return not find_metric(metric).is_common


def average(curves: list[dict[int, Point | None]]) -> list[CurveMean | None]:
    """The mean at each step that every seed has; None if one is not finite.

    It ends with the first seed to stop, as it would jump there.
    """
    means: list[CurveMean | None] = []
    for step in curves[0]:
        if not all(step in curve for curve in curves):
            continue
        points = [point for curve in curves if (point := curve[step])]
        if len(points) < len(curves):
            means.append(None)
            continue
        costs, values = zip(*points, strict=True)
        std = statistics.stdev(values) if len(values) > 1 else None
        means.append(CurveMean(statistics.fmean(costs), statistics.fmean(values), std))
    return means


def list_curve_metrics(runs: Iterable[RunEntry]) -> list[str]:
    """The metrics that some run has a curve of: first those with the most points.

    Shared metrics, of which a curve has two points or more, precede those of each
    objective's own task.
    """
    runs = list(runs)
    shared = [metric for metric in METRICS if not is_own_task(metric)]
    points = [point.values for run in runs for point in run.curve]
    shared += dict.fromkeys(k for values in points for k in values if is_curve(k))
    num_points = {}
    for metric in (*shared, *OWN_CURVES):
        curves = [read_curve(run, "raw_tokens", metric).values() for run in runs]
        num_points[metric] = max(len([p for p in curve if p]) for curve in curves)
    measured = [m for m, num in num_points.items() if num > (not is_own_task(m))]
    return sorted(measured, key=lambda m: (is_own_task(m), -num_points[m]))


def has_curve(group: Iterable[RunEntry], metric: str) -> bool:
    """Whether any run of an objective has a curve of a metric."""
    return any(read_curve(run, "flops", metric) for run in group)


def label_curve(metric: str) -> str:
    """The label of a curve's axis.

    >>> label_curve("choice_bayes_accuracy")
    'multiple-choice cloze'
    """
    label = find_metric(metric).label
    return f"{label} / its first value" if metric == "valid_loss" else label


def draw_curves(
    groups: Groups,
    metric: str,
    cost: str,
    levels: Mapping[str, float] | None = None,
) -> Markup:
    """The learning curves of all names, as SVG.

    Args:
      groups: the runs of each name, in the report's order.
      metric: one of `list_curve_metrics`.
      cost: a key of `CURVE_COSTS`.
      levels: values of the metric by baseline, each drawn as a line.
    """
    levels = levels or {}
    curves = {
        name: [read_curve(run, cost, metric) for run in runs]
        for name, runs in groups.items()
    }
    means = {name: average(seeds) for name, seeds in curves.items()}
    points = [p for seeds in curves.values() for s in seeds for p in s.values() if p]
    edges = [
        mean.value + sign * (mean.std or 0)
        for line in means.values()
        for mean in line
        if mean
        for sign in (-1, 1)
    ]
    if all(point[1] >= 0 for point in points):  # no negative accuracy on the axis
        edges = [max(edge, 0.0) for edge in edges]
    label, write = CURVE_COSTS[cost]
    x = charts.make_axis((p[0] for p in points), label, write, LEFT, RIGHT)
    values, title = [p[1] for p in points] + edges, label_curve(metric)
    y = charts.make_axis([*values, *levels.values()], title, "{:g}".format, BOTTOM, TOP)
    parts = [charts.draw_frame(x, y)]
    known = {name: [mean for mean in line if mean] for name, line in means.items()}
    ends = {
        name: (x.scale(line[-1].cost), y.scale(line[-1].value))
        for name, line in known.items()
        if line
    }
    names, styles = charts.draw_names(ends), choose_styles(groups)
    for i, (name, seeds) in enumerate(curves.items()):
        line = _draw_objective(name, styles[name][1], seeds, means[name], x, y)
        parts.append(tag("g", line, names.get(name, ""), class_=f"s o{i}"))
    at_end = are_levels_free(levels, known.values())
    parts.append(charts.draw_levels(levels, x, y, at_end))  # over the lines
    summary = f"{title} against {label}: {', '.join(groups)}"
    return charts.draw_chart(summary, *parts)


def are_levels_free(
    levels: Mapping[str, float], lines: Iterable[Sequence[CurveMean]]
) -> bool:
    """Whether lines are farther from the levels at their end than at their beginning.

    There the names of the levels meet fewer lines.
    """
    ends = [(line[0].value, line[-1].value) for line in lines if line]
    if not ends:
        return True
    first, last = (
        sum(min(abs(v - level) for v in values) for level in levels.values())
        for values in zip(*ends, strict=True)
    )
    return last >= first


def _draw_objective(name, marker, seeds, means, x: Axis, y: Axis) -> str:
    """Band, seeds, mean and markers of one objective."""

    def put(points: Iterable[Point | None]) -> list[Point | None]:
        return [p and (x.scale(p[0]), y.scale(p[1])) for p in points]

    parts = []
    if len(seeds) > 1:
        low, high = (
            put(m and (m.cost, m.value + sign * m.std) for m in means)
            for sign in (-1, 1)
        )
        parts.append(charts.draw_band(low, high))
        parts += [charts.draw_line("seed", put(seed.values())) for seed in seeds]
    parts.append(charts.draw_line("mean", put(m and (m.cost, m.value) for m in means)))
    every = math.ceil(len(means) / MOST_MARKERS) or 1
    for i, mean in enumerate(means):
        # Counted from the end, so that the last value has its marker.
        if mean and (len(means) - 1 - i) % every == 0:
            title = f"{name}: {mean.value:.4g}{_write_std(mean.std)}"
            title += f" at {x.write(mean.cost)} {x.label}"
            at = x.scale(mean.cost), y.scale(mean.value)
            parts.append(charts.draw_marker(marker, *at, 4, title))
    return "".join(parts)


def _write_std(std: float | None) -> str:
    return "" if std is None else f" ± {std:.2g}"


class Final(NamedTuple):
    """The results of an objective: (cost, value) of each seed, and their mean."""

    seeds: list[Point]
    mean: CurveMean


def find_finals(groups: Groups, metric: str, cost: str) -> dict[str, Final]:
    """The final values of each name that has one."""
    finals = {}
    for name, runs in groups.items():
        points = [
            (spent, value)
            for run in runs
            if is_number(spent := run.cost(cost))
            and is_number(value := run.metrics.get(metric))
        ]
        if points:
            costs, values = zip(*points, strict=True)
            std = statistics.stdev(values) if len(values) > 1 else None
            mean = CurveMean(statistics.fmean(costs), statistics.fmean(values), std)
            finals[name] = Final(points, mean)
    return finals


def find_front(points: Mapping[str, Point], higher_is_better: bool) -> list[str]:
    """The names that no other is better and cheaper than, cheapest first.

    >>> find_front({"a": (1, 5), "b": (2, 4), "c": (3, 9)}, higher_is_better=True)
    ['a', 'c']
    """
    sign = 1 if higher_is_better else -1
    front: list[str] = []
    for name, (_, value) in sorted(
        points.items(), key=lambda item: (item[1][0], -sign * item[1][1])
    ):
        if not front or sign * value > sign * points[front[-1]][1]:
            front.append(name)
    return front


def draw_pareto(
    groups: Groups,
    entry: Metric,
    cost: str,
    levels: Mapping[str, float] | None = None,
) -> Markup:
    """Each run's final value against a cost, and the front of the means, as SVG.

    Args:
      groups: the runs of each name, in the report's order.
      entry: of the metric.
      cost: a key of `FINAL_COSTS`.
      levels: values of the metric by baseline, each drawn as a line.
    """
    levels = levels or {}
    finals = find_finals(groups, entry.metric, cost)
    higher = entry.higher_is_better
    label, write = FINAL_COSTS[cost]
    costs = [point[0] for final in finals.values() for point in final.seeds]
    is_log = bool(costs) and min(costs) > 0 and max(costs) > 10 * min(costs)
    label += " (logarithmic)" if is_log else ""
    # From 0, so that costs which are equal up to whole calls also look equal.
    ends = costs if is_log else [0.0, *costs]
    x = charts.make_axis(ends, label, write, LEFT, FULL, is_log)
    title = entry.label + ("" if higher else ", reversed")
    values = [point[1] for final in finals.values() for point in final.seeds]
    values += levels.values()
    sides = (BOTTOM, TOP) if higher else (TOP, BOTTOM)
    y = charts.make_axis(values, title, "{:g}".format, *sides)
    means = {name: (f.mean.cost, f.mean.value) for name, f in finals.items()}
    at = {name: (x.scale(a), y.scale(b)) for name, (a, b) in means.items()}
    parts = [charts.draw_frame(x, y)]
    if costs and max(costs) > EVEN * min(costs):  # else no objective is cheaper
        front = [at[name] for name in find_front(means, higher)]
        parts.append(charts.draw_line("front", front))
    names, styles = _label_points(at), choose_styles(groups)
    for i, name in enumerate(groups):
        if name in finals:
            drawn = _draw_final(name, styles[name][1], finals[name], x, y)
            parts.append(tag("g", drawn, names[name], class_=f"s o{i}"))
    parts.append(charts.draw_levels(levels, x, y))
    summary = f"Final {entry.label} against {label}: {', '.join(finals)}"
    return charts.draw_chart(summary, *parts)


def _draw_final(name, marker, final: Final, x: Axis, y: Axis) -> str:
    parts = []
    if len(final.seeds) > 1:
        parts += [
            charts.draw_marker("o", x.scale(a), y.scale(b), 2.5, kind="small")
            for a, b in final.seeds
        ]
    mean = final.mean
    title = f"{name}: {mean.value:.4g}{_write_std(mean.std)}"
    title += f" for {x.write(mean.cost)} {x.label}"
    parts.append(
        charts.draw_marker(marker, x.scale(mean.cost), y.scale(mean.value), 6.5, title)
    )
    return "".join(parts)


def _label_points(places: Mapping[str, Point]) -> dict[str, str]:
    """A name next to each point, on the first side of it that is free.

    A point without a free side has no name; the legend has its marker.
    """
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in places.values()]
    drawn = {}
    for name, (x, y) in places.items():
        text = charts.shorten(name)
        width = 8.0 * len(text)
        sides = (
            (x + 12, y + 4, "start", x + 12),
            (x - 12, y + 4, "end", x - 12 - width),
            (x, y - 12, "middle", x - width / 2),
            (x, y + 22, "middle", x - width / 2),
        )
        drawn[name] = ""
        wider = 3.0 * len(text)  # letters are larger on a narrow screen
        for across, down, anchor, left in sides:
            box = (left, down - 13, left + width, down + 4)
            is_inside = box[0] > LEFT and box[2] + wider < charts.WIDTH and box[1] > 0
            if is_inside and box[3] < BOTTOM and not any(_meet(box, b) for b in taken):
                taken.append(box)
                at = {"class_": "name", "x": across, "y": down, "text_anchor": anchor}
                drawn[name] = tag("text", escape_text(text), **at)
                break
    return drawn


def _meet(one, other) -> bool:
    """Whether two boxes (left, top, right, bottom) overlap."""
    return (
        one[0] < other[2]
        and other[0] < one[2]
        and one[1] < other[3]
        and other[1] < one[3]
    )


# The same charts as files.


def show_curves(
    groups: Groups,
    kind: str,
    levels: Mapping[str, Mapping[str, float]],
    metrics: Sequence[str] = (),
) -> str:
    """Learning curves as an SVG file.

    Args:
      kind: of the budget; the curves are against this cost, or FLOPs.
      levels: by metric, the values of its baselines by name.
      metrics: those to draw; the shared ones if there are none.
    """
    cost = kind if kind in CURVE_COSTS else "flops"
    panels = [
        place_chart(
            draw_curves(groups, metric, cost, levels.get(metric)),
            label_curve(metric) + " (not comparable)" * is_own_task(metric),
        )
        for metric in metrics or _list_shared_curves(groups)
    ]
    label = f"learning curves of {', '.join(groups)}"
    return document(grid(panels, min(2, len(panels))), label, len(groups))


def _list_shared_curves(groups: Groups) -> list[str]:
    """The shared metrics that have curves; an objective's own if there are none."""
    runs = [run for group in groups.values() for run in group]
    metrics = list_curve_metrics(runs)
    shared = [m for m in metrics if not is_own_task(m)] or metrics[:1]
    # Metrics that were measured during training, if there are any.
    measured = [m for m in shared if any(m in p.values for r in runs for p in r.curve)]
    shared = measured or shared
    # A metric of one objective compares nothing.
    several = [
        metric
        for metric in shared
        if sum(has_curve(of, metric) for of in groups.values()) > 1
    ]
    return several or shared


def show_metrics(metrics: Sequence[Metric], groups: Groups) -> str:
    """Each metric's mean and standard deviation over seeds, as an SVG file."""
    label = f"shared metrics of {', '.join(groups)}"
    panels = [_draw_means(metric, list(groups)) for metric in metrics]
    return document(grid(panels, min(2, len(panels))), label, len(groups))


def _draw_means(metric: Metric, names: list[str]) -> Picture:
    """A row for each objective that was measured, with a dot and its bar."""
    styles, shown = choose_styles(names), [n for n in names if n in metric.by_name]
    ends = [
        mean + sign * (metric.by_name[name].std or 0.0)
        for name in shown
        if (mean := metric.by_name[name].mean) is not None
        for sign in (-1, 1)
    ]
    better = "higher" if metric.higher_is_better else "lower"
    bottom = TOP + 26.0 * len(shown)
    left = 20.0 + 8 * max(map(len, map(charts.shorten, shown)), default=0)
    x = charts.make_axis(ends, f"{better} is better", "{:g}".format, left, left + 300)
    parts = []
    for value in x.ticks:
        at = x.scale(value)
        parts.append(tag("path", class_="grid", d=f"M{at:.1f} {TOP}V{bottom}"))
        parts.append(write(x.write(value), at, bottom + 17, anchor="middle"))
    parts.append(write(x.label, left + 150, bottom + 36, "title", "middle"))
    for i, name in enumerate(shown):
        stats, down = metric.by_name[name], TOP + 26.0 * i + 13
        if stats.mean is None:
            continue
        std = stats.std or 0.0
        low, high = x.scale(stats.mean - std), x.scale(stats.mean + std)
        bar = (
            tag("path", class_="mean", d=f"M{low:.1f} {down}H{high:.1f}") if std else ""
        )
        dot = charts.draw_marker(styles[name][1], x.scale(stats.mean), down, 5.5)
        parts.append(tag("g", bar, dot, class_=f"s o{names.index(name)}"))
        text = charts.shorten(name)
        parts.append(write(text, left - 10, down + 4, "name", anchor="end"))
    box = Picture("".join(parts), left + 330, bottom + 48)
    return grid([box], 1, metric.label)

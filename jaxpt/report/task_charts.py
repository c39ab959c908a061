"""Charts of probes of the layers and of fine-tuning curves.

The probe's accuracy by layer has a line for each objective. A fine-tuning curve is a
task's metric by number of labelled examples: the mean over seeds with Student's t
interval; dashed is the same network from random initialization, dotted grey the
constant baseline, dashed grey the n-gram baseline, which is the same for all.
"""

import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from markupsafe import Markup

from jaxpt.evaluation.probe import binomial_error
from jaxpt.finetuning.summary import mean_interval
from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis, place_chart
from jaxpt.report.drawing import choose_styles, document, grid, tag
from jaxpt.report.formats import format_count, is_number
from jaxpt.report.types import Downstream, Groups, Probe, RunEntry
from jaxpt.report.wording import BAG_OF_NGRAMS, NGRAMS_SUFFIX

MAX_ERROR = 0.01  # of an accuracy, as if test passages were independent
STATES = ("trained", "untrained")  # the parameters that a chart can be of
SUFFIXES = {"": "pretrained", "_random": "random initialization"}


def list_probed(runs: Iterable[RunEntry]) -> list[str]:
    """A line per name on the layers that were read, and one if there are few passages.

    Args:
      runs: of a report; those without a probe have no line.
    """
    groups: dict[str, list[RunEntry]] = {}
    for run in runs:
        if run.probe.get("trained"):
            groups.setdefault(run.name, []).append(run)
    lines = [
        f"probe of {name}: {_word_choices(group, 'trained', 'probe_accuracy')}"
        + _word_untrained(group)
        for name, group in groups.items()
    ]
    return lines + _list_errors([run for group in groups.values() for run in group])


def _word_untrained(group: list[RunEntry]) -> str:
    known = [run for run in group if run.probe.get("untrained")]
    if not known:
        return ""
    choices = _word_choices(known, "untrained", "probe_accuracy_random")
    return f"; random initialization: {choices}"


def _word_choices(group: list[RunEntry], state: str, metric: str) -> str:
    """The mean accuracy and the chosen layers, with the number of seeds of each."""
    values = [run.metrics.get(metric) for run in group]
    known = [value for value in values if value is not None]
    counts: dict[str, int] = {}
    for run in group:
        choice = word_choice(run.probe[state])
        counts[choice] = counts.get(choice, 0) + 1
    ordered = sorted(counts, key=lambda choice: -counts[choice])
    if len(group) > 1:
        ordered = [f"{c}: {counts[c]} seed{'s' * (counts[c] != 1)}" for c in ordered]
    value = f"{statistics.fmean(known):.3f} " if known else ""
    return f"{value}({'; '.join(ordered)})"


def word_choice(probe: Probe) -> str:
    """The layer and the pooling of one probe.

    >>> word_choice(Probe(2, 4, "mean", True))
    'layer 2 of 4, mean'
    >>> word_choice(Probe(0, 4, "last", True))
    'embeddings, last'
    >>> word_choice(Probe(4, 4, "mean", False))
    'layer 4 of 4, mean, not chosen: too few documents'
    """
    layer = f"layer {probe.layer} of {probe.num_layers}"
    choice = f"{layer if probe.layer else 'embeddings'}, {probe.pooling}"
    return choice if probe.is_chosen else f"{choice}, not chosen: too few documents"


def _list_errors(runs: list[RunEntry]) -> list[str]:
    """A line if there are too few test passages for a precise accuracy."""
    errors = [
        (binomial_error(accuracy, num), num)
        for run in runs
        if (accuracy := run.metrics.get("probe_accuracy")) is not None
        and (num := run.probe["trained"].test_passages)
    ]
    if not errors or max(errors)[0] <= MAX_ERROR:
        return []
    error, num = max(errors)
    return [
        f"note: probe_accuracy has {num:,} test passages, a binomial standard error of "
        f"{error:.3f}; 2,500 (eval.probe_passages) would have at most {MAX_ERROR}. "
        f"Passages of one document are correlated, so the true error is larger"
    ]


def list_poolings(groups: Groups) -> list[str]:
    """The kinds of pooling that some run has tried; [] if no run has chosen one."""
    poolings = [
        list(probe.poolings)
        for group in groups.values()
        for run in group
        for probe in run.probe.values()
        if probe.accuracies is not None
    ]
    return poolings[0] if poolings else []


def average_layers(group: Iterable[RunEntry], state: str, pooling: int) -> list[float]:
    """The mean accuracy of each layer over the seeds with the same number of layers."""
    tables = [
        probe.accuracies
        for run in group
        if (probe := run.probe.get(state)) and probe.accuracies is not None
    ]
    same = [table for table in tables if len(table) == len(tables[0])]
    return [
        statistics.fmean(table[layer][pooling] or 0.0 for table in same)
        for layer in range(len(same[0]) if same else 0)
    ]


def draw_layers(groups: Groups, state: str, pooling: str) -> Markup:
    """The accuracy of each layer of each name, as SVG.

    It is of the training passages that choose the layer, as the test passages are
    evaluated with one layer only.

    Args:
      groups: the runs of each name, in the report's order.
      state: one of `STATES`.
      pooling: one of `list_poolings`.
    """
    # All panels have the same axes, so that they can be compared by eye.
    poolings = list_poolings(groups)
    panels = {
        (one, i): {n: average_layers(group, one, i) for n, group in groups.items()}
        for one in STATES
        for i in range(len(poolings))
    }
    everywhere = [layers for panel in panels.values() for layers in panel.values()]
    deepest = max(len(layers) for layers in everywhere) - 1
    x = charts.make_layer_axis(deepest)
    label = f"accuracy, {pooling} of the states"
    values = [value for layers in everywhere for value in layers]
    y = charts.make_axis(values, label, "{:g}".format, BOTTOM, TOP)
    shown = panels[state, poolings.index(pooling)]
    label = f"Probe accuracy by layer, {pooling} of the states, {state}"
    return charts.draw_lines(shown, x, y, f"{label}: {', '.join(shown)}")


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
            task.task
            for group in groups.values()
            for run in group
            for task in run.tasks
            if task.num_labels is not None
            and any(
                run.metrics.get(task.metric + suffix) is not None for suffix in SUFFIXES
            )
        )
    )


def find_entry(groups: Groups, task: str) -> Downstream:
    """The first run's entry of a task that runs were fine-tuned on."""
    return next(_list_entries(groups, task))


def list_sizes(groups: Groups, task: str) -> list[int]:
    """The numbers of labels that runs were fine-tuned on."""
    return sorted({entry.num_labels or 0 for entry in _list_entries(groups, task)})


def _list_entries(groups: Groups, task: str) -> Iterator[Downstream]:
    for group in groups.values():
        for run in group:
            for entry in run.tasks:
                if entry.task == task and entry.num_labels is not None:
                    yield entry


def collect_points(group: list[RunEntry], task: str, suffix: str) -> list[CurvePoint]:
    """A task's curve of one objective.

    Args:
      group: its runs; those of one seed have the same value.
      suffix: of the metric.
    """
    by_num: dict[int, dict[int, float]] = {}
    for run in group:
        for entry in run.tasks:
            if entry.task == task and entry.num_labels is not None:
                value = run.metrics.get(entry.metric + suffix)
                if value is not None:
                    by_num.setdefault(entry.num_labels, {})[run.seed] = value
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
    constant = entry.constant or 0.0
    values = [constant] + [point.mean for point in points]
    values += [end for p in points for end in (p.low, p.high) if is_number(end)]
    nums = [point.num_labels for point in points]
    x = charts.make_axis(nums, "labels", format_count, LEFT, RIGHT, is_log=True)
    y = charts.make_axis(values, entry.measure, "{:g}".format, BOTTOM, TOP)
    level = y.scale(constant)
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
            parts.append(tag("g", drawn, names[name], class_=f"s o{i}"))
    label = f"{task}, {entry.measure} by number of labels: {', '.join(names)}"
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


def show_tuned(groups: Groups, tasks: list[str]) -> str:
    """The fine-tuning curves of all tasks, as an SVG file."""
    panels = [place_chart(draw_tuned(groups, task), task) for task in tasks]
    label = f"fine-tuning curves of {', '.join(groups)}"
    return document(grid(panels, min(2, len(panels))), label, len(groups))

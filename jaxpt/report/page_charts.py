"""The charts of a report's page, with the controls that choose the visible one.

Learning curves, quality against cost, layers and fine-tuning are SVG. A difference is a
row of an HTML table with a strip of SVG, so that its text wraps on a narrow screen and
a row can be hidden with its objective.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from jaxpt.report import charts, pages
from jaxpt.report.answer import find_levels
from jaxpt.report.charts import AxisScale
from jaxpt.report.drawing import choose_styles, escape_text, tag
from jaxpt.report.formats import MISSING, format_number, format_p
from jaxpt.report.metrics import find_metric
from jaxpt.report.report_charts import (
    CURVE_COSTS,
    FINAL_COSTS,
    draw_curves,
    draw_pareto,
    is_own_task,
    label_curve,
    list_curve_metrics,
)
from jaxpt.report.task_charts import (
    STATES,
    draw_layers,
    draw_tuned,
    list_poolings,
    list_tuned,
)
from jaxpt.report.types import Groups, Metric, Report, Verdict
from jaxpt.report.wording import WORDS, name_baselines, word_outcome, word_seeds

WIDTH, HEIGHT, AXIS_HEIGHT = 320, 22, 26  # of a difference and its axis
FEW = 16  # rows that are shown at once; the others open on a click


@dataclasses.dataclass
class Charts:
    """A section of charts, one of which is visible.

    Attributes:
      id: of the section; radio buttons are `{id}-{choice}-{value}`.
      kind: its CSS class.
      choices: (title, labels) of each group of radio buttons.
      panels: the chart by its place, such as "1-0": the second value of the first
        choice and the first value of the second.
      has_legend: whether the objectives are listed.
      has_boxes: whether the legend has the checkboxes.
    """

    id: str
    kind: str
    choices: list[tuple[str, list[str]]]
    panels: dict[str, Markup]
    note: str
    has_legend: bool = True
    has_boxes: bool = False


def list_charts(report: Report, groups: Groups) -> dict[str, Charts]:
    """The sections of charts that apply to a report, by their headings."""
    shared = report.list_shared()
    curves = {"Learning curves": _chart_curves(report, groups)}
    pareto = {"Quality against cost": _chart_pareto(report, shared, groups)}
    runs = [run for group in groups.values() for run in group]
    has_shared_curve = any(not is_own_task(m) for m in list_curve_metrics(runs))
    # The first chart shows a shared metric, if any was measured.
    sections = curves | pareto if has_shared_curve else pareto | curves
    sections |= {
        "Differences": _chart_forests(shared, groups),
        "Layers": _chart_layers(groups),
        "Fine-tuning": _chart_tuned(groups),
    }
    applied = {title: section for title, section in sections.items() if section.panels}
    for section in applied.values():
        if section.has_legend:
            section.has_boxes = True
            break
    return applied


def _chart_curves(report: Report, groups: Groups) -> Charts:
    """Learning curves of every metric against every cost, a shared metric first."""
    runs = [run for group in groups.values() for run in group]
    metrics = list_curve_metrics(runs)
    levels = {e.metric: find_levels(report, e) for e in report.list_shared()}
    labels = [
        f"{label_curve(metric)} (not comparable)"
        if is_own_task(metric)
        else find_metric(metric).label
        for metric in metrics
    ]
    panels = {
        f"{i}-{j}": draw_curves(groups, metric, cost, levels.get(metric))
        for i, metric in enumerate(metrics)
        for j, cost in enumerate(CURVE_COSTS)
    }
    note = (
        "A line is the mean over seeds, up to the last step that all of them reached; "
        "its band is one sample standard deviation to either side, not a confidence "
        "interval. Thin lines are seeds; dotted lines are the chance level and the "
        "baselines. A shared metric that was not measured during training has a "
        "straight line from random initialization to the end; "
        "eval.probe_every_eval=True measures probes and cloze at every evaluation. "
        "Validation loss and accuracy are of each objective's own task: only the shape "
        "of such a curve is meaningful, not its height relative to another."
    )
    choices = [("Metric", labels), ("Against", [c[0] for c in CURVE_COSTS.values()])]
    return Charts("curves", "curves", choices, panels, note)


def _chart_pareto(report: Report, shared: list[Metric], groups: Groups) -> Charts:
    """The final value of every run against its cost, for each shared metric."""
    panels = {
        f"{i}-{j}": draw_pareto(groups, entry, cost, find_levels(report, entry))
        for i, entry in enumerate(shared)
        for j, cost in enumerate(FINAL_COSTS)
    }
    note = (
        "A large mark is the mean over seeds, a small one is a seed; up and to the "
        "left is better, since the axis of a metric with lower values better is "
        "reversed. A dashed line joins the objectives that no other is both better and "
        "cheaper than, if there are several and all are shown. It is drawn from the "
        "means alone: Differences has the significance tests."
    )
    labels = [entry.label for entry in shared]
    choices = [("Metric", labels), ("Against", [c[0] for c in FINAL_COSTS.values()])]
    return Charts("pareto", "pareto", choices, panels, note)


def _chart_forests(shared: list[Metric], groups: Groups) -> Charts:
    """The differences of pairs, and of each objective from the baselines."""
    numbers = {name: i for i, name in enumerate(groups)}
    panels = {str(i): _draw_forest(e, numbers) for i, e in enumerate(shared)}
    note = (
        "A mark is the difference of two means; to the right of 0 the first objective "
        "is better. Its line is the simultaneous interval; a filled mark is a "
        "significant difference, a hollow one is not. The grey band is the margin "
        "within which two objectives count as equivalent."
    )
    choices = [("Metric", [entry.label for entry in shared])]
    return Charts("forest", "forests", choices, panels, note, has_legend=False)


def _draw_forest(entry: Metric, numbers: Mapping[str, int]) -> Markup:
    pairs = list_pairs(entry, numbers)
    baselines = list_baselines(entry, numbers)
    tables = {"between objectives": pairs, "against baselines": baselines}
    return pages.call(
        "macros.html",
        "forests",
        label=entry.label,
        better="higher" if entry.higher_is_better else "lower",
        only=next(iter(entry.by_name)) if len(entry.by_name) == 1 else "",
        tables=[
            (heading, *draw_rows(rows, entry.margin))
            for heading, rows in tables.items()
            if rows
        ],
        few=FEW,
    )


def _chart_layers(groups: Groups) -> Charts:
    """The probe's accuracy by layer, of the runs whose probe chose among layers."""
    poolings = list_poolings(groups)
    panels = {
        f"{i}-{j}": draw_layers(groups, state, pooling)
        for i, state in enumerate(STATES)
        for j, pooling in enumerate(poolings)
    }
    note = (
        "The accuracy of a linear probe on each layer's output, the mean over seeds. "
        "It is measured on training documents that are set apart for choosing the "
        "layer; the held-out documents, which the verdicts are based on, are evaluated "
        "with the chosen layer alone."
    )
    choices = [("Parameters", list(STATES)), ("States", poolings)]
    return Charts("layers", "curves", choices, panels, note)


def _chart_tuned(groups: Groups) -> Charts:
    """Fine-tuning curves of each task."""
    tasks = list_tuned(groups)
    panels = {str(i): draw_tuned(groups, task) for i, task in enumerate(tasks)}
    note = (
        "Every run is fine-tuned on the same labelled examples as the runs of other "
        "objectives with its seed; smaller sets are subsets of larger ones. A line is "
        "the mean over seeds, its band Student's 95 % interval; dashed is the same "
        "network from random initialization. Dotted grey is the constant baseline; "
        "dashed grey, for classification and tagging, logistic regression on n-grams "
        "of the same labelled examples. The curves are not corrected for multiple "
        "comparisons; Differences has the significance tests."
    )
    return Charts("tuned", "curves", [("Task", tasks)], panels, note)


def draw_swatches(names: list[str]) -> list[Markup]:
    """Each objective's line and marker, for a legend."""
    styles = choose_styles(names)
    line = tag("path", class_="mean", d="M1 6H33")
    box = {"class_": "swatch", "viewBox": "0 0 34 12", "aria_hidden": "true"}
    return [
        Markup(tag("svg", line, charts.draw_marker(marker, 17, 6, 4.5), **box))
        for _, marker in styles.values()
    ]


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

"""The interactive parts of a report's page: charts and the controls that choose them.

Every view is drawn beforehand; the controls show one of them by CSS alone. The
checkboxes of the objectives are in the first section of charts; the legends of the
others are labels of the same checkboxes.
"""

import dataclasses
from collections.abc import Mapping

from markupsafe import Markup

from jaxpt.report import charts, forest, pages
from jaxpt.report.answer import find_levels
from jaxpt.report.charts import choose_styles
from jaxpt.report.metrics import METRICS
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
from jaxpt.report.types import Groups, Metric, Report


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
        else METRICS[metric].label
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
    pairs = forest.list_pairs(entry, numbers)
    baselines = forest.list_baselines(entry, numbers)
    tables = {"between objectives": pairs, "against baselines": baselines}
    return pages.call(
        "macros.html",
        "forests",
        label=entry.label,
        better="higher" if entry.higher_is_better else "lower",
        only=next(iter(entry.by_name)) if len(entry.by_name) == 1 else "",
        tables=[
            (heading, *forest.draw_rows(rows, entry.margin))
            for heading, rows in tables.items()
            if rows
        ],
        few=forest.FEW,
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
    line = charts.tag("path", class_="mean", d="M1 6H33")
    box = {"class_": "swatch", "viewBox": "0 0 34 12", "aria_hidden": "true"}
    return [
        Markup(charts.tag("svg", line, charts.draw_marker(marker, 17, 6, 4.5), **box))
        for _, marker in styles.values()
    ]

"""The parts of a report's page that can be played with: charts and their controls.

Every view is drawn beforehand; a control says which of them is seen. The checkboxes of
the objectives are in the curves' section, and other legends are labels of the same.
"""

from typing import NamedTuple

from jaxpt.report import charts, forest
from jaxpt.report.answer import rank
from jaxpt.report.charts import escape_text, tag
from jaxpt.report.probed_layers import STATES, draw_layers, list_poolings
from jaxpt.report.report_charts import (
    CURVE_COSTS,
    CURVE_METRICS,
    FINAL_COSTS,
    draw_curves,
    draw_pareto,
    list_curve_metrics,
)
from jaxpt.report.styles import choose_styles
from jaxpt.report.tuned_curves import draw_tuned, list_tuned

Groups = dict[str, list[dict]]


class Section(NamedTuple):
    """A part of the page, and how many values each of its radio groups has."""

    markup: str
    counts: list[int]


def build_curves(groups: Groups) -> Section:
    """Learning curves of every metric against every cost."""
    runs = [run for group in groups.values() for run in group]
    metrics = list_curve_metrics(runs)
    if not metrics:
        text = '<p class="soft">No run has measured anything while it trained.</p>'
        return Section(f'<section id="curves">{text}</section>', [])
    controls = [
        _build_radios("curves", 0, "Metric", [CURVE_METRICS[m] for m in metrics]),
        _build_radios("curves", 1, "Against", [c[0] for c in CURVE_COSTS.values()]),
        _build_legend(list(groups), has_boxes=True),
    ]
    panels = [
        _wrap_panel((i, j), draw_curves(groups, metric, cost))
        for i, metric in enumerate(metrics)
        for j, cost in enumerate(CURVE_COSTS)
    ]
    note = (
        "A line is the mean over seeds, up to the last step that all of them reached; "
        "its band is one sample standard deviation to either side, which is no "
        "confidence interval. Thin lines are seeds. Validation loss and accuracy are "
        "of each objective's own task, so only the shape of such a line means "
        "something, not its height beside another."
    )
    return _assemble("curves", "curves", controls, panels, note, [len(metrics), 3])


def build_layers(groups: Groups) -> Section | None:
    """The probe's accuracy by layer, if any run has chosen among its layers."""
    poolings = list_poolings(groups)
    if not poolings:
        return None
    controls = [
        _build_radios("layers", 0, "Parameters", list(STATES)),
        _build_radios("layers", 1, "States", poolings),
        _build_legend(list(groups), has_boxes=False),
    ]
    panels = [
        _wrap_panel((i, j), draw_layers(groups, state, pooling))
        for i, state in enumerate(STATES)
        for j, pooling in enumerate(poolings)
    ]
    note = (
        "How well a linear layer tells the labels from what each layer of the network "
        "gives, the mean over seeds. It is of training documents that were set apart "
        "to choose the layer by: the held-out documents, of which the verdicts are, "
        "have been asked of the chosen one alone."
    )
    counts = [len(STATES), len(poolings)]
    return _assemble("layers", "curves", controls, panels, note, counts)


def build_tuned(groups: Groups) -> Section | None:
    """Fine-tuning curves, if any run was fine-tuned."""
    tasks = list_tuned(groups)
    if not tasks:
        return None
    controls = [
        _build_radios("tuned", 0, "Task", tasks),
        _build_legend(list(groups), has_boxes=False),
    ]
    panels = [
        _wrap_panel((i,), draw_tuned(groups, task)) for i, task in enumerate(tasks)
    ]
    note = (
        "Every run is fine-tuned with the same labelled examples as the runs of other "
        "objectives that have its seed; smaller numbers lie within the larger ones. A "
        "line is the mean over seeds, its band Student's 95 % interval, dashed is the "
        "same network from fresh parameters, dotted the answer that is always the "
        "same. The curves are not corrected for their number; Differences has the "
        "significance tests."
    )
    return _assemble("tuned", "curves", controls, panels, note, [len(tasks)])


def build_pareto(yardsticks: list[dict], groups: Groups, has_boxes: bool) -> Section:
    """The final value of every run against what it cost, for each yardstick.

    Args:
      has_boxes: whether the checkboxes are here, because there are no curves.
    """
    controls = [
        _build_radios("pareto", 0, "Yardstick", [y["label"] for y in yardsticks]),
        _build_radios("pareto", 1, "Against", [c[0] for c in FINAL_COSTS.values()]),
        _build_legend(list(groups), has_boxes),
    ]
    panels = [
        _wrap_panel((i, j), draw_pareto(groups, yardstick, cost))
        for i, yardstick in enumerate(yardsticks)
        for j, cost in enumerate(FINAL_COSTS)
    ]
    note = (
        "A large mark is the mean over seeds, a small one is a seed; up and to the "
        "left is better, as a yardstick whose lower values are better is drawn upside "
        "down. Where there are several objectives that no other is both better and "
        "cheaper than, a dashed line joins them while all are shown. It goes by the "
        "means alone: Differences has the significance tests."
    )
    counts = [len(yardsticks), len(FINAL_COSTS)]
    return _assemble("pareto", "pareto", controls, panels, note, counts)


def build_forests(yardsticks: list[dict], groups: Groups) -> Section:
    """The differences of all pairs, and of each objective from what teaches nothing."""
    numbers = {name: i for i, name in enumerate(groups)}
    controls = [
        _build_radios("forest", 0, "Yardstick", [y["label"] for y in yardsticks])
    ]
    panels = [
        _wrap_panel((i,), _build_forest(yardstick, numbers))
        for i, yardstick in enumerate(yardsticks)
    ]
    note = (
        "A mark is by how much the mean of the first is better than that of the "
        "second; to the left of 0 it is worse. Its line is the simultaneous "
        "interval; a filled mark is a significant difference, a hollow one is not. "
        "The grey band is the margin within which a difference does not matter."
    )
    return _assemble("forest", "forests", controls, panels, note, [len(yardsticks)])


def _build_forest(yardstick: dict, numbers: dict[str, int]) -> str:
    better = "higher" if yardstick["higher_is_better"] else "lower"
    parts = [f"<h3>{escape_text(yardstick['label'])} ({better} is better)</h3>"]
    margin = yardstick["margin"]
    pairs = forest.list_pairs(yardstick, numbers)
    if pairs:
        parts.append(forest.draw_forest(pairs, margin, "between objectives"))
    else:
        only = rank(yardstick)[0]
        parts.append(f'<p class="soft">Only {escape_text(only)} was measured.</p>')
    baselines = forest.list_baselines(yardstick, numbers)
    if baselines:
        heading = "against what teaches nothing"
        parts.append(forest.draw_forest(baselines, margin, heading))
    return "\n".join(parts)


def _assemble(section, kind, controls, panels, note, counts) -> Section:
    markup = (
        f'<section id="{section}" class="{kind}">\n'
        f'<div class="controls">{"".join(controls)}</div>\n'
        + "\n".join(panels)
        + f'\n<p class="soft">{note}</p>\n</section>'
    )
    return Section(markup, counts)


def _wrap_panel(place: tuple[int, ...], drawn: str) -> str:
    default = "" if any(place) else " default"
    view = "-".join(map(str, place))
    return f'<div class="plot panel v{view}{default}">{drawn}</div>'


def _build_radios(section: str, group: int, title: str, labels: list[str]) -> str:
    """Radio buttons, the first of them chosen; their ids are what `make_rules` says."""
    buttons = []
    for i, label in enumerate(labels):
        name = f"{section}-{group}"
        chosen = {} if i else {"checked": "checked"}
        button = tag(
            "input",
            type="radio",
            name=name,
            id=f"{name}-{i}",
            autocomplete="off",
            **chosen,
        )
        buttons.append(f"<label>{button}{escape_text(label)}</label>")
    return f"<fieldset><legend>{title}:&nbsp;</legend>{''.join(buttons)}</fieldset>"


def _build_legend(names: list[str], has_boxes: bool) -> str:
    """Each objective's line, marker and name, which show or hide it in every chart."""
    styles, labels = choose_styles(names), []
    for i, name in enumerate(names):
        line = tag("path", class_="mean", d="M1 6H33")
        marker = charts.draw_marker(styles[name][1], 17, 6, 4.5)
        swatch = tag(
            "svg",
            line,
            marker,
            class_="swatch",
            viewBox="0 0 34 12",
            aria_hidden="true",
        )
        box = ""
        if has_boxes:
            state = {"checked": "checked", "autocomplete": "off"}
            box = tag("input", type="checkbox", id=f"show-{i}", **state)
        label = f"{box}{swatch}{escape_text(name)}"
        labels.append(f'<label class="o{i}" for="show-{i}">{label}</label>')
    return f"<fieldset><legend>Show:&nbsp;</legend>{''.join(labels)}</fieldset>"

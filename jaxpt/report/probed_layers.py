"""The layers that the probe reads: sentences on its choices, and a chart of all layers.

A run's result.json has them under "probe" (`jaxpt.evaluation.probe`).
"""

import statistics
from collections.abc import Iterable, Mapping

from markupsafe import Markup

from jaxpt.evaluation.probe import binomial_error
from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, LEFT, RIGHT, TOP
from jaxpt.report.styles import choose_styles

MAX_ERROR = 0.01  # of an accuracy, as if test passages were independent
Groups = Mapping[str, list[dict]]
STATES = ("trained", "untrained")  # the parameters that a chart can be of


def list_probed(runs: list[dict]) -> list[str]:
    """A line per name on the layers that were read, and one if there are few passages.

    Args:
      runs: of a report; those without a probe, or of an older jaxpt, have no line.
    """
    groups: dict[str, list[dict]] = {}
    for run in runs:
        if run.get("probe", {}).get("trained"):
            groups.setdefault(run["name"], []).append(run)
    lines = [
        f"probe of {name}: {_word_choices(group, 'trained', 'probe_accuracy')}"
        + _word_untrained(group)
        for name, group in groups.items()
    ]
    return lines + _list_errors([run for group in groups.values() for run in group])


def _word_untrained(group: list[dict]) -> str:
    known = [run for run in group if run["probe"].get("untrained")]
    if not known:
        return ""
    choices = _word_choices(known, "untrained", "probe_accuracy_random")
    return f"; random initialization: {choices}"


def _word_choices(group: list[dict], state: str, metric: str) -> str:
    """The mean accuracy and the chosen layers, with the number of seeds of each."""
    values = [run["metrics"].get(metric) for run in group]
    known = [value for value in values if value is not None]
    counts: dict[str, int] = {}
    for run in group:
        choice = word_choice(run["probe"][state])
        counts[choice] = counts.get(choice, 0) + 1
    ordered = sorted(counts, key=lambda choice: -counts[choice])
    if len(group) > 1:
        ordered = [f"{c}: {counts[c]} seed{'s' * (counts[c] != 1)}" for c in ordered]
    value = f"{statistics.fmean(known):.3f} " if known else ""
    return f"{value}({'; '.join(ordered)})"


def word_choice(record: dict) -> str:
    """The layer and the pooling of one probe.

    >>> choice = {"layer": 2, "num_layers": 4, "pooling": "mean", "is_chosen": True}
    >>> word_choice(choice)
    'layer 2 of 4, mean'
    >>> word_choice(choice | {"layer": 0, "pooling": "last"})
    'embeddings, last'
    >>> word_choice(choice | {"layer": 4, "is_chosen": False})
    'layer 4 of 4, mean, not chosen: too few documents'
    """
    layer = f"layer {record['layer']} of {record['num_layers']}"
    choice = f"{layer if record['layer'] else 'embeddings'}, {record['pooling']}"
    return choice if record["is_chosen"] else f"{choice}, not chosen: too few documents"


def _list_errors(runs: list[dict]) -> list[str]:
    """A line if there are too few test passages for a precise accuracy."""
    errors = [
        (binomial_error(accuracy, num), num)
        for run in runs
        if (accuracy := run["metrics"].get("probe_accuracy")) is not None
        and (num := run["probe"]["trained"]["test_passages"])
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
        record["poolings"]
        for group in groups.values()
        for run in group
        for record in run.get("probe", {}).values()
        if record["accuracies"] is not None
    ]
    return poolings[0] if poolings else []


def average_layers(group: Iterable[dict], state: str, pooling: int) -> list[float]:
    """The mean accuracy of each layer over the seeds with the same number of layers."""
    tables = [
        record["accuracies"]
        for run in group
        if (record := run.get("probe", {}).get(state))
        and record["accuracies"] is not None
    ]
    same = [table for table in tables if len(table) == len(tables[0])]
    return [
        statistics.fmean(table[layer][pooling] for table in same)
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
    title = "layer (0: embeddings)"
    x = charts.make_axis((0, max(deepest, 1)), title, "{:g}".format, LEFT, RIGHT)
    x = x._replace(ticks=[tick for tick in x.ticks if tick == int(tick)])
    label = f"accuracy, {pooling} of the states"
    values = [value for layers in everywhere for value in layers]
    y = charts.make_axis(values, label, "{:g}".format, BOTTOM, TOP)
    lines = {
        name: [(x.scale(layer), y.scale(value)) for layer, value in enumerate(layers)]
        for name, layers in panels[state, poolings.index(pooling)].items()
        if layers
    }
    names = charts.draw_names({name: line[-1] for name, line in lines.items()})
    styles, parts = choose_styles(groups), [charts.draw_frame(x, y)]
    for i, name in enumerate(groups):
        if name not in lines:
            continue
        layers = panels[state, poolings.index(pooling)][name]
        drawn = [charts.draw_line("mean", lines[name])]
        for layer, (point, value) in enumerate(zip(lines[name], layers, strict=True)):
            tooltip = f"{name}, layer {layer}: {value:.3f}"
            drawn.append(charts.draw_marker(styles[name][1], *point, 4, tooltip))
        parts.append(charts.tag("g", *drawn, names[name], class_=f"s o{i}"))
    label = f"Probe accuracy by layer, {pooling} of the states, {state}"
    return charts.draw_chart(f"{label}: {', '.join(lines)}", *parts)

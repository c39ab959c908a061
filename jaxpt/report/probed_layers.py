"""Where the probe found its labels: the layers chosen, and a picture of all layers.

What a run's result.json has under "probe" (`jaxpt.evaluation.probe`), of several seeds.
"""

import statistics
from collections.abc import Iterable, Mapping

from jaxpt.evaluation.probe import binomial_error
from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis
from jaxpt.report.styles import choose_styles

MOST_ERROR = 0.01  # of a share of test passages, as if they were independent
Groups = Mapping[str, list[dict]]
# The parameters that a picture can be of: those the run ended and began with.
STATES = ("trained", "untrained")


def list_probed(runs: list[dict]) -> list[str]:
    """A line for each name on what was read, and one if the passages are few.

    Args:
      runs: a report's; those without a probe, or of an older jaxpt, say nothing.
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
    told = _word_choices(known, "untrained", "probe_accuracy_random")
    return f"; untrained: {told}"


def _word_choices(group: list[dict], state: str, metric: str) -> str:
    """The mean accuracy, and what was read, by how many of the seeds."""
    values = [run["metrics"].get(metric) for run in group]
    known = [value for value in values if value is not None]
    counts: dict[str, int] = {}
    for run in group:
        told = word_choice(run["probe"][state])
        counts[told] = counts.get(told, 0) + 1
    ordered = sorted(counts, key=lambda told: -counts[told])
    if len(group) > 1:
        ordered = [f"{told}: {_count_seeds(counts[told])}" for told in ordered]
    value = f"{statistics.fmean(known):.3f} " if known else ""
    return f"{value}({'; '.join(ordered)})"


def _count_seeds(num: int) -> str:
    return f"{num} seed{'s' * (num != 1)}"


def word_choice(record: dict) -> str:
    """What one probe read.

    >>> choice = {"layer": 2, "num_layers": 4, "pooling": "mean", "is_chosen": True}
    >>> word_choice(choice)
    'layer 2 of 4, mean'
    >>> word_choice(choice | {"layer": 0, "pooling": "last"})
    'embeddings, last'
    >>> word_choice(choice | {"layer": 4, "is_chosen": False})
    'layer 4 of 4, mean, for want of documents to choose by'
    """
    where = f"layer {record['layer']} of {record['num_layers']}"
    if not record["layer"]:
        where = "embeddings"
    told = f"{where}, {record['pooling']}"
    return (
        told if record["is_chosen"] else f"{told}, for want of documents to choose by"
    )


def _list_errors(runs: list[dict]) -> list[str]:
    """A line where the test passages are too few to tell a share closely."""
    errors = [
        (binomial_error(accuracy, num), num)
        for run in runs
        if (accuracy := run["metrics"].get("probe_accuracy")) is not None
        and (num := run["probe"]["trained"]["test_passages"])
    ]
    if not errors or max(errors)[0] <= MOST_ERROR:
        return []
    error, num = max(errors)
    return [
        f"note: probe_accuracy is of {num:,} test passages, a binomial standard error "
        f"of {error:.3f}; of 2,500 (eval.probe_passages) it would be {MOST_ERROR} at "
        f"most. Passages of one document are alike, so that it is larger than that"
    ]


def list_poolings(groups: Groups) -> list[str]:
    """The ways of pooling that some run has tried; none where none has chosen."""
    found = [
        record["poolings"]
        for group in groups.values()
        for run in group
        for record in run.get("probe", {}).values()
        if record["accuracies"] is not None
    ]
    return found[0] if found else []


def average_layers(group: Iterable[dict], state: str, pooling: int) -> list[float]:
    """The mean accuracy of each layer over the seeds that have as many layers."""
    tables = [
        record["accuracies"]
        for run in group
        if (record := run.get("probe", {}).get(state))
        and record["accuracies"] is not None
    ]
    alike = [table for table in tables if len(table) == len(tables[0])]
    return [
        statistics.fmean(table[layer][pooling] for table in alike)
        for layer in range(len(alike[0]) if alike else 0)
    ]


def draw_layers(groups: Groups, state: str, pooling: str) -> str:
    """The accuracy of each layer of each name, as SVG.

    On the training passages that choose: the test passages are asked of one layer.

    Args:
      groups: the runs of each name, in the report's order.
      state: one of `STATES`.
      pooling: one of `list_poolings`.
    """
    poolings = list_poolings(groups)
    number = poolings.index(pooling)
    found = {n: average_layers(g, state, number) for n, g in groups.items()}
    found = {name: values for name, values in found.items() if values}
    # One axis for all panels, so that they can be compared by eye.
    everywhere = [
        average_layers(group, one, i)
        for group in groups.values()
        for one in STATES
        for i in range(len(poolings))
    ]
    deepest = max(len(values) for values in everywhere) - 1
    title = "layer (0: embeddings)"
    x = charts.make_axis((0, max(deepest, 1)), title, "{:g}".format, LEFT, RIGHT)
    x = x._replace(ticks=[tick for tick in x.ticks if tick == int(tick)])
    label = f"accuracy, {pooling} of the states"
    values = [value for layers in everywhere for value in layers]
    y = charts.make_axis(values, label, "{:g}".format, BOTTOM, TOP)
    ends = [y.scale(layers[-1]) for layers in found.values()]
    places = charts.spread(ends, charts.LABEL_GAP, TOP + 4, BOTTOM)
    by_name = dict(zip(found, places, strict=True))
    styles, parts = choose_styles(groups), [charts.draw_frame(x, y)]
    for i, name in enumerate(groups):
        if name in found:
            marker = styles[name][1]
            drawn = _draw_name(name, marker, found[name], by_name[name], x, y)
            parts.append(charts.tag("g", drawn, class_=f"s o{i}"))
    told = f"Probe accuracy by layer, {pooling} of the states, {state}"
    return charts.draw_chart(f"{told}: {', '.join(found)}", *parts)


def _draw_name(
    name: str, marker: str, values: list[float], place: float, x: Axis, y: Axis
) -> str:
    """Line, markers and, to the right of the plot, the name of one objective."""
    points = [(x.scale(layer), y.scale(value)) for layer, value in enumerate(values)]
    parts = [charts.draw_line("mean", points)]
    for layer, (point, value) in enumerate(zip(points, values, strict=True)):
        told = f"{name}, layer {layer}: {value:.3f}"
        parts.append(charts.draw_marker(marker, *point, 4, told))
    across, down = points[-1]
    parts.append(charts.draw_line("thread", [(across + 5, down), (RIGHT + 14, place)]))
    text = charts.escape_text(charts.shorten(name))
    parts.append(charts.tag("text", text, class_="name", x=RIGHT + 18, y=place + 4))
    return "".join(parts)

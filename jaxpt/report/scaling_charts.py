"""The charts of scaling laws: the loss by size and budget, and the best sizes."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jaxpt.judge.scaling_laws import Points, ScalingLaw
from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, FULL, LEFT, TOP, Axis, place_chart
from jaxpt.report.drawing import BLUE, ORANGE, Picture, document, grid, shade, tag
from jaxpt.report.formats import format_count, format_flops

RUNS = "#9AA1A9"


def draw_laws(groups: Mapping[str, Points], fits: Mapping[str, dict]) -> str:
    """A row of two panels for each name, as an SVG file.

    Args:
      fits: by name, as `jaxpt.report.scaling.fit_group` gives it.
    """
    panels: list[Picture] = []
    for name, points in groups.items():
        title = f"{name}: solid, parabola of a budget; dotted, the law there"
        panels.append(place_chart(_draw_losses(name, points, fits[name]), title))
        most = format_flops(10 * float(points.flops.max()))
        title = (
            f"{name}: best size up to {most} FLOPs; solid, the law; dashed, power law "
            f"of the parabolas' lowest points"
        )
        panels.append(place_chart(_draw_best(name, points, fits[name]), title))
    return document(grid(panels, 2), f"scaling laws of {', '.join(groups)}")


def _read_law(fit: dict) -> ScalingLaw | None:
    constants = fit["parametric"].get("law")
    if constants is None:
        return None
    return ScalingLaw(**{name: entry["value"] for name, entry in constants.items()})


def _mark(
    marker: str, x: float, y: float, radius: float, color: str, title: str
) -> str:
    drawn = charts.draw_marker(marker, x, y, radius, title, kind="mark")
    return tag("g", drawn, style=f"--cell: {color}")


def _line(
    kind: str, xs: Iterable[float], ys: Iterable[float], x: Axis, y: Axis, color: str
) -> str:
    """A line through values; what is outside of the axes is left out."""
    low, high = sorted((y.scale.low, y.scale.high))
    points = [
        (x.scale(a), y.scale(b)) if low <= b <= high else None
        for a, b in zip(xs, ys, strict=True)
    ]
    return tag("g", charts.draw_line(kind, points), style=f"--cell: {color}")


def _color(flops: float, points: Points) -> str:
    """A shade by the budget, darker for a larger one."""
    low, high = np.log(points.flops.min()), np.log(points.flops.max())
    share = (np.log(flops) - low) / (high - low) if high > low else 1.0
    return shade(0.3 + 0.7 * float(share))


def _draw_losses(name: str, points: Points, fit: dict) -> str:
    """Points by size, shaded by budget; parabolas, and the law at each budget."""
    sizes = np.geomspace(points.params.min() / 1.2, points.params.max() * 1.2, 100)
    margin = 0.1 * float(np.ptp(points.loss)) + 1e-3
    ends = [float(points.loss.min()) - margin, float(points.loss.max()) + margin]
    ends_x = sizes[[0, -1]].tolist()
    x = charts.make_axis(ends_x, "parameters N", format_count, LEFT, FULL, is_log=True)
    y = charts.make_axis(ends, "loss", "{:g}".format, BOTTOM, TOP)
    parts = [charts.draw_frame(x, y)]
    valleys = fit["parabolas"]["valleys"]
    for valley in valleys:
        color = _color(valley["flops"], points)
        values = np.polyval(valley["coefficients"], np.log10(sizes))
        parts.append(_line("strong", sizes, values, x, y, color))
    law = _read_law(fit)
    if law is not None:
        low, high = float(points.flops.min()), float(points.flops.max())
        for flops in [valley["flops"] for valley in valleys] or [low, high]:
            values = law.loss(sizes, flops / points.factor / sizes)
            color = _color(flops, points)
            parts.append(_line("dotted", sizes, values, x, y, color))
    for size, loss, flops in zip(
        points.params.tolist(), points.loss.tolist(), points.flops.tolist(), strict=True
    ):
        title = f"{format_count(size)} parameters, {format_flops(flops)} FLOPs: "
        at = x.scale(size), y.scale(loss)
        color = _color(flops, points)
        parts.append(_mark("o", *at, 4, color, f"{title}{loss:.4f}"))
    for valley in valleys:
        if ends[0] <= valley["loss"] <= ends[1]:
            at = x.scale(valley["params"]), y.scale(valley["loss"])
            title = f"lowest of {format_flops(valley['flops'])} FLOPs"
            parts.append(_mark("*", *at, 7, _color(valley["flops"], points), title))
    return charts.draw_chart(f"losses of {name} by size and budget", *parts)


def _draw_best(name: str, points: Points, fit: dict) -> str:
    """The best size of each budget by both approaches, and the trained sizes."""
    parametric, parabolas = fit["parametric"], fit["parabolas"]
    valleys, law = parabolas["valleys"], _read_law(fit)
    budgets = np.geomspace(points.flops.min(), 10 * points.flops.max(), 50)
    lines: dict[tuple[str, str], Sequence[float]] = {}
    if law is not None and "best" in parametric:
        lines["strong", BLUE] = law.best(budgets, points.factor)[0].tolist()
    if "params_exponent" in parabolas:
        power = parabolas["params_exponent"]
        values = np.exp(power["intercept"]) * budgets ** power["value"]
        lines["dashed", ORANGE] = values.tolist()
    shown = [size for line in lines.values() for size in line]
    shown += [*points.params.tolist(), *(valley["params"] for valley in valleys)]
    ends, title = budgets[[0, -1]].tolist(), "training FLOPs C"
    x = charts.make_axis(ends, title, format_flops, LEFT, FULL, is_log=True)
    y = charts.make_axis(
        shown, "best parameters N", format_count, BOTTOM, TOP, is_log=True
    )
    parts = [charts.draw_frame(x, y)]
    for flops, size in zip(points.flops.tolist(), points.params.tolist(), strict=True):
        parts.append(_mark("o", x.scale(flops), y.scale(size), 3, RUNS, "a run"))
    for (kind, color), line in lines.items():
        parts.append(_line(kind, budgets.tolist(), line, x, y, color))
    for best in parametric.get("best", ()):
        low, high = best["params"]["low"], best["params"]["high"]
        if low is not None and "strong" in {kind for kind, _ in lines}:
            sizes = [min(max(end, y.scale.low), y.scale.high) for end in (low, high)]
            parts.append(_line("strong", [best["flops"]] * 2, sizes, x, y, BLUE))
    for valley in valleys:
        at = x.scale(valley["flops"]), y.scale(valley["params"])
        parts.append(_mark("*", *at, 7, ORANGE, "lowest of a parabola"))
    return charts.draw_chart(f"best sizes of {name} by budget", *parts)

"""The picture of scaling laws: losses by size, and the best sizes of each budget."""

import os
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from jaxpt.judge.scaling_laws import Law, Points
from jaxpt.report.formats import format_count, format_flops
from jaxpt.report.plots import save_figure, tidy
from jaxpt.report.styles import BLUE, ORANGE

MAP = "viridis"


def draw(
    groups: Mapping[str, Points],
    fits: Mapping[str, dict],
    path: str | os.PathLike,
) -> None:
    """A row of two panels for each name.

    Args:
      fits: by name, as `report.scaling.fit_group` gives it.
      path: the PNG to write.
    """
    figure = Figure(figsize=(12, 4.6 * len(groups)), layout="constrained")
    lines = figure.subplots(len(groups), 2, squeeze=False)
    for (left, right), (name, points) in zip(lines, groups.items(), strict=True):
        _draw_losses(figure, left, name, points, fits[name])
        _draw_best(right, points, fits[name])
    save_figure(figure, path)


def _read_law(fit: dict) -> Law | None:
    constants = fit["parametric"].get("law")
    if constants is None:
        return None
    return Law(**{name: entry["value"] for name, entry in constants.items()})


def _draw_losses(figure, axes, name: str, points: Points, fit: dict) -> None:
    """Points by size, coloured by budget; parabolas, and the law at each budget."""
    low, high = points.flops.min(), points.flops.max()
    norm = LogNorm(low, high if high > low else 2 * low)
    dots = axes.scatter(
        points.params, points.loss, c=points.flops, norm=norm, cmap=MAP, zorder=3
    )
    bar = figure.colorbar(dots, ax=axes, label="training FLOPs C")
    _write_powers(bar.ax.yaxis, format_flops)
    sizes = np.geomspace(points.params.min() / 1.2, points.params.max() * 1.2, 100)
    valleys = fit["parabolas"]["valleys"]
    for valley in valleys:
        color = dots.to_rgba(valley["flops"])
        values = np.polyval(valley["coefficients"], np.log10(sizes))
        axes.plot(sizes, values, color=color, lw=1.4)
        axes.plot(valley["params"], valley["loss"], "*", color=color, ms=13, zorder=4)
    law = _read_law(fit)
    budgets = [valley["flops"] for valley in valleys] or [low, high]
    if law is not None:
        for flops in budgets:
            values = law.loss(sizes, flops / points.factor / sizes)
            axes.plot(sizes, values, ":", color=dots.to_rgba(flops), lw=1.4)
    margin = 0.1 * np.ptp(points.loss) + 1e-3
    axes.set_ylim(points.loss.min() - margin, points.loss.max() + margin)
    axes.set_xscale("log")
    _write_powers(axes.xaxis, format_count)
    axes.set_xlabel("parameters N")
    axes.set_ylabel("loss")
    axes.set_title(
        f"{name}\nsolid: parabola of a budget, dotted: the law there", fontsize=10
    )
    tidy(axes)


def _draw_best(axes, points: Points, fit: dict) -> None:
    """The best size of each budget by both approaches, and the trained sizes."""
    axes.plot(points.flops, points.params, "o", color="#BBBBBB", ms=4, label="runs")
    parametric, parabolas = fit["parametric"], fit["parabolas"]
    law = _read_law(fit)
    budgets = np.geomspace(points.flops.min(), 10 * points.flops.max(), 50)
    if law is not None and "best" in parametric:
        axes.plot(budgets, law.best(budgets, points.factor)[0], color=BLUE, label="law")
        for best in parametric["best"]:
            value = best["params"]
            if value["low"] is not None:
                ends = [value["low"], value["high"]]
                axes.plot([best["flops"]] * 2, ends, color=BLUE, lw=1)
    flops = [valley["flops"] for valley in parabolas["valleys"]]
    sizes = [valley["params"] for valley in parabolas["valleys"]]
    if flops:
        axes.plot(flops, sizes, "*", color=ORANGE, ms=13, label="lowest of a parabola")
    if "params_exponent" in parabolas:
        power = parabolas["params_exponent"]
        values = np.exp(power["intercept"]) * budgets ** power["value"]
        axes.plot(budgets, values, "--", color=ORANGE, label="power law of these")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _write_powers(axes.xaxis, format_flops)
    _write_powers(axes.yaxis, format_count)
    axes.set_xlabel("training FLOPs C")
    axes.set_ylabel("best parameters N")
    most = format_flops(float(budgets[-1]))
    axes.set_title(f"best size of a budget, up to {most} FLOPs", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)


def _write_powers(axis, write: Callable[[float], str]) -> None:
    """Plain numbers at a logarithmic axis, instead of powers of ten."""
    low, high = sorted(axis.get_view_interval())
    steps = (1.0,) if high > 50 * low else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_minor_formatter(NullFormatter())

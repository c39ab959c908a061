"""The picture of fine-tuning curves: a task's metric by number of labels, as a PNG."""

import os

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from jaxpt.report import plots
from jaxpt.report.formats import format_count, is_number
from jaxpt.report.styles import GREY, choose_styles
from jaxpt.report.tuned_curves import (
    SUFFIXES,
    CurvePoint,
    Groups,
    collect_ngrams,
    collect_points,
    find_entry,
    list_sizes,
)
from jaxpt.report.wording import BAG_OF_NGRAMS

BLACK = "#222222"
MARGIN = 1.3  # of the logarithmic axis; a single number of labels has no range


def finetuning_curves(
    groups: Groups, tasks: list[str], path: str | os.PathLike
) -> None:
    """A row of panels for each task, a panel for each objective.

    Args:
      groups: the runs by name.
      tasks: of `tuned_curves.list_tuned`, not empty.
      path: the PNG to write.
    """
    names, styles = list(groups), choose_styles(groups)
    size = 2.1 + 2.5 * len(names), 1 + 2.7 * len(tasks)
    figure = Figure(figsize=size, layout="constrained")
    lines = figure.subplots(
        len(tasks), len(names), squeeze=False, sharex="row", sharey="row"
    )
    for line, task in zip(lines, tasks, strict=True):
        entry = find_entry(groups, task)
        line[0].set_ylabel(f"{task}\n{entry['measure']}")
        nums, ngrams = list_sizes(groups, task), collect_ngrams(groups, task)
        for axes, name in zip(line, names, strict=True):
            color, marker = styles[name]
            axes.axhline(entry["constant"], color=GREY, lw=1.2, ls=":")
            _draw(axes, ngrams, color=BLACK, marker=".", ls="--", lw=1.2)
            for suffix, own in (("_random", (GREY, "o")), ("", (color, marker))):
                curve = collect_points(groups[name], task, suffix)
                _draw(axes, curve, color=own[0], marker=own[1], ms=4.5, lw=1.8)
            axes.set_title(name, fontsize=10)
            axes.set_xscale("log")
            axes.set_xlim(min(nums) / MARGIN, max(nums) * MARGIN)
            axes.xaxis.set_major_locator(FixedLocator(nums))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_count(x)))
            axes.tick_params(axis="x", labelsize=8)
            plots.tidy(axes)
    for axes in lines[-1]:
        axes.set_xlabel("labels")
    _add_legend(figure, max(2, len(names)), bool(ngrams))
    plots.save_figure(figure, path)


def _draw(axes, curve: list[CurvePoint], **style) -> None:
    """A line through the means, with the intervals that there are as bars."""
    nums = [point.num_labels for point in curve]
    means = [point.mean for point in curve]
    errors = [p.high - p.mean if is_number(p.high) else 0.0 for p in curve]
    axes.errorbar(nums, means, yerr=errors, capsize=2, elinewidth=1, **style)


def _add_legend(figure: Figure, num_columns: int, has_ngrams: bool) -> None:
    lines = {
        f"colour: {SUFFIXES['']}": Line2D([], [], color=BLACK, marker="s", lw=1.8),
        SUFFIXES["_random"]: Line2D([], [], color=GREY, marker="o", lw=1.8),
    }
    if has_ngrams:
        lines[BAG_OF_NGRAMS] = Line2D([], [], color=BLACK, ls="--", lw=1.2)
    lines["constant baseline"] = Line2D([], [], color=GREY, ls=":", lw=1.2)
    figure.legend(
        [*lines.values()],
        [*lines],
        loc="outside upper center",
        ncols=min(num_columns, len(lines)),
        frameon=False,
    )

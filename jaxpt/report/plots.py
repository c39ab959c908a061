"""The report's plots, one PNG each, drawn without pyplot's global state.

An objective has the same colour (Okabe and Ito's colour-blind-safe palette) and marker
in every plot.
"""

import functools
import io
import math
import os
import textwrap
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from jaxpt.files import disk
from jaxpt.report.formats import group_by_name
from jaxpt.report.report_charts import (
    CURVE_COSTS,
    Point,
    average,
    is_own_task,
    label_curve,
    list_curve_metrics,
    read_curve,
)
from jaxpt.report.styles import BLUE, GREY, ORANGE, choose_styles

MASKS_PER_ROW, METRICS_PER_ROW = 5, 6

WHITESPACE = {" ": "␣", "\n": "⏎", "\t": "⇥"}

CAPTIONS = {
    "learning_curves": (
        "Learning curves against FLOPs, raw tokens and training seconds. Thin lines "
        "are seeds, the thick line is their mean; dotted lines are baselines. Shared "
        "metrics are comparable across objectives, losses are not."
    ),
    "attention_masks": (
        "Attention masks. A row is a query, a column a key; a filled cell means that "
        "the query may attend to the key. Lines divide encoder from decoder."
    ),
    "temperature_effect": (
        "The next-token distribution at several temperatures, same tokens in the same "
        "order. A low temperature concentrates the probability on the likeliest token, "
        "a high one flattens the distribution."
    ),
    "mask_fill": (
        "The model's predictions for the masked token _, likeliest first. The bar of "
        "the true token is orange; the true token is also given below each panel."
    ),
    "pretrained_vs_random": (
        "Accuracy on masked tokens of held-out text, after pretraining and at random "
        "initialization. The difference of the two is due to pretraining."
    ),
    "shared_metrics": (
        "The shared metrics. A dot is the mean over seeds, its bar one standard "
        "deviation over seeds to either side; a dot without a bar is a single seed."
    ),
    "finetuning_curves": (
        "Fine-tuning by number of labels: the mean over seeds, with Student's 95 % "
        "interval as a bar. Each panel has one objective, its random initialization, "
        "and the baselines without a network."
    ),
}


def learning_curves(
    runs: list[dict],
    path: str | os.PathLike,
    levels: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Shared metrics, then validation loss, against three costs: a row each.

    A loss is divided by its first value: the objectives' losses have different units,
    and ELECTRA's, which is weighted 50-fold, would flatten the others.

    Args:
      runs: entries of a report's `runs`; None in a curve interrupts its line.
      path: the PNG to write.
      levels: by shared metric, the values of its baselines by name.
    """
    metrics = [m for m in list_curve_metrics(runs) if not is_own_task(m)]
    # Metrics that were measured during training, if there are any.
    shared = [m for m in metrics if any(m in p for r in runs for p in r["curve"])]
    shared = shared or metrics
    groups = group_by_name(runs)
    styles = choose_styles(groups)
    num_rows = len(shared) + 1
    figure = Figure(figsize=(12, 0.8 + 3.2 * num_rows), layout="constrained")
    panels = figure.subplots(num_rows, 3, squeeze=False, sharey="row")
    for line, metric in zip(panels, [*shared, "valid_loss"], strict=True):
        note = "not comparable" if is_own_task(metric) else "comparable"
        line[0].set_ylabel(label_curve(metric))
        baselines = (levels or {}).get(metric, {})
        for axes, (cost, (label, write)) in zip(line, CURVE_COSTS.items(), strict=True):
            axes.set_title(f"{note} across objectives", fontsize=10)
            axes.set_xlabel(label)
            axes.xaxis.set_major_formatter(_make_formatter(write))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            tidy(axes)
            for value in baselines.values():
                axes.axhline(value, color=GREY, lw=1.4, ls=":")
            for name, group in groups.items():
                curves = [read_curve(run, cost, metric) for run in group]
                _draw_seeds(axes, styles[name], curves)
        if baselines:
            words = [f"{name} {value:.3g}" for name, value in baselines.items()]
            line[1].set_xlabel(
                f"{line[1].get_xlabel()}\ndotted: {', '.join(words)}", fontsize=9
            )
    _add_legend(figure, styles)
    save_figure(figure, path)


def _make_formatter(write: Callable[[float], str]) -> FuncFormatter:
    return FuncFormatter(lambda value, _: write(value))


def _draw_seeds(axes, style, curves: list[dict[int, Point | None]]) -> None:
    """Each seed as a thin line, and the mean over the steps that all of them have."""
    color, marker = style
    gap = math.nan, math.nan
    if len(curves) > 1:
        for curve in curves:
            points = np.reshape([point or gap for point in curve.values()], (-1, 2))
            axes.plot(*points.T, color=color, lw=0.8, alpha=0.5)
    means = [(mean.cost, mean.value) if mean else gap for mean in average(curves)]
    line, every = np.reshape(means, (-1, 2)).T, math.ceil(len(means) / 10) or 1
    axes.plot(*line, color=color, lw=2.2, marker=marker, ms=4.5, markevery=every)


def attention_masks(masks: dict[str, dict], path: str | os.PathLike) -> None:
    """Boolean attention masks, `MASKS_PER_ROW` in a row, one cell per (query, key).

    Args:
      masks: title -> {"mask": bool [T, S], True = may attend; "query_labels": T tokens;
        "key_labels": S tokens; optional "split": (query, key), the decoder's first}.
      path: the PNG to write.
    """
    num_columns, cell = min(len(masks), MASKS_PER_ROW), 0.26
    shapes = np.zeros((-(-len(masks) // num_columns) * num_columns, 2))
    shapes[: len(masks)] = [np.shape(entry["mask"]) for entry in masks.values()]
    sizes = shapes.reshape(-1, num_columns, 2)
    heights, widths = sizes[..., 0].max(1), sizes[..., 1].max(0)
    figure = Figure(
        figsize=(sum(widths * cell + 1.4), sum(heights * cell + 1.8)),
        layout="constrained",
    )
    panels = figure.subplots(
        *sizes.shape[:2], squeeze=False, width_ratios=widths, height_ratios=heights
    ).ravel()
    for axes in panels[len(masks) :]:
        axes.remove()
    for axes, (title, entry) in zip(panels, masks.items(), strict=False):
        colors = ListedColormap(["#F2F2F2", BLUE])
        axes.imshow(np.asarray(entry["mask"], bool), cmap=colors, vmin=0, vmax=1)
        axes.set_title(_wrap(title, 22, num_lines=3), fontsize=11)
        axes.set_ylabel("query")
        axes.set_xlabel("key")
        for axis, labels in ((axes.yaxis, "query_labels"), (axes.xaxis, "key_labels")):
            tokens = [show_token(token) for token in entry[labels]]
            axis.set_ticks(range(len(tokens)), tokens, fontsize=8)
            axis.set_minor_locator(MultipleLocator(1, offset=0.5))
        axes.tick_params(axis="x", rotation=90)
        axes.tick_params(which="both", length=0)
        axes.grid(which="minor", color="white", lw=1.2)
        if "split" in entry:
            query, key = entry["split"]
            axes.axhline(query - 0.5, color="black", lw=1.8)
            axes.axvline(key - 0.5, color="black", lw=1.8)
    save_figure(figure, path)


def temperature_effect(
    tokens: list[str],
    probabilities: dict[float, np.ndarray],
    prompt: str,
    path: str | os.PathLike,
) -> None:
    """The next-token distribution over the top tokens, one panel per temperature.

    Args:
      tokens: the tokens shown, likeliest first.
      probabilities: temperature -> float [len(tokens)]; they need not sum to one.
      prompt: the text before the token.
      path: the PNG to write.
    """
    num_panels = len(probabilities)
    figure = Figure(
        figsize=(1.4 + 2.3 * num_panels, 1.8 + 0.28 * len(tokens)), layout="constrained"
    )
    panels = figure.subplots(1, num_panels, squeeze=False, sharex=True, sharey=True)[0]
    for axes, temperature in zip(panels, sorted(probabilities), strict=True):
        values = np.asarray(probabilities[temperature], float)
        _draw_bars(axes, tokens, values, [BLUE] * len(tokens))
        axes.set_title(
            f"temperature {temperature:g}\n{values.sum():.0%} of the probability",
            fontsize=10,
        )
        axes.set_xlabel("probability")
    _end_at_one(panels[0])
    heading = _wrap(f"Next token after: {prompt}", 30 * num_panels, num_lines=3)
    figure.suptitle(heading, fontsize=11)
    save_figure(figure, path)


def mask_fill(examples: list[dict], path: str | os.PathLike) -> None:
    """The candidates for one masked position per panel, the truth highlighted.

    Args:
      examples: each {"text": the sentence with the masked position shown as _,
        "candidates": [(token, probability)], likeliest first, "truth": token}.
      path: the PNG to write.
    """
    num_columns = min(2, len(examples))
    num_rows = math.ceil(len(examples) / num_columns)
    num_bars = max(len(example["candidates"]) for example in examples)
    figure = Figure(
        figsize=(6 * num_columns, num_rows * (1.9 + 0.27 * num_bars)),
        layout="constrained",
    )
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True).ravel()
    for axes, example in zip(panels, examples, strict=False):
        tokens = [token for token, _ in example["candidates"]]
        values = np.array([probability for _, probability in example["candidates"]])
        truth = example["truth"]
        colors = [ORANGE if token == truth else BLUE for token in tokens]
        _draw_bars(axes, tokens, values, colors)
        text = _crop(example["text"], around="_", reach=80)
        axes.set_title(_wrap(text, 46, num_lines=5), fontsize=9, loc="left")
        axes.tick_params(labelbottom=True)
        missing = "" if truth in tokens else f" (not in the top {len(tokens)})"
        axes.set_xlabel(f"probability; truth: {show_token(truth)}{missing}")
    _end_at_one(panels[0])
    for axes in panels[len(examples) :]:
        axes.remove()
    save_figure(figure, path)


def pretrained_vs_random(
    rows: dict[str, dict[str, float]], path: str | os.PathLike
) -> None:
    """Grouped bars of accuracy on held-out masks, pretrained and randomly initialised.

    Args:
      rows: {"pretrained": {"top-1": 0.41, "top-5": 0.70}, "random init": {...}}.
      path: the PNG to write.
    """
    figure = Figure(figsize=(5.6, 4), layout="constrained")
    axes = figure.subplots()
    groups = list(next(iter(rows.values())))
    width = 0.8 / len(rows)
    for i, (name, values) in enumerate(rows.items()):
        color = (BLUE, GREY)[i]
        centers = np.arange(len(groups)) + (i - (len(rows) - 1) / 2) * width
        heights = [values[group] for group in groups]
        bars = axes.bar(centers, heights, width * 0.94, color=color, label=name)
        axes.bar_label(bars, [f"{height:.1%}" for height in heights], padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.0%}"))
    axes.set_ylabel("accuracy on held-out masks")
    tidy(axes)
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    save_figure(figure, path)


def shared_metrics(summary: list[dict], path: str | os.PathLike) -> None:
    """Each shared metric's mean and standard deviation over seeds, a panel each.

    Args:
      summary: of `report.summary.summarise`.
      path: the PNG to write.
    """
    common = [entry for entry in summary if entry["is_common"]]
    names = list(dict.fromkeys(name for e in common for name in e["by_name"]))
    styles = choose_styles(list_names(summary))
    num_columns = min(max(1, len(common)), METRICS_PER_ROW)
    num_rows = math.ceil(len(common) / num_columns) or 1
    size = 1.6 + 4 * num_columns, (1.7 + 0.4 * len(names)) * num_rows
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharey=True).ravel()
    for axes in panels[len(common) or 1 :]:
        axes.remove()
    for axes, entry in zip(panels, common, strict=False):
        for name, stats in entry["by_name"].items():
            color, marker = styles[name]
            point, std = (stats["mean"], names.index(name)), stats["std"]
            axes.errorbar(*point, xerr=std, color=color, fmt=marker, ms=8, capsize=4)
        better = "higher" if entry["higher_is_better"] else "lower"
        axes.set_title(f"{entry['label']}\n{better} is better", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.margins(x=0.15)
        tidy(axes)
    panels[0].set_yticks(range(len(names)), [_show_prose(name) for name in names])
    panels[0].set_ylim(max(1, len(names)) - 0.5, -0.5)
    if not common:
        panels[0].set_title("no shared metric was measured")
    save_figure(figure, path)


def show_token(token: str) -> str:
    """A token as a label: whitespace visible, at most 20 characters.

    >>> show_token(" a\\n")
    '␣a⏎'
    """
    text = _show_prose("".join(WHITESPACE.get(char, char) for char in token))
    return text if len(text) <= 20 else text[:19] + "…"


def _show_prose(text):
    """Text with spaces kept, line ends and tabs as symbols, the unprintable escaped."""
    chars = (char if char == " " else WHITESPACE.get(char, char) for char in text)
    return "".join(
        char
        if char.isprintable() and ord(char) in _get_glyphs()
        else char.encode("unicode_escape").decode()
        for char in chars
    )


@functools.cache
def _get_glyphs():
    return frozenset(FT2Font(findfont(FontProperties())).get_charmap())


def _crop(text, around, reach):
    center = text.index(around)
    start, end = max(0, center - reach), center + 1 + reach
    return "…" * (start > 0) + text[start:end] + "…" * (end < len(text))


def _wrap(text, width, num_lines):
    text = _show_prose(text)
    return "\n".join(textwrap.wrap(text, width, max_lines=num_lines, placeholder=" …"))


def list_names(summary: list[dict]) -> list[str]:
    """The names of a summary's runs, in the order of the styles in every plot.

    >>> list_names([{"by_name": {"b": 0}}, {"by_name": {"a": 0, "b": 0}}])
    ['a', 'b']
    """
    # First the metric that most runs have (the validation loss), then the others.
    groups = sorted((entry["by_name"] for entry in summary), key=len, reverse=True)
    return list(dict.fromkeys(name for group in groups for name in group))


def tidy(axes) -> None:
    """A light grid behind the data, and no box around it."""
    axes.grid(color="#DDDDDD", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(axes, tokens, values, colors):
    bars = axes.barh(range(len(tokens)), values, color=colors)
    axes.bar_label(bars, [f"{value:.1%}" for value in values], padding=2, fontsize=8)
    axes.set_yticks(range(len(tokens)), [show_token(token) for token in tokens])
    axes.set_ylim(len(tokens) - 0.5, -0.5)
    axes.margins(x=0.25)  # for the labels of the bars
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _end_at_one(axes):
    """Ends the probabilities of all panels at 1; a label may reach beyond the axis."""
    axes.set_xlim(0, min(1.0, axes.get_xlim()[1]))
    tidy(axes)
    axes.grid(visible=False, axis="y")


def _add_legend(figure, styles):
    lines = [
        Line2D([], [], color=color, marker=marker, lw=2.2)
        for color, marker in styles.values()
    ]
    labels = [_show_prose(name) for name in styles]
    num_columns = min(len(labels), 7)
    figure.legend(
        lines, labels, loc="outside upper center", ncols=num_columns, frameon=False
    )


def save_figure(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a PNG atomically: the whole file or nothing."""
    disk.replace(path, render_figure(figure))


def render_figure(figure: Figure, dpi: int = 150) -> bytes:
    """A figure as a PNG."""
    # Prompts, tokens and names are data: a $ in them never begins mathematics.
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi)
    return content.getvalue()

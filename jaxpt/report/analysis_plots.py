"""The pictures of an analysis: CKA, contextuality, attention heads, a sentence."""

from pathlib import Path

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxpt.report.plots import save_figure, show_token, tidy
from jaxpt.report.styles import choose_styles

MAP = "viridis"
WORDS = {
    "self": "self-attention",
    "dec_self": "the decoder's self-attention",
    "cross": "cross-attention",
}
KINDS = ("self", "previous", "next", "first", "special", "punctuation")


def draw(result: dict, folder: Path) -> dict[str, str]:
    """Writes the pictures of analysis.json's numbers; returns file names by picture."""
    figures = {"cka": draw_cka(result), "contextuality": draw_contextuality(result)}
    if any(run["attention"] for run in result["runs"]):
        figures["heads"] = draw_heads(result)
    for name in ("attention", "rollout"):
        if "sentence" in result:
            figures[name] = draw_sentence(result["sentence"]["maps"], name)
    for name, figure in figures.items():
        save_figure(figure, folder / f"{name}.png")
    return {name: f"{name}.png" for name in figures}


def draw_cka(result: dict) -> Figure:
    """Debiased CKA of every layer of every run with every other, in blocks by run."""
    values = np.array(result["cka"]["debiased"], float)
    sizes = [run["num_layers"] + 1 for run in result["runs"]]
    side = min(14.0, 2.5 + 0.28 * len(values))
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(values, cmap=MAP, vmin=0, vmax=1)
    figure.colorbar(image, shrink=0.8, label="debiased linear CKA")
    edges = np.cumsum([0, *sizes])
    for edge in edges[1:-1]:
        axes.axhline(edge - 0.5, color="white", lw=1.5)
        axes.axvline(edge - 0.5, color="white", lw=1.5)
    numbers = [str(layer) for size in sizes for layer in range(size)]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(len(values)), numbers, fontsize=7)
    names = [run["name"] for run in result["runs"]]
    middles = (edges[:-1] + edges[1:] - 1) / 2
    for which, line in (("x", axes.secondary_xaxis), ("y", axes.secondary_yaxis)):
        outer = line(-0.06)
        outer.set_frame_on(False)
        ticks = outer.xaxis if which == "x" else outer.yaxis
        ticks.set_ticks(middles, names, fontsize=9)
        outer.tick_params(length=0, labelrotation=0 if which == "x" else 90)
        if which == "y":
            for label in outer.get_yticklabels():
                label.set_verticalalignment("center")
    axes.set_title("CKA of the layers' states (0: embeddings)", fontsize=11)
    return figure


def draw_contextuality(result: dict) -> Figure:
    """Self-similarity less anisotropy, anisotropy, and explained variance by layer."""
    panels = {
        "adjusted": "self-similarity less anisotropy\nlow: states depend on context",
        "anisotropy": "anisotropy\nmean cosine of any two states",
        "max_explained_variance": (
            "max explained variance\nhigh: one static vector would do"
        ),
    }
    runs = {run["name"]: run for run in result["runs"]}
    styles = choose_styles(runs)
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for axes, (key, title) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for name, run in runs.items():
            values = [
                np.nan if x[key] is None else x[key] for x in run["contextuality"]
            ]
            color, marker = styles[name]
            axes.plot(values, color=color, marker=marker, lw=2, label=name)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("layer (0: embeddings)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
        low, high = axes.get_ylim()
        axes.set_ylim(min(1.1 * low, 0), max(1.1 * high, 0.1))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(7, len(labels))
    )
    return figure


def draw_heads(result: dict) -> Figure:
    """A row of cells for each head: its shares, and its entropy relative to even."""
    blocks = [
        (run["name"], kind, heads)
        for run in result["runs"]
        for kind, heads in run["attention"].items()
    ]
    heights = [np.size(heads["entropy"]) + 1 for *_, heads in blocks]
    columns = min(3, len(blocks))
    lines = -(-len(blocks) // columns)
    tallest = [max(heights[i * columns : (i + 1) * columns]) for i in range(lines)]
    figure = Figure(
        figsize=(4.6 * columns, sum(0.2 * h + 1.6 for h in tallest)),
        layout="constrained",
    )
    panels = figure.subplots(
        lines, columns, squeeze=False, height_ratios=[h + 5 for h in tallest]
    ).ravel()
    for axes in panels[len(blocks) :]:
        axes.remove()
    for axes, (name, kind, heads) in zip(panels, blocks, strict=False):
        _draw_block(axes, name, kind, heads)
    return figure


def _draw_block(axes, name: str, kind: str, heads: dict) -> None:
    num_layers, num_heads = np.shape(heads["entropy"])
    cells = [np.ravel(heads["shares"][key]) for key in KINDS]
    # Entropy is shown as a share of that of even attention.
    most = max(heads["even"]["entropy"], 1e-9)
    cells.append(np.ravel(heads["entropy"]) / most)
    even = [heads["even"][key] for key in KINDS] + [1.0]
    table = np.vstack([np.array(cells).T, even])
    axes.imshow(table, cmap=MAP, vmin=0, vmax=1, aspect="auto")
    for row, values in enumerate(table):
        for column, value in enumerate(values):
            color = "black" if value > 0.6 else "white"
            text = f"{value:.2f}".removeprefix("0")
            axes.text(column, row, text, ha="center", va="center", fontsize=6, c=color)
    labels = []
    for layer in range(num_layers):
        for head in range(num_heads):
            is_positional = heads["is_positional"][layer][head]
            offset = heads["offset"][layer][head]
            mark = f" [{offset:+d}]" if is_positional else ""
            labels.append(f"{layer + 1}.{head + 1}{mark}")
    axes.set_yticks(range(len(table)), [*labels, "even"], fontsize=7)
    axes.set_xticks(
        range(len(KINDS) + 1), [*KINDS, "entropy / even"], rotation=45, fontsize=7
    )
    for label in axes.get_xticklabels():
        label.set_ha("right")
        label.set_rotation_mode("anchor")
    axes.set_title(f"{name}\n{WORDS[kind]}, layer.head", fontsize=9)
    axes.tick_params(length=0)


def draw_sentence(maps: list[dict], method: str) -> Figure:
    """A sentence's attention, or its rollout: queries down, keys across.

    Args:
      maps: of analysis.json's "sentence".
      method: "attention" or "rollout".
    """
    panels = []
    for run in maps:
        tokens = [show_token(token) for token in run["tokens"]]
        dec_tokens = [show_token(token) for token in run["dec_tokens"]]
        if method == "rollout":
            panels.append((f"{run['name']}\nrollout", run["rollout"], tokens, tokens))
            continue
        head = f"head {run['head']}" if run["head"] else "mean of heads"
        for kind, weights in run["weights"].items():
            title = f"{run['name']}: {WORDS[kind]}\nlayer {run['layer']}, {head}"
            queries = tokens if kind == "self" else dec_tokens
            keys = dec_tokens if kind == "dec_self" else tokens
            panels.append((title, weights, queries, keys))
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    side = 1.8 + 0.24 * max(len(queries) for _, _, queries, _ in panels)
    figure = Figure(figsize=(side * columns, side * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.remove()
    for axes, (title, weights, queries, keys) in zip(grid, panels, strict=False):
        # The square root of the weights, as most of them are small.
        norm = PowerNorm(0.5, vmin=0, vmax=1)
        image = axes.imshow(np.array(weights), cmap="Blues", norm=norm)
        axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=7)
        axes.set_yticks(range(len(queries)), queries, fontsize=7)
        axes.tick_params(length=0)
        axes.set_xlabel("key", fontsize=8)
        axes.set_ylabel("query", fontsize=8)
        axes.set_title(title, fontsize=9)
    figure.colorbar(image, ax=list(grid[: len(panels)]), shrink=0.6)
    return figure

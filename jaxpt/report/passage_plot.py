"""Plots one passage under several objectives: tokens and attention masks."""

import io
import math

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxpt.report.formats import format_flops
from jaxpt.report.passage import View
from jaxpt.report.plots import show_token
from jaxpt.report.styles import BLUE, ORANGE

# A kind of cell (`passage.KINDS`): its fill, its text's colour, its meaning.
COLORS = {
    "plain": ("#EEF1F4", "#1C1E21", "as in the text"),
    "masked": ("#F7D9C4", "#7A2E00", "masked in the input"),
    "replacement": ("#D55E00", "#FFFFFF", "replaces masked tokens"),
    "target": ("#0072B2", "#FFFFFF", "target of a loss"),
}
TOKEN_WIDTH, LINE_HEIGHT, MASK_SIZE = 0.72, 0.3, 1.55
LABEL_WIDTH = 1.35


def describe_costs(view: View) -> str:
    """Predictions and training FLOPs per token, at the config's own row length."""
    terms = ", ".join(f"{name} {value:.3g}" for name, value in view.signal.items())
    return (
        f"predictions per token: {terms}; "
        f"training FLOPs per token: {format_flops(view.flops)}"
    )


def draw_views(views: list[View], heading: str) -> Figure:
    """One block per objective: its strips, with its attention mask to the right."""
    width = max(len(strip.tokens) for view in views for strip in view.strips)
    heights = [
        max(0.75 + LINE_HEIGHT * len(view.strips), MASK_SIZE + 0.35) for view in views
    ]
    total = LABEL_WIDTH + TOKEN_WIDTH * width + MASK_SIZE + 0.6, 0.9 + sum(heights)
    figure = Figure(figsize=total)
    figure.text(0.15 / total[0], 1 - 0.3 / total[1], heading, fontsize=13, va="center")
    _draw_legend(figure, total)
    top = total[1] - 0.75
    for view, height in zip(views, heights, strict=True):
        _draw_view(figure, total, view, top, width)
        top -= height
    return figure


def _draw_legend(figure: Figure, total) -> None:
    left = 0.15
    for fill, _, meaning in COLORS.values():
        figure.add_artist(_box(left, total[1] - 0.68, 0.18, 0.16, fill, total))
        corner = (left + 0.26) / total[0], 1 - 0.6 / total[1]
        figure.text(*corner, meaning, fontsize=9, va="center")
        left += 0.55 + 0.075 * len(meaning)


def _draw_view(figure: Figure, total, view: View, top: float, width: int) -> None:
    text = f"{view.name}:  {view.title.partition(': ')[2] or view.title}"
    figure.text(
        0.15 / total[0], (top - 0.2) / total[1], text, fontsize=11, weight="bold"
    )
    below = top - 0.5 - LINE_HEIGHT * len(view.strips)
    corner = 0.15 / total[0], below / total[1]
    figure.text(*corner, describe_costs(view), fontsize=8, color="#5C636B")
    for number, strip in enumerate(view.strips):
        bottom = top - 0.3 - LINE_HEIGHT * (number + 1)
        middle = (bottom + LINE_HEIGHT / 2) / total[1]
        figure.text(0.15 / total[0], middle, strip.name, fontsize=9, va="center")
        for column, (token, kind) in enumerate(
            zip(strip.tokens, strip.kinds, strict=True)
        ):
            if kind == "empty":
                continue
            left = LABEL_WIDTH + TOKEN_WIDTH * column
            fill, ink, _ = COLORS[kind]
            size = TOKEN_WIDTH - 0.04, LINE_HEIGHT - 0.04
            figure.add_artist(_box(left, bottom + 0.02, *size, fill, total))
            token_text = show_token(token)
            token_text = token_text if len(token_text) <= 12 else token_text[:11] + "…"
            figure.text(
                (left + size[0] / 2) / total[0],
                middle,
                token_text,
                fontsize=min(8.5, 62 / max(len(token_text), 1)),
                color=ink,
                ha="center",
                va="center",
            )
    left = LABEL_WIDTH + TOKEN_WIDTH * width + 0.35
    bottom = top - 0.15 - MASK_SIZE
    size = MASK_SIZE / total[0], MASK_SIZE / total[1]
    axes = figure.add_axes((left / total[0], bottom / total[1], *size))
    mask = np.asarray(view.mask["mask"], bool)
    axes.imshow(mask, cmap=ListedColormap(["#EEF1F4", BLUE]), vmin=0, vmax=1)
    for side, ticks in (("x", axes.set_xticks), ("y", axes.set_yticks)):
        ticks([])
        name = {"x": "key", "y": "query"}[side]
        getattr(axes, f"set_{side}label")(name, fontsize=7)
    if "split" in view.mask:
        query, key = view.mask["split"]
        axes.axhline(query - 0.5, color=ORANGE, lw=1.2)
        axes.axvline(key - 0.5, color=ORANGE, lw=1.2)


def _box(left, bottom, width, height, color, total) -> Rectangle:
    size = width / total[0], height / total[1]
    return Rectangle((left / total[0], bottom / total[1]), *size, color=color, lw=0)


def draw_mask_png(view: View) -> bytes:
    """The attention mask as a PNG, a square of pixels per (query, key)."""
    mask = np.asarray(view.mask["mask"], bool)
    scale = math.ceil(240 / max(mask.shape))
    out = io.BytesIO()
    figure = Figure(figsize=(mask.shape[1] * scale / 100, mask.shape[0] * scale / 100))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(mask, cmap=ListedColormap(["#EEF1F4", BLUE]), vmin=0, vmax=1)
    axes.axis("off")
    if "split" in view.mask:
        query, key = view.mask["split"]
        axes.axhline(query - 0.5, color=ORANGE, lw=2)
        axes.axvline(key - 0.5, color=ORANGE, lw=2)
    figure.savefig(out, format="png", dpi=100)
    return out.getvalue()

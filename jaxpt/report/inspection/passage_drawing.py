"""Draws one passage under several objectives, as `passage.view` has made them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxpt.report.drawing import (
    BLUE,
    EMPTY,
    GAP,
    LINE,
    Picture,
    document,
    draw_cells,
    grid,
    show_token,
    tag,
    write,
)
from jaxpt.report.inspection.passage import Strip, View, describe_costs

# A kind of cell (`passage.KINDS`): its fill, its text's colour, its meaning.
COLORS = {
    "plain": ("#EEF1F4", "#1C1E21", "as in the text"),
    "masked": ("#F7D9C4", "#7A2E00", "masked in the input"),
    "replacement": ("#D55E00", "#FFFFFF", "replaces masked tokens"),
    "target": ("#0072B2", "#FFFFFF", "target of a loss"),
}
LABEL_WIDTH, TOKEN_WIDTH, STRIP, MASK_SIZE = 110.0, 78.0, 24.0, 130.0
ROOM, LONGEST = 9, 12  # letters of a token in its cell: of usual size, and of small


def draw_views(views: Sequence[View], heading: str) -> str:
    """An SVG file with a block per objective: its strips, and its attention mask."""
    blocks = [_draw_legend(), *map(_draw_view, views)]
    label = f"one passage under {', '.join(view.name for view in views)}"
    return document(grid(blocks, 1, heading), label)


def _draw_legend() -> Picture:
    parts, left = [], 8.0
    for fill, _, meaning in COLORS.values():
        size = {"width": 16, "height": 14, "rx": 3}
        parts.append(tag("rect", x=left, y=4, style=f"fill: {fill}", **size))
        parts.append(write(meaning, left + 22, 16))
        left += 44 + 7 * len(meaning)
    return Picture("".join(parts), left, LINE + 6)


def _draw_view(view: View) -> Picture:
    text = f"{view.name}:  {view.title.partition(': ')[2] or view.title}"
    parts = [write(text, 8, LINE, "heading")]
    for number, strip in enumerate(view.strips):
        parts.append(_draw_strip(strip, LINE + 10 + STRIP * number))
    below = LINE + 14 + STRIP * len(view.strips)
    parts.append(write(describe_costs(view), 8, below + 12, "small-text"))
    width = max(len(strip.tokens) for strip in view.strips)
    left = LABEL_WIDTH + TOKEN_WIDTH * width + GAP
    mask, bottom = _draw_mask(view, left, 4.0)
    parts.append(mask)
    return Picture("".join(parts), left + MASK_SIZE + 30, max(below + 24, bottom))


def _draw_strip(strip: Strip, top: float) -> str:
    parts = [write(strip.name, 8, top + 16)]
    for column, (token, kind) in enumerate(zip(strip.tokens, strip.kinds, strict=True)):
        if kind == "empty":
            continue
        left = LABEL_WIDTH + TOKEN_WIDTH * column
        fill, ink, _ = COLORS[kind]
        size = {"width": TOKEN_WIDTH - 3, "height": STRIP - 3, "rx": 3}
        parts.append(tag("rect", x=left, y=top, style=f"fill: {fill}", **size))
        text = show_token(token)
        text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        at = left + (TOKEN_WIDTH - 3) / 2, top + 15
        size_class = "small-text" if len(text) > ROOM else ""
        drawn = write(text, *at, size_class, anchor="middle")
        parts.append(drawn.replace("<text ", f'<text style="fill: {ink}" ', 1))
    return "".join(parts)


def _draw_mask(view: View, left: float, top: float) -> tuple[str, float]:
    """The attention mask with the names of its sides, and its lower end."""
    mask = np.asarray(view.mask["mask"], bool)
    size = MASK_SIZE / max(mask.shape)
    fills = [[BLUE if cell else EMPTY for cell in row] for row in mask]
    left += 18
    height, width = (size * num for num in mask.shape)
    parts = [draw_cells(fills, left, top, size)]
    if "split" in view.mask:
        query, key = view.mask["split"]
        down, across = top + query * size, left + key * size
        path = f"M{left:.1f} {down:.1f}h{width:.1f}M{across:.1f} {top:.1f}v{height:.1f}"
        parts.append(tag("path", class_="split", d=path))
    parts.append(
        write("query", left - 6, top + height / 2, "small-text", "middle", turn=-90)
    )
    below = top + height + 13
    parts.append(write("key", left + width / 2, below, "small-text", "middle"))
    return "".join(parts), below + 6


def draw_mask(mask: Mapping[str, Any]) -> str:
    """An attention mask alone: a square per (query, key)."""
    cells = np.asarray(mask["mask"], bool)
    size = math.ceil(240 / max(cells.shape))
    fills = [[BLUE if cell else EMPTY for cell in row] for row in cells]
    parts = [draw_cells(fills, 0, 0, size)]
    height, width = (size * num for num in cells.shape)
    if "split" in mask:
        query, key = mask["split"]
        path = f"M0 {query * size}H{width}M{key * size} 0V{height}"
        parts.append(tag("path", class_="split", d=path))
    picture = Picture("".join(parts), width, height)
    return document(picture, "attention mask")

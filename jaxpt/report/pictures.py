"""The pictures of a report that show a model: masks, next tokens, filled gaps."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxpt.report import drawing
from jaxpt.report.charts import BLUE, GREY, ORANGE
from jaxpt.report.drawing import bars, document, grid, heat_map, show_token, wrap

MASKS_PER_ROW = 4
CAPTIONS = {
    "learning_curves": (
        "Learning curves of the shared metrics against the budget's cost. Thin lines "
        "are seeds, the thick line is their mean; dotted lines are baselines."
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
        "interval as a band. Dashed lines are random initialization and the baselines "
        "without a network."
    ),
}


def attention_masks(masks: Mapping[str, Mapping[str, Any]]) -> str:
    """Boolean attention masks, `MASKS_PER_ROW` in a row, one cell per (query, key).

    Args:
      masks: title -> {"mask": bool [T, S], True = may attend; "query_labels": T tokens;
        "key_labels": S tokens; optional "split": (query, key), the decoder's first}.
    """
    panels = [
        heat_map(
            wrap(title, 30, num_lines=3),
            np.asarray(entry["mask"], float),
            [show_token(token) for token in entry["query_labels"]],
            [show_token(token) for token in entry["key_labels"]],
            splits=[entry["split"]] if "split" in entry else [],
            axes=("query", "key"),
        )
        for title, entry in masks.items()
    ]
    label = f"attention masks of {', '.join(masks)}"
    return document(grid(panels, min(len(panels), MASKS_PER_ROW)), label)


def temperature_effect(
    tokens: Sequence[str], probabilities: Mapping[float, np.ndarray], prompt: str
) -> str:
    """The next-token distribution over the top tokens, one panel per temperature.

    Args:
      tokens: the tokens shown, likeliest first.
      probabilities: temperature -> float [len(tokens)]; they need not sum to one.
      prompt: the text before the token.
    """
    labels = [show_token(token) for token in tokens]
    most = max(float(np.max(values)) for values in probabilities.values())
    panels = [
        bars(
            f"temperature {temperature:g}\n{values.sum():.0%} of the probability",
            labels,
            values.tolist(),
            [BLUE] * len(labels),
            most,
        )
        for temperature in sorted(probabilities)
        for values in [np.asarray(probabilities[temperature], float)]
    ]
    heading = wrap(f"Next token after: {prompt}", 32 * len(panels), num_lines=3)
    return document(grid(panels, len(panels), heading), heading)


def mask_fill(examples: Sequence[Mapping[str, Any]]) -> str:
    """The candidates for one masked position per panel, the truth highlighted.

    Args:
      examples: each {"text": the sentence with the masked position shown as _,
        "candidates": [(token, probability)], likeliest first, "truth": token}.
    """
    most = max(p for example in examples for _, p in example["candidates"])
    panels = []
    for example in examples:
        tokens = [token for token, _ in example["candidates"]]
        truth = example["truth"]
        missing = "" if truth in tokens else f" (not in the top {len(tokens)})"
        text = _crop(example["text"], around="_", reach=80)
        panels.append(
            bars(
                wrap(text, 46, num_lines=5),
                [show_token(token) for token in tokens],
                [probability for _, probability in example["candidates"]],
                [ORANGE if token == truth else BLUE for token in tokens],
                most,
                f"truth: {show_token(truth)}{missing}",
            )
        )
    return document(grid(panels, min(2, len(panels))), "predictions of masked tokens")


def pretrained_vs_random(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Bars of accuracy on held-out masks, pretrained and randomly initialised.

    Args:
      rows: {"pretrained": {"top-1": 0.41, "top-5": 0.70}, "random init": {...}}.
    """
    colors = dict(zip(rows, (BLUE, GREY), strict=False))
    cells = [
        (f"{group}, {name}", values[group], colors[name])
        for group in next(iter(rows.values()))
        for name, values in rows.items()
    ]
    names, values, fills = zip(*cells, strict=True)
    title = "accuracy on held-out masks"
    return document(bars(title, names, values, fills), title)


def draw_mask(mask: Mapping[str, Any]) -> str:
    """An attention mask alone: a square per (query, key)."""
    cells = np.asarray(mask["mask"], bool)
    size = math.ceil(240 / max(cells.shape))
    fills = [[BLUE if cell else drawing.EMPTY for cell in row] for row in cells]
    parts = [drawing.draw_cells(fills, 0, 0, size)]
    height, width = (size * num for num in cells.shape)
    if "split" in mask:
        query, key = mask["split"]
        path = f"M0 {query * size}H{width}M{key * size} 0V{height}"
        parts.append(drawing.tag("path", class_="split", d=path))
    picture = drawing.Picture("".join(parts), width, height)
    return document(picture, "attention mask")


def _crop(text: str, around: str, reach: int) -> str:
    center = text.index(around)
    start, end = max(0, center - reach), center + 1 + reach
    return "…" * (start > 0) + text[start:end] + "…" * (end < len(text))

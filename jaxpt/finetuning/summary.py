"""What a grid found: a line for each setting over its seeds, and which is picked.

The setting with the best median dev metric is picked; of its seeds the test metrics are
shown, and of no other setting.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpt.eval.statistics import expected_best

LEVEL = 0.95


def mean_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Student's t interval of a mean; of one value there is none, and both are NaN.

    >>> low, high = mean_interval([0.5, 0.6, 0.7])
    >>> round(low, 4), round(high, 4)
    (0.3516, 0.8484)
    """
    from scipy import stats

    num = len(values)
    if num < 2:
        return float("nan"), float("nan")
    error = np.std(values, ddof=1) / np.sqrt(num)
    half = float(stats.t.ppf((1 + level) / 2, num - 1) * error)
    mean = float(np.mean(values))
    return mean - half, mean + half


def describe(values: Sequence[float]) -> dict[str, Any]:
    """Median, mean and interval of a metric over seeds."""
    low, high = mean_interval(values)
    return {
        "median": float(np.median(values)),
        "mean": float(np.mean(values)),
        "low": None if np.isnan(low) else low,
        "high": None if np.isnan(high) else high,
        "num": len(values),
    }


def summarise(cells: list[dict], metric: str) -> dict:
    """Every setting over its seeds, the picked one, and the expected best of n runs.

    Args:
      cells: results of finished cells.
      metric: what picks.
    """
    groups: dict[tuple, list[dict]] = {}
    for cell in cells:
        key = cell["lr"], cell["batch_size"], cell["epochs"]
        groups.setdefault(key, []).append(cell)
    settings = []
    for (lr, batch_size, epochs), members in groups.items():
        names = members[0]["dev"]
        dev = {name: describe([x["dev"][name] for x in members]) for name in names}
        settings.append(
            {"lr": lr, "batch_size": batch_size, "epochs": epochs, "dev": dev}
        )
    picked = max(settings, key=lambda x: x["dev"][metric]["median"])
    key = picked["lr"], picked["batch_size"], picked["epochs"]
    summary: dict[str, Any] = {
        "metric": metric,
        "settings": settings,
        "picked": dict(picked),
    }
    mine = groups[key]
    if "test" in mine[0]:
        summary["picked"]["test"] = {
            name: describe([x["test"][name] for x in mine]) for name in mine[0]["test"]
        }
    values = [cell["dev"][metric] for cell in cells]
    summary["expected_best"] = {
        str(n): expected_best(values, n) for n in range(1, len(values) + 1)
    }
    return summary


def format_summary(result: dict) -> str:
    """The tables that a terminal shows."""
    metric = result["metric"]
    names = list(result["constant"]["dev"])
    header = ["lr", "batch", "epochs", "runs", *names, f"{metric}: mean, interval"]
    rows = [header]
    for each in result["settings"]:
        main = each["dev"][metric]
        is_picked = _key(each) == _key(result["picked"])
        told = [f"{each['lr']:g}", str(each["batch_size"]), str(each["epochs"])]
        if result["method"] == "exact_probe":  # it takes no steps
            told = ["-"] * 3
        rows.append(
            [
                told[0] + "*" * is_picked,
                *told[1:],
                str(main["num"]),
                *(f"{each['dev'][name]['median']:.4f}" for name in names),
                _show_mean(main),
            ]
        )
    constant = result["constant"]["dev"]
    rows.append(["constant", "", "", "", *(f"{constant[n]:.4f}" for n in names), ""])
    lines = ["dev, medians over seeds (* is picked)", *align(rows)]
    if "test" in result["picked"]:
        test = result["picked"]["test"]
        found = ", ".join(f"{name} {test[name]['median']:.4f}" for name in test)
        told = result["constant"]["test"]
        plain = ", ".join(f"{name} {value:.4f}" for name, value in told.items())
        lines += [
            f"test, the picked setting, median: {found}",
            f"test, {metric}: {_show_mean(test[metric])}",
            f"test, the constant answer: {plain}",
        ]
    best = result["expected_best"]
    if len(best) > 1:
        chosen = sorted({1, 2, 5, 10, len(best)} & set(map(int, best)))
        found = ", ".join(f"{n} runs {best[str(n)]:.4f}" for n in chosen)
        lines.append(f"expected best dev {metric} of {found}")
    return "\n".join(lines)


def _key(setting: dict) -> tuple:
    return setting["lr"], setting["batch_size"], setting["epochs"]


def _show_mean(found: dict) -> str:
    if found["low"] is None:
        return f"{found['mean']:.4f}"
    return f"{found['mean']:.4f} [{found['low']:.4f}, {found['high']:.4f}]"


def align(rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines whose columns stand under one another.

    >>> align([["a", "bb"], ["ccc", "d"]])
    ['a    bb', 'ccc  d']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

"""Summarises a grid: each setting over its seeds, and the best setting.

The setting with the best median dev metric is picked, and test metrics are shown for it
alone. A run that diverged counts as the worst in this median, and in no other number.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpt.judge.intervals import expected_best
from jaxpt.tasks.metrics import OF_LABEL

LEVEL = 0.95
MAX_LABELS = 10  # of a table by label in the terminal


def mean_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Student's t interval of a mean; both bounds are NaN for one value.

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


def summarise_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Median, mean and interval of a metric over seeds."""
    low, high = mean_interval(values)
    return {
        "median": float(np.median(values)),
        "mean": float(np.mean(values)),
        "low": None if np.isnan(low) else low,
        "high": None if np.isnan(high) else high,
        "num": len(values),
    }


def show_rate(lr: float) -> str:
    """A learning rate as unique text: six digits, or all if it has more.

    >>> show_rate(2e-5), show_rate(1.0000001e-3)
    ('2e-05', '0.0010000001')
    """
    short = f"{lr:g}"
    return short if float(short) == lr else repr(lr)


def summarise(cells: list[dict], metric: str) -> dict:
    """Every setting over its seeds, the picked one, and the expected best of n runs.

    Args:
      cells: results of finished cells.
      metric: that picks the setting.

    Returns:
      "settings", each with "dev" (None if all of its runs diverged) and "diverged", the
      number of diverged runs; "picked", one of them with "test" and "report" if there
      are any, or None if all runs diverged; and "expected_best" of the other runs.
    """
    groups: dict[tuple, list[dict]] = {}
    for cell in cells:
        groups.setdefault(_key(cell), []).append(cell)
    settings = []
    for (lr, batch_size, epochs), members in groups.items():
        finished = _list_finished(members)
        settings.append(
            {
                "lr": lr,
                "batch_size": batch_size,
                "epochs": epochs,
                "dev": _describe_split(finished, "dev"),
                "diverged": len(members) - len(finished),
            }
        )
    values = [cell["dev"][metric] for cell in _list_finished(cells)]
    picked = None
    if values:
        best = max(settings, key=lambda x: _rank(groups[_key(x)], metric))
        picked = best | _describe_picked(_list_finished(groups[_key(best)]))
    return {
        "metric": metric,
        "settings": settings,
        "picked": picked,
        "expected_best": {
            str(n): expected_best(values, n) for n in range(1, len(values) + 1)
        },
    }


def _list_finished(cells: list[dict]) -> list[dict]:
    return [cell for cell in cells if "diverged" not in cell]


def _rank(cells: list[dict], metric: str) -> tuple[float, float, float]:
    """The key of the best setting, which has the greatest.

    If half of the runs or more diverged in every setting, the share of finished runs
    decides.
    """
    values = [cell["dev"][metric] for cell in _list_finished(cells)]
    diverged = [-math.inf] * (len(cells) - len(values))
    rest = float(np.median(values)) if values else -math.inf
    return float(np.median(values + diverged)), len(values) / len(cells), rest


def _describe_split(cells: list[dict], split: str) -> dict | None:
    """`describe` of each metric of a split; None if there is no such split."""
    if not cells or split not in cells[0]:
        return None
    names = cells[0][split]
    return {
        name: summarise_seeds([cell[split][name] for cell in cells]) for name in names
    }


def _describe_picked(cells: list[dict]) -> dict[str, Any]:
    """The test metrics and the reports of the picked setting's runs."""
    test = _describe_split(cells, "test")
    entry: dict[str, Any] = {"test": test} if test else {}
    reports = [cell["report"] for cell in cells if "report" in cell]
    if reports and len(reports) == len(cells):
        entry["report"] = {
            split: _pool_reports([report[split] for report in reports])
            for split in reports[0]
        }
    return entry


def _pool_reports(reports: list[dict]) -> dict[str, Any]:
    """Pools reports of `jaxpt.tasks.metrics.class_report` over seeds.

    Confusion matrices are added; the other numbers are means.
    """
    areas = [report["auc"] for report in reports if report["auc"] is not None]
    each = [report["per_label"] for report in reports]
    return {
        "confusion": np.sum([report["confusion"] for report in reports], 0).tolist(),
        "per_label": {
            label: {
                name: float(np.mean([report[label][name] for report in each]))
                for name in OF_LABEL
            }
            for label in each[0]
        },
        "auc": float(np.mean(areas)) if areas else None,
        "ece": float(np.mean([report["ece"] for report in reports])),
        "ece_bins": reports[0]["ece_bins"],
    }


def format_summary(result: dict) -> str:
    """The tables of a grid's result, for the terminal."""
    metric = result["metric"]
    names = list(result["constant"]["dev"])
    header = ["lr", "batch", "epochs", "runs", *names, f"{metric}: mean, interval"]
    rows = [
        header,
        *(_show_setting(each, result, names) for each in result["settings"]),
    ]
    constant = result["constant"]["dev"]
    rows.append(["baseline", "", "", "", *(f"{constant[n]:.4f}" for n in names), ""])
    lines = ["dev, medians over seeds (* is picked)", *align(rows)]
    if "test" in result["picked"]:
        test = result["picked"]["test"]
        medians = ", ".join(f"{name} {test[name]['median']:.4f}" for name in test)
        baseline = result["constant"]["test"].items()
        plain = ", ".join(f"{name} {value:.4f}" for name, value in baseline)
        lines += [
            f"test, the picked setting, median: {medians}",
            f"test, {metric}: {_show_mean(test[metric])}",
            f"test, baseline without input: {plain}",
        ]
    for split, report in list(result["picked"].get("report", {}).items())[-1:]:
        lines += _show_report(split, report)
    best = result["expected_best"]
    if len(best) > 1:
        chosen = sorted({1, 2, 5, 10, len(best)} & set(map(int, best)))
        values = ", ".join(f"{n} run{'s'[: n > 1]} {best[str(n)]:.4f}" for n in chosen)
        lines.append(f"expected best dev {metric} of {values}")
    if result["unfinished"]:
        lines.append(f"the run is unfinished: {result['unfinished']}")
    return "\n".join(lines)


def _show_report(split: str, report: dict) -> list[str]:
    """A table by label, for at most `MAX_LABELS`, and AUC and calibration."""
    lines = []
    if len(report["per_label"]) <= MAX_LABELS:
        rows = [["label", "precision", "recall", "f1", "support"]]
        for label, values in report["per_label"].items():
            *scores, support = (values[name] for name in OF_LABEL)
            rows.append([label, *(f"{x:.4f}" for x in scores), f"{support:.0f}"])
        lines = [f"{split}, the picked setting, means over seeds", *align(rows)]
    area = "" if report["auc"] is None else f"AUC {report['auc']:.4f}, "
    calibration = f"ECE {report['ece']:.4f} ({report['ece_bins']} bins)"
    return [*lines, f"{split}, the picked setting, mean: {area}{calibration}"]


def _show_setting(setting: dict, result: dict, names: list[str]) -> list[str]:
    """A row of the table of settings."""
    dev, diverged = setting["dev"], setting["diverged"]
    lr, batch_size, epochs = _key(setting)
    cells = [show_rate(lr), f"{batch_size}", f"{epochs}"]
    if result["method"] == "exact_probe":  # it takes no steps
        cells = ["-"] * 3
    cells[0] += "*" * (_key(setting) == _key(result["picked"]))
    if dev is None:
        return [*cells, f"{diverged} diverged", *["-"] * len(names), "-"]
    main = dev[result["metric"]]
    runs = f"{main['num']}" + f" + {diverged} diverged" * (diverged > 0)
    medians = (f"{dev[name]['median']:.4f}" for name in names)
    return [*cells, runs, *medians, _show_mean(main)]


def _key(setting: dict) -> tuple:
    return setting["lr"], setting["batch_size"], setting["epochs"]


def _show_mean(x: dict) -> str:
    interval = "" if x["low"] is None else f" [{x['low']:.4f}, {x['high']:.4f}]"
    return f"{x['mean']:.4f}{interval}"


def align(rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines with aligned columns.

    >>> align([["a", "bb"], ["ccc", "d"]])
    ['a    bb', 'ccc  d']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

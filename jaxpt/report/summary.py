"""One comparison, said three ways: a terminal table, report.json and report.html.

Objectives share their data and their budget, not their losses. So a verdict is given
only on a common yardstick, and only where the gap exceeds the spread over seeds.
"""

import math
import statistics
import textwrap
from typing import NamedTuple

from jaxpt.report.plots import format_count, format_flops

WIDTH = 100
MISSING = "\N{EM DASH}"


class Yardstick(NamedTuple):
    """How one metric is called, printed and read."""

    label: str
    format: str
    higher_is_better: bool
    is_common: bool


# Only a common yardstick asks every objective the same question.
YARDSTICKS = {
    "probe_accuracy": Yardstick("linear probe on frozen features", ".3f", True, True),
    "bits_per_byte": Yardstick("bits per byte", ".3f", False, True),
    "bits_per_byte_bound": Yardstick("bits per byte, at most", ".3f", False, False),
    "cloze_accuracy": Yardstick("cloze, hidden tokens filled in", ".3f", True, True),
    "cloze_bits": Yardstick("cloze, bits a hidden token", ".3f", False, True),
    "valid_loss": Yardstick("own held-out loss", ".3f", False, False),
    "valid_accuracy": Yardstick("own held-out accuracy", ".3f", True, False),
    "val_perplexity": Yardstick("own held-out perplexity", ".1f", False, False),
    "heldout_top1": Yardstick("own held-out masks filled, top 1", ".3f", True, False),
    "heldout_top5": Yardstick("own held-out masks filled, top 5", ".3f", True, False),
}

COSTS = {
    "params": ("params", format_count),
    "steps": ("steps", "{:,.0f}".format),
    "raw_tokens": ("raw tokens", format_count),
    "flops": ("FLOPs", format_flops),
    "train_seconds": ("seconds", "{:,.1f}".format),
}

RESULTS = {
    "probe_accuracy": "probe accuracy",
    "probe_accuracy_random": "random init",
    "bits_per_byte": "bits/byte",
    "cloze_accuracy": "cloze",
    "valid_loss": "own loss",
}
WRITE = "{:.3f}".format


def summarise(runs: list[dict]) -> list[dict]:
    """Means and spreads over seeds of every yardstick that was measured, and verdicts.

    Args:
      runs: entries of a report's `runs`; a metric that is absent, None or not finite is
        left out.

    Returns:
      One dict per yardstick: `metric`, `label`, `higher_is_better`, `is_common`,
      `by_name` {name: {mean, spread, n}} and `verdict`. A spread is the
      sample standard deviation, None for one seed. The verdict is empty where the
      yardstick is not common or was measured for one objective only.
    """
    summary = []
    for metric, yardstick in YARDSTICKS.items():
        by_name = {}
        for name, group in group_by_name(runs).items():
            stats = _measure([run["metrics"].get(metric) for run in group])
            if stats["n"]:
                by_name[name] = stats
        if not by_name:
            continue
        is_judged = yardstick.is_common and len(by_name) > 1
        summary.append(
            {
                "metric": metric,
                "label": yardstick.label,
                "higher_is_better": yardstick.higher_is_better,
                "is_common": yardstick.is_common,
                "by_name": by_name,
                "verdict": _judge(by_name, yardstick) if is_judged else "",
            }
        )
    return summary


def group_by_name(runs):
    """Runs by what a comparison calls them, in the order they first come."""
    groups: dict[str, list[dict]] = {}
    for run in runs:
        groups.setdefault(run["name"], []).append(run)
    return groups


def _measure(values):
    values = [float(v) for v in values if v is not None and math.isfinite(v)]
    return {
        "mean": statistics.fmean(values) if values else None,
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "n": len(values),
    }


def _judge(by_name, yardstick):
    def rank(name):
        mean = by_name[name]["mean"]
        return (-mean if yardstick.higher_is_better else mean, name)

    ranked = sorted(by_name, key=rank)
    best, second = ranked[:2]
    if None in (by_name[best]["spread"], by_name[second]["spread"]):
        return "one seed: no verdict"

    def gap(name):
        return abs(by_name[name]["mean"] - by_name[best]["mean"])

    def spread(*names):
        return max(by_name[name]["spread"] or 0.0 for name in names)

    tied = [name for name in ranked[1:] if gap(name) <= spread(best, name)]
    if second in tied:
        means = ", ".join(
            f"{name} {by_name[name]['mean']:{yardstick.format}}"
            for name in (best, *tied)
        )
        difference = _format_gap(gap(tied[-1]))
        behind = [
            f"; {name} behind {best} by {_format_gap(gap(name))} "
            f"(spread {_format_gap(spread(best, name))})"
            for name in ranked
            if name not in (best, *tied)
        ]
        return "".join(
            (
                f"tie: {means} (difference {difference} within the spread "
                f"{_format_gap(spread(best, *tied))})",
                *behind,
            )
        )
    verdict = (
        f"{best} ahead of {second} by {_format_gap(gap(second))} "
        f"(spread {_format_gap(spread(best, second))})"
    )
    # A noisy objective further down may still be as good as the best.
    return verdict + (f"; not apart from {', '.join(tied)}" if tied else "")


def _format_gap(value):
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else f"{value:.1e}"


def format_table(report: dict) -> str:
    """The comparison as plain text for the terminal, at most 100 columns wide."""
    texts = [report["title"], f"budget: {format_budget(report)}"]
    lines = [line for text in texts for line in textwrap.wrap(text, WIDTH)]
    for header, rows in tabulate(report["runs"]):
        lines += ["", *_align([header, *([row[0][:20], *row[1:]] for row in rows)])]
    lines.append("")
    for text in list_verdicts(report) + list_omissions(report):
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ")
    return "\n".join(lines)


def _align(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = f"{{:<{widths[0]}}}" + "".join(f"  {{:>{width}}}" for width in widths[1:])
    return [line.format(*row) for row in rows]


def tabulate(runs):
    """The table of costs and that of results, each a header and rows of text.

    Mean ± spread of each group of runs; what none of them has measured is no column.
    """
    groups = group_by_name(runs)
    costs = [
        [name, str(len(group))]
        + [
            format_stats(_measure([run[key] for run in group]), write)
            for key, (_, write) in COSTS.items()
        ]
        for name, group in groups.items()
    ]
    measured = [key for key in RESULTS if any(key in run["metrics"] for run in runs)]
    results = [
        [name]
        + [
            format_stats(_measure([run["metrics"].get(key) for run in group]), WRITE)
            for key in measured
        ]
        for name, group in groups.items()
    ]
    labels = [label for label, _ in COSTS.values()]
    return (
        (["objective", "seeds", *labels], costs),
        (["objective", *(RESULTS[key] for key in measured)], results),
    )


def format_stats(stats, write):
    """Mean ± spread as text; a dash where nothing was measured."""
    if not stats["n"]:
        return MISSING
    spread = f" ± {write(stats['spread'])}" if stats["spread"] else ""
    return write(stats["mean"]) + spread


def format_budget(report):
    """The budget with its unit and note."""
    budget = report["budget"]
    if not budget["amount"]:  # "steps": each run's own, nothing is matched
        return budget["note"]
    write = {"flops": format_flops, "seconds": "{:,.6g}".format}
    amount = write.get(budget["kind"], "{:,.0f}".format)(budget["amount"])
    kind = {"flops": "FLOPs"}.get(budget["kind"], budget["kind"].replace("_", " "))
    return f"{amount} {kind}" + (f" ({budget['note']})" if budget.get("note") else "")


def list_verdicts(report):
    """A line for each common yardstick that has a verdict."""
    lines = [
        f"{yardstick['label']}: {yardstick['verdict']}"
        for yardstick in report["yardsticks"]
        if yardstick["verdict"]
    ]
    return lines or ["no common yardstick for two objectives: no verdict"]


def list_omissions(report):
    """A line for each metric that some seeds lack."""
    num_seeds = {
        name: len(group) for name, group in group_by_name(report["runs"]).items()
    }
    return [
        f"note: {yardstick['metric']} of {name} is from {stats['n']} of "
        f"{num_seeds[name]} seeds; the others have no finite value"
        for yardstick in report["yardsticks"]
        for name, stats in yardstick["by_name"].items()
        if stats["n"] < num_seeds[name]
    ]

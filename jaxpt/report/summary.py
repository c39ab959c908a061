"""The summary of a comparison: statistics over seeds, verdicts, the terminal's table.

Objectives share their data and their budget, not their losses. So a verdict is given
only on a common yardstick, and only where the difference of two means exceeds the
standard deviation over seeds.
"""

import math
import statistics
import textwrap
from typing import NamedTuple

from jaxpt.report.plots import format_count, format_flops

WIDTH = 100
MISSING = "\N{EM DASH}"


class Yardstick(NamedTuple):
    """A metric's label, its number format, and how its values compare.

    Attributes:
      higher_is_better: whether a larger value is the better one.
      is_common: whether values of different objectives may be compared.
    """

    label: str
    format: str
    higher_is_better: bool
    is_common: bool


# A common yardstick evaluates every objective on the same task; an objective's own
# validation loss does not.
YARDSTICKS = {
    "probe_accuracy": Yardstick("linear probe on frozen features", ".3f", True, True),
    "bits_per_byte": Yardstick("bits per byte", ".3f", False, True),
    "cloze_accuracy": Yardstick("cloze accuracy, masked tokens", ".3f", True, True),
    "cloze_bits": Yardstick("cloze, bits per masked token", ".3f", False, True),
    "valid_loss": Yardstick("validation loss", ".3f", False, False),
    "valid_accuracy": Yardstick("validation accuracy", ".3f", True, False),
    "val_perplexity": Yardstick("validation perplexity", ".1f", False, False),
    "heldout_top1": Yardstick("held-out mask accuracy, top 1", ".3f", True, False),
    "heldout_top5": Yardstick("held-out mask accuracy, top 5", ".3f", True, False),
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
    "bits_per_byte_bound": "bits/byte at most",
    "cloze_accuracy": "cloze",
    "valid_loss": "validation loss",
}
WRITE = "{:.3f}".format


def summarise(runs: list[dict]) -> list[dict]:
    """The mean and standard deviation over seeds of every yardstick, and verdicts.

    Args:
      runs: entries of a report's `runs`; a metric that is absent, None or not finite is
        left out.

    Returns:
      One dict per yardstick: `metric`, `label`, `higher_is_better`, `is_common`,
      `by_name` {name: {mean, std, n}} and `verdict`. `std` is the sample standard
      deviation over seeds, None for one seed. The verdict is empty where the yardstick
      is not common or was measured for one objective only; a yardstick that no run
      measured is left out.
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
    """Runs by their name in the comparison, in order of first appearance."""
    groups: dict[str, list[dict]] = {}
    for run in runs:
        groups.setdefault(run["name"], []).append(run)
    return groups


def _measure(values):
    values = [float(v) for v in values if v is not None and math.isfinite(v)]
    return {
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "n": len(values),
    }


def _judge(by_name, yardstick):
    def rank(name):
        mean = by_name[name]["mean"]
        return (-mean if yardstick.higher_is_better else mean, name)

    ranked = sorted(by_name, key=rank)
    best, second = ranked[:2]
    if None in (by_name[best]["std"], by_name[second]["std"]):
        return "one seed: no verdict"

    def difference(name):
        return abs(by_name[name]["mean"] - by_name[best]["mean"])

    def std(*names):
        return max(by_name[name]["std"] or 0.0 for name in names)

    tied = [name for name in ranked[1:] if difference(name) <= std(best, name)]
    if second in tied:
        means = ", ".join(
            f"{name} {by_name[name]['mean']:{yardstick.format}}"
            for name in (best, *tied)
        )
        behind = [
            f"; {name} behind {best} by {_format(difference(name))} "
            f"(standard deviation over seeds {_format(std(best, name))})"
            for name in ranked
            if name not in (best, *tied)
        ]
        return "".join(
            (
                f"tie: {means} (difference {_format(difference(tied[-1]))} within the "
                f"standard deviation over seeds {_format(std(best, *tied))})",
                *behind,
            )
        )
    verdict = (
        f"{best} ahead of {second} by {_format(difference(second))} "
        f"(standard deviation over seeds {_format(std(best, second))})"
    )
    # A noisy objective further down may still be as good as the best.
    if tied:
        verdict += f"; not distinguishable from {', '.join(tied)}"
    return verdict


def _format(value):
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
    """The table of costs and the table of results, each a header and rows of text.

    Each cell is the mean ± standard deviation over the seeds of one name; a metric that
    no run measured has no column.
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
    """Mean ± standard deviation as text; a dash where nothing was measured."""
    if not stats["n"]:
        return MISSING
    std = f" ± {write(stats['std'])}" if stats["std"] else ""
    return write(stats["mean"]) + std


def format_budget(report):
    """The budget with its unit and note."""
    budget = report["budget"]
    if not budget["amount"]:  # "steps": each run trains its own number of them
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
    return lines or ["no verdict: no common yardstick was measured for two objectives"]


def list_omissions(report):
    """A line for each metric that has no finite value for some seeds."""
    num_seeds = {
        name: len(group) for name, group in group_by_name(report["runs"]).items()
    }
    return [
        f"note: {yardstick['metric']} of {name} is the mean of {stats['n']} of "
        f"{num_seeds[name]} seeds; the others have no finite value"
        for yardstick in report["yardsticks"]
        for name, stats in yardstick["by_name"].items()
        if stats["n"] < num_seeds[name]
    ]

"""One comparison, said three ways: a terminal table, report.json and report.html.

Objectives share their data and their budget, not their losses. So a verdict is given
only on a common yardstick, and only where the gap exceeds the spread over seeds.
"""

import base64
import html
import json
import math
import os
import pathlib
import statistics
import textwrap
from typing import NamedTuple

import numpy as np

from jaxpt.errors import UserError
from jaxpt.run.plots import CAPTIONS, format_count, format_flops

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
    "valid_loss": Yardstick("own held-out loss", ".3f", False, False),
    "valid_accuracy": Yardstick("own held-out accuracy", ".3f", True, False),
    "val_perplexity": Yardstick("own held-out perplexity", ".1f", False, False),
    "heldout_top1": Yardstick("held-out mask filling, top 1", ".3f", True, False),
    "heldout_top5": Yardstick("held-out mask filling, top 5", ".3f", True, False),
}

RULE = (
    "Verdicts are given only on yardsticks common to the objectives. Spread is the "
    "sample standard deviation over seeds; a gap no larger than the wider of the two "
    "spreads is a tie. Each objective's own loss and accuracy answer a question of its "
    "own and are not comparable across objectives."
)

COSTS = {
    "params": ("params", format_count),
    "steps": ("steps", "{:,.0f}".format),
    "raw_tokens": ("raw tokens", format_count),
    "flops": ("FLOPs", format_flops),
    "train_seconds": ("seconds", "{:,.1f}".format),
}

COST_HEADER = ["seeds", *(label for label, _ in COSTS.values())]

RESULTS = {
    "probe_accuracy": "probe accuracy",
    "probe_accuracy_random": "random init",
    "bits_per_byte": "bits/byte",
    "valid_loss": "own loss",
    "valid_accuracy": "own accuracy",
}

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #5c636b;
  --line: #d8dce0; --tint: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --paper: #16181b;
  --soft: #a0a7af; --line: #3a3f45; --tint: #202428; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 66rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }
h1 { line-height: 1.2; margin-bottom: 0; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
p, li, figcaption { max-width: 46rem; overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; margin-bottom: 1.2rem; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { background: var(--tint); }
.text { text-align: left; }
.verdicts { padding: .8rem 1rem .8rem 2rem; background: var(--tint); }
figure { margin: 1.5rem 0 2.5rem; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
pre { overflow-x: auto; padding: 1rem; background: var(--tint); font-size: .8rem; }
"""


def summarise(runs: list[dict]) -> list[dict]:
    """Means and spreads over seeds of every yardstick that was measured, and verdicts.

    Args:
      runs: entries of a report's `runs`; a metric that is absent, None or not finite is
        left out.

    Returns:
      One dict per yardstick: `metric`, `label`, `higher_is_better`, `is_common`,
      `by_objective` {objective: {mean, spread, n}} and `verdict`. A spread is the
      sample standard deviation, None for one seed. The verdict is empty where the
      yardstick is not common or was measured for one objective only.
    """
    summary = []
    for metric, yardstick in YARDSTICKS.items():
        by_objective = {}
        for objective, group in _group(runs).items():
            stats = _measure([run["metrics"].get(metric) for run in group])
            if stats["n"]:
                by_objective[objective] = stats
        if not by_objective:
            continue
        is_judged = yardstick.is_common and len(by_objective) > 1
        summary.append(
            {
                "metric": metric,
                "label": yardstick.label,
                "higher_is_better": yardstick.higher_is_better,
                "is_common": yardstick.is_common,
                "by_objective": by_objective,
                "verdict": _judge(by_objective, yardstick) if is_judged else "",
            }
        )
    return summary


def _group(runs):
    groups = {}
    for run in runs:
        groups.setdefault(run["objective"], []).append(run)
    return groups


def _measure(values):
    values = [float(v) for v in values if v is not None and math.isfinite(v)]
    return {
        "mean": statistics.fmean(values) if values else None,
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "n": len(values),
    }


def _judge(by_objective, yardstick):
    def rank(name):
        mean = by_objective[name]["mean"]
        return (-mean if yardstick.higher_is_better else mean, name)

    ranked = sorted(by_objective, key=rank)
    best, second = ranked[:2]
    if None in (by_objective[best]["spread"], by_objective[second]["spread"]):
        return "one seed: no verdict"

    def gap(name):
        return abs(by_objective[name]["mean"] - by_objective[best]["mean"])

    def spread(*names):
        return max(by_objective[name]["spread"] or 0.0 for name in names)

    tied = [name for name in ranked[1:] if gap(name) <= spread(best, name)]
    if second in tied:
        means = ", ".join(
            f"{name} {by_objective[name]['mean']:{yardstick.format}}"
            for name in (best, *tied)
        )
        difference = _format_gap(gap(tied[-1]))
        return (
            f"tie: {means} (difference {difference} within the spread "
            f"{_format_gap(spread(best, *tied))})"
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
    groups = _group(report["runs"])
    texts = [report["title"], f"budget: {_format_budget(report)}"]
    lines = [line for text in texts for line in textwrap.wrap(text, WIDTH)]
    for header, read in ((COST_HEADER, _read_costs), (RESULTS.values(), _read_results)):
        rows = [[name[:20], *read(group)] for name, group in groups.items()]
        lines += ["", *_align([["objective", *header], *rows])]
    lines.append("")
    for text in _verdicts(report) + _omissions(report):
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ")
    return "\n".join(lines)


def _align(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = f"{{:<{widths[0]}}}" + "".join(f"  {{:>{width}}}" for width in widths[1:])
    return [line.format(*row) for row in rows]


def _read_costs(group):
    cells = [
        _format_stats(_measure([run[name] for run in group]), write)
        for name, (_, write) in COSTS.items()
    ]
    return [str(len(group)), *cells]


def _read_results(group):
    values = ([run["metrics"].get(name) for run in group] for name in RESULTS)
    return [_format_stats(_measure(column), "{:.3f}".format) for column in values]


def _format_stats(stats, write):
    if not stats["n"]:
        return MISSING
    spread = f" ± {write(stats['spread'])}" if stats["spread"] else ""
    return write(stats["mean"]) + spread


def _format_budget(report):
    budget = report["budget"]
    write = {"flops": format_flops, "seconds": "{:,.6g}".format}
    amount = write.get(budget["kind"], "{:,.0f}".format)(budget["amount"])
    kind = {"flops": "FLOPs"}.get(budget["kind"], budget["kind"].replace("_", " "))
    return f"{amount} {kind}" + (f" ({budget['note']})" if budget.get("note") else "")


def _verdicts(report):
    lines = [
        f"{yardstick['label']}: {yardstick['verdict']}"
        for yardstick in report["yardsticks"]
        if yardstick["verdict"]
    ]
    return lines or ["no common yardstick was measured for two objectives: no verdict"]


def _omissions(report):
    num_seeds = {name: len(group) for name, group in _group(report["runs"]).items()}
    return [
        f"note: {yardstick['metric']} of {objective} is from {stats['n']} of "
        f"{num_seeds[objective]} seeds; the others have no finite value"
        for yardstick in report["yardsticks"]
        for objective, stats in yardstick["by_objective"].items()
        if stats["n"] < num_seeds[objective]
    ]


def write_report(report: dict, workdir: str | os.PathLike) -> pathlib.Path:
    """Write report.json and a self-contained report.html; returns the latter's path.

    Args:
      report: `yardsticks` comes from `summarise`; `figures` are PNG files relative to
        workdir; a number that is not finite is written as null.
      workdir: an existing folder.

    Raises:
      UserError: a figure cannot be read or the report cannot be written.
    """
    workdir = pathlib.Path(workdir)
    report = _to_plain(report)
    encoded = json.dumps(report, indent=2, allow_nan=False)
    page = _build_page(report, workdir)
    _replace(workdir / "report.json", encoded.encode() + b"\n")
    # A path from the command line may hold bytes that are no UTF-8.
    _replace(workdir / "report.html", page.encode(errors="xmlcharrefreplace"))
    return workdir / "report.html"


def _to_plain(value):
    if isinstance(value, dict):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _to_plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _replace(path, content):
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _build_page(report, workdir):
    title = html.escape(report["title"])
    byline = f"{report['created']}, jaxpt {report['version']}, {_format_budget(report)}"
    verdicts = "".join(f"<li>{html.escape(line)}</li>" for line in _verdicts(report))
    notes = "\n".join(
        f'<p class="soft">{html.escape(line)}</p>'
        for line in (RULE, *_omissions(report))
    )
    config = html.escape(json.dumps(report["config"], indent=2))
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f'<h1>{title}</h1>\n<p class="soft">{html.escape(byline)}</p>',
            f'<h2>Summary</h2>\n<ul class="verdicts">{verdicts}</ul>',
            _build_overview(report),
            notes,
            f"<h2>Yardsticks</h2>\n{_build_yardsticks(report)}",
            f"<h2>Pictures</h2>\n{_build_figures(report, workdir)}",
            f"<h2>Runs</h2>\n{_build_runs(report['runs'])}",
            f"<h2>Budget and data</h2>\n{_build_facts(report)}",
            f"<h2>Config</h2>\n<details><summary>as JSON</summary><pre>{config}</pre>",
            "</details>\n</body>\n</html>\n",
        ]
    )


def _build_table(header, rows, num_text=1):
    """A table whose first `num_text` columns are words; every cell is escaped here."""

    def line(cells, tag):
        kinds = [' class="text"'] * num_text + [""] * (len(cells) - num_text)
        return "".join(
            f"<{tag}{kind}>{html.escape(str(cell))}</{tag}>"
            for kind, cell in zip(kinds, cells, strict=True)
        )

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{line(header, "th")}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _build_overview(report):
    groups = _group(report["runs"])
    results = [[name, *_read_results(group)] for name, group in groups.items()]
    costs = [[name, *_read_costs(group)] for name, group in groups.items()]
    return (
        _build_table(["objective", *RESULTS.values()], results)
        + "\n"
        + _build_table(["objective", *COST_HEADER], costs)
    )


def _build_yardsticks(report):
    objectives = list(_group(report["runs"]))
    rows = []
    for yardstick in report["yardsticks"]:
        row = [
            yardstick["label"],
            "higher" if yardstick["higher_is_better"] else "lower",
            "yes" if yardstick["is_common"] else "no",
        ]
        write = f"{{:{YARDSTICKS[yardstick['metric']].format}}}".format
        for objective in objectives:
            stats = yardstick["by_objective"].get(objective, {"n": 0})
            seeds = f" (n={stats['n']})" if stats["n"] else ""
            row.append(_format_stats(stats, write) + seeds)
        rows.append(row)
    header = ["yardstick", "better", "comparable", *objectives]
    return _build_table(header, rows, num_text=3)


def _build_figures(report, workdir):
    figures = []
    for name, filename in report["figures"].items():
        try:
            content = (workdir / filename).read_bytes()
        except OSError as error:
            raise UserError(
                f"figures.{name}: cannot read {workdir / filename}: {error.strerror}"
            ) from error
        # By the beginning of its name, so that `mask_fill_electra` finds one too.
        caption = next((CAPTIONS[k] for k in CAPTIONS if name.startswith(k)), name)
        figures.append(
            f'<figure><img alt="{html.escape(name)}" src="data:image/png;base64,'
            f'{base64.b64encode(content).decode()}">\n'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    return "\n".join(figures) or '<p class="soft">none</p>'


def _build_runs(runs):
    columns = [key for key in runs[0] if key not in ("metrics", "curve", "workdir")]
    metrics = sorted({name for run in runs for name in run["metrics"]})
    rows = [
        [_format_cell(run.get(key)) for key in columns]
        + [_format_cell(run["metrics"].get(name)) for name in metrics]
        + [run["workdir"]]
        for run in runs
    ]
    header = [name.replace("_", " ") for name in [*columns, *metrics, "workdir"]]
    return _build_table(header, rows)


def _format_cell(value):
    if value is None:
        return MISSING
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 1e6 else format_flops(value)
    return f"{value:,}" if isinstance(value, int) else value


def _build_facts(report):
    facts = {"budget": _format_budget(report)}
    for name, value in report["data"].items():
        facts[f"data: {name.replace('_', ' ')}"] = _format_cell(value)
    facts |= {f"note: {name}": note for name, note in report["notes"].items()}
    items = (
        f"<li><strong>{html.escape(name)}</strong>: {html.escape(str(fact))}</li>"
        for name, fact in facts.items()
    )
    return f"<ul>{''.join(items)}</ul>"

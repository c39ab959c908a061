"""Writes the report of a comparison: report.json and a self-contained report.html.

Everything that comes from data is escaped; plots are inlined; nothing is fetched.
"""

import base64
import html
import json
import math
import os
import pathlib

import numpy as np

from jaxpt import disk, sums
from jaxpt.errors import UserError
from jaxpt.report.plots import CAPTIONS, format_flops
from jaxpt.report.summary import (
    MISSING,
    YARDSTICKS,
    format_budget,
    format_stats,
    group_by_name,
    list_omissions,
    list_tuning,
    list_verdicts,
    tabulate,
)
from jaxpt.run.workdir import flatten

RULE = (
    "Verdicts are given only on yardsticks common to the objectives. In brackets is "
    "the interval of a difference, of the choice of seeds and of test documents, after "
    "Holm's correction over all pairs on all yardsticks: if no two objectives "
    "differed, the chance that any verdict says ahead would be 5 % at most, for normal "
    "differences between seeds (it is simulated, also for heavy tails, in "
    "tests/report/test_verdicts.py). Where the interval holds "
    "0 it is a tie; equivalent are those whose interval lies within the yardstick's "
    "margin. Validation losses and accuracies are of each objective's own task and are "
    "not comparable across objectives."
)

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
    sums.write(workdir / "report.json", encoded.encode() + b"\n")
    path = workdir / "report.html"
    try:
        # A path from the command line may contain bytes that are not UTF-8.
        disk.replace(path, page.encode(errors="xmlcharrefreplace"))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    return path


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


def _build_page(report, workdir):
    title = html.escape(report["title"])
    written = f"{report['created']}, jaxpt {report['version']}"
    byline = f"{written}, {format_budget(report)}"
    verdicts = "".join(
        f"<li>{html.escape(line)}</li>"
        for line in (*list_verdicts(report), *list_tuning(report))
    )
    notes = "\n".join(
        f'<p class="soft">{html.escape(line)}</p>'
        for line in (RULE, *list_omissions(report))
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
            f"<h2>Differences</h2>\n{_build_pairs(report)}",
            f"<h2>Plots</h2>\n{_build_figures(report, workdir)}",
            f"<h2>Runs</h2>\n{_build_runs(report['runs'])}",
            f"<h2>Budget and data</h2>\n{_build_facts(report)}",
            f"<h2>Config</h2>\n<details><summary>as JSON</summary><pre>{config}</pre>",
            "</details>\n</body>\n</html>\n",
        ]
    )


def _build_table(header, rows, num_text=1):
    """A table whose first `num_text` columns are text; every cell is escaped here."""

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
    costs, results = tabulate(report["runs"])
    return _build_table(*results) + "\n" + _build_table(*costs)


def _build_yardsticks(report):
    objectives = list(group_by_name(report["runs"]))
    rows = []
    for yardstick in report["yardsticks"]:
        row = [
            yardstick["label"],
            "higher" if yardstick["higher_is_better"] else "lower",
            "yes" if yardstick["is_common"] else "no",
        ]
        write = f"{{:{YARDSTICKS[yardstick['metric']].format}}}".format
        for objective in objectives:
            stats = yardstick["by_name"].get(objective, {"n": 0})
            seeds = f" (n={stats['n']})" if stats["n"] else ""
            row.append(format_stats(stats, write) + seeds)
        rows.append(row)
    header = ["yardstick", "better", "comparable", *objectives]
    return _build_table(header, rows, num_text=3)


def _build_pairs(report):
    """Every two objectives that were judged, and each against what teaches nothing."""
    rows = []
    for yardstick in report["yardsticks"]:
        for pair in (*yardstick["pairs"], *yardstick["baselines"]):
            numbers = (pair["difference"], pair["low"], pair["high"], pair["p"])
            rows.append(
                [
                    yardstick["label"],
                    pair["better"],
                    pair["worse"],
                    pair["outcome"],
                    *(_format_cell(number) for number in numbers),
                    *(_format_cell(pair[key]) for key in ("seeds", "documents")),
                    _format_cell(pair["seeds_needed"]),
                ]
            )
    if not rows:
        return '<p class="soft">none: no yardstick is common to two objectives</p>'
    header = ["yardstick", "better", "worse", "verdict", "difference", "low", "high"]
    header += ["p, corrected", "seeds", "test documents", "seeds that would tell"]
    return _build_table(header, rows, num_text=4)


def _build_figures(report, workdir):
    figures = []
    for name, filename in report["figures"].items():
        try:
            content = (workdir / filename).read_bytes()
        except OSError as error:
            raise UserError(
                f"figures.{name}: cannot read {workdir / filename}: {error.strerror}"
            ) from error
        # The caption's key is a prefix of the name: `mask_fill` of `mask_fill_electra`.
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
    facts = {"budget": format_budget(report)}
    for name, value in report["data"].items():
        facts[f"data: {name.replace('_', ' ')}"] = _format_cell(value)
    overrides = report["config"].get("compare", {}).get("overrides", {})
    for name, sections in overrides.items():
        settings = ", ".join(f"{k}={v}" for k, v in flatten(sections).items())
        facts[f"settings of {name} only"] = settings
    facts |= {f"note: {name}": note for name, note in report["notes"].items()}
    items = (
        f"<li><strong>{html.escape(name)}</strong>: {html.escape(str(fact))}</li>"
        for name, fact in facts.items()
    )
    return f"<ul>{''.join(items)}</ul>"

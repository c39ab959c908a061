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

from jaxpt.errors import UserError
from jaxpt.files import checksums, disk
from jaxpt.report import page_tables, page_views
from jaxpt.report.answer import list_answers
from jaxpt.report.costs import list_costs
from jaxpt.report.page_samples import SAMPLES_STYLE, build_samples
from jaxpt.report.page_style import REPORT_STYLE, STYLE, make_rules
from jaxpt.report.plots import CAPTIONS
from jaxpt.report.summary import (
    YARDSTICKS,
    format_budget,
    group_by_name,
    list_assumptions,
    list_omissions,
    list_tuning,
    list_verdicts,
    list_whole_cost,
)
from jaxpt.training.workdir import flatten

RULE = (
    "Verdicts are given only on metrics that all objectives share. All pairs on all "
    "of these form one family. A difference is significant if its p value, adjusted "
    "by Holm's method, is at most alpha (5 % unless compare.alpha says otherwise): if "
    "no two objectives differed, the probability of any such verdict would be at most "
    "alpha. That holds for normal differences between seeds that were chosen in "
    "advance; docs/compare.md has the simulated rates, also for other distributions. "
    "Brackets give simultaneous confidence intervals (Bonferroni) over the choice of "
    "seeds and of test documents. A pair without a significant difference is a tie, "
    "or equivalent if its interval is within the metric's margin. Validation losses "
    "and accuracies are of each objective's own task and are not comparable across "
    "objectives."
)
BROAD = 1000  # pixels of a picture
LIMITS = (
    "A verdict is about these settings, this text and this budget: with other sizes, "
    "learning rates or more training the order of the objectives may be another one. "
    "An objective that a yardstick cannot measure is left out of it, not held against "
    "it.",
    "A standard deviation is of a sample, over seeds; with few seeds it is itself "
    "uncertain. An interval in the tables and plots of differences is of both causes "
    "of error, seeds and test documents, unless a note says otherwise.",
    "Pictures of a model are of the first seed of an objective and of a few pieces of "
    "text. They show what was learnt; they measure nothing.",
)


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
    checksums.write(workdir / "report.json", encoded.encode() + b"\n")
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
    groups = group_by_name(report["runs"])
    common = [y for y in report["yardsticks"] if y["is_common"] and y["by_name"]]
    curves = page_views.build_curves(groups)
    choices, parts = {"curves": curves.counts}, {"Curves": curves.markup}
    if common:
        pareto = page_views.build_pareto(common, groups, has_boxes=not curves.counts)
        forests = page_views.build_forests(common, groups)
        choices |= {"pareto": pareto.counts, "forest": forests.counts}
        parts["Quality against cost"] = pareto.markup
        parts["Differences"] = forests.markup
    layers = page_views.build_layers(groups)
    if layers:
        choices["layers"], parts["Layers"] = layers.counts, layers.markup
    tuned = page_views.build_tuned(groups)
    if tuned:
        choices["tuned"], parts["Fine-tuning"] = tuned.counts, tuned.markup
    parts["Numbers"] = _build_numbers(report)
    if report.get("samples"):
        parts["Samples"] = build_samples(report)
    parts["Pictures"] = _build_pictures(report, groups, workdir)
    if report.get("tuning"):
        parts["Tuning"] = _build_tuning(report)
    parts["Method and limits"] = _build_method(report)
    parts["Runs"] = page_tables.build_runs(report["runs"])
    if report.get("diverged"):
        parts["Runs"] += page_tables.build_diverged(report["diverged"])
    parts["Budget and data"] = _build_facts(report)
    config = html.escape(json.dumps(report["config"], indent=2))
    parts["Config"] = (
        f"<details><summary>as JSON</summary><pre>{config}</pre></details>"
    )
    choices = {section: counts for section, counts in choices.items() if counts}
    rules = make_rules(list(groups), choices) if choices else ""
    title = html.escape(report["title"])
    ids = {name: name.lower().replace(" ", "-") + "-part" for name in parts}
    links = "".join(f'<a href="#{ids[name]}">{name}</a>' for name in parts)
    sections = [f'<h2 id="{ids[name]}">{name}</h2>\n{parts[name]}' for name in parts]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{STYLE}{REPORT_STYLE}{SAMPLES_STYLE}{rules}</style>",
            f"</head>\n<body>\n<h1>{title}</h1>",
            _build_summary(report, groups),
            f"<nav>{links}</nav>",
            *sections,
            "</body>\n</html>\n",
        ]
    )


def _build_summary(report, groups):
    """The first screen: what was done, who is best and how surely, what it cost."""
    num_seeds = sorted({len(runs) for runs in groups.values()})
    seeds = " or ".join(map(str, num_seeds))
    counted = f"{len(groups)} objective{'s' * (len(groups) != 1)}"
    counted += f", {seeds} seed{'s' * (num_seeds != [1])} each"
    if diverged := report.get("diverged"):
        counted += f"; {len(diverged)} other run{'s' * (len(diverged) > 1)} diverged"
    byline = f"{counted}; {format_budget(report)}. {report['created']}, jaxpt "
    byline += report["version"]
    answers = list_answers(report, groups)
    table = page_tables.build_answers(answers) if answers else ""
    verdicts = "".join(
        f"<li>{html.escape(line)}</li>"
        for line in (
            *list_verdicts(report),
            *list_assumptions(report),
            *list_whole_cost(report),
            *_list_warnings(report),
        )
    )
    return (
        f'<p class="soft">{html.escape(byline)}</p>\n<h2>Summary</h2>\n{table}\n'
        f'<h3>The verdicts in full</h3>\n<ul class="verdicts">{verdicts}</ul>'
    )


def _list_warnings(report):
    return [line for line in list_tuning(report) if line.startswith("WARNING")]


def _build_numbers(report):
    notes = "\n".join(
        f'<p class="soft">{html.escape(line)}</p>'
        for line in (*list_costs(report), *list_omissions(report))
    )
    return (
        f"{page_tables.build_overview(report)}\n{notes}\n"
        f"<h3>Yardsticks</h3>\n{page_tables.build_yardsticks(report)}\n"
        f"<h3>Pairs</h3>\n{page_tables.build_pairs(report)}"
    )


def _build_pictures(report, groups, workdir):
    """The figures by kind, those of different objectives side by side."""
    kinds: dict[str, list[str]] = {}
    for name, filename in report["figures"].items():
        try:
            content = (workdir / filename).read_bytes()
        except OSError as error:
            raise UserError(
                f"figures.{name}: cannot read {workdir / filename}: {error.strerror}"
            ) from error
        # The kind is a prefix of the name: `mask_fill` of `mask_fill_electra`.
        kind = next((kind for kind in CAPTIONS if name.startswith(kind)), name)
        caption = CAPTIONS.get(kind, name)
        objective = name.removeprefix(f"{kind}_")
        if objective != name and objective in groups:
            caption = f"{objective}: {caption} {_name_seed(groups[objective])}"
        kinds.setdefault(kind, []).append(
            f'<figure{_choose_width(content)}><img alt="{html.escape(name)}" '
            f'src="data:image/png;base64,{base64.b64encode(content).decode()}">\n'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    parts = [
        f"<h3>{html.escape(kind.replace('_', ' ').capitalize())}</h3>\n"
        f'<div class="pictures">{"".join(figures)}</div>'
        for kind, figures in kinds.items()
    ]
    return "\n".join(parts) or '<p class="soft">none</p>'


def _choose_width(content):
    """A PNG whose letters would be too small beside another has a row of its own."""
    width = int.from_bytes(content[16:20], "big")  # of its first chunk
    return ' class="broad"' if width > BROAD else ""


def _name_seed(runs):
    seed = runs[0]["seed"]
    return f"Of seed {seed}, on a few pieces of text: an illustration, no measurement."


def _build_tuning(report):
    """Each objective's trials with their settings; the chosen one is marked."""
    parts = []
    for name, record in report["tuning"].items():
        if not record["trials"]:
            continue
        keys = list(record["trials"][0]["settings"])
        rows = [
            ["chosen" if trial["settings"] == record["chosen"] else ""]
            + [str(trial["settings"][key]) for key in keys]
            + [page_tables.format_trial(trial["value"])]
            for trial in record["trials"]
        ]
        label = YARDSTICKS[record["by"]].label
        table = page_tables.build_table(["", *keys, label], rows)
        parts.append(f"<h3>{html.escape(name)}</h3>\n{table}")
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in list_tuning(report))
    text = (
        "Before the comparison every objective tried the same settings, each for the "
        "same share of the budget, with a seed and on text that no verdict is of."
    )
    return f"<p>{text}</p>\n<ul>{lines}</ul>\n" + "\n".join(parts)


def _build_method(report):
    """What the numbers are, and what they do not say, in whole sentences."""
    paragraphs = "\n".join(f"<p>{html.escape(text)}</p>" for text in (RULE, *LIMITS))
    notes = "".join(
        f"<li><strong>{html.escape(name)}</strong>: {html.escape(str(note))}</li>"
        for name, note in report["notes"].items()
    )
    return f"{paragraphs}\n<ul>{notes}</ul>"


def _build_facts(report):
    facts = {"budget": format_budget(report)}
    for name, value in report["data"].items():
        facts[f"data: {name.replace('_', ' ')}"] = page_tables.format_cell(value)
    overrides = report["config"].get("compare", {}).get("overrides", {})
    for name, sections in overrides.items():
        settings = ", ".join(f"{k}={v}" for k, v in flatten(sections).items())
        facts[f"settings of {name} only"] = settings
    items = (
        f"<li><strong>{html.escape(name)}</strong>: {html.escape(str(fact))}</li>"
        for name, fact in facts.items()
    )
    return f"<ul>{''.join(items)}</ul>"

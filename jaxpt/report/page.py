"""Writes the report of a comparison: report.json and a self-contained report.html.

Text is escaped by the templates; charts and pictures are part of the page.
"""

import json
import os
import pathlib
import re
from typing import Any, NamedTuple

from markupsafe import Markup

from jaxpt.errors import CheckpointError
from jaxpt.evaluation.samples import Piece, show_blank
from jaxpt.files import checksums, copies, disk
from jaxpt.report import pages, terminal
from jaxpt.report.answer import (
    find_levels,
    format_budget,
    list_conclusions,
    rank_report,
    word_sizes,
    write_first_note,
)
from jaxpt.report.budgets import list_budgets, tabulate_budgets
from jaxpt.report.costs import list_costs
from jaxpt.report.drawing import DASHES, choose_styles, lighten
from jaxpt.report.figures import CAPTIONS, FORMS, RULE
from jaxpt.report.formats import format_number
from jaxpt.report.page_charts import draw_swatches, list_charts
from jaxpt.report.ranking import Ranking, Verdicts
from jaxpt.report.ratio_words import list_ratios, tabulate_ratios
from jaxpt.report.terminal import (
    list_assumptions,
    list_claims,
    list_omissions,
    list_other_costs,
    list_warnings,
)
from jaxpt.report.tuned import list_tuning, tabulate_trials
from jaxpt.report.types import Groups, Report, Samples
from jaxpt.report.writers import Grid
from jaxpt.runs.workdir import flatten

WIDE = 1000  # units; a wider picture gets a separate row
SCAN = 300  # bytes of a picture that have its width
# Figures that the page draws as SVG.
AS_CHARTS = (
    *("critical_differences", "learning_curves", "shared_metrics"),
    "finetuning_curves",
)


def write_report(report: Report, workdir: str | os.PathLike) -> pathlib.Path:
    """Write report.json and a self-contained report.html; returns the latter's path.

    Args:
      report: its `figures` are SVG files relative to workdir; a number that is not
        finite is written as null.
      workdir: an existing folder.
    """
    workdir = pathlib.Path(workdir)
    content = report.to_json()
    encoded = copies.with_urls(json.dumps(content, indent=2, allow_nan=False))
    report = Report.from_json(content)
    page = copies.with_urls(_build_page(report, workdir))
    checksums.write(workdir / "report.json", encoded.encode() + b"\n")
    path = workdir / "report.html"
    try:
        # A path from the command line may contain bytes that are not UTF-8.
        disk.replace(path, page.encode(errors="xmlcharrefreplace"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def _build_page(report: Report, workdir: pathlib.Path) -> str:
    groups, verdicts = report.groups, rank_report(report)
    names = list(groups)
    shown = list_charts(report, groups)
    swatches = draw_swatches(names)
    sections = {
        title: pages.call("macros.html", "charts", section, names, swatches)
        for title, section in shown.items()
    }
    colors = [color for color, _ in choose_styles(names).values()]
    return pages.render(
        "report.html",
        title=report.title,
        byline=_word_byline(report, groups),
        conclusions=list_conclusions(report),
        facts=_list_facts(report, groups),
        warnings=list_warnings(report),
        first=_show_ranking(verdicts, verdicts.rankings[0])
        if verdicts.rankings
        else None,
        note=write_first_note(report, verdicts),
        first_caption=CAPTIONS["critical_differences"],
        sections=sections | _build_sections(report, verdicts, workdir),
        controls=shown.values(),
        colors=[
            (color, lighten(color), DASHES[i % len(DASHES)])
            for i, color in enumerate(colors)
        ],
    )


def _word_byline(report: Report, groups: Groups) -> str:
    """The number of runs, the budget, the time and the version."""
    num_seeds = sorted({len(runs) for runs in groups.values()})
    seeds = " or ".join(map(str, num_seeds))
    counts = f"{len(groups)} objective{'s' * (len(groups) != 1)}"
    counts += f", {seeds} seed{'s' * (num_seeds != [1])} each"
    if diverged := report.diverged:
        counts += f"; {len(diverged)} other run{'s' * (len(diverged) > 1)} diverged"
    budget, version = format_budget(report), report.version
    return f"{counts}; {budget}. {report.created}, jaxpt {version}"


def _list_facts(report: Report, groups: Groups) -> list[tuple[str, str]]:
    """The model's size, and each shared metric's task, chance level and baselines."""
    facts = [("Model size", word_sizes(groups))]
    for metric in report.list_shared():
        better = "Higher" if metric.higher_is_better else "Lower"
        text = f"{metric.description} {better} is better.".strip()
        if (num := _count_choices(report)) and " N " in text:
            text = text.replace(" N ", f" {num} ") + f" Chance level: {1 / num:.3g}."
        levels = find_levels(report, metric).items()
        if levels:
            words = (f"{name} {format_number(value)}" for name, value in levels)
            text += f" Baselines: {', '.join(words)}."
        facts.append((metric.label.capitalize(), text))
    return facts


def _count_choices(report: Report) -> int:
    """`eval.num_choices` of a comparison, or of all runs of a report; 0 if unknown."""
    config = report.config
    nested = config.get("eval", {}).get("num_choices", 0)
    return nested or config.get("shared", {}).get("eval.num_choices", 0)


class Shown(NamedTuple):
    """A metric on the page: its sentence, table and picture, and the note below."""

    sentence: str
    table: Grid
    picture: Markup
    note: str


def _show_ranking(verdicts: Verdicts, ranking: Ranking) -> Shown:
    """A metric's table and picture."""
    table = ranking.grid(verdicts.kind, verdicts.cost)
    note = verdicts.write_note(ranking)
    return Shown(ranking.sentence, table, ranking.draw_chart(), note)


def _build_sections(
    report: Report, verdicts: Verdicts, workdir: pathlib.Path
) -> dict[str, Any]:
    """The sections after the charts, by their headings."""

    def build(macro: str, *values: Any) -> Any:
        return pages.call("sections.html", macro, *values)

    rankings = [_show_ranking(verdicts, each) for each in verdicts.rankings[1:]]
    lines = [*list_claims(report), *list_assumptions(report)]
    lines += list_other_costs(report)
    parts = {"Other metrics": build("rankings", rankings)} if rankings else {}
    if lines:
        parts["Assumptions and other costs"] = build("lines", lines)
    if over := tabulate_budgets(report):
        parts["Budgets"] = build("lines", list_budgets(report), over)
    if ratios := tabulate_ratios(report):
        parts["Cost ratios"] = build("lines", list_ratios(report), ratios)
    parts["Numbers"] = build(
        "numbers",
        terminal.tabulate_overview(report),
        [*list_costs(report), *list_omissions(report)],
        terminal.tabulate_metrics(report),
        terminal.tabulate_pairs(report),
    )
    if report.samples:
        parts["Samples"] = build("samples", RULE, *_list_samples(report.samples))
    files = [report.figures[k] for k in AS_CHARTS if k in report.figures]
    parts["Pictures"] = build("pictures", _list_pictures(report, workdir), files)
    if tuning := report.tuning:
        trials = tabulate_trials(tuning)
        parts["Tuning"] = build("tuning", list_tuning(tuning), trials)
    parts["Method and limits"] = build("method", report.notes, report.control)
    diverged = report.diverged
    parts["Runs"] = build(
        "runs",
        terminal.tabulate_runs(report.runs),
        terminal.tabulate_diverged(diverged) if diverged else None,
    )
    parts["Budget and data"] = build("facts", _describe_data(report))
    parts["Config"] = build("config", json.dumps(report.config, indent=2))
    return parts


def _list_pictures(report: Report, workdir: pathlib.Path) -> dict[str, list[tuple]]:
    """By kind, (name, data URI, caption, CSS class) of the figures that are inlined."""
    groups = report.groups
    kinds: dict[str, list[tuple]] = {}
    for name, filename in report.figures.items():
        try:
            content = disk.read(workdir / filename)
        except OSError as error:
            raise CheckpointError(
                f"figures.{name}: cannot read {workdir / filename}: {error.strerror}"
            ) from error
        if name in AS_CHARTS:
            continue
        # The kind is a prefix of the name: `mask_fill` of `mask_fill_electra`.
        kind = next((kind for kind in CAPTIONS if name.startswith(kind)), name)
        caption = CAPTIONS.get(kind, name)
        objective = name.removeprefix(f"{kind}_")
        if objective != name and objective in groups:
            seed = groups[objective][0].seed
            caption = (
                f"{objective}: {caption} Seed {seed}, a few pieces of text: an "
                f"illustration, not a measurement."
            )
        width = re.search(rb'\bwidth="(\d+)"', content[:SCAN])
        is_broad = width is not None and int(width[1]) > WIDE
        figure = name, pages.inline_picture(content), caption, "broad" * is_broad
        title = kind.replace("_", " ").capitalize()
        kinds.setdefault(title, []).append(figure)
    return kinds


def _list_samples(
    samples: dict[str, Samples],
) -> tuple[dict, list[str], list[list]]:
    """The forms of the samples, the names without any, and the cards by passage."""
    used = {form for taken in samples.values() for form in taken.forms}
    without = [name for name, taken in samples.items() if not taken.forms]
    passages: list[list[dict]] = []
    for name, taken in samples.items():
        for form, of_passages in taken.forms.items():
            for i, pieces in enumerate(of_passages):
                if i == len(passages):
                    passages.append([])
                card = {"name": name, "title": FORMS[form].title}
                passages[i].append(card | {"pieces": list(map(_show_piece, pieces))})
    return {n: form for n, form in FORMS.items() if n in used}, without, passages


def _show_piece(piece: tuple[str, ...]) -> Piece:
    """A piece of a sample as it is shown: whitespace alone is made visible."""
    text, kind, truth = piece
    if kind in ("given", "truth"):
        return Piece(text, kind, truth)
    return Piece(text and show_blank(text), kind, truth and show_blank(truth))


def _describe_data(report: Report) -> dict[str, Any]:
    """The budget, the text, and the settings of single objectives."""
    facts: dict[str, Any] = {"budget": format_budget(report)}
    for name, value in report.data.items():
        facts[f"data: {name.replace('_', ' ')}"] = terminal.format_cell(value)
    overrides = report.config.get("compare", {}).get("overrides", {})
    for name, sections in overrides.items():
        settings = ", ".join(f"{k}={v}" for k, v in flatten(sections).items())
        facts[f"settings of {name} only"] = settings
    return facts

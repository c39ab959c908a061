"""The documentation's page of results, in Markdown, from the folders of results/."""

import html
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from exchange import load_rates
from speedruns import (
    TARGETS,
    Record,
    describe_machines,
    list_records,
    load_targets,
    word_target,
)

from jaxpt.comparison.studies import Study, list_studies
from jaxpt.report import figures
from jaxpt.report.answer import format_budget, rank_report
from jaxpt.report.formats import (
    MISSING,
    format_flops,
    format_number,
    format_p,
    format_seconds,
)
from jaxpt.report.terminal import list_assumptions, list_claims, tabulate
from jaxpt.report.types import Report

INTRODUCTION = """\
This page is generated from the folders of `results/` when the site is built. Each
folder has the settings, the results and the values by test example of its runs, from
which the verdicts are computed.
`jaxpt report --study results/NAME --workdir DIR` writes the report of a study, and
`jaxpt reproduce results/NAME --workdir DIR` trains a study again."""
RULES = """\
A speedrun is the least cost at which an objective reaches its target, at one of three
scales. A record has at least {min_seeds} seeds, and the mean over its seeds is better
than the target with p < {max_p:g} (one-sided t-test). Cost is that of one run, the mean
over seeds. [Speedruns](speedruns.md) has all rules, also for submitting a record."""
PICTURES = {
    "critical_differences": "Critical differences",
    "learning_curves": "Learning curves",
    "finetuning_curves": "Fine-tuning by number of labels",
    "shared_metrics": "Shared metrics with intervals",
}


def make_results_page(root: Path) -> dict[str, str | bytes]:
    """The page of all studies and of the records of speedruns, and its pictures.

    Args:
      root: the folder results/.

    Returns:
      by path on the site, the Markdown and the SVGs.

    Raises:
      UserError: a folder is damaged, or a record does not satisfy the rules.
    """
    studies = list_studies(root)
    files: dict[str, str | bytes] = {}
    parts = ["# Results", INTRODUCTION, "## Studies"]
    if studies:
        rows = [
            [
                f"[{escape(study.facts['title'])}](#{study.folder.name})",
                escape(study.facts["question"]),
                study.facts["date"][:10],
            ]
            for study in studies
        ]
        parts.append(make_table(["study", "question", "date"], rows))
        for study in studies:
            pictures = draw_pictures(study)
            parts.append(describe_study(study, pictures))
            place = f"results/{study.folder.name}"
            files |= {f"{place}/{name}.svg": data for name, data in pictures.items()}
    else:
        parts.append("None is archived yet.")
    parts.append("## Speedruns")
    if (speedruns := root / "speedruns").joinpath(TARGETS).exists():
        parts.append(describe_speedruns(load_targets(speedruns), speedruns))
    return {"results.md": "\n\n".join(parts) + "\n"} | files


def draw_pictures(study: Study) -> dict[str, bytes]:
    """The pictures of a study that the page shows: by name, the SVG."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = figures.draw(Report.from_json(study.report), {}, Path(folder))
        return {
            n: (Path(folder) / drawn[n]).read_bytes() for n in PICTURES if n in drawn
        }


def describe_study(study: Study, pictures: Iterable[str]) -> str:
    """The section of a study: facts, results, verdicts, pictures."""
    facts, name = study.facts, study.folder.name
    report = Report.from_json(study.report)
    costs, _ = tabulate(report.runs)
    claims = [*list_claims(report), *list_assumptions(report)]
    parts = [
        f"### {escape(facts['title'])} {{#{name}}}",
        escape(facts["question"]),
        f"```\n{facts['command']}\n```",
        make_table(["", ""], list_facts(study)),
        rank_report(report).format("markdown"),
        "\n".join(f"- {escape(line)}" for line in claims),
        "Costs of a run, mean ± standard deviation over seeds:",
        make_escaped(*costs),
    ]
    # As HTML, because MkDocs serves the page from its own folder.
    parts += [
        f'<div class="wide"><img src="{name}/{file}.svg" alt="{alt}: {name}"></div>'
        for file, alt in PICTURES.items()
        if file in pictures
    ]
    return "\n\n".join(parts)


def list_facts(study: Study) -> list[list[str]]:
    """The rows of a study's table of facts."""
    facts = study.facts
    versions = [
        ", ".join(f"{name} {version}" for name, version in each.items())
        for each in facts["versions"]
    ]
    rows = {
        "folder": f"`results/{study.folder.name}`",
        "config": f"`{facts['config']}`" if facts["config"] else "`compare.json`",
        "budget of a run": escape(format_budget(Report.from_json(study.report))),
        "seeds": ", ".join(map(str, facts["seeds"])),
        "machine": escape(describe_machines(study)),
        "versions": escape("; ".join(versions)) or "not recorded",
        "date": facts["date"][:10],
    }
    if facts["note"]:
        rows["note"] = escape(facts["note"])
    return [[label, text] for label, text in rows.items()]


def describe_speedruns(rules: Mapping, root: Path) -> str:
    """The rules, and for each scale its records; exchange rates; re-runs."""
    parts = [RULES.format_map(rules)]
    notes, reruns = [], []
    for scale, limits in rules["scales"].items():
        rows = []
        for objective, listed in list_records(root, scale).items():
            rule = limits["objectives"][objective]
            records = [record for record in listed if not record.rerun_of]
            reruns += [record for record in listed if record.rerun_of]
            notes += [
                f"- `{name_record(record)}`: {escape(note)}"
                for record in listed
                if (note := record.study.facts["note"])
            ]
            aim = word_target(rule) or "set by the first baseline"
            target = f"`{rule['metric']}` {aim}"
            cells = _list_cells(records)
            rows += [[f"`{objective}`", target, *each] for each in cells]
        header = ["objective", "target", "FLOPs", "seconds", "mean", "seeds", "p"]
        header += ["machine", "record"]
        parts += [f"### {limits['title']}", make_table(header, rows)]
    parts += ["\n".join(notes), *_describe_rates(root)]
    parts.append("### Re-runs")
    lines = [f"- `{name_record(x)}`: {escape(x.describe())}" for x in reruns]
    parts.append("\n".join(lines) or "None yet.")
    return "\n\n".join(parts)


def name_record(record: Record) -> str:
    """The folder of a record, from results/."""
    return f"speedruns/{record.scale}/{record.objective}/{record.study.folder.name}"


def _describe_rates(root: Path) -> list[str]:
    """The section of exchange rates, if there are any."""
    rates = load_rates(root)
    lines = [f"- `{name}`: {escape(rate.describe())}" for name, rate in rates.items()]
    return ["### Exchange rates", "\n".join(lines)] if lines else []


def _list_cells(records: Iterable[Record]) -> list[list[str]]:
    """The cells of each record, or those of a missing one."""
    cells = [
        [
            format_flops(record.flops),
            format_seconds(record.seconds),
            format_number(record.mean),
            str(len(record.values)),
            escape(format_p(record.p)) if record.target else MISSING,
            escape(describe_machines(record.study)),
            f"`{name_record(record)}`",
        ]
        for record in records
    ]
    return cells or [[*[MISSING] * 6, "no record yet"]]


def make_escaped(header: list[str], rows: Iterable[list[str]]) -> str:
    """A table of plain text."""
    return make_table(list(map(escape, header)), [list(map(escape, r)) for r in rows])


def make_table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A table whose cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    r"""Plain text as Markdown that shows it, also in a table.

    >>> escape("a_b [0, 1] < 2|3")
    'a\\_b \\[0, 1\\] &lt; 2\\|3'
    """
    plain = html.escape(text, quote=False)
    return "".join(f"\\{c}" if c in "\\`*_[]|~" else c for c in plain)

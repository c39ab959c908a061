"""The tables of a report's page; every cell that comes from data is escaped."""

import html

from jaxpt.report.answer import Answer
from jaxpt.report.costs import tabulate_extras
from jaxpt.report.diverged import add_to_tables
from jaxpt.report.formats import format_flops
from jaxpt.report.summary import (
    MISSING,
    format_stats,
    group_by_name,
    tabulate,
)
from jaxpt.report.tables import list_pairs


def build_table(header, rows, num_text=1):
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


def build_overview(report):
    costs, results = add_to_tables(report, *tabulate(report["runs"]))
    tables = [results, costs, *tabulate_extras(report["runs"])]
    return "\n".join(build_table(*table) for table in tables)


def build_yardsticks(report):
    objectives = list(group_by_name(report["runs"]))
    rows = []
    for yardstick in report["yardsticks"]:
        row = [
            yardstick["label"],
            "higher" if yardstick["higher_is_better"] else "lower",
            "yes" if yardstick["is_common"] else "no",
        ]
        write = f"{{:{yardstick['format']}}}".format
        for objective in objectives:
            stats = yardstick["by_name"].get(objective, {"n": 0})
            seeds = f" (n={stats['n']})" if stats["n"] else ""
            row.append(format_stats(stats, write) + seeds)
        rows.append(row)
    header = ["yardstick", "better", "comparable", *objectives]
    return build_table(header, rows, num_text=3)


def build_pairs(report):
    """Every two objectives that were judged, and each against what teaches nothing."""
    rows = []
    for yardstick in report["yardsticks"]:
        for pair in list_pairs(yardstick):
            numbers = (pair["difference"], pair["low"], pair["high"], pair["p"])
            rows.append(
                [
                    yardstick["label"],
                    pair["better"],
                    pair["worse"],
                    pair["outcome"],
                    *(format_cell(number) for number in numbers),
                    *(format_cell(pair[key]) for key in ("seeds", "documents")),
                    format_cell(pair["seeds_needed"]),
                ]
            )
    if not rows:
        return '<p class="soft">none: no yardstick is common to two objectives</p>'
    header = ["yardstick", "better", "worse", "verdict", "difference", "low", "high"]
    header += ["p (Holm)", "seeds", "test documents", "seeds for a new comparison"]
    return build_table(header, rows, num_text=4)


def build_runs(runs):
    others = ("metrics", "curve", "workdir", "parts")
    columns = [key for key in runs[0] if key not in others]
    metrics = sorted({name for run in runs for name in run["metrics"]})
    rows = [
        [format_cell(run.get(key)) for key in columns]
        + [format_cell(run["metrics"].get(name)) for name in metrics]
        + [run["workdir"]]
        for run in runs
    ]
    header = [name.replace("_", " ") for name in [*columns, *metrics, "workdir"]]
    return build_table(header, rows)


def build_diverged(diverged):
    """The runs that diverged, which have no metrics."""
    keys = ["name", "seed", "diverged_at", "reason", "workdir"]
    rows = [[format_cell(run[key]) for key in keys] for run in diverged]
    header = ["name", "seed", "diverged at step", "reason", "workdir"]
    return f"<h3>Diverged</h3>\n{build_table(header, rows)}"


def format_cell(value):
    if value is None:
        return MISSING
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 1e6 else format_flops(value)
    return f"{value:,}" if isinstance(value, int) else value


def format_trial(value) -> str:
    """What a trial of tuning came to; null in JSON stands for one that diverged."""
    return "diverged" if value is None else f"{value:.3f}"


def build_answers(answers: list[Answer]) -> str:
    """The first table; on a narrow screen each of its rows is a block with headings."""
    heads = ["yardstick", "who", "by how much", "how sure", "at what cost (a run)"]
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td data-head="{head}"{" class=who" * (head == "who")}>'
            f"{html.escape(cell)}</td>"
            for head, cell in zip(heads, answer, strict=True)
        )
        + "</tr>"
        for answer in answers
    )
    header = "".join(f"<th>{head}</th>" for head in heads)
    return (
        f'<table class="answer">\n<thead><tr>{header}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )

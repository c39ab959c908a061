"""A report as text: tables and lines, for the terminal and for the page."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxpt.report.answer import (
    find_chance,
    format_budget,
    list_conclusions,
    list_others,
    rank_report,
    write_first_note,
)
from jaxpt.report.budgets import list_budgets, tabulate_budgets
from jaxpt.report.costs import (
    KEYS,
    KINDS,
    TUNED,
    WRITE,
    list_costs,
    mean_cost,
    word_under,
)
from jaxpt.report.diverged import list_diverged
from jaxpt.report.figures import list_samples
from jaxpt.report.formats import MISSING, format_flops
from jaxpt.report.metrics import (
    list_cost_columns,
    list_reliability,
    list_result_columns,
    list_unreliable,
)
from jaxpt.report.pages import PageTable
from jaxpt.report.ranking import Verdicts
from jaxpt.report.ratio_words import list_ratios
from jaxpt.report.summary import measure_spread
from jaxpt.report.task_charts import list_probed
from jaxpt.report.tuned import list_tuning
from jaxpt.report.types import (
    Diverged,
    Mean,
    Report,
    RunEntry,
    group_by_name,
)
from jaxpt.report.wording import WORDS, join, list_own_controls
from jaxpt.report.writers import Grid, align

WIDTH = 100
HEAD = 14  # characters of a column's name before it is wrapped


def format_table(report: Report, with_pairs: bool = False) -> str:
    """The comparison as plain text for the terminal, at most 100 columns wide.

    First one sentence, one table, one note and the warnings; then the other shared
    metrics, all results and costs, and how they came about.

    Args:
      with_pairs: adds every two objectives on each metric.
    """
    verdicts = rank_report(report)
    lines = _wrap(list_conclusions(report))
    lines += ["", *_tabulate_first(verdicts)] if verdicts.rankings else []
    lines += ["", *_wrap([write_first_note(report, verdicts)])]
    lines += _wrap(list_warnings(report))
    if others := list_verdicts(report):
        lines += ["", *_wrap(others)]
    if with_pairs:
        lines += _tabulate_pairs(verdicts)
    runs_table = add_to_tables(report, *tabulate(report.runs))
    for header, rows in [*runs_table[::-1], *tabulate_extras(report.runs)]:
        lines += ["", *_align(header, rows)]
    if over := tabulate_budgets(report):
        lines += ["", *align(Grid(over.header, over.rows, (0, 1)))]
    return "\n".join([*lines, "", *_wrap(list_details(report))])


def _wrap(texts: Iterable[str]) -> list[str]:
    return [
        line
        for text in texts
        for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ") or [""]
    ]


def _tabulate_first(verdicts: Verdicts) -> list[str]:
    grid = verdicts.rankings[0].grid(verdicts.kind, verdicts.cost)
    width = _find_width([row[1] for row in grid.rows])
    rows = [[rank, name[:width], *cells] for rank, name, *cells in grid.rows]
    return align(grid._replace(rows=rows), HEAD)


def _tabulate_pairs(verdicts: Verdicts) -> list[str]:
    """The pairs of each metric, below its name."""
    lines: list[str] = []
    for ranking in verdicts.rankings:
        if ranking.metric.pairs:
            lines += ["", f"{ranking.metric.label}:", *align(ranking.pair_grid())]
    return lines


def _align(header: list[str], rows: list[list[str]]) -> list[str]:
    """A table whose first column has names, as tables that fit the terminal."""
    width = _find_width([row[0] for row in rows])
    rows = [[row[0][:width], *row[1:]] for row in rows]
    parts: list[str] = []
    start = 1
    while start < len(header):
        tables = {
            end: align(_cut(header, rows, start, end), HEAD)
            for end in range(start + 1, len(header) + 1)
        }
        fits = [end for end, x in tables.items() if max(map(len, x)) <= WIDTH]
        start = max(fits, default=start + 1)
        parts += [""] * bool(parts) + tables[start]
    return parts


def _cut(header: list[str], rows: list[list[str]], start: int, end: int) -> Grid:
    """The names, and the columns from start to end."""
    cut = [[row[0], *row[start:end]] for row in (header, *rows)]
    return Grid(cut[0], cut[1:], (0,))


def _find_width(names: list[str], least: int = 20) -> int:
    """The shortest prefix of names, of at least `least` characters, that is unique."""
    longest = max(map(len, names), default=0)
    widths = range(least, max(least, longest) + 1)
    return next(n for n in widths if len({name[:n] for name in names}) == len(names))


def list_warnings(report: Report) -> list[str]:
    """What a reader must know before the verdicts.

    Runs that diverged, gates that fail, values that the tests do not suit, metrics that
    cannot rank, and tuning that ended at an edge.
    """
    lines = [*list_diverged(report), *report.gates]
    lines += [line for metric in report.metrics for line in metric.warnings]
    lines += list_unreliable(report)
    return lines + [x for x in list_tuning(report.tuning) if x.startswith("WARNING")]


def list_verdicts(report: Report) -> list[str]:
    """The verdicts but the first: expected ones, own controls, the other metrics."""
    return list_claims(report) + list_others(rank_report(report))


def list_claims(report: Report) -> list[str]:
    """What was registered as expected, and each objective with its own controls."""
    registered = report.registration.lines if report.registration else ()
    return [*registered, *list_own_controls(report)]


def list_details(report: Report) -> list[str]:
    """How the results came about: budget, assumptions, costs, tuning, omissions."""
    tuned = [x for x in list_tuning(report.tuning) if not x.startswith("WARNING")]
    lines = [f"budget: {format_budget(report)}", *list_budgets(report)]
    lines += [*list_assumptions(report), *list_ratios(report)]
    lines += [*list_other_costs(report), *tuned]
    return [*lines, *list_costs(report), *list_omissions(report), *list_samples(report)]


def list_assumptions(report: Report) -> list[str]:
    """What is exact about the text, the choice of seeds, the metrics' reliability."""
    exact = report.known_truth.lines if report.known_truth else ()
    is_noted = report.seeds_note and any(metric.pairs for metric in report.metrics)
    seeds = [f"note: {report.seeds_note}"] if is_noted else []
    return [*exact, *seeds, *list_reliability(report)]


def list_other_costs(report: Report) -> list[str]:
    """The verdicts at other equal costs, then those with teachers and tuning."""
    parts = (report.conventions, report.whole_cost)
    return [line for part in parts if part for line in part.lines]


def list_omissions(report: Report) -> list[str]:
    """Lines on unequal settings, missing values or test documents, and the probe.

    The first are of runs that were trained separately; the last report the layers that
    the probe read.
    """
    num_seeds = {name: len(group) for name, group in report.groups.items()}
    lines = [
        f"note: {metric.label} of {name} is the mean of {stats.n} of "
        f"{num_seeds[name]} seeds; the others have no finite value"
        for metric in report.metrics
        for name, stats in metric.by_name.items()
        if stats.n < num_seeds[name]
    ]
    tested = {
        metric.label: [p for p in metric.pairs if p.outcome != "untested"]
        for metric in report.metrics
    }
    alone = [m for m, pairs in tested.items() if any(not p.documents for p in pairs)]
    if alone:
        lines.append(
            f"note: intervals of {join(alone)} cover other seeds, not other test "
            f"examples: none were kept, or the metric is not a mean of them"
        )
    cut = [m for m, pairs in tested.items() if any(p.blocks for p in pairs)]
    if cut:
        lines.append(
            f"note: the test text of {join(cut)} is one document: intervals cover "
            f"other blocks of it, not other documents"
        )
    unequal = [f"not equal: {text}" for text in report.inequalities or ()]
    lines = [*unequal, *(report.left_out or ()), *lines]
    return lines + list_probed(report.runs)


VALUE = "{:.3f}".format
Cells = tuple[list[str], list[list[str]]]  # a header and rows of text


def tabulate(runs: Sequence[RunEntry]) -> tuple[Cells, Cells]:
    """The table of costs and the table of results, each a header and rows of text.

    Each cell is the mean ± standard deviation over the seeds of one name; a metric that
    no run measured has no column.
    """
    groups = group_by_name(runs)
    known_costs = list_cost_columns(runs)
    costs = [
        [name, str(len(group))]
        + [
            format_stats(measure_spread([run.cost(key) for run in group]), write)
            for key, (_, write) in known_costs.items()
        ]
        for name, group in groups.items()
    ]
    measured = list_result_columns(runs)
    results = [
        [name]
        + [
            format_stats(measure_spread([run.metrics.get(key) for run in group]), VALUE)
            for key in measured
        ]
        for name, group in groups.items()
    ]
    labels = [label for label, _ in known_costs.values()]
    return (
        (["objective", "seeds", *labels], costs),
        (["objective", *measured.values()], results),
    )


def format_stats(stats: Mean, write: Callable[[float], str]) -> str:
    """Mean ± standard deviation as text; a dash if nothing was measured."""
    if stats.mean is None:
        return MISSING
    std = f" ± {write(stats.std)}" if stats.std else ""
    return write(stats.mean) + std


def add_to_tables(report: Report, costs: Cells, results: Cells) -> tuple[Cells, Cells]:
    """`tabulate`'s tables with the number of seeds that finished, "2 of 3".

    An objective without a finished run has a row of dashes after "diverged".
    """
    header, rows = costs
    counts = _count_seeds(report)
    rows = [[name, counts[name], *cells] for name, _, *cells in rows]
    lost = list_lost(report)
    rows += [_fill_row([name, counts[name]], header) for name in lost]
    of_results = [*results[1], *(_fill_row([name], results[0]) for name in lost)]
    return (header, rows), (results[0], of_results)


def list_lost(report: Report) -> list[str]:
    """The names whose runs all diverged."""
    lost = group_by_name(report.diverged)
    return [name for name in lost if name not in report.groups]


def _count_seeds(report: Report) -> dict[str, str]:
    finished, diverged = report.groups, group_by_name(report.diverged)
    counts = {}
    for name in {**finished, **diverged}:
        num, lost = len(finished.get(name, [])), len(diverged.get(name, []))
        counts[name] = f"{num} of {num + lost}" if lost else str(num)
    return counts


def _fill_row(begin: list[str], header: list[str]) -> list[str]:
    return [*begin, "diverged", *[MISSING] * len(header)][: len(header)]


def tabulate_extras(runs: Sequence[RunEntry]) -> list[Cells]:
    """Tables for teachers, tuning and fine-tuning, each a header and rows of text.

    Only those with any cost, and only the objectives that have one.
    """
    tables: list[Cells] = []
    for kind in KINDS:
        if not any(f"{kind}_flops" in run.facts for run in runs):
            continue
        known = [
            key for key in KEYS if any(f"{kind}_{key}" in run.facts for run in runs)
        ]
        header = [f"{kind} of", *(WRITE[key][0] for key in known)]
        rows = []
        for name, group in group_by_name(runs).items():
            costs = {key: group[0].cost(f"{kind}_{key}") for key in KEYS}
            if costs["flops"] == 0:
                continue
            cells = [
                MISSING if (cost := costs[key]) is None else WRITE[key][1](cost)
                for key in known
            ]
            flops, times = costs["flops"], MISSING
            if flops is not None:
                times = f"{flops / mean_cost(group, 'flops'):.2f}"
            rows.append([name, *cells, times])
        tables.append(([*header, "FLOPs of a run, times"], rows))
    if any(TUNED in run.facts for run in runs):
        rows = [
            [name, f"{mean_cost(group, TUNED):,.1f}"]
            for name, group in group_by_name(runs).items()
            if all(TUNED in run.facts for run in group)
        ]
        tables.append((["fine-tuning of a run of", "seconds"], rows))
    return tables


def tabulate_overview(report: Report) -> list[PageTable]:
    """The results and the costs of each objective."""
    costs, results = add_to_tables(report, *tabulate(report.runs))
    return [PageTable(*t) for t in (results, costs, *tabulate_extras(report.runs))]


def tabulate_metrics(report: Report) -> PageTable:
    """Every metric's mean and standard deviation for each objective."""
    objectives = list(report.groups)
    rows = []
    for metric in report.metrics:
        chance = find_chance(report, metric.metric)
        row = [
            metric.label + (f" (chance {chance:.3f})" if chance is not None else ""),
            "higher" if metric.higher_is_better else "lower",
            "yes" if metric.is_common else "no",
        ]
        write = f"{{:{metric.format}}}".format
        for objective in objectives:
            stats = metric.by_name.get(objective, Mean(None, None, 0))
            seeds = f" (n={stats.n})" if stats.n else ""
            row.append(format_stats(stats, write) + seeds)
        rows.append(row)
    return PageTable(["metric", "better", "comparable", *objectives], rows, 3)


def tabulate_pairs(report: Report) -> PageTable:
    """Every two objectives with a verdict, and each objective against baselines."""
    numbers = [*("difference", "low", "high", "at_most", "p", "seeds", "documents")]
    numbers += ["seeds_needed"]
    rows = [
        [metric.label, pair.better, pair.worse, WORDS[pair.outcome], word_under(pair)]
        + [format_cell(getattr(pair, key)) for key in numbers]
        for metric in report.metrics
        for pair in metric.list_verdicts()
    ]
    header = ["metric", "better", "worse", "verdict", "at other equal costs"]
    header += ["difference", "low", "high", "at most"]
    header += ["p (adjusted)", "seeds", "test documents", "seeds for a new comparison"]
    return PageTable(header, rows, 5)


def tabulate_runs(runs: Iterable[RunEntry]) -> PageTable:
    """Every run with its costs and metrics."""
    flat = [run.to_json() for run in runs]
    excluded = ("metrics", "curve", "workdir", "parts", "tasks")
    known = dict.fromkeys(key for run in flat for key in run)  # not all runs skip
    columns = [key for key in known if key not in excluded]
    metrics = sorted({name for run in flat for name in run.get("metrics", {})})
    rows = [
        [format_cell(run.get(key)) for key in columns]
        + [format_cell(run.get("metrics", {}).get(name)) for name in metrics]
        + [run.get("workdir", "")]
        for run in flat
    ]
    header = [name.replace("_", " ") for name in [*columns, *metrics, "workdir"]]
    return PageTable(header, rows)


def tabulate_diverged(diverged: Iterable[Diverged]) -> PageTable:
    """The runs that diverged, which have no metrics."""
    keys = ["name", "seed", "diverged_at", "reason", "workdir"]
    rows = [[format_cell(getattr(run, key)) for key in keys] for run in diverged]
    return PageTable(["name", "seed", "diverged at step", "reason", "workdir"], rows)


def format_cell(value: Any) -> Any:
    """A value of a table: numbers with separators, a dash for None."""
    if value is None:
        return MISSING
    if isinstance(value, (list, tuple)):  # ranges of skipped batches
        return ", ".join(f"{first} to {end}" for first, end in value)
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 1e6 else format_flops(value)
    return f"{value:,}" if isinstance(value, int) else value

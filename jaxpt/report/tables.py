"""A report's numbers as tables for other programs: CSV files and a LaTeX table.

    results.csv       a line for each run: its costs and every metric
    differences.csv   a line for each pair with a verdict, and for each baseline
    results.tex       the shared metrics and the costs; needs booktabs only
    ratios.csv        a line for each pair and convention of cost: its cost ratio
    budgets.csv       of several budgets: each shared metric at each of them

CSV is that of RFC 4180, with full precision and an empty cell for a missing value.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from jaxpt.files import checksums
from jaxpt.report.costs import KEYS, KINDS, list_extra_columns
from jaxpt.report.diverged import list_diverged
from jaxpt.report.formats import escape, format_flops
from jaxpt.report.metrics import list_cost_columns
from jaxpt.report.ratio_words import HEADER, list_rows
from jaxpt.report.summary import measure_spread
from jaxpt.report.terminal import list_lost
from jaxpt.report.types import Metric, Report
from jaxpt.report.wording import NO_DIFFERENCE, WORDS, is_ahead

# Of runs that skipped some (`training.result.Cost`).
LEFT_OUT = ("skipped_updates", "skipped_batches")
RUN_COLUMNS = ("name", "objective", "seed")
PAIR_COLUMNS = (
    *("better", "worse", "outcome", "difference", "low", "high", "at_most", "p"),
    *("seeds", "documents"),
)
UNDER = {f"under_{name}": name for name in KEYS}
# By outcome of the verdict on a value and the best one: its mark and its meaning.
MARKS = {
    "tie": (r"\dagger", f"{NO_DIFFERENCE} from {{}}"),
    "equivalent": (r"\ddagger", f"{WORDS['equivalent']} to {{}}, within the margin"),
    "untested": (r"\ast", f"{WORDS['untested']} on {{}} and this one"),
    "apart": (r"\circ", "measured on other test examples than {}"),
}


def write_tables(report: Report, workdir: Path) -> None:
    """Writes the tables; ratios.csv and budgets.csv only if there are any."""
    ratios = list_rows(report)
    for name, text in (
        ("results.csv", format_results(report)),
        ("differences.csv", format_differences(report)),
        ("results.tex", format_latex(report)),
        *([("ratios.csv", _write_csv(HEADER, ratios))] if ratios else []),
        *([("budgets.csv", format_budgets(report))] if report.budgets else []),
    ):
        # A name from the command line may contain bytes that are not UTF-8.
        checksums.write(workdir / name, text.encode(errors="replace"))


def format_results(report: Report) -> str:
    """CSV of `tabulate_results`."""
    return _write_csv(*tabulate_results(report))


def tabulate_results(report: Report) -> tuple[list[str], list[list]]:
    """The names of columns, and a row for each run: its costs and every metric.

    A run that diverged has its costs up to `diverged_at`, a step, and no metrics.
    """
    runs, diverged = report.runs, report.diverged
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    costs = [*list_cost_columns(runs), *list_extra_columns(runs)]
    costs += [name for name in LEFT_OUT if any(name in run.facts for run in runs)]
    rows = [
        [run.name, run.objective, run.seed, *map(run.cost, costs)]
        + [None] * bool(diverged)
        + [run.metrics.get(name) for name in metrics]
        for run in runs
    ]
    rows += [
        [run.name, run.facts.get("objective"), run.seed]
        + [*map(run.facts.get, costs), run.diverged_at, *[None] * len(metrics)]
        for run in diverged
    ]
    columns = [*RUN_COLUMNS, *costs, *["diverged_at"] * bool(diverged)]
    return [*columns, *metrics], rows


def format_differences(report: Report) -> str:
    """CSV with a line for each pair and each baseline of every metric."""
    rows = [
        [metric.metric, *(getattr(pair, key) for key in PAIR_COLUMNS)]
        + [(pair.under or {}).get(name) for name in UNDER.values()]
        for metric in report.metrics
        for pair in metric.list_verdicts()
    ]
    return _write_csv(["metric", *PAIR_COLUMNS, *UNDER], rows)


def format_budgets(report: Report) -> str:
    """CSV with a line for each budget, shared metric and name."""
    rows = [
        [level.amount, metric, name, stats.mean, stats.std, stats.n, name in each.ahead]
        for level in (report.budgets.levels if report.budgets else ())
        for metric, each in level.metrics.items()
        for name, stats in each.by_name.items()
    ]
    columns = ["amount", "metric", "name", "mean", "std", "seeds", "is_ahead"]
    return _write_csv(columns, rows)


def _write_csv(header: list[str], rows: Iterable[list]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([_to_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _to_cell(value):
    """A number that is not finite is an empty cell."""
    is_number = isinstance(value, float) and math.isfinite(value)
    return value if is_number or not isinstance(value, float) else None


def format_latex(report: Report) -> str:
    """A LaTeX table: a row for each objective, a column for each shared metric.

    A cell is the mean, with the standard deviation over seeds as a subscript. It is
    bold if it is ahead of all others, or of the control. Costs are
    means.
    """
    groups = report.groups
    shared = [y for y in report.metrics if y.is_common]
    columns = [_list_cells(entry, list(groups)) for entry in shared]
    extras = [
        kind
        for kind in KINDS
        if any(f"{kind}_flops" in run.facts for run in report.runs)
    ]
    known_costs = list_cost_columns(report.runs)
    costs = [
        [
            _write_mean([run.cost(key) for run in group], write)
            for key, (_, write) in known_costs.items()
        ]
        + [_write_extra(group[0].cost(f"{kind}_flops")) for kind in extras]
        for group in groups.values()
    ]
    rows = [
        [escape(name), str(len(group)), *(column[name] for column in columns), *cost]
        for (name, group), cost in zip(groups.items(), costs, strict=True)
    ]
    arrows = [r"$\uparrow$" if y.higher_is_better else r"$\downarrow$" for y in shared]
    labels = [
        f"{escape(entry.label)} {arrow}"
        for entry, arrow in zip(shared, arrows, strict=True)
    ]
    num_costs = len(known_costs) + len(extras)
    for name in list_lost(report):
        cells = [*["diverged"] * len(shared), *["---"] * num_costs]
        rows.append([escape(name), "0", *cells])
    header = ["objective", "seeds", *labels]
    header += [escape(label) for label, _ in known_costs.values()]
    header += [f"{kind} FLOPs" for kind in extras]
    body = "".join(map("".join, rows))
    notes = _list_notes(body, shared, escape(report.control))
    notes = " ".join([notes, *map(escape, list_diverged(report))])
    lines = [
        f"% {escape(report.created)}, jaxpt {escape(report.version)}; "
        r"needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(report.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        *(" & ".join(row) + r" \\" for row in [header]),
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        "",
        r"\smallskip",
        rf"{{\footnotesize {notes}\par}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _write_mean(values: list, write: Callable[[float], str]) -> str:
    mean = measure_spread(values).mean
    return "---" if mean is None else escape(write(mean))


def _write_extra(flops: float | None) -> str:
    """The cost of a teacher or of tuning; None if it is unknown."""
    return "---" if flops is None else escape(format_flops(flops))


def _list_cells(metric: Metric, names: list[str]) -> dict[str, str]:
    """The cell of each name in a metric's column."""
    write = f"{{:{metric.format}}}".format
    marks = _find_marks(metric, metric.control or metric.rank()[0])
    cells = {}
    for name in names:
        stats = metric.by_name.get(name)
        if stats is None or stats.mean is None:
            cells[name] = "---"
            continue
        mean = write(stats.mean)
        if is_ahead(metric, name):
            mean = rf"\mathbf{{{mean}}}"
        spread = f"_{{\\pm {write(stats.std)}}}" if stats.std else ""
        mark = f"^{{{marks[name]}}}" if marks.get(name) else ""
        cells[name] = f"${mean}{mark}{spread}$"
    return cells


def _find_marks(metric: Metric, best: str) -> dict[str, str]:
    """The mark of each value that is not significantly different from that of `best`.

    Args:
      best: the name with the best value, or the control.
    """
    if best not in metric.by_name:
        return {}
    marks = dict.fromkeys(metric.by_name.keys() - {best}, MARKS["apart"][0])
    for pair in metric.pairs:
        if best in pair.names:
            marks[pair.other(best)], _ = MARKS.get(pair.outcome, ("", ""))
    return marks


def _list_notes(body: str, shared: list[Metric], control: str) -> str:
    """The meaning of the marks in a table's body."""
    other = control or "the best value"
    notes = [
        "Means, with the standard deviation over seeds as a subscript; costs are of "
        "one run."
    ]
    if r"\mathbf" in body:
        notes.append(
            f"Bold: ahead of {control or 'all others'}, that is, significantly better."
        )
    for sign, meaning in MARKS.values():
        if f"^{{{sign}}}" in body:
            notes.append(f"${sign}$: {meaning.format(other)}.")
    if not shared:
        notes.append("No shared metric was measured.")
    return " ".join(notes)

"""The tables of a report's page, as text."""

from collections.abc import Mapping
from typing import Any

from jaxpt.report.conventions import word_under
from jaxpt.report.costs import tabulate_extras
from jaxpt.report.diverged import add_to_tables
from jaxpt.report.formats import MISSING, format_flops, group_by_name
from jaxpt.report.metrics import METRICS
from jaxpt.report.pages import Table
from jaxpt.report.summary import format_stats, tabulate
from jaxpt.report.tables import list_pairs

# By outcome of a pair, its words.
OUTCOMES = {
    "ahead": "ahead",
    "equivalent": "equivalent",
    "tie": "no significant difference",
    "untested": "no verdict",
    "open": "open",  # of a bound
}


def tabulate_overview(report: dict) -> list[Table]:
    """The results and the costs of each objective."""
    costs, results = add_to_tables(report, *tabulate(report["runs"]))
    return [Table(*t) for t in (results, costs, *tabulate_extras(report["runs"]))]


def tabulate_metrics(report: Mapping) -> Table:
    """Every metric's mean and standard deviation for each objective."""
    objectives = list(group_by_name(report["runs"]))
    rows = []
    for entry in report["metrics"]:
        row = [
            entry["label"],
            "higher" if entry["higher_is_better"] else "lower",
            "yes" if entry["is_common"] else "no",
        ]
        write = f"{{:{entry['format']}}}".format
        for objective in objectives:
            stats = entry["by_name"].get(objective, {"n": 0})
            seeds = f" (n={stats['n']})" if stats["n"] else ""
            row.append(format_stats(stats, write) + seeds)
        rows.append(row)
    return Table(["metric", "better", "comparable", *objectives], rows, 3)


def tabulate_pairs(report: Mapping) -> Table:
    """Every two objectives with a verdict, and each objective against baselines."""
    numbers = [*("difference", "low", "high", "at_most", "p", "seeds", "documents")]
    numbers += ["seeds_needed"]
    rows = [
        [entry["label"], pair["better"], pair["worse"], OUTCOMES[pair["outcome"]]]
        + [word_under(pair)]
        + [format_cell(pair[key]) for key in numbers]
        for entry in report["metrics"]
        for pair in list_pairs(entry)
    ]
    header = ["metric", "better", "worse", "verdict", "at other equal costs"]
    header += ["difference", "low", "high", "at most"]
    header += ["p (adjusted)", "seeds", "test documents", "seeds for a new comparison"]
    return Table(header, rows, 5)


def tabulate_runs(runs: list[dict]) -> Table:
    """Every run with its costs and metrics."""
    excluded = ("metrics", "curve", "workdir", "parts", "tasks")
    known = dict.fromkeys(key for run in runs for key in run)  # not all runs skip
    columns = [key for key in known if key not in excluded]
    metrics = sorted({name for run in runs for name in run["metrics"]})
    rows = [
        [format_cell(run.get(key)) for key in columns]
        + [format_cell(run["metrics"].get(name)) for name in metrics]
        + [run["workdir"]]
        for run in runs
    ]
    header = [name.replace("_", " ") for name in [*columns, *metrics, "workdir"]]
    return Table(header, rows)


def tabulate_diverged(diverged: list[dict]) -> Table:
    """The runs that diverged, which have no metrics."""
    keys = ["name", "seed", "diverged_at", "reason", "workdir"]
    rows = [[format_cell(run[key]) for key in keys] for run in diverged]
    return Table(["name", "seed", "diverged at step", "reason", "workdir"], rows)


def tabulate_trials(tuning: Mapping[str, dict]) -> dict[str, Table]:
    """By objective, its trials with their settings; the chosen one is marked."""
    tables = {}
    for name, record in tuning.items():
        if not record["trials"]:
            continue
        keys = list(record["trials"][0]["settings"])
        rows = [
            ["chosen" if trial["settings"] == record["chosen"] else ""]
            + [str(trial["settings"][key]) for key in keys]
            + ["diverged" if trial["value"] is None else f"{trial['value']:.3f}"]
            for trial in record["trials"]
        ]
        tables[name] = Table(["", *keys, METRICS[record["by"]].label], rows)
    return tables


def format_cell(value: Any) -> Any:
    """A value of a table: numbers with separators, a dash for None."""
    if value is None:
        return MISSING
    if isinstance(value, list):  # ranges of skipped batches
        return ", ".join(f"{first} to {end}" for first, end in value)
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 1e6 else format_flops(value)
    return f"{value:,}" if isinstance(value, int) else value

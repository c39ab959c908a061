"""Runs that diverged: excluded from all statistics, and listed with every result.

A report's "runs" are those that finished. Runs whose loss was not finite are in its
"diverged": `diverged.json` of the run (`run.workdir.load_divergence`) with its "name"
and "workdir". Statistics over the seeds that finished are conditional on not diverging,
so every line on an objective with diverged seeds lists these.
"""

from collections.abc import Collection, Iterable, Mapping

from jaxpt.errors import DivergedError
from jaxpt.report.formats import MISSING, group_by_name

Table = tuple[list[str], list[list[str]]]  # a header and rows of text
MOST_NAMED = 8  # of the runs of a comparison that all diverged


def split_runs(entries: Iterable[dict]) -> tuple[list[dict], list[dict]]:
    """The entries of runs that finished, and those of runs that diverged."""
    finished: list[dict] = []
    diverged: list[dict] = []
    for entry in entries:
        (diverged if "diverged_at" in entry else finished).append(entry)
    return finished, diverged


def check_any_finished(runs: list, diverged: list[dict], place: str) -> None:
    """Raises DivergedError if every run diverged, so there is nothing to report.

    Args:
      place: the flag that the error begins with.
    """
    if runs:
        return
    named = "; ".join(map(_word_run, diverged[:MOST_NAMED]))
    more = len(diverged) - MOST_NAMED
    named += f" and {more} more" if more > 0 else ""
    raise DivergedError(f"{place}: no run is finished: {named}; use a smaller optim.lr")


def list_diverged(report: Mapping) -> list[str]:
    """A line for each objective with diverged runs, with the consequences."""
    finished = group_by_name(report["runs"])
    return [
        _word_objective(name, group, len(finished.get(name, [])))
        for name, group in group_by_name(report.get("diverged", [])).items()
    ]


def _word_objective(name: str, group: list[dict], num_finished: int) -> str:
    line = f"DIVERGED: {'; '.join(map(_word_run, group))}"
    if not num_finished:
        return f"{line}: all seeds of {name}, which has no results"
    num_all = num_finished + len(group)
    return (
        f"{line}. Means and verdicts of {name} leave it out; results of {name} are "
        f"conditional on not diverging ({len(group)} of {num_all} runs diverged)"
    )


def _word_run(entry: dict) -> str:
    return (
        f"{entry['name']} seed {entry['seed']} diverged at step "
        f"{entry['diverged_at']:,} ({entry['reason']})"
    )


def word_left_out(report: Mapping, names: Collection[str]) -> str:
    """ " (without mlm seed 3, which diverged)" for a line on these names; else "".

    >>> lacking = {"diverged": [{"name": "mlm", "seed": 3}, {"name": "clm", "seed": 0}]}
    >>> word_left_out(lacking, ["mlm", "electra"])
    ' (without mlm seed 3, which diverged)'
    """
    seeds: dict[str, list[str]] = {}
    for entry in report.get("diverged", []):
        if entry["name"] in names:
            seeds.setdefault(entry["name"], []).append(str(entry["seed"]))
    if not seeds:
        return ""
    runs = " and ".join(
        f"{name} seed{'s' * (len(run_seeds) > 1)} {', '.join(run_seeds)}"
        for name, run_seeds in seeds.items()
    )
    return f" (without {runs}, which diverged)"


def add_to_tables(report: dict, costs: Table, results: Table) -> tuple[Table, Table]:
    """`summary.tabulate`'s tables with the number of seeds that finished, "2 of 3".

    An objective without a finished run has a row of dashes after "diverged".
    """
    header, rows = costs
    counts = _count_seeds(report)
    rows = [[name, counts[name], *cells] for name, _, *cells in rows]
    lost = list_lost(report)
    rows += [_fill_row([name, counts[name]], header) for name in lost]
    of_results = [*results[1], *(_fill_row([name], results[0]) for name in lost)]
    return (header, rows), (results[0], of_results)


def list_lost(report: dict) -> list[str]:
    """The names whose runs all diverged."""
    lost = group_by_name(report.get("diverged", []))
    return [name for name in lost if name not in group_by_name(report["runs"])]


def _count_seeds(report: dict) -> dict[str, str]:
    finished = group_by_name(report["runs"])
    diverged = group_by_name(report.get("diverged", []))
    counts = {}
    for name in {**finished, **diverged}:
        num, lost = len(finished.get(name, [])), len(diverged.get(name, []))
        counts[name] = f"{num} of {num + lost}" if lost else str(num)
    return counts


def _fill_row(begin: list[str], header: list[str]) -> list[str]:
    return [*begin, "diverged", *[MISSING] * len(header)][: len(header)]

"""Runs that diverged, and the values that a report leaves out for them."""

from collections.abc import Iterable, Sequence

from jaxpt.errors import DivergedError
from jaxpt.files.stored import to_plain
from jaxpt.report.types import Diverged, Report, group_by_name

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
    lost = [Diverged.from_json(to_plain(run)) for run in diverged[:MOST_NAMED]]
    named = "; ".join(map(_word_run, lost))
    more = len(diverged) - MOST_NAMED
    named += f" and {more} more" if more > 0 else ""
    raise DivergedError(f"{place}: no run is finished: {named}; use a smaller optim.lr")


def list_diverged(report: Report) -> list[str]:
    """A line for each objective with diverged runs, with the consequences."""
    return [
        _word_objective(name, group, len(report.groups.get(name, [])))
        for name, group in group_by_name(report.diverged).items()
    ]


def _word_objective(name: str, group: Sequence[Diverged], num_finished: int) -> str:
    line = f"DIVERGED: {'; '.join(map(_word_run, group))}"
    if not num_finished:
        return f"{line}: all seeds of {name}, which has no results"
    num_all = num_finished + len(group)
    return (
        f"{line}. Means and verdicts of {name} leave it out; results of {name} are "
        f"conditional on not diverging ({len(group)} of {num_all} runs diverged)"
    )


def _word_run(entry: Diverged) -> str:
    return (
        f"{entry.name} seed {entry.seed} diverged at step "
        f"{entry.diverged_at:,} ({entry.reason})"
    )

"""Runs of a report by their name in the comparison."""

MISSING = "\N{EM DASH}"  # what stands for a number that there is not


def group_by_name(runs: list[dict]) -> dict[str, list[dict]]:
    """Runs by their name in the comparison, in order of first appearance."""
    groups: dict[str, list[dict]] = {}
    for run in runs:
        groups.setdefault(run["name"], []).append(run)
    return groups

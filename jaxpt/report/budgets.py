"""Several budgets in a report: means over seeds at each, and what all runs have spent.

Verdicts are those of each budget's own report. None is over budgets: the runs of a seed
share their first steps and are dependent. Only cost ratios are (`report.ratios`), which
read the runs of a seed together.
"""

from jaxpt.report.formats import MISSING, format_flops, format_seconds
from jaxpt.report.pages import PageTable
from jaxpt.report.types import BudgetLevel, Budgets, Report, Standing
from jaxpt.report.wording import is_ahead, word_best

MARK = "*"
UNITS = {
    "flops": ("FLOPs", format_flops),
    "operations": ("operations", format_flops),
    "raw_tokens": ("tokens", "{:,.0f}".format),
    "train_seconds": ("seconds", format_seconds),
}


def make_level(report: Report, page: str) -> BudgetLevel:
    """A budget, from its own report and the place of its page."""
    standings = {
        metric.metric: Standing(
            metric.label,
            metric.format,
            metric.by_name,
            tuple(name for name in metric.by_name if is_ahead(metric, name)),
            word_best(metric),
        )
        for metric in report.list_shared()
    }
    return BudgetLevel(report.budget.amount, page, standings)


def tabulate_budgets(report: Report) -> PageTable | None:
    """Each shared metric of each objective at each budget; None for one budget."""
    if report.budgets is None:
        return None
    levels = report.budgets.levels
    metrics = dict.fromkeys(key for level in levels for key in level.metrics)
    rows = []
    for metric in metrics:
        known = [level.metrics.get(metric) for level in levels]
        label = next(each.label for each in known if each)
        names = dict.fromkeys(n for each in known if each for n in each.by_name)
        rows += [[label, n, *(_format_cell(each, n) for each in known)] for n in names]
    header = ["metric", "objective", *(format_flops(x.amount) for x in levels)]
    return PageTable(header, rows, 2)


def _format_cell(standing: Standing | None, name: str) -> str:
    stats = standing.by_name.get(name) if standing else None
    if standing is None or stats is None or stats.mean is None:
        return MISSING
    write = f"{{:{standing.format}}}".format
    spread = f" ± {write(stats.std)}" if stats.std else ""
    return write(stats.mean) + spread + f" {MARK}" * (name in standing.ahead)


def list_budgets(report: Report) -> list[str]:
    """Lines on the cost of all budgets, and the leader of each metric at each."""
    budgets = report.budgets
    if budgets is None:
        return []
    lines = [_word_spent(budgets)]
    lines.append(
        f"budgets: {MARK} is ahead of {report.control or 'all others'} at its budget, "
        f"over runs; alpha is {report.alpha:.3g} at each, so that all budgets share "
        f"one error rate. Runs of one seed share their steps; verdicts are not over "
        f"budgets"
    )
    for level in budgets.levels:
        lines += [
            f"{each.label} at {format_flops(level.amount)}: {each.lead} ({level.page})"
            for each in level.metrics.values()
            if each.lead
        ]
    return lines


def _word_spent(budgets: Budgets) -> str:
    """The cost of trunks and branches, next to that of separate runs."""
    parts = [
        f"{write(cost)} {unit} instead of {write(budgets.separate[key])}"
        for key, (unit, write) in UNITS.items()
        if (cost := budgets.spent.get(key)) is not None
    ]
    share = budgets.spent["flops"] / budgets.separate["flops"]
    return (
        f"budgets: branches of shared trunks; all runs have spent {share:.0%} of the "
        f"FLOPs of separate runs: {', '.join(parts)}. The costs of a run are those of "
        f"its whole length"
    )

"""A second verdict, at equal cost including teachers and tuning.

The first verdict is at equal cost of the runs alone. If an objective has a teacher, or
its tuning cost more, its model cost more in total. So each objective is evaluated at
the point where its total cost equals that of the cheapest:

    total cost          T = the minimum, over objectives, of run + teacher + tuning
    evaluated at        T - its teacher - its tuning, on the curve of its run
                        (`jaxpt.report.conventions`)

At least one objective is evaluated at the end of its run. An objective evaluated
before the end had a learning rate schedule planned for a longer run; a run planned for
the smaller cost might be better.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from jaxpt.judge import verdicts
from jaxpt.judge.examples import Examples
from jaxpt.report.conventions import EARLY, TOLERANCE, CostReading, Reading, read_runs
from jaxpt.report.costs import KEYS, KINDS, WRITE
from jaxpt.report.summary import summarise
from jaxpt.report.types import Metric, Run, WholeCost, group_by_name


def judge_whole_cost(
    runs: Sequence[Run],
    kind: str,
    examples: Mapping[tuple[str, int], Mapping[str, Examples]] | None = None,
    alpha: float = verdicts.ALPHA,
    control: str = "",
) -> WholeCost | None:
    """The second verdict; None without teachers and tuning.

    Args:
      kind: of the budget, a key of `costs.KEYS`, or "steps".
      examples, alpha, control: as for `summarise`; its verdicts are a separate family.
    """
    groups = group_by_name(runs)
    if len(groups) < 2 or not any(has_extra(run) for run in runs):
        return None
    prefix = "with teachers and tuning"
    if kind not in KEYS:
        text = f"no second verdict {prefix}: no cost is held equal"
        return WholeCost(kind, (f"{text} (compare.budget={kind})",))
    extra = {name: _sum_extra(group[0], kind) for name, group in groups.items()}
    known = {name: cost for name, cost in extra.items() if cost is not None}
    lines = [
        f"{prefix}: no verdict on {name}, as the cost of its teacher is unknown"
        for name in extra
        if name not in known
    ]
    if len(known) < 2:
        return WholeCost(kind, tuple(lines), extra=extra)
    if not all(run.cost(KEYS[kind]) for run in runs):
        text = f"no second verdict {prefix}: the runs' {WRITE[kind][0]} are unknown"
        return WholeCost(kind, (text,))
    amount = min(
        cost + statistics.fmean(run.facts[KEYS[kind]] for run in groups[name])
        for name, cost in known.items()
    )
    limits = {name: amount - cost for name, cost in known.items()}
    compared = [run for run in runs if run.name in known]
    reading = read_runs(compared, kind, limits, TOLERANCE * amount)
    read = reading.by_name
    shares = {name: reading.share for name, reading in read.items()}
    label, write = WRITE[kind]
    place = f"{prefix}, at {write(amount)} {label} in total"
    if all(reading.share == 1 for reading in read.values()):
        lines.append(f"{place}: all costs are equal, and the verdicts are the same")
        return WholeCost(kind, tuple(lines), amount, extra, shares)
    lines += [f"{place}: {text}" for text in _word_readings(read)]
    summary = summarise(
        reading.runs, examples, alpha=alpha, control=control if control in known else ""
    )
    entries = _keep_read(summary, reading)
    verdict_lines = [f"{e.label}, {place}: {e.verdict}" for e in entries]
    lines += verdict_lines or [
        f"no second verdict {prefix}: no shared metric was measured during training; "
        f"set eval.probe_every_eval=True and compare.num_evals"
    ]
    return WholeCost(kind, tuple(lines), amount, extra, shares, tuple(entries))


def has_extra(run: Run) -> bool:
    """Whether a run has the cost of a teacher or of tuning."""
    costs = (run.facts.get(f"{k}_{key}", 0.0) for k in KINDS for key in KEYS)
    return any(cost != 0.0 for cost in costs)


def _sum_extra(run: Run, kind: str) -> float | None:
    costs = [run.facts.get(f"{each}_{kind}", 0.0) for each in KINDS]
    return None if None in costs else sum(costs)


def _word_readings(read: Mapping[str, Reading]) -> list[str]:
    """The point at which each objective is evaluated, and those that have none."""
    without = [name for name, reading in read.items() if not reading.metrics]
    early = [n for n, reading in read.items() if reading.metrics and reading.share < 1]
    lines = [
        f"no verdict on {name}: it has no measurement up to that cost"
        for name in without
    ]
    if early:
        shares = ", ".join(f"{name} after {read[name].share:.0%}" for name in early)
        lines.append(f"evaluated before the end of its run: {shares}; {EARLY}")
    return lines


def _keep_read(summary: Iterable[Metric], reading: CostReading) -> list[Metric]:
    """The shared metrics with verdicts, whose values were all read at the cost."""
    return [
        metric
        for metric in summary
        if metric.verdict
        and all(reading.has(name, metric.metric) for name in metric.by_name)
    ]

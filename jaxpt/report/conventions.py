"""Reads runs at an equal cost on their learning curves, and judges them there.

What is held equal decides who is ahead. So every verdict is also given at equal FLOPs,
equal operations, equal seconds and equal tokens. For each of these four conventions:

    equal cost     T = the smallest, over objectives, of the mean cost of their runs
    read at        cost T of each run, linearly in the logarithm of the cost between two
                   evaluations; the end of a run that exceeds T by less than TOLERANCE
    verdicts       the same tests on the same family of pairs as at the budget; the
                   error due to test documents is that of the examples at the end

A metric that curves do not have keeps its final values in the family, whose size
thereby stays the same, but has no verdict under a convention that reads a run early.

Seconds are those of an unloaded machine, as far as they can be known: the operations
(without a text the FLOPs) of a run times the fewest seconds per operation of any seed
of its objective. With a budget of seconds they are those of each run's clock.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxpt.judge import verdicts
from jaxpt.judge.examples import Examples
from jaxpt.report.costs import (
    COUNTS_SOURCE,
    EARLY,
    KEYS,
    KINDS,
    WRITE,
    source_cost,
)
from jaxpt.report.formats import is_number
from jaxpt.report.metrics import METRICS
from jaxpt.report.summary import summarise
from jaxpt.report.types import CostLevel, Metric, RunEntry, WholeCost, group_by_name

# Of an equal cost: runs end after whole calls of steps.
TOLERANCE = 0.02
SHARED = tuple(name for name, metric in METRICS.items() if metric.is_common)

Place = tuple[float, Mapping[str, Any]]  # a cost, and the metrics measured there


class AtCost(NamedTuple):
    """An objective at a cost.

    Attributes:
      share: of its runs' cost up to that point, the mean over seeds; 1 is the end.
      metrics: by seed, the values there; empty if a seed has none.
    """

    share: float
    metrics: dict[int, dict[str, float]]


class CostReading(NamedTuple):
    """All objectives at the costs that one convention gives them.

    Attributes:
      by_name: the reading of each objective.
      runs: with the metrics there. Metrics that curves do not have are final; a run
        without an evaluation up to the cost has no shared metrics.
    """

    by_name: dict[str, AtCost]
    runs: list[RunEntry]

    def has(self, name: str, metric: str) -> bool:
        """Whether a metric of an objective was read at the cost."""
        reading = self.by_name[name]
        if reading.share == 1:
            return True
        values = reading.metrics.values()
        return bool(values) and all(metric in each for each in values)


def read_runs(
    runs: Iterable[RunEntry],
    kind: str,
    limits: Mapping[str, float],
    more: float,
    is_by_clock: bool = True,
) -> CostReading:
    """The runs at a cost, by the name of each objective.

    Args:
      kind: of the cost, a key of `costs.KEYS`, which all runs have.
      limits: the cost at which each objective is read.
      more: the excess over it that a whole run may have.
      is_by_clock: seconds are those of each run, not those of an unloaded machine.
    """
    by_name, read = {}, []
    for name, group in group_by_name(runs).items():
        metrics: dict[int, dict[str, float]] = {}
        shares = []
        traces = trace_group(group, kind, is_by_clock)
        for run, points in zip(group, traces, strict=True):
            values, share = _read_points(points, limits[name], limits[name] + more)
            shares.append(share)
            if values:
                metrics[run.seed] = values
            final = {k: x for k, x in run.metrics.items() if share or k not in SHARED}
            read.append(dataclasses.replace(run, metrics={**final, **values}))
        if len(metrics) < len(group):
            metrics = {}
        by_name[name] = AtCost(statistics.fmean(shares), metrics)
    return CostReading(by_name, read)


def trace_group(
    group: list[RunEntry], kind: str, is_by_clock: bool
) -> list[list[Place]]:
    """The evaluations of each run of an objective by cost, without that of step 0.

    The costs begin at that of the run's source, if it is counted.
    The last point is the end of the run, with its final metrics.
    """
    curve_key, end_key, rate = kind, KEYS[kind], 1.0
    if kind == "seconds" and not is_by_clock:
        curve_key, rate = find_speed(group)
        end_key = curve_key
    traces = []
    for run in group:
        before_run = source_cost(run, kind) or 0.0
        end = before_run + rate * run.facts[end_key]
        points: list[Place] = [
            (before_run + rate * cost, point.values)
            for point in run.curve
            if point.step > 0 and (cost := point.values.get(curve_key)) is not None
        ]
        before = [point for point in points if point[0] < end]
        before.sort(key=lambda each: each[0])
        traces.append([*before, (end, run.metrics)])
    return traces


def find_speed(group: list[RunEntry]) -> tuple[str, float]:
    """What an objective's seconds are proportional to, and the fewest seconds per unit.

    Operations, or FLOPs if a run has none.
    """
    key = "operations" if all(run.cost("operations") for run in group) else "flops"
    return key, min(run.cost("train_seconds") / run.cost(key) for run in group)


def _read_points(
    points: list[Place], limit: float, most: float
) -> tuple[dict[str, float], float]:
    """The metrics at a cost, and the share of the run until there."""
    end, final = points[-1]
    if end <= most:
        return dict(final), 1.0
    place = sum(cost <= limit for cost, _ in points)
    if not place:
        return {}, 0.0
    (before, first), (after, second) = points[place - 1], points[place]
    weight = math.log(limit / before) / math.log(after / before)
    values = {
        name: (1 - weight) * first[name] + weight * second[name]
        for name in SHARED
        if is_number(first.get(name)) and is_number(second.get(name))
    }
    return values, limit / end


def list_kinds(runs: Sequence[RunEntry]) -> list[str]:
    """The conventions whose cost all runs have."""
    return [
        kind
        for kind, key in KEYS.items()
        if all(run.cost(key) and source_cost(run, kind) is not None for run in runs)
    ]


def judge_conventions(
    runs: Sequence[RunEntry],
    metrics: Sequence[Metric],
    kind: str,
    examples: Mapping[tuple[str, int], Mapping[str, Examples]],
    tests: Mapping[str, list[set[str]]] | None,
    alpha: float,
    control: str,
) -> tuple[dict[str, CostLevel], list[Metric]]:
    """The cost of each convention, and the metrics with the verdicts "under" it.

    Args:
      metrics: of `summarise`.
      kind: of the budget, whose verdicts are those of `metrics`; "" if there is none.
      examples, tests, alpha, control: as for `summarise`.

    Returns:
      The costs, {} for one objective.
    """
    groups = group_by_name(runs)
    if len(groups) < 2:
        return {}, list(metrics)
    costs: dict[str, CostLevel] = {}
    outcomes: dict[str, dict] = {}
    for convention in list_kinds(runs):
        is_by_clock = kind == convention
        amount = min(
            statistics.fmean(points[-1][0] for points in traces)
            for traces in (
                trace_group(group, convention, is_by_clock) for group in groups.values()
            )
        )
        limits = dict.fromkeys(groups, amount)
        more = math.inf if convention == kind else TOLERANCE * amount
        reading = read_runs(runs, convention, limits, more, is_by_clock)
        shares = {name: each.share for name, each in reading.by_name.items()}
        speeds = None
        if convention == "seconds" and not is_by_clock:
            speeds = {name: find_speed(group)[1] for name, group in groups.items()}
        summary = metrics
        if set(shares.values()) != {1}:
            summary = summarise(
                reading.runs, examples, None, tests, alpha=alpha, control=control
            )
        costs[convention] = CostLevel(amount, shares, speeds, count_tested(summary))
        outcomes[convention] = list_outcomes(summary, reading)
    return costs, [_add_outcomes(metric, outcomes) for metric in metrics]


def count_tested(metrics: Iterable[Metric]) -> int:
    """The number of pairs of objectives, and of bounds, that share the error rate."""
    pairs = [pair for metric in metrics for pair in (*metric.pairs, *metric.bounds)]
    return sum(pair.outcome != "untested" for pair in pairs)


def _add_outcomes(metric: Metric, outcomes: Mapping[str, dict]) -> Metric:
    pairs = tuple(
        dataclasses.replace(
            pair,
            under={
                name: of.get((metric.metric, *pair.names))
                for name, of in outcomes.items()
            },
        )
        for pair in metric.pairs
    )
    return dataclasses.replace(metric, pairs=pairs)


def list_outcomes(
    summary: Iterable[Metric], reading: CostReading
) -> dict[tuple[str, ...], str]:
    """The outcome of each pair in both orders, by metric and names."""
    outcomes: dict[tuple[str, ...], str] = {}
    for metric in summary:
        for pair in metric.pairs:
            if all(reading.has(name, metric.metric) for name in pair.names):
                outcome = pair.outcome
                outcomes[metric.metric, *pair.names] = outcome
                other = "behind" if outcome == "ahead" else outcome
                outcomes[metric.metric, *pair.names[::-1]] = other
    return outcomes


def judge_whole_cost(
    runs: Sequence[RunEntry],
    kind: str,
    examples: Mapping[tuple[str, int], Mapping[str, Examples]] | None = None,
    alpha: float = verdicts.ALPHA,
    control: str = "",
) -> WholeCost | None:
    """The second verdict; None without teachers, tuning and different sources.

    Args:
      kind: of the budget, a key of `costs.KEYS`, or "steps".
      examples, alpha, control: as for `summarise`; its verdicts are a separate family.
    """
    groups, kinds = group_by_name(runs), list_extra_kinds(runs)
    if len(groups) < 2 or not any(has_extra(run, kinds) for run in runs):
        return None
    has_source = "source" in kinds and any(has_extra(run, ["source"]) for run in runs)
    prefix = "with teachers and tuning"
    if has_source:
        prefix = "with teachers, tuning and sources"
    if kind not in KEYS:
        text = f"no second verdict {prefix}: no cost is held equal"
        return WholeCost(kind, (f"{text} (compare.budget={kind})",))
    missing = {
        name: [
            each for each in kinds if group[0].facts.get(f"{each}_{kind}", 0) is None
        ]
        for name, group in groups.items()
    }
    extra = {
        name: None if missing[name] else _sum_extra(group[0], kind, kinds)
        for name, group in groups.items()
    }
    known = {name: cost for name, cost in extra.items() if cost is not None}
    lines = [
        f"{prefix}: no verdict on {name}, as the cost of its {unknown[0]} is unknown"
        for name, unknown in missing.items()
        if unknown
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


def list_extra_kinds(runs: Sequence[RunEntry]) -> tuple[str, ...]:
    """The kinds of `KINDS` that a second verdict adds to the costs of the runs.

    Without the source if all runs have the same one, or if it is counted already.
    """
    sources = {(run.facts.get("source") or {}).get("run") for run in runs}
    is_counted = any(run.facts.get(COUNTS_SOURCE) for run in runs)
    has_source = len(sources) > 1 and not is_counted
    return tuple(kind for kind in KINDS if has_source or kind != "source")


def has_extra(run: RunEntry, kinds: Iterable[str] = KINDS) -> bool:
    """Whether a run has the cost of a teacher, of tuning or of a source."""
    costs = (run.facts.get(f"{k}_{key}", 0.0) for k in kinds for key in KEYS)
    return any(cost != 0.0 for cost in costs)


def _sum_extra(run: RunEntry, kind: str, kinds: Iterable[str]) -> float:
    return sum(run.facts.get(f"{each}_{kind}", 0.0) for each in kinds)


def _word_readings(read: Mapping[str, AtCost]) -> list[str]:
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

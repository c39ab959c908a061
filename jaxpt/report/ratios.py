"""The cost ratio of each pair of objectives (`jaxpt.judge.cost_ratio`).

"mlm needs 2.1 times clm's FLOPs for the same quality", under each convention of cost,
at the equal cost of its verdicts and with the level that each of them has. So the
interval of a ratio excludes 1 if and only if the verdict under the convention is
"ahead" or "behind".

The curves are those of evaluations within each run, whose learning rate has not decayed
before the end, or with `compare.amounts` those of several budgets, each a separate
branch with its own decay. A metric that has one point alone has no ratio.

Errors due to test documents are those of the examples at the end; of several budgets
those of the examples at each.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.judge.cost_ratio import Curve, Ratio, find_ratio
from jaxpt.judge.examples import Examples
from jaxpt.judge.verdicts import Side, align_documents
from jaxpt.report.conventions import TOLERANCE, Place, trace_group
from jaxpt.report.costs import KEYS
from jaxpt.report.formats import is_number
from jaxpt.report.types import (
    CostLevel,
    CostRatio,
    Metric,
    Point,
    Report,
    RunEntry,
    group_by_name,
)

CURVES, BUDGETS = "curves", "budgets"
DIGITS = 12  # of a share of the equal cost; closer ones are the same evaluation

AllExamples = Mapping[tuple[str, int], Mapping[str, Examples]]  # by (name, seed)


class MetricCurve(NamedTuple):
    """An objective on a metric: its curve, and its examples at each point or the end.

    Attributes:
      curve: costs are shares of the equal cost; higher values are better.
    """

    curve: Curve
    sides: list[Side]


def add_ratios(
    runs: Sequence[RunEntry],
    metrics: Sequence[Metric],
    costs: Mapping[str, CostLevel],
    kind: str,
    examples: Sequence[AllExamples],
    alpha: float,
    basis: str = CURVES,
) -> list[Metric]:
    """The metrics with the cost ratios of all pairs that were tested.

    Args:
      runs: with their curves.
      metrics, costs: of `judge_conventions`.
      kind: the convention of the budget, at which every run is read at its end.
      examples: at the end of the runs, or at each point of the curves.
      alpha: the family-wise error rate of a convention.
    """
    by_pair: dict[tuple[str, ...], dict[str, CostRatio]] = {}
    for convention, cost in costs.items():
        more = math.inf if convention == kind else TOLERANCE * cost.amount
        traces = {
            name: _trace_shares(group, convention, kind, cost.amount, more)
            for name, group in group_by_name(runs).items()
        }
        for metric in metrics:
            if not metric.is_common:
                continue
            known = {
                name: measured
                for name, shares in traces.items()
                if (measured := _measure(name, shares, metric, examples))
            }
            for pair in metric.pairs:
                if pair.outcome != "untested" and {*pair.names} <= known.keys():
                    better, worse = (known[name] for name in pair.names)
                    ratio = _compare(better, worse, alpha / cost.num_tested)
                    of_pair = by_pair.setdefault((metric.metric, *pair.names), {})
                    of_pair[convention] = make_ratio(ratio, basis)
    return [_with_ratios(metric, by_pair) for metric in metrics]


def _with_ratios(
    metric: Metric, by_pair: Mapping[tuple[str, ...], dict[str, CostRatio]]
) -> Metric:
    pairs = tuple(
        dataclasses.replace(pair, ratios=by_pair.get((metric.metric, *pair.names)))
        for pair in metric.pairs
    )
    return dataclasses.replace(metric, pairs=pairs)


def make_ratio(ratio: Ratio, basis: str) -> CostRatio:
    """A ratio as a report has it.

    >>> make_ratio(Ratio(math.inf, 3.5, math.inf, 0.25, 4.0), CURVES).value
    4.0
    """
    return CostRatio(
        value=min(max(ratio.value, ratio.least), ratio.most),
        basis=basis,
        low=ratio.low or None,
        high=ratio.high if math.isfinite(ratio.high) else None,
        least=ratio.least,
        most=ratio.most,
        is_beyond=not ratio.least <= ratio.value <= ratio.most,
    )


def _trace_shares(
    group: list[RunEntry], convention: str, kind: str, amount: float, more: float
) -> dict[int, list[Place]]:
    """By seed, the evaluations by share of the equal cost, at which verdicts read runs.

    A run that exceeds it by less than `more` is read at its end, which is 1.
    """
    traces = trace_group(group, convention, convention == kind)
    shares = {}
    for run, points in zip(group, traces, strict=True):
        end = points[-1][0]
        whole = end if end <= amount + more else amount
        shares[run.seed] = [(cost / whole, values) for cost, values in points]
    return shares


def _measure(
    name: str,
    shares: Mapping[int, list[Place]],
    metric: Metric,
    examples: Sequence[AllExamples],
) -> MetricCurve | None:
    """An objective on a metric; None without two common points up to the equal cost."""
    points = {
        seed: [(x, v) for x, y in of if is_number(v := y.get(metric.metric)) and x > 0]
        for seed, of in shares.items()
        if is_number(of[-1][1].get(metric.metric))
    }
    if not points:
        return None
    first = max(of[0][0] for of in points.values())
    last = min(of[-1][0] for of in points.values())
    known = np.array([x for of in points.values() for x, _ in of]).round(DIGITS)
    grid = np.unique(known.clip(first, last))
    if len(grid) < 2 or grid[0] > 1:
        return None
    sign = 1 if metric.higher_is_better else -1
    values = np.stack([sign * _interpolate(of, grid) for of in points.values()])
    sides = [
        Side(
            dict.fromkeys(points, 0.0),
            {s: each[name, s][metric.metric] for s in points},
        )
        for each in (examples if len(examples) == len(grid) else examples[-1:])
        if all(metric.metric in each.get((name, seed), {}) for seed in points)
    ]
    return MetricCurve(Curve(grid, values), sides)


def _interpolate(
    points: Sequence[tuple[float, float]], grid: Float[np.ndarray, "K"]
) -> Float[np.ndarray, "K"]:
    """The values of a run at other shares, linearly in their logarithm."""
    known, values = (np.array(each, np.float64) for each in zip(*points, strict=True))
    return np.interp(np.log(grid), np.log(known), values)


def _compare(better: MetricCurve, worse: MetricCurve, level: float) -> Ratio:
    """The ratio of a pair, with the errors of test documents if they are known."""
    first, second = better.curve, worse.curve
    if better.sides and worse.sides:
        rows, _ = align_documents([*better.sides, *worse.sides])
        if rows.shape[-1] > 1:
            num = len(better.sides)
            first = first._replace(influence=rows[:num])
            second = second._replace(influence=rows[num:])
    return find_ratio(first, second, level, end=1.0)


def compare_budgets(
    smaller: Sequence[Report], largest: Report, examples: Sequence[AllExamples]
) -> list[Metric]:
    """The metrics of the largest budget, with the cost ratios over all budgets.

    Args:
      smaller: the reports of the smaller budgets, rising.
      examples: of the runs of each budget, the largest last.
    """
    conventions = largest.conventions
    if conventions is None:
        return list(largest.metrics)
    return add_ratios(
        join_budgets([report.runs for report in (*smaller, largest)]),
        largest.metrics,
        conventions.costs,
        conventions.budget,
        examples,
        largest.alpha,
        BUDGETS,
    )


def join_budgets(levels: Sequence[Sequence[RunEntry]]) -> list[RunEntry]:
    """The runs of the largest budget, with those of the smaller ones as their curves.

    Args:
      levels: the runs of each budget, rising.
    """
    *smaller, largest = levels
    curves: dict[tuple[str, int], list[Point]] = {}
    for runs in smaller:
        for run in runs:
            costs = {kind: run.cost(key) for kind, key in KEYS.items()}
            point = Point(run.facts["steps"], {**costs, **run.metrics})
            curves.setdefault((run.name, run.seed), []).append(point)
    return [
        dataclasses.replace(run, curve=tuple(curves.get((run.name, run.seed), ())))
        for run in largest
    ]

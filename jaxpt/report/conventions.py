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

from jaxpt.judge.examples import Examples
from jaxpt.report.costs import KEYS, WRITE
from jaxpt.report.formats import is_number
from jaxpt.report.metrics import METRICS
from jaxpt.report.summary import summarise
from jaxpt.report.types import CostLevel, Metric, Run, Verdict, group_by_name
from jaxpt.report.wording import WORDS

# Of an equal cost: runs end after whole calls of steps.
TOLERANCE = 0.02
MOST_LISTED = 8  # in a line: verdicts that change, or objectives read early
UNEVEN = 1.5  # ratio of seconds per operation of two objectives, for a warning
SHARED = tuple(name for name, metric in METRICS.items() if metric.is_common)
EARLY = (
    "a run planned for that cost might be better, as its learning rate would decay to "
    "the end"
)

Place = tuple[float, Mapping[str, Any]]  # a cost, and the metrics measured there


class Reading(NamedTuple):
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

    by_name: dict[str, Reading]
    runs: list[Run]

    def has(self, name: str, metric: str) -> bool:
        """Whether a metric of an objective was read at the cost."""
        reading = self.by_name[name]
        if reading.share == 1:
            return True
        values = reading.metrics.values()
        return bool(values) and all(metric in each for each in values)


def read_runs(
    runs: Iterable[Run],
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
        by_name[name] = Reading(statistics.fmean(shares), metrics)
    return CostReading(by_name, read)


def trace_group(group: list[Run], kind: str, is_by_clock: bool) -> list[list[Place]]:
    """The evaluations of each run of an objective by cost, without that of step 0.

    The last point is the end of the run, with its final metrics.
    """
    curve_key, end_key, rate = kind, KEYS[kind], 1.0
    if kind == "seconds" and not is_by_clock:
        curve_key, rate = find_speed(group)
        end_key = curve_key
    traces = []
    for run in group:
        end = rate * run.facts[end_key]
        points: list[Place] = [
            (rate * cost, point.values)
            for point in run.curve
            if point.step > 0 and (cost := point.values.get(curve_key)) is not None
        ]
        before = [point for point in points if point[0] < end]
        before.sort(key=lambda each: each[0])
        traces.append([*before, (end, run.metrics)])
    return traces


def find_speed(group: list[Run]) -> tuple[str, float]:
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


def with_costs(run: dict, entry: Mapping[str, Any]) -> dict:
    """A run's result with the counted costs of its entry in a report, if it has them.

    Args:
      entry: of report.json, for the same run.
    """

    def pick(costs: Mapping[str, Any]) -> dict:
        return {k: costs[k] for k in ("flops", "operations") if k in costs}

    counted = {point["step"]: pick(point) for point in entry.get("curve", [])}
    curve = [point | counted.get(point["step"], {}) for point in run["curve"]]
    return run | pick(entry) | {"curve": curve}


def list_kinds(runs: Sequence[Run]) -> list[str]:
    """The conventions whose cost all runs have."""
    return [kind for kind, key in KEYS.items() if all(run.cost(key) for run in runs)]


def judge_conventions(
    runs: Sequence[Run],
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
        costs[convention] = CostLevel(amount, shares, speeds)
        summary = metrics
        if set(shares.values()) != {1}:
            summary = summarise(
                reading.runs, examples, None, tests, alpha=alpha, control=control
            )
        outcomes[convention] = list_outcomes(summary, reading)
    return costs, [_add_outcomes(metric, outcomes) for metric in metrics]


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


def list_changes(pair: Verdict) -> dict[str, str]:
    """The conventions under which a pair's verdict is another one, with that verdict.

    "tie" and "equivalent" are both no significant difference. A pair without a verdict
    ("untested") has none under any.

    >>> under = {"flops": "ahead", "operations": "tie", "seconds": None}
    >>> list_changes(Verdict("a", "b", "ahead", 0.1, under=under))
    {'operations': 'tie'}
    """
    return {
        convention: outcome
        for convention, outcome in (pair.under or {}).items()
        if outcome and _class(outcome) != _class(pair.outcome)
    }


def _class(outcome: str) -> str:
    return "tie" if outcome == "equivalent" else outcome


def word_under(pair: Verdict) -> str:
    """What a pair's verdict is under the four conventions, in a few words.

    >>> under = dict.fromkeys(WRITE, "ahead") | {"operations": "tie", "seconds": None}
    >>> word_under(Verdict("a", "b", "ahead", 0.1, under=under))
    'operations: no significant difference; seconds: not available'
    >>> word_under(Verdict("a", "b", "tie", 0.1, under=dict.fromkeys(WRITE, "tie")))
    'holds under all four'
    """
    if not pair.under:
        return ""
    changes = list_changes(pair)
    parts = [f"{WRITE[name][0]}: {WORDS[how]}" for name, how in changes.items()]
    missing = [WRITE[name][0] for name in WRITE if not pair.under.get(name)]
    if missing:
        parts.append(f"{', '.join(missing)}: not available")
    return "; ".join(parts) or "holds under all four"


def word_conventions(
    costs: Mapping[str, CostLevel], metrics: Iterable[Metric]
) -> list[str]:
    """The lines of a report: the costs, and for each metric the verdicts that change.

    Args:
      costs, metrics: of `judge_conventions`.
    """
    tested = {
        metric.label: [p for p in metric.pairs if p.outcome != "untested"]
        for metric in metrics
    }
    lines = [
        f"{label}, at other equal costs: {_word_pairs(pairs)}"
        for label, pairs in tested.items()
        if pairs
    ]
    if not costs or not lines:
        return []
    amounts, has_early = [], False
    for kind, each in costs.items():
        label, write = WRITE[kind]
        early = [f"{name} after {x:.0%}" for name, x in each.read.items() if x < 1]
        has_early = has_early or bool(early)
        rest = len(early) - MOST_LISTED
        early = early[:MOST_LISTED] + [f"{rest} more"] * (rest > 0)
        words = f" ({', '.join(early)})" if early else ""
        amounts.append(f"{write(each.amount)} {label}{words}")
    line = f"verdicts are also given at equal {', '.join(amounts)}"
    if has_early:
        line += f"; in brackets, the part of a run after which it is read: {EARLY}"
    return [line + _word_speeds(costs), *lines]


def _word_speeds(costs: Mapping[str, CostLevel]) -> str:
    """A warning if the objectives' seconds per operation are far apart."""
    speeds = costs["seconds"].per_operation if "seconds" in costs else None
    if not speeds or max(speeds.values()) <= UNEVEN * min(speeds.values()):
        return ""
    slowest = max(speeds, key=speeds.__getitem__)
    ratio = speeds[slowest] / min(speeds.values())
    return (
        f"; seconds per operation differ up to {ratio:.1f} times ({slowest} has "
        f"the most): on a loaded machine verdicts at equal seconds are unreliable"
    )


def _word_pairs(pairs: Sequence[Verdict]) -> str:
    """Which pairs' verdicts hold, which change to what, and which are unknown."""
    known = [p for p in pairs if all((p.under or {}).get(name) for name in WRITE)]
    missing = [
        label
        for name, (label, _) in WRITE.items()
        if not all((pair.under or {}).get(name) for pair in pairs)
    ]
    parts = []
    if known:
        num = sum(not list_changes(pair) for pair in known)
        parts.append(f"{num} of {len(pairs)} verdicts hold under all four")
    changed = [pair for pair in pairs if list_changes(pair)]
    for pair in changed[:MOST_LISTED]:
        words = ", ".join(
            f"{_word_outcome(pair, outcome)} at equal {WRITE[kind][0]}"
            for kind, outcome in list_changes(pair).items()
        )
        primary = _word_outcome(pair, pair.outcome)
        parts.append(f"{' and '.join(pair.names)}: {primary} at the budget, {words}")
    if len(changed) > MOST_LISTED:
        parts.append(
            f"{len(changed) - MOST_LISTED} others also change (differences.csv)"
        )
    if missing:
        pairs_word = "some pairs" if known else "any pair"
        parts.append(
            f"not for {pairs_word} at equal {', '.join(missing)}, because curves do "
            f"not have the metric there or the cost is unknown"
        )
    return "; ".join(parts)


def _word_outcome(pair: Verdict, outcome: str) -> str:
    winner = {"ahead": pair.better, "behind": pair.worse}.get(outcome)
    return f"{winner} ahead" if winner else WORDS[outcome]

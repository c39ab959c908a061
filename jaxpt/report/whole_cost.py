"""A second verdict, at equal cost including teachers and tuning.

The first verdict is at equal cost of the runs alone. If an objective has a teacher, or
its tuning cost more, its model cost more in total. So each objective is evaluated at
the point where its total cost equals that of the cheapest:

    total cost          T = the minimum, over objectives, of run + teacher + tuning
    evaluated at        the last measurement of its run up to the cost
                        T - its teacher - its tuning

At least one objective is evaluated at the end of its run. An objective evaluated
before the end had a learning rate schedule planned for a longer run; a run planned for
the smaller cost might be better. Within a run only its learning curve is known, by seed
and not by example.
"""

import itertools
import math
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxpt.report.costs import KEYS, KINDS, WRITE
from jaxpt.report.formats import group_by_name
from jaxpt.report.metrics import METRICS
from jaxpt.report.summary import measure_spread
from jaxpt.report.wording import describe_pair, find_parts, with_parts, word_verdict
from jaxpt.statistics import verdicts
from jaxpt.statistics.verdicts import Results

# Of the total cost. A run that exceeds it by less is evaluated at its end, since runs
# and trials end after whole calls of steps.
TOLERANCE = 0.05


class Reading(NamedTuple):
    """The point at which an objective is evaluated.

    Attributes:
      share: of its runs' cost up to that point; 1 is the end.
      metrics: by seed, the values measured there.
    """

    share: float
    metrics: dict[int, dict[str, float]]


def judge_whole_cost(
    runs: list[dict], kind: str, alpha: float = verdicts.ALPHA
) -> dict[str, Any]:
    """The second verdict, as report.json has it; {} without teachers and tuning.

    Args:
      runs: entries of a report's `runs` with the columns of `report.costs`.
      kind: of the budget: "flops", "raw_tokens", "seconds" or "steps".
      alpha: the family-wise error rate of its verdicts, a separate family.

    Returns:
      "kind"; "amount", the total cost; by name "extra", the costs in addition to the
      run, and "read", the share of the run at which it is evaluated; "metrics", as
      those of a report; and "lines", all of it in sentences.
    """
    groups = group_by_name(runs)
    if len(groups) < 2 or not any(has_extra(run) for run in runs):
        return {}
    prefix = "with teachers and tuning"
    if kind not in KEYS:
        text = f"no second verdict {prefix}: no cost is held equal"
        return {"kind": kind, "lines": [f"{text} (compare.budget={kind})"]}
    extra = {name: _sum_extra(group[0], kind) for name, group in groups.items()}
    known = {name: cost for name, cost in extra.items() if cost is not None}
    lines = [
        f"{prefix}: no verdict on {name}, as the cost of its teacher is unknown"
        for name in extra
        if name not in known
    ]
    if len(known) < 2:
        return {"kind": kind, "extra": extra, "lines": lines}
    amount = min(
        cost + statistics.fmean(run[KEYS[kind]] for run in groups[name])
        for name, cost in known.items()
    )
    read = {
        name: _read(groups[name], kind, amount - cost, TOLERANCE * amount)
        for name, cost in known.items()
    }
    result: dict[str, Any] = {
        "kind": kind,
        "amount": amount,
        "extra": extra,
        "read": {name: reading.share for name, reading in read.items()},
    }
    label, write = WRITE[kind]
    place = f"{prefix}, at {write(amount)} {label} in total"
    if all(reading.share == 1 for reading in read.values()):
        lines.append(f"{place}: all costs are equal, and the verdicts are the same")
        return result | {"lines": lines}
    lines += [f"{place}: {text}" for text in _word_readings(read)]
    measured = {n: r for n, r in read.items() if r.metrics}
    entries = _judge(measured, runs, alpha)
    verdict_lines = [f"{e['label']}, {place}: {e['verdict']}" for e in entries]
    lines += verdict_lines or [
        f"no second verdict {prefix}: no shared metric was measured during training; "
        f"set eval.probe_every_eval=True and compare.num_evals"
    ]
    return result | {"metrics": entries, "lines": lines}


def has_extra(run: Mapping[str, Any]) -> bool:
    """Whether a run's entry has the cost of a teacher or of tuning."""
    return any(run.get(f"{k}_{key}", 0.0) != 0.0 for k in KINDS for key in KEYS)


def _sum_extra(run: Mapping[str, Any], kind: str) -> float | None:
    costs = [run.get(f"{each}_{kind}", 0.0) for each in KINDS]
    return None if None in costs else sum(costs)


def _read(runs: list[dict], kind: str, most: float, more: float) -> Reading:
    """The last measurement of each run up to a cost, excluding that of step 0.

    Args:
      more: the excess that a whole run may have.
    """
    source, metrics, shares = KEYS[kind], {}, []
    for run in runs:
        if run[source] <= most + more:
            metrics[run["seed"]] = run["metrics"]
            shares.append(1.0)
            continue
        points = [p for p in run["curve"] if p["step"] > 0 and p[kind] <= most]
        if points:
            last = max(points, key=lambda point: point["step"])
            metrics[run["seed"]] = last
            shares.append(last[kind] / run[source])
    return Reading(statistics.fmean(shares) if shares else 0.0, metrics)


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
        lines.append(
            f"evaluated before the end of its run: {shares}; a run planned for that "
            f"cost might be better, as its learning rate would decay to the end; "
            f"intervals cover the choice of seeds alone"
        )
    return lines


def _judge(read: Mapping[str, Reading], runs: list[dict], alpha: float) -> list[dict]:
    """Verdicts on the shared metrics, of pairs with one evaluated before its end.

    For two that are evaluated at the end the first verdict holds, which has more data.
    """
    entries, family = [], []
    early = {name for name, reading in read.items() if reading.share < 1}
    for metric, spec in METRICS.items():
        values = {
            name: {
                seed: float(values[metric])
                for seed, values in reading.metrics.items()
                if values.get(metric) is not None
            }
            for name, reading in read.items()
        }
        values = {name: by_seed for name, by_seed in values.items() if by_seed}
        pairs = [
            pair for pair in itertools.combinations(values, 2) if early & set(pair)
        ]
        if not spec.is_common or not pairs:
            continue
        kind = metric, spec.higher_is_better, spec.margin
        span = spec.span or math.inf
        family += [
            Results(*kind, {name: values[name] for name in pair}, {}, span)
            for pair in pairs
        ]
        entry: dict[str, Any] = spec._asdict() | {"metric": metric}
        entry["by_name"] = {n: measure_spread(of.values()) for n, of in values.items()}
        entry["parts"] = find_parts(metric, runs, values)
        del entry["format"], entry["reference"], entry["description"]
        entries.append(entry)
    all_pairs = verdicts.judge(family, alpha)
    for entry in entries:
        metric_pairs = [pair for pair in all_pairs if pair.metric == entry["metric"]]
        entry["pairs"] = [describe_pair(pair) for pair in metric_pairs]
        entry["verdict"] = word_verdict(*with_parts(metric_pairs, entry))
    return entries

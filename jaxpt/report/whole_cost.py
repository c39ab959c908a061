"""A second verdict, at equal cost with teachers and tuning included.

The first verdict is at equal cost of the runs themselves. Where one objective needs a
teacher, or more was spent on its tuning, that is not what its model cost. So each is
read where it had spent as much in all as the cheapest of them:

    whole cost          T = the least, over objectives, of a run + its teacher + tuning
    an objective is     at the last of its run's measurements where the run had cost
    read                T - its teacher - its tuning

Somebody is always read at the end of the run. Who is read before the end had a learning
rate that was on its way to a later end; a run that is planned for the smaller cost
might do better. And of the middle of a run only what its learning curve has is known,
by seed and not by example.
"""

import itertools
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxpt.report.baselines import find_parts, with_parts
from jaxpt.report.costs import KEYS, KINDS, WRITE
from jaxpt.report.grouping import group_by_name
from jaxpt.report.summary import YARDSTICKS, measure_spread
from jaxpt.report.wording import describe_pair, word_verdict
from jaxpt.statistics import verdicts
from jaxpt.statistics.verdicts import Results

# Of the whole cost. Who exceeds it by less is read at the end, as runs and trials end
# after whole calls of steps.
TOLERANCE = 0.05


class Reading(NamedTuple):
    """Where an objective is read.

    Attributes:
      share: of its runs' cost that was spent by then; 1 is the end.
      metrics: by seed, what was measured there.
    """

    share: float
    metrics: dict[int, dict[str, float]]


def judge_whole_cost(
    runs: list[dict], kind: str, alpha: float = verdicts.ALPHA
) -> dict[str, Any]:
    """The second verdict, as report.json has it; {} where nobody has another cost.

    Args:
      runs: entries of a report's `runs` with the columns of `report.costs`.
      kind: of the budget: "flops", "raw_tokens", "seconds" or "steps".
      alpha: the family-wise error rate of its verdicts, a separate family.

    Returns:
      "kind"; "amount", the whole cost; "extra" and "read" by name, the costs beside the
      run and the share of the run where it is read; "yardsticks", as those of a report;
      and "lines", which tell all of it.
    """
    groups = group_by_name(runs)
    if len(groups) < 2 or not any(has_extra(run) for run in runs):
        return {}
    if kind not in KEYS:
        text = "no second verdict with teachers and tuning: no cost is held equal"
        return {"kind": kind, "lines": [f"{text} (compare.budget={kind})"]}
    extra = {name: _find_extra(group[0], kind) for name, group in groups.items()}
    known = {name: cost for name, cost in extra.items() if cost is not None}
    lines = [
        f"with teachers and tuning: {name} is not judged: what its teacher cost is not "
        f"known"
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
    found: dict[str, Any] = {
        "kind": kind,
        "amount": amount,
        "extra": extra,
        "read": {name: reading.share for name, reading in read.items()},
    }
    label, write = WRITE[kind]
    place = f"with teachers and tuning, at {write(amount)} {label} in all"
    if all(reading.share == 1 for reading in read.values()):
        lines.append(f"{place}: all have spent the same, and the verdicts stand")
        return found | {"lines": lines}
    lines += [f"{place}: {text}" for text in _word_readings(read)]
    measured = {n: r for n, r in read.items() if r.metrics}
    yardsticks = _judge(measured, runs, alpha)
    told = [f"{y['label']}, {place}: {y['verdict']}" for y in yardsticks]
    lines += told or [
        "no second verdict with teachers and tuning: no common yardstick was measured "
        "along the runs; eval.probe_every_eval=True and compare.num_evals do it"
    ]
    return found | {"yardsticks": yardsticks, "lines": lines}


def has_extra(run: Mapping[str, Any]) -> bool:
    """Whether a run's entry has a cost beside its own."""
    return any(run.get(f"{k}_{key}", 0.0) != 0.0 for k in KINDS for key in KEYS)


def _find_extra(run: Mapping[str, Any], kind: str) -> float | None:
    costs = [run.get(f"{each}_{kind}", 0.0) for each in KINDS]
    return None if None in costs else sum(costs)


def _read(runs: list[dict], kind: str, most: float, more: float) -> Reading:
    """The last measurement of each run that had cost no more; not that of step 0.

    Args:
      more: by how much the whole run may exceed it.
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
    """Who is read where, and who cannot be read at all."""
    nothing = [name for name, reading in read.items() if not reading.metrics]
    early = [n for n, reading in read.items() if reading.metrics and reading.share < 1]
    lines = [
        f"{name} is not judged: nothing was measured in its run as long as it and what "
        f"it needs had cost no more"
        for name in nothing
    ]
    if early:
        told = ", ".join(f"{name} after {read[name].share:.0%}" for name in early)
        lines.append(
            f"read before the end of its run: {told}; a run that is planned for that "
            f"cost might do better, as its learning rate would come to an end; "
            f"intervals are of the choice of seeds alone"
        )
    return lines


def _judge(read: Mapping[str, Reading], runs: list[dict], alpha: float) -> list[dict]:
    """Verdicts on the common yardsticks, of pairs one of which is read early.

    Between two that are read at the end the first verdict holds, which knows more.
    """
    entries, family = [], []
    early = {name for name, reading in read.items() if reading.share < 1}
    for metric, yardstick in YARDSTICKS.items():
        values = {
            name: {
                seed: float(found[metric])
                for seed, found in reading.metrics.items()
                if found.get(metric) is not None
            }
            for name, reading in read.items()
        }
        values = {name: by_seed for name, by_seed in values.items() if by_seed}
        pairs = [
            pair for pair in itertools.combinations(values, 2) if early & set(pair)
        ]
        if not yardstick.is_common or not pairs:
            continue
        kind = metric, yardstick.higher_is_better, yardstick.margin
        family += [
            Results(*kind, {name: values[name] for name in pair}, {}) for pair in pairs
        ]
        entry: dict[str, Any] = yardstick._asdict() | {"metric": metric}
        entry["by_name"] = {n: measure_spread(of.values()) for n, of in values.items()}
        entry["parts"] = find_parts(metric, runs, values)
        del entry["format"], entry["reference"]
        entries.append(entry)
    judged = verdicts.judge(family, alpha)
    for entry in entries:
        own = [pair for pair in judged if pair.metric == entry["metric"]]
        entry["pairs"] = [describe_pair(pair) for pair in own]
        entry["verdict"] = word_verdict(*with_parts(own, entry))
    return entries

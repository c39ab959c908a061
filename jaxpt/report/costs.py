"""Costs in addition to a run's training, and the share that FLOPs leave out.

The columns of a run's entry in report.json:

    flops                counted as today, also for runs that were trained before the
                         products of the optimizer were counted
    operations           XLA's count of its training (`jaxpt.runs.xla_flops`)
    flops_left_out       the share of XLA's count that FLOPs leave out
    teacher_flops ...    the cost of its teacher and the teacher's own teacher, if any
    tuning_flops ...     the cost of all trials of its objective, if any was tuned
    source_flops ...     the cost of the run that it started from, with all before it
    counts_source        True if equal costs include that of the source
    finetune_seconds     the time of its fine-tuning on `compare.tasks`, all sizes

Points of learning curves have "flops" and "operations", too. A teacher and the trials
of an objective are counted once, whatever the number of seeds. The costs of a run are
those that it added to its source; `compare.source_cost=total` counts both.
"""

import dataclasses
import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence

from jaxpt.config.plan import Plan
from jaxpt.report.formats import format_count, format_flops
from jaxpt.report.types import (
    Budget,
    CostLevel,
    Groups,
    Metric,
    Report,
    RunEntry,
    Verdict,
)
from jaxpt.report.wording import WORDS, join
from jaxpt.runs.earlier_costs import find_source_costs, find_teacher_costs
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.xla_flops import (
    add_phases,
    count_operations,
    count_phases,
    count_step,
)

LEFT_OUT = "flops_left_out"
KINDS = ("teacher", "tuning", "source")
COUNTS_SOURCE = "counts_source"
# The costs that are reported, with their names in a run's result.json.
KEYS = {
    "flops": "flops",
    "operations": "operations",
    "raw_tokens": "raw_tokens",
    "seconds": "train_seconds",
}
WRITE = {
    "flops": ("FLOPs", format_flops),
    "operations": ("operations", format_flops),
    "raw_tokens": ("raw tokens", format_count),
    "seconds": ("seconds", "{:,.1f}".format),
}
TUNED = "finetune_seconds"
EXTRA_COLUMNS = (*(f"{kind}_{key}" for kind in KINDS for key in KEYS), TUNED)
MOST_LISTED = 8  # in a line: verdicts that change, or objectives read early
UNEVEN = 1.5  # ratio of seconds per operation of two objectives, for a warning
EARLY = (
    "a run planned for that cost might be better, as its learning rate would decay to "
    "the end"
)
NOTEWORTHY = 1.05  # ratio of parameters, or of seconds


def add_costs(
    runs: list[dict],
    tasks: Mapping[str, Task],
    tuning: Mapping[str, dict] | None = None,
    counts_source: bool = False,
) -> list[dict]:
    """The runs with the columns listed above.

    Args:
      runs: entries of a report's `runs`.
      tasks: of each name.
      tuning: the records of `report.tuning`, by name.
      counts_source: equal costs include those of the runs that these started from.
    """
    counts = {name: count_phases(task) for name, task in tasks.items()}
    left_out = {name: count_step(task).left_out for name, task in tasks.items()}
    teachers = {
        name: find_teacher_costs(task.plan, functools.partial(_count_plan, task))
        for name, task in tasks.items()
    }
    sources = {
        name: find_source_costs(task.plan, functools.partial(_count_plan, task))
        for name, task in tasks.items()
    }
    for run in runs:  # as it was when the run ended
        stored = run.get("source", {}).items()
        sources[run["name"]] |= {key: cost for key, cost in stored if key != "run"}
    added = {COUNTS_SOURCE: True} if counts_source else {}
    columns: dict[str, dict] = {name: dict(added) for name in tasks}
    kinds = {"teacher": teachers, "tuning": tuning or {}, "source": sources}
    for kind, records in kinds.items():
        if not any(records.values()):
            continue
        for name in tasks:
            record = records.get(name) or dict.fromkeys(KEYS.values(), 0.0)
            for key, source in KEYS.items():
                columns[name][f"{kind}_{key}"] = record.get(source)
    return [
        _count_run(run, tasks[run["name"]], counts[run["name"]])
        | {LEFT_OUT: left_out[run["name"]]}
        | columns[run["name"]]
        for run in runs
    ]


def _count_run(run: dict, task: Task, counts: Sequence[float]) -> dict:
    """A run and its curve with the costs that follow from its number of steps.

    Args:
      counts: of `count_phases`.
    """

    def count(steps: int) -> dict[str, float]:
        flops = task.count_costs(steps)["flops"]
        return {"flops": flops, "operations": add_phases(task, counts, steps)}

    curve = [point | count(point["step"]) for point in run["curve"]]
    return run | count(run["steps"]) | {"curve": curve}


def _count_plan(task: Task, plan: Plan, num_steps: int) -> float:
    """XLA's count of another run with a task's vocabulary."""
    counts = task.vocab.counts
    if plan.spec.needs.counts and not counts:  # no operation depends on them
        counts = (1,) * task.vocab.size
    vocab = dataclasses.replace(task.vocab, counts=counts)
    return count_operations(make_task(plan, vocab), num_steps)


def list_extra_columns(runs: Iterable[RunEntry]) -> list[str]:
    """The columns of this module that any of these runs has, in order."""
    known = {key for run in runs for key in run.facts}
    return [key for key in (LEFT_OUT, *EXTRA_COLUMNS) if key in known]


def source_cost(run: RunEntry, key: str) -> float | None:
    """The cost of a run's source that equal costs include; None if it is unknown.

    Args:
      key: of `KEYS`.
    """
    if not run.facts.get(COUNTS_SOURCE):
        return 0.0
    return run.facts.get(f"source_{key}", 0.0)


def list_costs(report: Report) -> list[str]:
    """A line each on sources, parameters, seconds, and the share FLOPs leave out."""
    groups = report.groups
    lines = _list_sources(groups)
    lines += [*_list_parameters(groups), *_list_seconds(groups, report.budget)]
    # Of runs that were trained separately.
    reported = {_first_word(text) for text in report.inequalities or ()}
    lines = [text for text in lines if _first_word(text) not in reported]
    return [*lines, *_list_left_out(groups)]


def _first_word(text: str) -> str:
    return text.split()[0].rstrip(":")


def _list_sources(groups: Groups) -> list[str]:
    """The FLOPs that runs added to those of the run that they started from."""
    parts = []
    for name, group in groups.items():
        source = group[0].facts.get("source_flops", 0.0)
        if source == 0.0:
            continue
        added = mean_cost(group, "flops")
        words = f"{name} added {format_flops(added)} FLOPs to"
        if source is None:
            parts.append(f"{words} a source whose cost is unknown")
            continue
        total = format_flops(source + added)
        parts.append(f"{words} {format_flops(source)} of its source, {total} in total")
    if not parts:
        return []
    is_total = any(
        run.facts.get(COUNTS_SOURCE) for each in groups.values() for run in each
    )
    counted = "total" if is_total else "added"
    return [
        f"started from another run (train.init_from): {'; '.join(parts)}; costs are "
        f"equal by the {counted} cost"
    ]


def _list_parameters(groups: Groups) -> list[str]:
    means = {name: mean_cost(group, "params") for name, group in groups.items()}
    most, least = (find(means, key=means.__getitem__) for find in (max, min))
    ratio = means[most] / max(means[least], 1)
    if ratio <= NOTEWORTHY:
        return []
    return [
        f"parameters are not equal: {most} has the most "
        f"({format_count(means[most])}), {ratio:.2f} times those of {least}, which "
        f"has the fewest ({format_count(means[least])})"
    ]


def _list_seconds(groups: Groups, budget: Budget) -> list[str]:
    """The objectives that miss a budget of seconds, which ends after a whole call."""
    if budget.kind != "seconds":
        return []
    means = {
        name: mean_cost(group, "train_seconds")
        + (source_cost(group[0], "seconds") or 0)
        for name, group in groups.items()
    }
    apart = {
        name: f"{name} {mean:.1f}"
        for name, mean in means.items()
        if abs(mean - budget.amount) > (NOTEWORTHY - 1) * budget.amount
    }
    if not apart:
        return []
    return [
        f"seconds differ from the budget, {budget.amount:g}: "
        f"{', '.join(apart.values())}; a run ends after a whole call, so fewer "
        f"train.steps_per_call are more precise"
    ]


def _list_left_out(groups: Groups) -> list[str]:
    shares = {
        name: group[0].facts[LEFT_OUT]
        for name, group in groups.items()
        if LEFT_OUT in group[0].facts
    }
    if not shares:
        return []
    words = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    line = f"FLOPs are of matrix products; share of XLA's count left out: {words}"
    if len(shares) > 1:
        whole = {
            n: mean_cost(groups[n], "flops") / (1 - share)
            for n, share in shares.items()
        }
        most, least = (find(whole, key=whole.__getitem__) for find in (max, min))
        line += (
            f"; by XLA's count {most} spent the most, {whole[most] / whole[least]:.2f} "
            f"times the FLOPs of {least}"
        )
    return [line]


def mean_cost(runs: Iterable[RunEntry], key: str) -> float:
    """The mean of a cost that all runs have."""
    return statistics.fmean(run.facts[key] for run in runs)


# Verdicts at other equal costs, in words.


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


def is_known(pair: Verdict) -> bool:
    """Whether a pair has an outcome under all four conventions."""
    return all((pair.under or {}).get(name) for name in WRITE)


def is_held(pair: Verdict) -> bool:
    """Whether a pair's verdict holds under all four conventions."""
    return is_known(pair) and not list_changes(pair)


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
    """The lines of a report: the costs, which verdicts change, and which hold.

    Args:
      costs, metrics: of `judge_conventions`.
    """
    tested = {
        metric.label: [p for p in metric.pairs if p.outcome != "untested"]
        for metric in metrics
    }
    tested = {label: pairs for label, pairs in tested.items() if pairs}
    if not costs or not tested:
        return []
    held = [label for label, pairs in tested.items() if all(map(is_held, pairs))]
    num = sum(len(tested[label]) for label in held)
    lines = [
        f"{label}, at other equal costs: {_word_pairs(pairs)}"
        for label, pairs in tested.items()
        if label not in held
    ]
    if held:
        every = "every metric" if len(held) == len(tested) else join(held)
        lines.append(f"{num} of {num} verdicts on {every} hold under all four")
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
    known = [pair for pair in pairs if is_known(pair)]
    missing = [
        label
        for name, (label, _) in WRITE.items()
        if not all((pair.under or {}).get(name) for pair in pairs)
    ]
    parts = []
    if known:
        num = sum(map(is_held, known))
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

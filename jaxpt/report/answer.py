"""The report's first answer: on each yardstick who is best, by how much, how surely.

And what it cost. The verdicts themselves are `verdicts`' and worded in `summary`; here
is the shortest true statement of each.
"""

import statistics
from typing import NamedTuple

from jaxpt.report.baselines import name_part
from jaxpt.report.diverged import word_left_out
from jaxpt.report.formats import format_flops, format_number, format_p, format_seconds
from jaxpt.report.report_charts import is_number
from jaxpt.report.summary import MISSING


class Answer(NamedTuple):
    """One yardstick's row of the first table: sentences, or parts of them."""

    yardstick: str
    who: str
    lead: str
    certainty: str
    cost: str


def list_answers(report: dict, groups: dict[str, list[dict]]) -> list[Answer]:
    """The answer on each common yardstick that any objective was measured by.

    Args:
      groups: the runs of each name, in the report's order.
    """
    answers = []
    for yardstick in report["yardsticks"]:
        if yardstick["is_common"] and yardstick["by_name"]:
            answer = _answer(yardstick, groups)
            left_out = word_left_out(report, yardstick["by_name"])
            answers.append(answer._replace(who=answer.who + left_out))
    return answers


def _answer(yardstick: dict, groups: dict[str, list[dict]]) -> Answer:
    cost = "\n".join(_word_cost(name, groups[name]) for name in rank(yardstick)[:2])
    yardstick = _name_parts(yardstick)
    ranked = rank(yardstick)
    better = "higher" if yardstick["higher_is_better"] else "lower"
    label = f"{yardstick['label']} ({better} is better)"
    value = yardstick["by_name"][ranked[0]]["mean"]
    if len(ranked) == 1:
        who = f"Only {ranked[0]} can be measured by it."
        return Answer(label, who, f"{ranked[0]} reaches {value:.3f}", MISSING, cost)
    first, second = ranked[:2]
    pair = next(
        (
            pair
            for pair in yardstick["pairs"]
            if {pair["better"], pair["worse"]} == {first, second}
        ),
        None,
    )
    if pair is None:  # runs that were made apart need not answer the same questions
        who = f"No verdict between {first} and {second}: their tests differ."
        return Answer(label, who, f"{first} reaches {value:.3f}", MISSING, cost)
    who = _word_who(yardstick, ranked)
    difference = pair["difference"]
    if not is_number(difference):
        lead = f"{first} reaches {value:.3f}; it shares no seed with {second}"
    else:
        lead = f"{pair['better']} over {pair['worse']}: {format_number(difference)}"
        if is_number(pair["low"]) and is_number(pair["high"]):
            ends = f"{format_number(pair['low'])}, {format_number(pair['high'])}"
            lead += f" [{ends}]"
        stats = yardstick["by_name"]
        means = (f"{stats[pair[key]]['mean']:.3f}" for key in ("better", "worse"))
        lead += f"\nmeans {' and '.join(means)}"
    return Answer(label, who, lead, _word_certainty(pair), cost)


def _name_parts(entry: dict) -> dict:
    """The entry of a metric with `name_part` instead of names."""
    keys = ("better", "worse")
    pairs = [
        pair | {key: name_part(entry, pair[key]) for key in keys}
        for pair in entry["pairs"]
    ]
    stats = entry["by_name"].items()
    by_name = {name_part(entry, name): of for name, of in stats}
    return entry | {"pairs": pairs, "by_name": by_name}


def rank(yardstick: dict) -> list[str]:
    """The names that a yardstick measured, that of the best mean first."""
    sign = -1 if yardstick["higher_is_better"] else 1
    means = {name: stats["mean"] for name, stats in yardstick["by_name"].items()}
    return sorted(means, key=lambda name: (sign * means[name], name))


def _word_who(yardstick: dict, ranked: list[str]) -> str:
    """Who is ahead, in one sentence that claims no more than the verdicts do."""
    pairs, best = yardstick["pairs"], ranked[0]
    if all(pair["outcome"] == "untested" for pair in pairs):
        return f"No verdict. {best} has the best mean, of one seed."
    of_best = [pair for pair in pairs if best in (pair["better"], pair["worse"])]
    behind = [p["worse"] for p in of_best if p["outcome"] == "ahead"]
    behind = [name for name in behind if name != best]
    num_others = len(ranked) - 1
    if len(behind) == num_others:
        told = behind[0] if num_others == 1 else f"all {num_others} others"
        return f"{best} is ahead of {told}."
    if behind:
        told = f"{len(behind)} of {num_others} others"
        return f"{best} has the best mean and is ahead of {told}."
    num_ahead = sum(pair["outcome"] == "ahead" for pair in pairs)
    if num_ahead:
        return f"{best} has the best mean, but is ahead of nobody."
    num_same = sum(pair["outcome"] == "equivalent" for pair in pairs)
    if num_same == len(pairs):
        return "All are equivalent."
    return f"No significant difference. {best} has the best mean."


def _word_certainty(pair: dict) -> str:
    """How sure the verdict on one pair is, and on what it rests."""
    if pair["outcome"] == "untested":
        return "No verdict from one seed: at least two are needed."
    told = {
        "ahead": "significantly different",
        "equivalent": "equivalent: the interval is within the margin",
        "tie": "not significantly different",
    }[pair["outcome"]]
    documents = f" and {pair['documents']} test documents" if pair["documents"] else ""
    p = format_p(pair["p"])
    p = p if p.startswith("<") else f"= {p}"
    return f"{told}; p {p}, {pair['seeds']} seeds{documents}"


def _word_cost(name: str, runs: list[dict]) -> str:
    """What one run of a name cost, as the mean over its seeds."""
    parts = []
    for key, unit, write in (
        ("flops", "FLOPs", format_flops),
        ("train_seconds", "s", format_seconds),
    ):
        values = [run[key] for run in runs if is_number(run.get(key))]
        if values:
            parts.append(f"{write(statistics.fmean(values))} {unit}")
    return f"{name}: {', '.join(parts)}"

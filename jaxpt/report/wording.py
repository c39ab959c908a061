"""Verdicts and baseline comparisons as entries of report.json and as sentences."""

from collections.abc import Collection, Iterable, Mapping

from jaxpt.report.diverged import word_left_out
from jaxpt.report.formats import format_number
from jaxpt.statistics.verdicts import Pair

MOST_TIES = 3  # listed one by one, in addition to those of the best


def describe_pair(pair: Pair) -> dict:
    """A pair as an entry of report.json."""
    difference = pair.difference
    return {
        "better": pair.better,
        "worse": pair.worse,
        "outcome": pair.outcome,
        "difference": difference.mean,
        "low": pair.low,
        "high": pair.high,
        "p": pair.p,
        "seeds": difference.num_seeds,
        "documents": difference.num_groups,
        "seeds_error": difference.seeds_error,
        "examples_error": difference.examples_error,
        "seeds_needed": pair.seeds_needed,
    }


def word_verdict(pairs: list[Pair], entry: dict) -> str:
    """The verdict on one metric as a sentence."""
    if not pairs:
        return ""
    if all(pair.outcome == "untested" for pair in pairs):
        return "no verdict: at least two seeds are needed, and five are recommended"
    compared = {name for pair in pairs for name in (pair.better, pair.worse)}
    means = {name: entry["by_name"][name]["mean"] for name in compared}
    sign = -1 if entry["higher_is_better"] else 1
    best = min(means, key=lambda name: (sign * means[name], name))
    of_best = [pair for pair in pairs if best in (pair.better, pair.worse)]
    ahead = [p for p in of_best if p.outcome == "ahead" and p.better == best]
    same = [pair for pair in of_best if pair.outcome == "equivalent"]
    ties = [pair for pair in of_best if pair.outcome == "tie"]
    untested = [_other(p, best) for p in of_best if p.outcome == "untested"]
    parts = []
    if ahead:
        names = ", ".join(f"{p.worse} by {_word_difference(p)}" for p in ahead)
        parts.append(f"{best} ahead of {names}")
    if same:
        names = ", ".join(f"{_other(p, best)} ({_word_difference(p)})" for p in same)
        parts.append(f"{best} equivalent to {names}, within {entry['margin']}")
    if ties:
        names = ", ".join(
            f"{_other(p, best)} ({_word_difference(p)}; {_word_seeds(p)})" for p in ties
        )
        parts.append(f"tie of {best} with {names}")
    if untested:
        parts.append(f"no verdict on {', '.join(untested)}: one seed")
    clauses = [
        f"{p.better} ahead of {p.worse} by {_word_difference(p)}"
        for p in pairs
        if p.better != best and p.outcome == "ahead"
    ]
    other_ties = [
        p for p in pairs if p not in of_best and p.outcome in ("tie", "equivalent")
    ]
    if len(other_ties) > MOST_TIES:
        clauses.append(f"{len(other_ties)} other pairs are ties")
    else:
        clauses += [
            f"tie of {p.better} with {p.worse} ({_word_difference(p)})"
            if p.outcome == "tie"
            else f"{p.better} equivalent to {p.worse} ({_word_difference(p)})"
            for p in other_ties
        ]
    return "; ".join([*parts, *clauses])


def _other(pair: Pair, name: str) -> str:
    return pair.worse if pair.better == name else pair.better


def _word_difference(pair: Pair) -> str:
    low, high = format_number(pair.low), format_number(pair.high)
    # Holm's test may find a difference whose simultaneous interval contains 0.
    p = f", p {pair.p:.2g}" if pair.outcome == "ahead" and pair.low <= 0 else ""
    return f"{format_number(pair.difference.mean)} [{low}, {high}]{p}"


def _word_seeds(pair: Pair) -> str:
    if pair.seeds_needed:
        return f"a new comparison needs about {pair.seeds_needed} seeds"
    if pair.difference.mean == 0:
        return "no difference was measured"
    return "needs more test documents, not only more seeds"


# Baselines as the other side of a pair. No name of a comparison has a parenthesis.
UNTRAINED, FREQUENCY, REFERENCE = "(untrained)", "(frequency)", "(reference)"
NGRAMS = "(n-grams)"
RANDOM_INIT, FREQUENCIES = "random initialization", "token frequencies"
BAG_OF_NGRAMS = "a bag of n-grams"
FREQUENCY_SUFFIX = "_frequency"  # of a metric, measured for token frequencies
NGRAMS_SUFFIX = "_ngrams"  # of a downstream metric, measured for `jaxpt.tasks.ngrams`


def name_part(entry: Mapping, name: str) -> str:
    """An objective's name, with the part of its network that a metric measures.

    Args:
      entry: of a metric; "parts" has the objectives of which it measures only a part
        that is not the trained result (ELECTRA's generator).

    >>> name_part({"parts": {"electra": "its generator"}}, "electra")
    'electra (its generator)'
    """
    part = entry.get("parts", {}).get(name)
    return f"{name} ({part})" if part else name


def find_parts(metric: str, runs: list[dict], names: Iterable[str]) -> dict[str, str]:
    """By name, the part of its network that a metric measures, if only a part."""
    parts = {run["name"]: run.get("parts", {}).get(metric, "") for run in runs}
    return {name: parts[name] for name in names if parts[name]}


def with_parts(pairs: Iterable[Pair], entry: dict) -> tuple[list[Pair], dict]:
    """Pairs and their metric's entry with `name_part` instead of names."""
    named = [
        pair._replace(
            better=name_part(entry, pair.better), worse=name_part(entry, pair.worse)
        )
        for pair in pairs
    ]
    stats = entry["by_name"].items()
    return named, entry | {"by_name": {name_part(entry, n): of for n, of in stats}}


def read_baselines(
    entry: Mapping, controls: Collection[str]
) -> dict[str, dict[str, str]]:
    """By name, how it compares with each baseline: "above", "below" or "neither".

    Args:
      entry: of a metric.
      controls: the baselines to read, such as `UNTRAINED`; those that were not tested
        are left out.
    """
    outcomes: dict[str, dict[str, str]] = {}
    for pair in entry["baselines"]:
        is_better = pair["worse"] in controls
        control = pair["worse" if is_better else "better"]
        if control in controls and pair["outcome"] != "untested":
            name = pair["better" if is_better else "worse"]
            outcome = "above" if is_better else "below"
            is_significant = pair["outcome"] == "ahead"
            outcomes.setdefault(name, {})[control] = (
                outcome if is_significant else "neither"
            )
    return {name: outcomes[name] for name in entry["by_name"] if name in outcomes}


def list_baselines(report: Mapping) -> list[str]:
    """A line for each metric: which objectives are significantly above a baseline.

    A network learns token frequencies first, which need no context. So a result above
    its random initialization counts only if it is above these as well.
    """
    lines = []
    for entry in report["metrics"]:
        shared = {UNTRAINED: RANDOM_INIT, FREQUENCY: FREQUENCIES}
        others = {REFERENCE: entry["reference"]}, {NGRAMS: BAG_OF_NGRAMS}
        groups = shared, *others
        parts = [part for words in groups if (part := _word_baselines(entry, words))]
        if parts:
            left_out = word_left_out(report, entry["by_name"])
            lines.append(f"{entry['label']}: {'; '.join(parts)}{left_out}")
    return lines


def _word_baselines(entry: Mapping, words: Mapping[str, str]) -> str:
    """Which objectives are above all of these baselines, and which are below any.

    Args:
      words: by baseline, its name in text.
    """
    groups: dict[str, list[str]] = {"above": [], "below": [], "neither": []}
    tested: set[str] = set()
    for name, outcomes in read_baselines(entry, words).items():
        kinds = set(outcomes.values())
        kind = "below" if "below" in kinds else kinds.pop() if len(kinds) == 1 else ""
        groups[kind or "neither"].append(name_part(entry, name))
        tested |= outcomes.keys()
    if not tested:
        return ""
    above, below, neither = (", ".join(names) for names in groups.values())
    controls = " and ".join(words[each] for each in words if each in tested)
    parts = [f"ahead of {controls}: {above or 'none'}"]
    if below:
        parts.append(f"behind: {below}")
    if above and neither:
        parts.append(f"neither: {neither}")
    return ", ".join(parts)

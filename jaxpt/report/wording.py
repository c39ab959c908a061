"""Verdicts and baseline comparisons as entries of report.json and as sentences."""

from collections.abc import Collection, Iterable, Mapping

from jaxpt.judge.verdicts import GOOD_SEEDS, MIN_SEEDS, Pair
from jaxpt.report.diverged import word_left_out
from jaxpt.report.formats import format_number, is_number

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
        "at_most": pair.at_most if is_number(pair.at_most) else None,
        "p": pair.p,
        "seeds": difference.num_seeds,
        "documents": difference.num_groups,
        "blocks": difference.is_cut,
        "seeds_error": difference.seeds_error,
        "examples_error": difference.examples_error,
        "seeds_needed": pair.seeds_needed,
    }


def word_verdict(pairs: list[Pair], entry: dict) -> str:
    """The verdict on one metric as a sentence."""
    if not pairs:
        return ""
    compared = {name for pair in pairs for name in (pair.better, pair.worse)}
    means = {name: entry["by_name"][name]["mean"] for name in compared}
    sign = -1 if entry["higher_is_better"] else 1
    ranked = sorted(means, key=lambda name: (sign * means[name], name))
    if all(pair.outcome == "untested" for pair in pairs):
        num_seeds = max(pair.difference.num_seeds for pair in pairs)
        listed = ", ".join(f"{name} {format_number(means[name])}" for name in ranked)
        return f"{word_untested(num_seeds)}; means: {listed}"
    best = ranked[0]
    of_best = [pair for pair in pairs if best in (pair.better, pair.worse)]
    ahead = [p for p in of_best if p.outcome == "ahead"]
    untested = [pair for pair in pairs if pair.outcome == "untested"]
    clauses = []
    if ahead:
        names = ", ".join(f"{p.worse} by {_word_difference(p)}" for p in ahead)
        clauses.append(f"{best} ahead of {names}")
    clauses += [_word_same(p, entry["margin"]) for p in of_best if _is_same(p)]
    clauses += [
        f"{p.better} ahead of {p.worse} by {_word_difference(p)}"
        for p in pairs
        if p not in of_best and p.outcome == "ahead"
    ]
    others = [p for p in pairs if p not in of_best and _is_same(p)]
    if len(others) > MOST_TIES:
        most = word_at_most(max(pair.at_most for pair in others))
        clauses.append(f"{len(others)} other pairs: no significant difference{most}")
    else:
        clauses += [_word_same(pair, entry["margin"]) for pair in others]
    if untested:
        few = sorted({n for p in untested for n in _list_few(p)}, key=ranked.index)
        num_seeds = min(pair.difference.num_seeds for pair in untested)
        clauses.append(f"{', '.join(few)}: {word_untested(num_seeds)}")
    return "; ".join(clauses)


def word_untested(num_seeds: int) -> str:
    """Why there is no verdict, and how many seeds are needed.

    >>> word_untested(1).partition(":")[0]
    'no verdict from 1 seed'
    """
    seeds = f"{num_seeds} seed{'s' * (num_seeds != 1)}"
    return (
        f"no verdict from {seeds}: at least {MIN_SEEDS} of each objective are needed "
        f"({GOOD_SEEDS} are recommended)"
    )


def word_at_most(at_most: float | None) -> str:
    """ ", at most 0.047" after "no significant difference"; "" if nothing bounds it."""
    return f", at most {format_number(at_most)}" if is_number(at_most) else ""


def _is_same(pair: Pair) -> bool:
    return pair.outcome in ("tie", "equivalent")


def _list_few(pair: Pair) -> list[str]:
    """The names of an untested pair that have too few seeds."""
    sides = zip(pair[1:3], (pair.difference.first, pair.difference.second), strict=True)
    return [name for name, sample in sides if 0 < sample.num < MIN_SEEDS]


def _word_same(pair: Pair, margin: float) -> str:
    """A pair whose difference is not significant."""
    names = f"{pair.better} and {pair.worse}"
    if pair.outcome == "equivalent":
        return f"{names}: equivalent within {margin:g} ({_word_difference(pair)})"
    at_most = word_at_most(pair.at_most)
    details = f"{_word_difference(pair)}; {_word_seeds(pair)}"
    return f"{names}: no significant difference{at_most} ({details})"


def _word_difference(pair: Pair) -> str:
    low, high = format_number(pair.low), format_number(pair.high)
    return f"{format_number(pair.difference.mean)} [{low}, {high}]"


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

"""Each objective against its random initialization and baselines without a network."""

from collections.abc import Iterable, Mapping

from jaxpt.report.diverged import word_left_out
from jaxpt.statistics.verdicts import Pair

# The other side of a pair. No name of a comparison has a parenthesis.
UNTRAINED, FREQUENCY, REFERENCE = "(untrained)", "(frequency)", "(reference)"
FREQUENCIES = "token frequencies"
FREQUENCY_SUFFIX = "_frequency"  # of a metric, measured for token frequencies


def name_part(entry: Mapping, name: str) -> str:
    """An objective's name, with the part of its network that a metric measures.

    Args:
      entry: of a metric; "parts" has the objectives that it measures by a part which
        is not the trained result (ELECTRA's generator).

    >>> name_part({"parts": {"electra": "its generator"}}, "electra")
    'electra (its generator)'
    """
    part = entry.get("parts", {}).get(name)
    return f"{name} ({part})" if part else name


def find_parts(metric: str, runs: list[dict], names: Iterable[str]) -> dict[str, str]:
    """By name, the part of its network that a metric measures, if only a part."""
    found = {run["name"]: run.get("parts", {}).get(metric, "") for run in runs}
    return {name: found[name] for name in names if found[name]}


def with_parts(pairs: Iterable[Pair], entry: dict) -> tuple[list[Pair], dict]:
    """Pairs and their metric's entry with `name_part` in the place of names."""
    named = [
        pair._replace(
            better=name_part(entry, pair.better), worse=name_part(entry, pair.worse)
        )
        for pair in pairs
    ]
    by_name = {
        name_part(entry, name): stats for name, stats in entry["by_name"].items()
    }
    return named, entry | {"by_name": by_name}


def list_baselines(report: dict) -> list[str]:
    """A line for each metric: which objectives are significantly above a baseline.

    Token frequencies need no context, and a network learns them first. So better than
    its random initialization is listed only together with better than these.
    """
    lines = []
    for yardstick in report["yardsticks"]:
        own = {UNTRAINED: "their own untrained parameters", FREQUENCY: FREQUENCIES}
        both = own, {REFERENCE: yardstick["reference"]}
        parts = [part for words in both if (part := _word(yardstick, words))]
        if parts:
            left_out = word_left_out(report, yardstick["by_name"])
            lines.append(f"{yardstick['label']}: {'; '.join(parts)}{left_out}")
    return lines


def _word(yardstick: Mapping, words: Mapping[str, str]) -> str:
    """Which objectives are ahead of all these baselines, and which behind any.

    Args:
      words: by baseline, what it is called; those that were not tested are left out.
    """
    outcomes: dict[str, list[str]] = {}
    controls = set()
    for pair in yardstick["baselines"]:
        is_better = pair["worse"] in words
        control = pair["worse" if is_better else "better"]
        if control not in words or pair["outcome"] == "untested":
            continue
        name = pair["better" if is_better else "worse"]
        is_significant = pair["outcome"] == "ahead"
        outcome = "neither" if not is_significant else "above" if is_better else "below"
        outcomes.setdefault(name, []).append(outcome)
        controls.add(control)
    if not outcomes:
        return ""
    above = {name for name, found in outcomes.items() if set(found) == {"above"}}
    below = {name for name, found in outcomes.items() if "below" in found}
    neither = outcomes.keys() - above - below

    def join(names) -> str:
        return ", ".join(
            name_part(yardstick, name) for name in yardstick["by_name"] if name in names
        )

    told = " and of ".join(words[each] for each in words if each in controls)
    parts = [f"ahead of {told}: {join(above) or 'nobody'}"]
    if below:
        parts.append(f"behind: {join(below)}")
    if above and neither:
        parts.append(f"neither: {join(neither)}")
    return ", ".join(parts)

"""A verdict as an entry of report.json, and as a sentence."""

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
        return "no verdict: two seeds or more are needed, five or more to tell much"
    judged = {name for pair in pairs for name in (pair.better, pair.worse)}
    means = {name: entry["by_name"][name]["mean"] for name in judged}
    sign = -1 if entry["higher_is_better"] else 1
    best = min(means, key=lambda name: (sign * means[name], name))
    of_best = [pair for pair in pairs if best in (pair.better, pair.worse)]
    ahead = [p for p in of_best if p.outcome == "ahead" and p.better == best]
    same = [pair for pair in of_best if pair.outcome == "equivalent"]
    ties = [pair for pair in of_best if pair.outcome == "tie"]
    untested = [_other(p, best) for p in of_best if p.outcome == "untested"]
    parts = []
    if ahead:
        told = ", ".join(f"{p.worse} by {_word_difference(p)}" for p in ahead)
        parts.append(f"{best} ahead of {told}")
    if same:
        told = ", ".join(f"{_other(p, best)} ({_word_difference(p)})" for p in same)
        parts.append(f"{best} equivalent to {told}, within {entry['margin']}")
    if ties:
        told = ", ".join(
            f"{_other(p, best)} ({_word_difference(p)}; {_word_seeds(p)})" for p in ties
        )
        parts.append(f"tie of {best} with {told}")
    if untested:
        parts.append(f"no verdict on {', '.join(untested)}: one seed")
    others = [
        f"{p.better} ahead of {p.worse} by {_word_difference(p)}"
        for p in pairs
        if p.better != best and p.outcome == "ahead"
    ]
    alike = [
        p for p in pairs if p not in of_best and p.outcome in ("tie", "equivalent")
    ]
    if len(alike) > MOST_TIES:
        others.append(f"{len(alike)} other pairs are ties")
    else:
        others += [
            f"tie of {p.better} with {p.worse} ({_word_difference(p)})"
            if p.outcome == "tie"
            else f"{p.better} equivalent to {p.worse} ({_word_difference(p)})"
            for p in alike
        ]
    return "; ".join([*parts, *others])


def _other(pair: Pair, name: str) -> str:
    return pair.worse if pair.better == name else pair.better


def _word_difference(pair: Pair) -> str:
    low, high = (_format(abs(x), x < 0) for x in (pair.low, pair.high))
    # Holm's test may find a difference whose simultaneous interval contains 0.
    p = f", p {pair.p:.2g}" if pair.outcome == "ahead" and pair.low <= 0 else ""
    return f"{_format(pair.difference.mean)} [{low}, {high}]{p}"


def _word_seeds(pair: Pair) -> str:
    if pair.seeds_needed:
        return f"a new comparison needs about {pair.seeds_needed} seeds"
    if pair.difference.mean == 0:
        return "no difference was measured"
    return "needs more test documents, not only more seeds"


def _format(value, is_negative=False):
    sign = "-" if is_negative else ""
    is_tiny = 0 < value < 0.0005
    return sign + (f"{value:.1e}" if is_tiny else f"{value:.3f}")

"""Verdicts on what is known only as a bound: in one direction, or not at all.

Of some models a metric is known to be at most some number (`masked_diffusion`'s bits
per byte). If that number is surely below another's value, the model is ahead of the
other, by at least the difference. If it is not, nothing follows: the model may be
better than its bound. Nor does anything follow from two bounds.
"""

from collections.abc import Iterable, Mapping

from jaxpt.statistics.verdicts import Pair, Results

SUFFIX = "_bound"
OPEN = "open"  # the outcome of which nothing follows


def pair_bounds(bounds: Results, exact: Results) -> list[Results]:
    """Each bound beside each value, to be judged; the metric is that of the bounds."""
    return [
        Results(
            bounds.metric,
            exact.higher_is_better,
            0.0,  # a bound that is near another's value is no equivalence
            {name: bounds.values[name], other: exact.values[other]},
            {
                each: found[each]
                for each, found in ((name, bounds.examples), (other, exact.examples))
                if each in found
            },
        )
        for name in bounds.values
        for other in exact.values
        if name != other
    ]


def open_bounds(pairs: Iterable[Pair], bounded: Mapping[str, object]) -> list[Pair]:
    """The pairs with the outcome of those from which nothing follows.

    Args:
      bounded: has the names whose value is a bound.
    """
    return [
        pair
        if pair.outcome == "untested"
        or (pair.outcome == "ahead" and pair.better in bounded)
        else pair._replace(outcome=OPEN, seeds_needed=None)
        for pair in pairs
    ]


def word_bounds(pairs: Iterable[Pair], bounded: Mapping[str, float]) -> list[str]:
    """What follows of each bound, a sentence each.

    Args:
      bounded: the mean of each name's bound.
    """
    lines = []
    for name, bound in bounded.items():
        own = [p for p in pairs if name in (p.better, p.worse)]
        ahead = [p for p in own if p.outcome == "ahead"]
        rest = [_other(p, name) for p in own if p.outcome == OPEN]
        parts = []
        if ahead:
            told = ", ".join(
                f"{p.worse} by {p.difference.mean:.3f} [{p.low:.3f}, {p.high:.3f}] or "
                f"more"
                for p in ahead
            )
            parts.append(f"is ahead of {told}")
        if rest:
            parts.append(f"may be ahead of {', '.join(rest)} or not")
        if parts:
            lines.append(f"{name}, at most {bound:.3f}, {'; '.join(parts)}")
    return lines


def _other(pair: Pair, name: str) -> str:
    return pair.worse if pair.better == name else pair.better

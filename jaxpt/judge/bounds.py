"""One-sided verdicts on metrics of which only an upper bound is known.

For some models a metric has a known upper bound (bits per byte of masked diffusion). If
the bound is significantly below the value of another model, the model is ahead, by at
least the difference. Otherwise nothing follows, because the model may be better than
its bound. Nothing follows from two bounds either.
"""

from collections.abc import Iterable, Mapping

from jaxpt.judge.verdicts import Pair, Results

SUFFIX = "_bound"
OPEN = "open"  # the outcome if nothing follows


def pair_bounds(bounds: Results, exact: Results) -> list[Results]:
    """Pairs of each bound and each exact value, on the metric of the bounds."""
    return [
        exact._replace(
            metric=bounds.metric,
            margin=0.0,  # a bound close to a value does not show equivalence
            values={name: bounds.values[name], other: exact.values[other]},
            examples={
                each: examples[each]
                for each, examples in (
                    (name, bounds.examples),
                    (other, exact.examples),
                )
                if each in examples
            },
        )
        for name in bounds.values
        for other in exact.values
        if name != other
    ]


def open_bounds(pairs: Iterable[Pair], bounded: Mapping[str, object]) -> list[Pair]:
    """The pairs, with the outcome `OPEN` if nothing follows.

    Args:
      bounded: contains the names whose value is a bound.
    """
    return [
        pair
        if pair.outcome == "untested"
        or (pair.outcome == "ahead" and pair.better in bounded)
        else pair._replace(outcome=OPEN, seeds_needed=None)
        for pair in pairs
    ]


def word_bounds(pairs: Iterable[Pair], bounded: Mapping[str, float]) -> list[str]:
    """One sentence per bound on its verdicts.

    Args:
      bounded: the mean of each name's bound.
    """
    lines = []
    for name, bound in bounded.items():
        named = [p for p in pairs if name in (p.better, p.worse)]
        ahead = [p for p in named if p.outcome == "ahead"]
        rest = [
            p.worse if p.better == name else p.better
            for p in named
            if p.outcome == OPEN
        ]
        parts = []
        if ahead:
            others = ", ".join(
                f"{p.worse} by {p.difference.mean:.3f} [{p.low:.3f}, {p.high:.3f}] or "
                f"more"
                for p in ahead
            )
            parts.append(f"is ahead of {others}")
        if rest:
            parts.append(f"may be ahead of {', '.join(rest)} or not")
        if parts:
            lines.append(f"{name}, at most {bound:.3f}, {'; '.join(parts)}")
    return lines

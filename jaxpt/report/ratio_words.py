"""Cost ratios in words, in a table and as CSV (`jaxpt.report.ratios`).

conclude_ratio     a sentence of the first answer
list_ratios        a line for each shared metric, with the note on what curves are
tabulate_ratios    all pairs under all conventions
list_rows          the same, for ratios.csv
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from jaxpt.report.conventions import TOLERANCE
from jaxpt.report.costs import EARLY, WRITE
from jaxpt.report.formats import MISSING
from jaxpt.report.pages import PageTable
from jaxpt.report.types import CostRatio, Metric, Report, Verdict
from jaxpt.report.wording import MAX_COUNTED, join, name_part

BUDGET_NOTE = "of several budgets, each a run with its own decay of the learning rate"
CURVE_NOTE = f"of learning curves within runs: {EARLY}, and the ratio farther from 1"

MOST_LISTED = 10  # in a line; ratios.csv has all
ROUNDING = 1e-6  # of two bounds that are the same end of a curve
HEADER = [  # of ratios.csv
    *("metric", "better", "worse", "cost", "basis", "ratio", "low", "high", "least"),
    *("most", "is_beyond"),
]


class ShownPair(NamedTuple):
    """A pair seen from the objective that others are compared with.

    Attributes:
      ratios: the cost of the other one over that of this one, by convention.
    """

    pair: Verdict
    name: str
    ratios: dict[str, CostRatio]


def invert(ratio: CostRatio) -> CostRatio:
    """The ratio of the two costs in the other order."""
    return dataclasses.replace(
        ratio,
        value=1 / ratio.value,
        low=None if ratio.high is None else 1 / ratio.high,
        high=None if ratio.low is None else 1 / ratio.low,
        least=1 / ratio.most,
        most=1 / ratio.least,
    )


def format_ratio(ratio: CostRatio) -> str:
    """A ratio with its interval, whose ends may be beyond the curves.

    >>> format_ratio(CostRatio(2.08, "curves", 1.66, 2.62, 0.13, 7.6))
    '2.08 [1.66, 2.62]'
    >>> format_ratio(CostRatio(4.5, "curves", 2.75, None, 0.14, 7.3))
    '4.50 [2.75, > 7.30]'
    >>> format_ratio(CostRatio(7.0, "curves", 6.12, None, 0.14, 7.0, True))
    'more than 7.00 [6.12 or more]'
    """
    value = format_value(ratio)
    if not ratio.is_beyond:
        low = f"< {_write(ratio.least)}" if ratio.low is None else _write(ratio.low)
        high = f"> {_write(ratio.most)}" if ratio.high is None else _write(ratio.high)
        return f"{value} [{low}, {high}]"
    end, words = ratio.low, "or more"
    if ratio.value == ratio.least:
        end, words = ratio.high, "or less"
    if end is None:
        return f"{value} [no bound]"
    is_same = abs(end / ratio.value - 1) < ROUNDING
    return value + f" [{_write(end)} {words}]" * (not is_same)


def format_value(ratio: CostRatio) -> str:
    """A ratio without its interval.

    >>> format_value(CostRatio(0.25, "curves", None, 0.9, 0.25, 4.0, True))
    'less than 0.25'
    """
    words = "more than " if ratio.value == ratio.most else "less than "
    return words * ratio.is_beyond + _write(ratio.value)


def _write(number: float) -> str:
    """Three figures: 0.48, 2.08, 12.3, 140."""
    return f"{number:.2f}" if number < 10 else f"{number:.3g}"


def is_apart(ratio: CostRatio) -> bool:
    """Whether the interval excludes 1."""
    is_more = ratio.low is not None and ratio.low > 1
    return is_more or (ratio.high is not None and ratio.high < 1)


def list_shown(metric: Metric) -> list[ShownPair]:
    """The pairs of the best objective, or of the control, in order of the means."""
    ranked = metric.rank()
    base = metric.control or next(iter(ranked), "")
    shown = []
    for pair in metric.pairs:
        if base in pair.names and pair.ratios:
            is_better = pair.better == base
            ratios = {
                kind: ratio if is_better else invert(ratio)
                for kind, ratio in pair.ratios.items()
            }
            shown.append(ShownPair(pair, pair.other(base), ratios))
    return sorted(shown, key=lambda each: ranked.index(each.name))


def find_kind(report: Report) -> str:
    """The convention that is written first: that of the budget, or FLOPs."""
    conventions = report.conventions
    if conventions is None:
        return ""
    return conventions.budget if conventions.budget in conventions.costs else "flops"


def conclude_ratio(report: Report) -> str:
    """A sentence on the first shared metric whose best is ahead of others; or "".

    It has the costs that those need which differ significantly.
    """
    kind = find_kind(report)
    for metric in report.list_shared():
        shown = [
            each
            for each in list_shown(metric)
            if kind in each.ratios and is_apart(each.ratios[kind])
        ]
        if shown:
            base = name_part(metric, shown[0].pair.other(shown[0].name))
            basis = shown[0].ratios[kind].basis.replace("curves", "learning curves")
            needs = _word_needs(metric, shown, kind)
            unit = f"{base}'s {WRITE[kind][0]}"
            return f"For the same {metric.label}, {needs} times {unit} (from {basis})."
    return ""


def _word_needs(metric: Metric, shown: list[ShownPair], kind: str) -> str:
    """Who needs how much, to be followed by "times X's FLOPs"."""
    if len(shown) > MAX_COUNTED:
        ordered = sorted(shown, key=lambda each: each.ratios[kind].value)
        ends = (
            f"{format_ratio(each.ratios[kind])} ({name_part(metric, each.name)})"
            for each in (ordered[0], ordered[-1])
        )
        return f"{len(shown)} others need {' to '.join(ends)}"
    parts = [
        f"{name_part(metric, each.name)} {'needs ' * (not i)}"
        f"{format_ratio(each.ratios[kind])}"
        for i, each in enumerate(shown)
    ]
    return join(parts)


def list_ratios(report: Report) -> list[str]:
    """A line for each shared metric that has cost ratios, and one on their curves."""
    kind = find_kind(report)
    lines, bases = [], set()
    for metric in report.list_shared():
        shown = [each for each in list_shown(metric) if kind in each.ratios]
        if not shown:
            continue
        bases |= {each.ratios[kind].basis for each in shown}
        base = name_part(metric, shown[0].pair.other(shown[0].name))
        parts = [_word_shown(metric, each, kind) for each in shown[:MOST_LISTED]]
        if len(shown) > MOST_LISTED:
            parts.append(f"{len(shown) - MOST_LISTED} others (ratios.csv)")
        lines.append(
            f"{metric.label}, times the {WRITE[kind][0]} of {base} for the same "
            f"quality: {'; '.join(parts)}"
        )
    if not lines:
        return []
    note = BUDGET_NOTE if "budgets" in bases else CURVE_NOTE
    return [
        f"cost ratios: the quality is that of the worse one at equal cost; an interval "
        f"excludes 1 if and only if the verdict there is significant. They are {note}",
        *lines,
    ]


def _word_shown(metric: Metric, shown: ShownPair, kind: str) -> str:
    """A ratio with its interval, and in brackets those that differ at other costs."""
    value = shown.ratios[kind].value
    rest = [
        f"{WRITE[other][0]} {format_value(ratio)}"
        for other, ratio in shown.ratios.items()
        if abs(ratio.value / value - 1) > TOLERANCE
    ]
    others = f" ({', '.join(rest)})" if rest else ""
    name = name_part(metric, shown.name)
    return f"{name} {format_ratio(shown.ratios[kind])}{others}"


def tabulate_ratios(report: Report) -> PageTable | None:
    """Every pair that has ratios, under every convention; None without any."""
    kinds = list(report.conventions.costs) if report.conventions else []
    rows = [
        [metric.label, *(name_part(metric, name) for name in pair.names[::-1])]
        + [format_ratio(ratios[kind]) if kind in ratios else MISSING for kind in kinds]
        for metric, pair, ratios in _list_pairs(report)
    ]
    header = [
        "metric",
        "costs of",
        "over those of",
        *(WRITE[kind][0] for kind in kinds),
    ]
    return PageTable(header, rows, 3) if rows else None


def list_rows(report: Report) -> list[list]:
    """The lines of ratios.csv: one for each pair and convention, without a header."""
    return [
        [metric.metric, pair.better, pair.worse, kind, ratio.basis]
        + [ratio.value, ratio.low, ratio.high, ratio.least, ratio.most, ratio.is_beyond]
        for metric, pair, ratios in _list_pairs(report)
        for kind, ratio in ratios.items()
    ]


def _list_pairs(
    report: Report,
) -> Iterator[tuple[Metric, Verdict, dict[str, CostRatio]]]:
    for metric in report.metrics:
        for pair in metric.pairs:
            if pair.ratios:
                yield metric, pair, pair.ratios

"""Verdicts in words: one phrase for each outcome, in every table, page and sentence.

    ahead         mlm ahead of clm by 0.030 [0.010, 0.050]
    tie           mlm and clm: no significant difference, at most 0.047 (...)
    equivalent    mlm and clm: equivalent within 0.01 (...)
    untested      no verdict from 3 seeds: at least 4 of each objective are needed
    open          of a bound from which nothing follows

`word_outcome` has the words without names, `word_pair` those of a pair, and `word_best`
the sentence of a metric: which objectives the best one is ahead of.
"""

import functools
from collections.abc import Collection, Iterable, Sequence

from jaxpt.judge.verdicts import GOOD_SEEDS, MIN_SEEDS
from jaxpt.report.formats import format_number, is_number, separate
from jaxpt.report.types import (
    Metric,
    Report,
    RunEntry,
    Verdict,
)

MAX_NAMES = 4  # listed in a sentence; more are counted
MAX_COUNTED = 3  # names in the first sentence; of more it has the number alone
NO_DIFFERENCE = "no significant difference"
WORDS = {"ahead": "ahead", "behind": "behind", "tie": NO_DIFFERENCE}
WORDS |= {"equivalent": "equivalent", "untested": "no verdict", "open": "open"}

# Baselines as the other side of a pair. No name of a comparison has a parenthesis.
UNTRAINED, FREQUENCY, REFERENCE = "(untrained)", "(frequency)", "(reference)"
NGRAMS = "(n-grams)"
RANDOM_INIT, FREQUENCIES = "random initialization", "token frequencies"
BAG_OF_NGRAMS = "a bag of n-grams"
FREQUENCY_SUFFIX = "_frequency"  # of a metric, measured for token frequencies
NGRAMS_SUFFIX = "_ngrams"  # of a downstream metric, measured for `jaxpt.tasks.ngrams`


def word_outcome(pair: Verdict, margin: float = 0.0) -> str:
    """What the test says of a pair, without names and numbers of the difference.

    >>> word_outcome(Verdict("mlm", "clm", "tie", 0.02, at_most=0.047))
    'no significant difference, at most 0.047'
    """
    if pair.outcome == "untested":
        return word_untested(pair.seeds)
    if pair.outcome == "equivalent":
        return f"equivalent within {margin:g}"
    at_most = word_at_most(pair.at_most) if pair.outcome == "tie" else ""
    return WORDS[pair.outcome] + at_most


def word_pair(pair: Verdict, margin: float) -> str:
    """The verdict on a pair with its names and its difference.

    >>> word_pair(Verdict("mlm", "clm", "ahead", 0.03, 0.01, 0.05), 0.01)
    'mlm ahead of clm by 0.030 [0.010, 0.050]'
    """
    if pair.outcome == "ahead":
        return f"{pair.better} ahead of {pair.worse} by {word_difference(pair)}"
    text = f"{pair.better} and {pair.worse}: {word_outcome(pair, margin)}"
    if not pair.is_same:
        return text
    details = word_difference(pair)
    if pair.outcome == "tie":
        details += f"; {word_seeds(pair)}"
    return f"{text} ({details})"


def word_difference(pair: Verdict) -> str:
    """The difference with its interval, if it has one.

    >>> word_difference(Verdict("mlm", "clm", "ahead", 0.03, 0.01, 0.05))
    '0.030 [0.010, 0.050]'
    """
    if not is_number(pair.difference):
        return ""
    text = format_number(pair.difference)
    if not is_number(pair.low) or not is_number(pair.high):
        return text
    return f"{text} [{format_number(pair.low)}, {format_number(pair.high)}]"


def word_seeds(pair: Verdict) -> str:
    """What a new comparison needs for a pair without a significant difference."""
    if pair.seeds_needed:
        return f"a new comparison needs about {pair.seeds_needed} seeds"
    if pair.difference == 0:
        return "no difference was measured"
    return "needs more test documents, not only more seeds"


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


def is_ahead(metric: Metric, name: str) -> bool:
    """Whether a name is ahead of all others, or of the control."""
    others = {metric.control} if metric.control else metric.by_name.keys() - {name}
    behind = {
        pair.worse
        for pair in metric.pairs
        if pair.outcome == "ahead" and pair.better == name
    }
    return bool(others) and others <= behind


def word_best(metric: Metric) -> str:
    """Which objectives the best one is ahead of; "" if only one was measured."""
    show = functools.partial(name_part, metric)
    ranked, pairs = [show(name) for name in metric.rank()], _list_pairs(metric)
    if len(ranked) < 2 or not pairs:
        return ""
    if all(pair.outcome == "untested" for pair in pairs):
        seeds = max(pair.seeds for pair in pairs)
        return f"{word_untested(seeds).partition(':')[0]} ({MIN_SEEDS} are needed)"
    if metric.control:
        return _word_control(show(metric.control), pairs, len(ranked) - 1)
    best = ranked[0]
    outcomes = {pair.other(best): pair for pair in pairs if best in pair.names}
    worse = [n for n in ranked if n in outcomes and outcomes[n].outcome == "ahead"]
    same = [n for n in ranked if n in outcomes and outcomes[n].is_same]
    if all(pair.outcome != "ahead" for pair in pairs):
        among = f" between {join(sorted(ranked))}" * (len(ranked) <= MAX_NAMES)
        if all(pair.outcome == "equivalent" for pair in pairs):
            return f"all are equivalent within {metric.margin:g}"
        return f"{NO_DIFFERENCE}{among}{_bound(pairs)}"
    claim = f"ahead of {count(worse, len(ranked) - 1)}" if worse else ""
    text = f"{best} is {claim}" if claim else f"{best} has the best mean"
    if same:
        return f"{text}, {NO_DIFFERENCE} from {count(same)}{_bound(outcomes.values())}"
    return text if worse else f"{text} but no verdict"


def _word_control(control: str, pairs: Sequence[Verdict], num_others: int) -> str:
    """Which objectives differ from the control."""
    ahead = [pair for pair in pairs if pair.outcome == "ahead"]
    better = [pair.better for pair in ahead if pair.worse == control]
    worse = [pair.worse for pair in ahead if pair.better == control]
    clauses = []
    if better:
        verb = "is" if len(better) == 1 else "are"
        clauses.append(f"{count(better, num_others)} {verb} ahead of {control}")
    if worse:
        clauses.append(f"{control} is ahead of {count(worse, num_others)}")
    return "; ".join(clauses) or f"{NO_DIFFERENCE} from {control}{_bound(pairs)}"


def _bound(pairs: Iterable[Verdict]) -> str:
    """ " (at most 0.047)": the largest difference of pairs that do not differ."""
    ends = [pair.at_most for pair in pairs if pair.is_same]
    known = [end for end in ends if is_number(end)]
    if not ends or len(known) < len(ends):
        return ""
    return f" ({word_at_most(max(known)).removeprefix(', ')})"


def count(names: Sequence[str], num_all: int = 0) -> str:
    """At most `MAX_COUNTED` names as text, or how many there are.

    Args:
      num_all: names that there are, if the text may say so.

    >>> count("abc", 6), count("abcd", 4), count("abcd", 6), count("abcd")
    ('a, b and c', 'all 4 others', '4 of 6 others', '4 others')
    """
    if len(names) <= MAX_COUNTED:
        return join(names)
    if len(names) == num_all:
        return f"all {num_all} others"
    return f"{len(names)} of {num_all} others" if num_all else f"{len(names)} others"


def join(names: Sequence[str]) -> str:
    """Names as text; of more than `MAX_NAMES` the rest is counted.

    Names with a comma are divided by semicolons.

    >>> join(["a", "b", "c"]), join("abcdef")
    ('a, b and c', 'a, b, c and 3 more')
    >>> join(["accuracy, 32 labels", "accuracy, 100 labels"])
    'accuracy, 32 labels; and accuracy, 100 labels'
    """
    shown = list(names)
    if len(names) > MAX_NAMES:
        rest = len(names) - MAX_NAMES + 1
        shown = [*names[: MAX_NAMES - 1], f"{rest} more"]
    *first, last = shown
    if not first:
        return last
    comma = separate(shown)
    end = " and " if comma == ", " else "; and "
    return f"{comma.join(first)}{end}{last}"


def name_part(metric: Metric, name: str) -> str:
    """An objective's name, with the part of its network that a metric measures.

    A metric may measure only a part that is not the trained result, as ELECTRA's
    generator: 'electra (its generator)'.
    """
    part = metric.parts.get(name)
    return f"{name} ({part})" if part else name


def find_parts(
    metric: str, runs: Iterable[RunEntry], names: Iterable[str]
) -> dict[str, str]:
    """By name, the part of its network that a metric measures, if only a part."""
    parts = {run.name: run.parts.get(metric, "") for run in runs}
    return {name: parts[name] for name in names if parts[name]}


def _list_pairs(metric: Metric) -> list[Verdict]:
    """The pairs of a metric with `name_part` instead of names."""
    return [_with_parts(pair, metric) for pair in metric.pairs]


def _with_parts(pair: Verdict, metric: Metric) -> Verdict:
    better, worse = (name_part(metric, name) for name in pair.names)
    return Verdict(**{**vars(pair), "better": better, "worse": worse})


def list_own_controls(report: Report) -> list[str]:
    """A line for each objective with own controls: the verdicts on these pairs."""
    lines = []
    for name, controls in report.config.get("compare", {}).get("controls", {}).items():
        clauses = []
        for metric in report.list_shared():
            texts = [
                word_pair(_with_parts(pair, metric), metric.margin)
                for control in controls
                for pair in metric.pairs
                if {*pair.names} == {name, control}
            ]
            clauses += [f"{metric.label}: {'; '.join(texts)}"] * bool(texts)
        if clauses:
            lines.append(f"{name} and its controls: {'; '.join(clauses)}")
    return lines


def read_baselines(
    metric: Metric, controls: Collection[str]
) -> dict[str, dict[str, str]]:
    """By name, how it compares with each baseline: "ahead", "behind" or "tie".

    Args:
      controls: the baselines to read, such as `UNTRAINED`; those that were not tested
        are left out.
    """
    outcomes: dict[str, dict[str, str]] = {}
    for pair in metric.baselines:
        is_better = pair.worse in controls
        control = pair.worse if is_better else pair.better
        if control in controls and pair.outcome != "untested":
            outcome = "ahead" if is_better else "behind"
            is_significant = pair.outcome == "ahead"
            results = outcomes.setdefault(pair.other(control), {})
            results[control] = outcome if is_significant else "tie"
    return {name: outcomes[name] for name in metric.by_name if name in outcomes}


def name_baselines(metric: Metric) -> dict[str, str]:
    """By baseline of a metric, its name in text."""
    return {
        UNTRAINED: RANDOM_INIT,
        FREQUENCY: FREQUENCIES,
        REFERENCE: metric.reference,
        NGRAMS: BAG_OF_NGRAMS,
    }

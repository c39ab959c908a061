"""Tasks that are put to a network as it is: `jaxpt evaluate --tasks NAME:PATH`.

A task reads its items from a path and asks for them; nothing is trained. `TASKS` has
them by name.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxpt.errors import UserError
from jaxpt.eval import pairs
from jaxpt.eval.scoring import TextScorer

ALL = "all"  # every rule of the network


class Asker(NamedTuple):
    """What a task asks: texts are encoded and then scored.

    Attributes:
      scorer: of texts as ids.
      encode: the ids of a text, without what a run puts around it.
    """

    scorer: TextScorer
    encode: Callable[[str], np.ndarray]


class Figure(NamedTuple):
    """A number with the ends of its 95 % interval, and how that was found."""

    value: float
    low: float
    high: float
    method: str


class Outcome(NamedTuple):
    """What a task found by one rule.

    Attributes:
      figures: by name, the main one first.
      trivial: what answers without the network would have, by name.
      groups: by kind of group and its name, numbers by name.
      columns: by name a number of each item.
      notes: whole sentences on what one should know.
    """

    figures: dict[str, Figure]
    trivial: dict[str, float]
    groups: dict[str, dict[str, dict[str, float]]]
    columns: dict[str, np.ndarray]
    notes: list[str]


class Task(NamedTuple):
    """A downstream task without training.

    Attributes:
      read: a path -> its items, in an order of which any evenly spaced part is fair.
      evaluate: (asker, items, rules) -> by rule, what was found.
    """

    read: Callable[[str], Sequence]
    evaluate: Callable[[Asker, Sequence, Sequence[str]], dict[str, Outcome]]


def find_rules(scorer: TextScorer, rule: str) -> tuple[str, ...]:
    """The rules that a flag names: all of the network's, `auto`, or one.

    Raises:
      UserError: the network has no such rule.
    """
    return scorer.rules if rule == ALL else (scorer.find_rule(rule),)


def list_tasks(told: Sequence[str]) -> list[tuple[str, str]]:
    """Names and paths of `NAME:PATH`s.

    >>> list_tasks(["blimp:data/blimp"])
    [('blimp', 'data/blimp')]

    Raises:
      UserError: no path, a task that there is not, or one of them twice.
    """
    found = []
    for each in told:
        name, mark, path = each.partition(":")
        if name not in TASKS or not mark or not path:
            allowed = ", ".join(f"{name}:PATH" for name in TASKS)
            raise UserError(f"--tasks={each}: must be one of {allowed}")
        if (name, path) in found:
            raise UserError(f"--tasks={each}: is named twice")
        found.append((name, path))
    return found


def spread_items(items: Sequence, num: int) -> list[int]:
    """The indices of at most `num` items, spread evenly; 0 is all.

    >>> spread_items("abcdefghij", 4)
    [0, 2, 5, 7]
    """
    if num <= 0 or num >= len(items):
        return list(range(len(items)))
    return [i * len(items) // num for i in range(num)]


def evaluate_pairs(
    asker: Asker, items: Sequence[pairs.Pair], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Minimal pairs (`jaxpt.eval.pairs`)."""
    sums, lengths = pairs.score_pairs(*asker, items, rules)
    shorter = float(pairs.find_hits(-lengths).mean())
    trivial = {"accuracy_of_chance": 0.5, "accuracy_of_the_shorter": shorter}
    num_same = sum(pair.good == pair.bad for pair in items)
    found = {}
    for rule, scores in sums.items():
        judged = pairs.judge(items, scores)
        figures = {
            name: Figure(*values, pairs.METHOD)
            for name, values in judged.figures.items()
        }
        notes = [f"{judged.num_ties} ties count one half each."]
        if num_same:
            notes.append(f"{num_same} pairs are two identical texts.")
        columns = {"good": scores[:, 0], "bad": scores[:, 1]}
        found[rule] = Outcome(figures, trivial, judged.groups, columns, notes)
    return found


TASKS: dict[str, Task] = {
    "blimp": Task(pairs.read_pairs, evaluate_pairs),
    "pairs": Task(pairs.read_pairs, evaluate_pairs),
}


def to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome's plain values, without its columns."""
    return {
        "figures": {name: each._asdict() for name, each in outcome.figures.items()},
        "trivial": outcome.trivial,
        "groups": outcome.groups,
        "notes": outcome.notes,
    }

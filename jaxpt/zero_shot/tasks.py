"""Zero-shot tasks by name: `jaxpt evaluate --tasks NAME:PATH`.

A task reads its items from a path and evaluates them without training.
"""

from collections.abc import Sequence
from typing import Any

from jaxpt.errors import ConfigError, argument
from jaxpt.zero_shot import (
    babylm,
    generation,
    multilingual,
    pairs,
    reading,
    retrieval,
    sentence_similarity,
)
from jaxpt.zero_shot.elsewhere import find_elsewhere
from jaxpt.zero_shot.names import NAMES
from jaxpt.zero_shot.outcomes import (
    EvalContext,
    Outcome,
    TaskOptions,
    ZeroShotTask,
    make_figures,
    to_numbers,
)
from jaxpt.zero_shot.scoring import AUTO, TextScorer
from jaxpt.zero_shot.text_tasks import make_tasks

ALL = "all"  # all rules of the network


def find_rules(scorer: TextScorer, rule: str) -> tuple[str, ...]:
    """The rules of a flag: all rules of the network, `auto`, or one."""
    return scorer.rules if rule == ALL else (scorer.find_rule(rule),)


def find_own_rules(name: str, rule: str) -> tuple[str, ...]:
    """The rules of a flag for a task that has its own.

    >>> find_own_rules("sts", "auto"), find_own_rules("sts", "last")
    (('mean',), ('last',))
    """
    known = tuple(TASKS[name].own_rules)
    if rule not in (ALL, AUTO, *known):
        allowed = ", ".join((ALL, AUTO, *known))
        raise ConfigError(
            f"{argument('rule')}={rule}: must be one of {allowed} for {name}"
        )
    return known if rule == ALL else (known[0] if rule == AUTO else rule,)


def list_tasks(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The names and paths of `NAME:PATH` arguments.

    >>> list_tasks(["blimp:data/blimp"])
    [('blimp', 'data/blimp')]
    """
    tasks = []
    for each in arguments:
        name, mark, path = each.partition(":")
        if name not in TASKS or not mark or not path:
            allowed = ", ".join(f"{name}:PATH" for name in TASKS)
            if name in TASKS:
                allowed = f"{name}:PATH, with the path of its data"
            elif elsewhere := find_elsewhere(name):
                raise ConfigError(f"{argument('tasks')}={each}: {elsewhere}")
            else:
                allowed = f"one of {allowed} (docs/downstream.md)"
            raise ConfigError(f"{argument('tasks')}={each}: must be {allowed}")
        if (name, path) in tasks:
            raise ConfigError(f"{argument('tasks')}={each}: is named twice")
        tasks.append((name, path))
    return tasks


def spread_items(items: Sequence, num: int) -> list[int]:
    """The indices of at most `num` evenly spaced items; 0 for all.

    >>> spread_items("abcdefghij", 4)
    [0, 2, 5, 7]
    """
    if num <= 0 or num >= len(items):
        return list(range(len(items)))
    return [i * len(items) // num for i in range(num)]


def evaluate_pairs(
    eval_context: EvalContext, items: Sequence[pairs.TextPair], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Minimal pairs (`jaxpt.zero_shot.pairs`)."""
    sums, lengths = pairs.score_pairs(
        eval_context.scorer, eval_context.encode, items, rules
    )
    shorter = float(pairs.find_hits(-lengths).mean())
    trivial = {"accuracy_of_chance": 0.5, "accuracy_of_the_shorter": shorter}
    num_same = sum(pair.good == pair.bad for pair in items)
    outcomes = {}
    for rule, scores in sums.items():
        result = pairs.judge(items, scores)
        figures = make_figures(result.figures)
        notes = [f"Ties: {result.num_ties}; each counts one half."]
        if num_same:
            notes.append(f"{num_same} pairs are two identical texts.")
        hits, weights = pairs.weigh_hits(items, scores)
        columns = {"good": scores[:, 0], "bad": scores[:, 1]}
        columns |= {"hit": hits, "weight": weights}
        outcomes[rule] = Outcome(figures, trivial, result.groups, columns, notes)
    return outcomes


_MADE: dict[str, ZeroShotTask] = {
    "blimp": ZeroShotTask(pairs.read_pairs, evaluate_pairs),
    "pairs": ZeroShotTask(pairs.read_pairs, evaluate_pairs),
    **make_tasks(),
    **babylm.make_tasks(),
    **reading.make_tasks(),
    "sts": sentence_similarity.TASK,
    "retrieval": retrieval.TASK,
    "generation": generation.TASK,
    **multilingual.make_tasks(),
}
TASKS: dict[str, ZeroShotTask] = {name: _MADE[name] for name in NAMES}


def pick_options(task: ZeroShotTask, options: TaskOptions) -> dict[str, Any]:
    """The options that a task reads."""
    return {name: getattr(options, name) for name in task.options}


def check_options(names: Sequence[str], options: TaskOptions) -> None:
    """Checks that a task reads each of the given options."""
    for name, default in TaskOptions()._asdict().items():
        value = getattr(options, name)
        readers = [task for task in names if name in TASKS[task].options]
        if value != default and not readers:
            raise ConfigError(
                f"{argument(name)}={value}: is read by none of {', '.join(names)}"
            )
        if value != default and name == "shots" and len(readers) > 1:
            raise ConfigError(
                f"{argument('shots')}={value}: is of one task; evaluate them in turn"
            )


def to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome without its columns as plain values; NaN becomes None, JSON's null."""
    return {
        "figures": {
            name: to_numbers(each._asdict()) for name, each in outcome.figures.items()
        },
        "trivial": outcome.trivial,
        "groups": {
            kind: {name: to_numbers(numbers) for name, numbers in groups.items()}
            for kind, groups in outcome.groups.items()
        },
        "notes": outcome.notes,
    }

"""Arranges the scores of a metric as runs by examples, as `jaxpt.judge` takes them.

Verdicts pair the test examples of two systems, so every run must have a score of each
example, once, in the same group and with the same weight.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import DataError
from jaxpt.external.score_rows import ScoreRows, read_numbers
from jaxpt.judge.examples import Examples
from jaxpt.judge.verdicts import Results


class Codes(NamedTuple):
    """A column as numbers: the place of each row's value among the distinct ones."""

    places: Int[np.ndarray, "N"]
    known: list


class Arranged(NamedTuple):
    """The scores of one metric.

    Attributes:
      costs: by system, the mean cost of its runs; {} if there are none.
      is_share: whether every score is 0 or 1.
      num_examples: of each run; 0 if there are none.
    """

    results: Results
    costs: dict[str, float]
    is_share: bool
    num_examples: int


def arrange(
    rows: ScoreRows,
    higher_is_better: bool = True,
    margin: float = 0.0,
    span: float | None = None,
    is_fixed: bool = False,
) -> Arranged:
    """The scores by run and example.

    Args:
      higher_is_better, margin: as of `Results`.
      span: the same; None is 1 if every score is 0 or 1, and else none.
      is_fixed: no score depends on a seed, so that verdicts are on these runs alone.
    """
    score = np.array(read_numbers(rows.score, rows.label, rows.at))
    system, seed = _number(rows.system, str), _number(rows.seed, _read_seed)
    run = _cross(system, seed)
    is_share = bool(np.isin(score, (0.0, 1.0)).all())
    if span is None:
        span = 1.0 if is_share and rows.example is not None else np.inf
    values: dict[str, dict[Any, float]] = {name: {} for name in system.known}
    examples: dict[str, dict[Any, Examples]] = {}
    names = run.known
    if rows.example is None:
        _check_once(rows, run, names)
        for (name, label), value in zip(names, score.tolist(), strict=True):
            values[name][label] = value
    else:
        for (name, label), each in zip(
            names, _list_examples(rows, run, names, score), strict=True
        ):
            values[name][label] = each.mean
            examples.setdefault(name, {})[label] = each
    results = Results(
        rows.metric,
        higher_is_better,
        margin,
        values,
        examples,
        span,
        tuple(values) if is_fixed else (),
    )
    num = len(score) // len(names) if examples else 0
    return Arranged(results, _average_costs(rows, run, names), is_share, num)


def _number(values: list, read: Callable[[Any], Hashable]) -> Codes:
    """A column as numbers, of the values as they are read."""
    known: dict[Hashable, int] = {}
    places = {
        value: known.setdefault(read(value), len(known))
        for value in dict.fromkeys(values)
    }
    of_rows = np.fromiter(map(places.__getitem__, values), np.int64, len(values))
    return Codes(of_rows, list(known))


def _cross(system: Codes, seed: Codes) -> Codes:
    """Runs: a system and a seed."""
    keys = system.places * len(seed.known) + seed.places
    known, places = np.unique(keys, return_inverse=True)
    pairs = [divmod(key, len(seed.known)) for key in known.tolist()]
    return Codes(places, [(system.known[i], seed.known[j]) for i, j in pairs])


def _read_seed(value: Any) -> Any:
    """A seed as a whole number if it is one, so that 1, "1" and 1.0 are the same."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return int(number) if number.is_integer() else str(value)


def _check_once(rows: ScoreRows, run: Codes, names: list[tuple]) -> None:
    first: dict[int, int] = {}
    for row, place in enumerate(run.places.tolist()):
        if place in first:
            _refuse_repeated(rows, row, first[place], names[place], "")
        first[place] = row


def _refuse_repeated(
    rows: ScoreRows, row: int, first: int, name: tuple, example: str
) -> None:
    here = rows.at(first).removeprefix(f"{rows.source}: ")
    more = ""
    if not example and rows.example is None:
        more = ", or have a column of examples"
    raise DataError(
        f"{rows.at(row)}: repeats {name[0]}, seed {name[1]}{example} of {here}; "
        f"must be once for each metric{more}"
    )


def _list_examples(
    rows: ScoreRows, run: Codes, names: list[tuple], score: Float[np.ndarray, "N"]
) -> list[Examples]:
    """The examples of each run, all in one order."""
    assert rows.example is not None
    example = _number(rows.example, str)
    num = len(example.known)
    _check_complete(rows, run, example, names)
    group = example.places
    if rows.group is not None:
        group = _number(rows.group, str).places
    groups = _take_constant(rows, example, group, "group", rows.group)
    weights = np.ones(num)
    if rows.weight is not None:
        given = np.array(read_numbers(rows.weight, "weight", rows.at))
        if (given < 0).any():
            row = int(np.argmax(given < 0))
            raise DataError(f"{rows.at(row)}: weight is {given[row]:g}; must be >= 0")
        weights = _take_constant(rows, example, given, "weight", rows.weight)
        if not weights.any():
            raise DataError(f"{rows.source}: all weights are 0; one must be above 0")
    table = np.empty((len(names), num))
    table[run.places, example.places] = score
    return [Examples(each * weights, weights, groups) for each in table]


def _check_complete(
    rows: ScoreRows, run: Codes, example: Codes, names: list[tuple]
) -> None:
    """Raises DataError if a run has an example twice, or not at all."""
    num = len(example.known)
    keys = run.places * num + example.places
    if len(keys) == num * len(names) and (np.bincount(keys) == 1).all():
        return
    order = np.argsort(keys, kind="stable")
    is_again = np.diff(keys[order]) == 0
    if is_again.any():
        place = int(np.argmax(is_again))
        first, row = int(order[place]), int(order[place + 1])
        text = f", example {example.known[example.places[row]]},"
        _refuse_repeated(rows, row, first, names[run.places[row]], text)
    counts = np.bincount(run.places, minlength=len(names))
    if (counts == num).all():
        return
    place = int(np.argmax(counts < num))
    own = set(example.places[run.places == place].tolist())
    lost = [name for i, name in enumerate(example.known) if i not in own]
    name, label = names[place]
    more = f" and {len(lost) - 3} more" * (len(lost) > 3)
    raise DataError(
        f"{rows.source}: {name}, seed {label}, has no {rows.metric} of {len(lost)} of "
        f"{num} examples: {', '.join(lost[:3])}{more}; every run must have all"
    )


def _take_constant(
    rows: ScoreRows, example: Codes, values: np.ndarray, name: str, written: list | None
) -> np.ndarray:
    """The value of each example, which must be the same in all of its rows."""
    by_example = np.empty(len(example.known), values.dtype)
    by_example[example.places[::-1]] = values[::-1]  # of the first row
    differs = by_example[example.places] != values
    if differs.any():
        assert written is not None
        row = int(np.argmax(differs))
        first = int(np.argmax(example.places == example.places[row]))
        raise DataError(
            f"{rows.at(row)}: example {example.known[example.places[row]]} has the "
            f"{name} {written[row]}, and {written[first]} in "
            f"{rows.at(first).removeprefix(f'{rows.source}: ')}; must be the same"
        )
    return by_example


def _average_costs(rows: ScoreRows, run: Codes, names: list[tuple]) -> dict[str, float]:
    """By system, the mean of its runs' costs, each of which must be one number."""
    if rows.cost is None:
        return {}
    cost = np.array(read_numbers(rows.cost, "cost", rows.at))
    by_run = np.empty(len(names))
    by_run[run.places[::-1]] = cost[::-1]
    differs = by_run[run.places] != cost
    if differs.any():
        row = int(np.argmax(differs))
        place = run.places[row]
        name, label = names[place]
        raise DataError(
            f"{rows.at(row)}: {name}, seed {label}, has the cost {cost[row]:g}, and "
            f"{by_run[place]:g} before; must be one cost for each run"
        )
    costs: dict[str, list[float]] = {}
    for (name, _), value in zip(names, by_run.tolist(), strict=True):
        costs.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in costs.items()}

"""Turns the columns of a table into scores: one `ScoreRows` for each metric.

    system  seed  example  group  score  cost     a score of one example
    system  seed                  score  cost     the score of a run: seeds only
    system  seed  step            score  cost     a history, of which the last is taken

Only `system` and a score must be there. Several metrics are the values of a column
`metric`, or several columns of scores. `weight` is that of an example in its mean.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxpt.errors import DataError, argument, suggest
from jaxpt.external.columns import Columns

SEED = re.compile(r"(?:^|[-_. /]+)seed[-_= ]?(\d+)|[-_. /]+s(\d+)$", re.I)
# Of a chart that Weights & Biases exports: "NAME - METRIC", and its extremes.
WANDB = re.compile(r"(.+) - (.+?)")
EXTREMES = ("__MIN", "__MAX")
STEPS = ("step", "_step", "global_step", "trainer/global_step")


@dataclasses.dataclass(frozen=True)
class ColumnNames:
    """The columns of a table; "" is the name in `DEFAULTS`, if the table has it."""

    system: str = ""
    seed: str = ""
    example: str = ""
    group: str = ""
    score: tuple[str, ...] = ()
    cost: str = ""
    metric: str = ""
    step: str = ""
    weight: str = ""


class ScoreRows(NamedTuple):
    """The scores of one metric, a row each.

    Attributes:
      metric: its name.
      at: the place of a row, as errors begin.
      system, seed, score: of each row.
      example, group, weight, cost: the same; None if there are none.
      label: by field, the column's name, for errors.
      higher_is_better: None if it is not known.
    """

    metric: str
    source: str
    at: Callable[[int], str]
    system: list
    seed: list
    score: list
    example: list | None = None
    group: list | None = None
    weight: list | None = None
    cost: list | None = None
    label: str = "score"
    higher_is_better: bool | None = None


def split_seed(name: str) -> tuple[str, int | None]:
    """A run's name without its seed, and the seed.

    >>> split_seed("mlm-seed3"), split_seed("seed_2/bert-base"), split_seed("gpt2-s1")
    (('mlm', 3), ('bert-base', 2), ('gpt2', 1))
    >>> split_seed("t5-small"), split_seed("gpt2")
    (('t5-small', None), ('gpt2', None))
    """
    match = SEED.search(name)
    if not match:
        return name, None
    rest = (name[: match.start()] + name[match.end() :]).strip("-_. /")
    return rest or name, int(match[1] or match[2])


def find_scores(columns: Columns, names: ColumnNames) -> list[ScoreRows]:
    """The scores of each metric of a table."""
    if "system" not in columns.values and not names.system:
        columns = _melt_chart(columns)
    found = {
        field.name: _find_column(columns, field.name, getattr(names, field.name))
        for field in dataclasses.fields(names)
        if field.name != "score"
    }
    if not found["system"]:
        _refuse_missing(columns, "system", "system")
    scores = list(names.score) or ["score"]
    for name in scores:
        if name not in columns.values:
            _refuse_missing(columns, name, "score")
    if found["metric"] and len(scores) > 1:
        raise DataError(
            f"{argument('score')}={','.join(scores)}: must be one column, as the "
            f"metric of each row is in the column {found['metric']!r} of "
            f"{columns.source}"
        )
    if found["step"] and found["example"]:
        raise DataError(
            f"{columns.source}: has the columns {found['step']!r} and "
            f"{found['example']!r}; a history must be without examples: remove one"
        )
    return [
        rows
        for name in scores
        for part, metric in _split_metrics(columns, found["metric"], name)
        for rows in [_gather(part, metric, name, found)]
    ]


def _find_column(columns: Columns, field: str, name: str) -> str:
    """The name of an optional column; "" if the table does not have it."""
    if name and name not in columns.values:
        _refuse_missing(columns, name, field)
    known = STEPS if field == "step" else (field,)
    return name or next((each for each in known if each in columns.values), "")


def _refuse_missing(columns: Columns, name: str, field: str) -> None:
    known = ", ".join(columns.values)
    raise DataError(
        f"{columns.source}: has no column {name!r}{suggest(name, columns.values)}; its "
        f"columns are {known}, of which {argument(field)} names another"
    )


def _split_metrics(
    columns: Columns, metric: str, score: str
) -> list[tuple[Columns, str]]:
    """The rows of each metric, with its name."""
    if not metric:
        return [(columns, score)]
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(columns.values[metric]):
        if _is_blank(value):
            raise DataError(f"{columns.at(row)}: {metric} is empty; must name a metric")
        rows.setdefault(str(value), []).append(row)
    return [(columns.take(of), name) for name, of in rows.items()]


def _is_blank(value: Any) -> bool:
    """Whether a cell is empty; NaN is that of pandas."""
    return value is None or value == "" or value != value


def _gather(
    columns: Columns, metric: str, score: str, found: dict[str, str]
) -> ScoreRows:
    if found["step"]:
        columns = _take_last(columns, score, found)
    values = columns.values

    def read(field: str) -> list | None:
        return values[found[field]] if found[field] else None

    example = read("example")
    if example is not None:
        blank = []
        if any(map(_is_blank, dict.fromkeys(example))):
            blank = [row for row, value in enumerate(example) if _is_blank(value)]
        if 0 < len(blank) < len(example):
            raise DataError(
                f"{columns.at(blank[0])}: {found['example']} is empty; must be given "
                f"in all rows of {metric} or in none"
            )
        example = None if blank else example
    return ScoreRows(
        metric=metric,
        source=columns.source,
        at=columns.at,
        system=_read_names(columns, found["system"]),
        seed=read("seed") or [0] * len(values[score]),
        score=values[score],
        example=example,
        group=read("group") if example is not None else None,
        weight=read("weight") if example is not None else None,
        cost=read("cost"),
        label=score,
    )


def _read_names(columns: Columns, name: str) -> list:
    values = columns.values[name]
    if any(map(_is_blank, dict.fromkeys(values))):
        row = next(row for row, value in enumerate(values) if _is_blank(value))
        raise DataError(f"{columns.at(row)}: {name} is empty; must name a system")
    return values


def _take_last(columns: Columns, score: str, found: dict[str, str]) -> Columns:
    """The last step of each run that has a score."""
    steps = read_numbers(columns.values[found["step"]], found["step"], columns.at)
    systems = columns.values[found["system"]]
    seeds = columns.values[found["seed"]] if found["seed"] else [0] * len(steps)
    last: dict[tuple, int] = {}
    for row, value in enumerate(columns.values[score]):
        if _is_blank(value):
            continue
        key = str(systems[row]), str(seeds[row])
        if key in last and steps[row] == steps[last[key]]:
            raise DataError(
                f"{columns.at(row)}: repeats step {steps[row]:g} of {key[0]}, seed "
                f"{key[1]}, of {columns.at(last[key]).partition(': ')[2]}; must be once"
            )
        if key not in last or steps[row] > steps[last[key]]:
            last[key] = row
    if not last:
        raise DataError(f"{columns.source}: column {score!r} is empty in all rows")
    return columns.take(list(last.values()))


def read_numbers(
    values: Sequence, name: str, at: Callable[[int], str], allowed: str = "a number"
) -> list[float]:
    """Finite numbers of a column.

    Args:
      at: the place of a row.
    """
    try:
        numbers = list(map(float, values))
    except (TypeError, ValueError):
        numbers = []
    total = sum(numbers)
    if len(numbers) == len(values) and total - total == 0:
        return numbers
    for row, value in enumerate(values):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if number - number != 0:
            raise DataError(
                f"{at(row)}: {name} is {_write(value)}; must be {allowed}, finite"
            )
    return numbers


def _write(value: Any) -> str:
    text = ascii(value)
    return "empty" if value in ("", None) else text[:40] + "..." * (len(text) > 40)


def _melt_chart(columns: Columns) -> Columns:
    """A chart that Weights & Biases exports, a row for each run and step.

    It has a column of steps, and for each run "NAME - METRIC" with its extremes.
    """
    matches = {
        name: match
        for name in columns.values
        if not name.endswith(EXTREMES) and (match := WANDB.fullmatch(name))
    }
    steps = [name for name in columns.values if name not in matches]
    steps = [name for name in steps if not name.endswith(EXTREMES)]
    if not matches or len(steps) != 1:
        return columns
    values: dict[str, list] = {}
    numbers: list[int] = []
    for name, match in matches.items():
        system, seed = split_seed(match[1])
        parts = {"system": system, "seed": seed or 0, "metric": match[2]}
        for key, part in parts.items():
            values.setdefault(key, []).extend([part] * len(columns.numbers))
        values.setdefault("step", []).extend(columns.values[steps[0]])
        values.setdefault("score", []).extend(columns.values[name])
        numbers += columns.numbers
    return Columns(columns.source, values, numbers, columns.unit)

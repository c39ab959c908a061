"""The trials of `compare.tune`: a grid of values, or random draws.

    optim.lr=1e-3,3e-3; optim.weight_decay=0.01,0.1     every combination: four trials
    optim.lr=1e-4..1e-2; optim.weight_decay=0.01,0.1    `num_draws` random draws

A range is drawn from log-uniformly, a list uniformly. A draw depends only on the seed,
the setting's name and the number of the trial. So a restarted comparison has the same
trials, a larger number of trials starts with the same ones, and two objectives with
different ranges are tried at the same quantiles.
"""

import ast
import itertools
import math
import random
from typing import Any, NamedTuple

from jaxpt.errors import ConfigError

ALLOWED = (
    "settings with two values or more each, or with a range of numbers above 0, such "
    'as "optim.lr=1e-3,3e-3; optim.weight_decay=0.01,0.1" or "optim.lr=1e-4..1e-2"'
)


class Range(NamedTuple):
    """Numbers from `low` to `high`, both above 0; whole numbers if both are."""

    low: float
    high: float

    def find(self, quantile: float) -> float:
        """The number at a quantile of the log-uniform distribution, in three digits.

        >>> Range(1e-4, 1e-2).find(0.5), Range(8, 128).find(0.5)
        (0.001, 32)
        """
        value = self.low * (self.high / self.low) ** quantile
        if type(self.low) is type(self.high) is int:
            value = round(value)
        else:
            value = float(f"{value:.3g}")
        return min(max(value, self.low), self.high)


def list_trials(
    text: str, num_draws: int, seed: int, place: str
) -> list[dict[str, Any]]:
    """The settings of each trial by their full names; no trial for "".

    Args:
      num_draws: number of trials if the text has a range.
      place: the setting that has the text, for errors.

    >>> list_trials("optim.lr=1e-3,3e-3", 0, 0, "compare.tune")
    [{'optim.lr': 0.001}, {'optim.lr': 0.003}]
    """
    choices = read_choices(text, place)
    names, values_of = list(choices), list(choices.values())
    if not names:
        return []
    if not has_range(text, place):
        return [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*values_of)
        ]
    if num_draws < 2:
        raise ConfigError(
            f"compare.tune_trials={num_draws}: must be at least 2 with a range in "
            f"{place}={text}"
        )
    draws = {name: random.Random(f"{seed} {name}") for name in names}
    return [
        {name: _draw(choices[name], draws[name].random()) for name in names}
        for _ in range(num_draws)
    ]


def has_range(text: str, place: str) -> bool:
    """Whether trials are drawn: whether a setting has a range."""
    return any(isinstance(c, Range) for c in read_choices(text, place).values())


def _draw(choice: list | Range, quantile: float) -> Any:
    if isinstance(choice, Range):
        return choice.find(quantile)
    return choice[int(quantile * len(choice))]


def read_choices(text: str, place: str) -> dict[str, list | Range]:
    """The values, or the range, of each setting; arguments as of `list_trials`."""
    choices: dict[str, list | Range] = {}
    is_good = isinstance(text, str)
    for part in filter(None, map(str.strip, text.split(";") if is_good else ())):
        name, has_values, values = map(str.strip, part.partition("="))
        is_good &= bool(has_values) and name.count(".") == 1 and name not in choices
        if drawn := _read_range(values):
            choices[name] = drawn
            continue
        texts = [each.strip() for each in values.split(",")]
        listed = [_read_value(each) for each in texts]
        is_good &= all(texts) and len(set(map(str, listed))) == len(listed) > 1
        is_good &= not any(map(_read_range, texts))
        choices[name] = listed
    if not is_good:
        raise ConfigError(f"{place}={text}: must be {ALLOWED}")
    return choices


def _read_range(text: str) -> Range | None:
    """The range of a text LOW..HIGH; None for any other text."""
    ends = [_read_value(end.strip()) for end in text.split("..")]
    if len(ends) != 2 or not all(type(end) in (int, float) for end in ends):
        return None
    low, high = ends
    return Range(low, high) if 0 < low < high < math.inf else None


def _read_value(text: str) -> Any:
    """A number, a bool or None in Python's syntax; otherwise the text itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text

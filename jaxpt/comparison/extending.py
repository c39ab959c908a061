"""Extends a search beyond the edge of its values, until the best trial is inside.

A number of the best trial is inside if a smaller and a larger value of the setting were
tried, and at an edge otherwise. `extend` then tries the next value beyond the edge,
with the other settings of the best trial, and repeats this. Values of a list continue
by the ratio of the two at that edge, values of a range by a factor of 2. A setting ends
at its limits: a weight decay of 0 is at the limit and not at an edge.

Which trial is next depends on the trials and their values only, so a restarted search
has the same trials.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxpt.config.trials import Range, read_choices
from jaxpt.setting_types import Limits, split_type

FACTOR = 2.0  # of a range, and of a list with 0 next to its edge
Trial = dict[str, Any]  # "settings" by full name, "value", and "extends" if it does


class ValueScale(NamedTuple):
    """How the values of a tuned number continue beyond those that were tried.

    Attributes:
      below, above: factors above 1 between neighbouring values at either edge.
      is_whole: whether values are integers.
      limits: of the setting.

    >>> ValueScale(2.0, 3.0).find_next(0.1, 1), ValueScale(2.0, 3.0).find_next(0.1, -1)
    (0.3, 0.05)
    """

    below: float = FACTOR
    above: float = FACTOR
    is_whole: bool = False
    limits: Limits = Limits()

    def is_on_scale(self, value: Any) -> bool:
        """Whether a value is a number that can be larger or smaller than others.

        A value such as -1 for "the default" cannot.
        """
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and value != self.limits.other

    def find_next(self, value: float, side: int) -> float | None:
        """The next value above (side 1) or below (side -1); None at a limit.

        It is rounded to three digits if it then still passes `value`. A step that would
        pass an excluded limit halves the distance to it.

        >>> dropout = ValueScale(limits=Limits(least=0, below=1))
        >>> [dropout.find_next(value, 1) for value in (0.2, 0.5, 0.9)]
        [0.4, 0.75, 0.95]
        >>> dropout.find_next(0.0, -1), ValueScale(is_whole=True).find_next(3, -1)
        (None, 2)
        """
        factor = self.above if side > 0 else self.below
        is_larger = (side > 0) == (value > 0)
        exact = value * factor if is_larger else value / factor
        if self.is_whole:
            new: float = round(exact)
            new = new if new != value else value + side * (value != 0)
        else:
            rounded = float(f"{exact:.3g}")
            new = rounded if (rounded - value) * side > 0 else exact
        new = self._keep_within(value, new, side)
        return None if new == value else new

    def _keep_within(self, value: float, new: float, side: int) -> float:
        closed = self.limits.most if side > 0 else self.limits.least
        if closed is not None and (new - closed) * side > 0:
            return int(closed) if self.is_whole else float(closed)
        excluded = self.limits.below if side > 0 else self.limits.above
        if excluded is not None and (new - excluded) * side >= 0:
            middle = (value + excluded) / 2
            return value if self.is_whole else float(f"{middle:.12g}")
        return new


def make_scales(
    text: str, place: str, types: Mapping[str, Mapping]
) -> dict[str, ValueScale]:
    """The scale of each number in `compare.tune`, by the setting's full name.

    Args:
      text, place: as of `trials.list_trials`.
      types: the declared types of settings, by section.

    >>> types = {"optim": {"lr": float, "name": str}}
    >>> tune = "optim.lr=1.0,2.0,8.0; optim.name=lion,adamw"
    >>> {name: scale[:3] for name, scale in make_scales(tune, "", types).items()}
    {'optim.lr': (2.0, 4.0, False)}
    """
    scales = {}
    for name, choice in read_choices(text, place).items():
        section, field = name.split(".")
        base, limits = split_type(types.get(section, {}).get(field))
        if base not in (int, float):
            continue
        limit = next((x for x in limits if isinstance(x, Limits)), Limits())
        scale = ValueScale(is_whole=base is int, limits=limit)
        if not isinstance(choice, Range):
            values = sorted({each for each in choice if scale.is_on_scale(each)})
            if len(values) > 1:
                below, above = _divide(*values[:2]), _divide(*values[-2:])
                scale = scale._replace(below=below, above=above)
        scales[name] = scale
    return scales


def _divide(low: float, high: float) -> float:
    """The ratio of two neighbours, the larger by the smaller size."""
    if low * high <= 0:
        return FACTOR
    return max(high / low, low / high)


def find_best(trials: Sequence[Trial], higher_is_better: bool) -> Trial | None:
    """The trial with the best value, of equals the first; None if all diverged."""
    known = [trial for trial in trials if trial["value"] is not None]
    if not known:
        return None
    choose = max if higher_is_better else min
    return choose(known, key=lambda trial: trial["value"])


def find_beyond(
    best: Mapping[str, Any],
    tried: Sequence[Mapping[str, Any]],
    scales: Mapping[str, ValueScale],
    allows: Callable[[dict[str, Any]], bool],
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Where the best settings are at an edge.

    Args:
      best: the settings of the best trial.
      tried: those of all trials.
      allows: whether settings can be trained.

    Returns:
      For each setting at an edge, the settings with its next value beyond; and the
      settings that are at an edge with no allowed value beyond.

    >>> tried, scales = [{"a": 1.0}, {"a": 2.0}, {"a": 4.0}], {"a": ValueScale()}
    >>> find_beyond({"a": 4.0}, tried, scales, lambda settings: True)
    ({'a': {'a': 8.0}}, [])
    >>> find_beyond({"a": 2.0}, tried, scales, lambda settings: True)
    ({}, [])
    """
    beyond: dict[str, dict[str, Any]] = {}
    at_limit: list[str] = []
    for name, scale in scales.items():
        if name not in best:  # another objective reads it
            continue
        values = {each[name] for each in tried if scale.is_on_scale(each[name])}
        ends = {min(values): -1, max(values): 1} if len(values) > 1 else {}
        if best[name] not in ends:
            continue
        value = scale.find_next(best[name], ends[best[name]])
        settings = {**best, name: value}
        if value is None or not allows(settings):
            at_limit.append(name)
        else:
            beyond[name] = settings
    return beyond, at_limit


def extend(
    trials: list[Trial],
    num_extensions: int,
    higher_is_better: bool,
    scales: Mapping[str, ValueScale],
    allows: Callable[[dict[str, Any]], bool],
    run: Callable[[dict[str, Any]], dict | None],
) -> None:
    """Adds trials beyond the best trial's edges, until it is inside.

    Of several settings at an edge, the one that was extended least is next.

    Args:
      trials: those of the list or the range, which run already.
      num_extensions: the most that are added.
      allows: as of `find_beyond`.
      run: the "value" and the costs of settings; None if they turn out not to be
        allowed, which `allows` must then say, too.
    """
    end = len(trials) + num_extensions
    while len(trials) < end and (best := find_best(trials, higher_is_better)):
        tried = [trial["settings"] for trial in trials]
        beyond, _ = find_beyond(best["settings"], tried, scales, allows)
        if not beyond:
            return
        counts = Counter(trial.get("extends") for trial in trials)
        name = min(beyond, key=counts.__getitem__)
        result = run(beyond[name])
        if result is not None:
            trials.append({"settings": beyond[name], "extends": name} | result)

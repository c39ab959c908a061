"""The lines of a ranking: what each system of a metric's table has.

Ranks and letters follow from the significant pairs of the metric alone.
"""

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxpt.judge.letters import find_letters
from jaxpt.report.types import Metric
from jaxpt.report.wording import name_baselines, name_part, read_baselines


class SystemLine(NamedTuple):
    """A system on a metric.

    Attributes:
      rank, rank_to: the best and the worst rank that the significant pairs allow.
      mean, std: over its seeds.
      low, high: of the simultaneous interval of the mean; None if there is none.
      letters: it does not differ significantly from systems with one of them; None if
        it was not tested against all others.
      cost: the mean over its runs; None if it is not known.
      against: with a control, "ahead", "behind" or another outcome of its pair with it.
      baselines: by baseline, "ahead", "behind" or "tie"; {} if none was tested.
    """

    system: str
    rank: int
    rank_to: int
    mean: float
    low: float | None
    high: float | None
    std: float | None
    seeds: int
    letters: str | None
    cost: float | None
    against: str = ""
    baselines: Mapping[str, str] = {}

    @property
    def not_above(self) -> list[str]:
        """The baselines that it is not ahead of."""
        return [name for name, how in self.baselines.items() if how != "ahead"]

    def to_record(self, kind: str) -> dict[str, Any]:
        """Its values by name, without those that it does not have.

        Args:
          kind: the word for a system.
        """
        values = self._asdict()
        record = {kind: values.pop("system")} | values
        if not self.against:
            del record["against"]
        del record["baselines"]
        if self.baselines:
            record["above_baselines"] = not self.not_above
            record["not_above"] = "; ".join(self.not_above)
        return record


def rank_systems(metric: Metric, costs: Mapping[str, float]) -> tuple[SystemLine, ...]:
    """The systems on a metric, the best mean first.

    Args:
      costs: by system; {} if they are not known.
    """
    ranked, lines = metric.rank(), []
    leads = [pair.names for pair in metric.pairs if pair.outcome == "ahead"]
    letters = _find_letters(metric, ranked)
    words = name_baselines(metric)
    baselines = read_baselines(metric, words)
    for name in ranked:
        stats = metric.by_name[name]
        lines.append(
            SystemLine(
                system=name_part(metric, name),
                rank=1 + sum(worse == name for _, worse in leads),
                rank_to=len(ranked) - sum(better == name for better, _ in leads),
                mean=float(stats.mean or 0.0),
                low=stats.low,
                high=stats.high,
                std=stats.std,
                seeds=stats.n,
                letters=letters.get(name),
                cost=costs.get(name),
                against=_compare_with_control(metric, name),
                baselines={
                    words[each]: how for each, how in baselines.get(name, {}).items()
                },
            )
        )
    return tuple(lines)


def _find_letters(metric: Metric, ranked: list[str]) -> dict[str, str]:
    """The letters of the systems that were tested against all others."""
    if metric.control:
        return {}
    tested = collections.Counter(
        name
        for pair in metric.pairs
        if pair.outcome != "untested"
        for name in pair.names
    )
    settled = [name for name in ranked if 0 < tested[name] == len(ranked) - 1]
    leads = [pair.names for pair in metric.pairs if pair.outcome == "ahead"]
    return find_letters(settled, [pair for pair in leads if {*pair} <= {*settled}])


def _compare_with_control(metric: Metric, name: str) -> str:
    """The outcome of a system's pair with the control, as seen from the system."""
    if metric.control in ("", name):
        return ""
    pair = next((p for p in metric.pairs if {*p.names} == {name, metric.control}), None)
    if pair is None:
        return "untested"
    is_behind = pair.outcome == "ahead" and pair.worse == name
    return "behind" if is_behind else pair.outcome

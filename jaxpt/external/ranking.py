"""What `jaxpt verdict` returns: for each metric one sentence, one table, one note."""

import dataclasses
from typing import Any, NamedTuple

from jaxpt.external import drawing
from jaxpt.external.drawing import Grid
from jaxpt.files.stored import to_plain
from jaxpt.report.formats import MISSING, format_count, format_number, format_p
from jaxpt.report.types import Metric
from jaxpt.report.types import Verdict as PairVerdict
from jaxpt.report.wording import word_best, word_outcome, word_seeds

MOST_NEEDED = 2  # pairs in the note whose number of seeds is given
PAIR_FIELDS = (
    *("better", "worse", "outcome", "difference", "low", "high", "at_most", "p"),
    *("seeds", "documents", "seeds_needed"),
)


class SystemLine(NamedTuple):
    """A system on a metric.

    Attributes:
      rank, rank_to: the best and the worst rank that the significant pairs allow.
      mean, std: over its seeds.
      low, high: of the simultaneous interval of the mean; None if there is none.
      letters: it does not differ significantly from systems with one of them; None if
        it was not tested against all others.
      cost: the mean over its runs; None if it is not known.
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


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The systems on one metric.

    Attributes:
      metric: with the means, the pairs and the warnings, as in a comparison's report.
      lines: the systems, the best mean first.
      detectable: the smallest and the largest true difference of a pair that this
        comparison finds with a probability of 0.8; None if no pair was tested.
      num_examples: of each run; 0 if the scores are of whole runs.
    """

    metric: Metric
    lines: tuple[SystemLine, ...]
    detectable: tuple[float, float] | None
    num_examples: int

    @property
    def sentence(self) -> str:
        """Which systems the best one is ahead of."""
        best = word_best(self.metric) or f"only {self.lines[0].system} was measured"
        return f"{self.metric.label}: {best}"

    def list_needed(self) -> list[str]:
        """What new comparisons need to find the differences from the best system."""
        best = self.lines[0].system
        ties = [p for p in self.metric.pairs if p.outcome == "tie" and best in p.names]
        return [
            f"{pair.better} and {pair.worse}: {word_seeds(pair)}"
            for pair in ties[:MOST_NEEDED]
        ]

    def grid(self) -> Grid:
        """The table, a row for each system."""
        has_cost = any(line.cost is not None for line in self.lines)
        header = ["rank", "system", "mean", "interval", "letters", "seeds"]
        rows = []
        for line in self.lines:
            ranks = {line.rank: "", line.rank_to: ""}
            cells = [
                "-".join(map(str, ranks)),
                line.system,
                format_number(line.mean),
                _write_interval(line.low, line.high),
                MISSING if line.letters is None else line.letters,
                str(line.seeds),
            ]
            if has_cost:
                known = line.cost is not None
                cells.append(format_count(line.cost or 0.0) if known else MISSING)
            rows.append(cells)
        return Grid(header + ["cost"] * has_cost, rows, (1, 4))

    def pair_grid(self) -> Grid:
        """The table of pairs."""
        rows = [
            [
                *(pair.better, pair.worse),
                word_outcome(pair, self.metric.margin).partition(":")[0],
                MISSING if pair.difference is None else format_number(pair.difference),
                _write_interval(pair.low, pair.high),
                format_p(pair.p),
                MISSING if pair.seeds_needed is None else str(pair.seeds_needed),
            ]
            for pair in self.metric.pairs
        ]
        header = ["better mean", "worse mean", "verdict", "difference", "interval", "p"]
        return Grid([*header, "seeds needed"], rows, (0, 1, 2))


def _write_interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return MISSING
    return f"[{format_number(low)}, {format_number(high)}]"


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """The verdicts on some systems, which print as tables.

    Attributes:
      rankings: one for each metric.
      alpha: the family-wise error rate.
      num_tested: the pairs in the family, on all metrics.
      notes: on the input.
      is_fixed: whether the verdicts are on these runs alone.
    """

    rankings: tuple[Ranking, ...]
    alpha: float
    num_tested: int
    notes: tuple[str, ...] = ()
    is_fixed: bool = False

    def list_note(self, ranking: Ranking) -> list[str]:
        """The sentences of the note below a table."""
        level = f"{100 * (1 - self.alpha):g} %"
        pairs = f"{self.num_tested} pair{'s' * (self.num_tested != 1)}"
        if not self.num_tested:
            return []
        lines = [
            f"Systems that share a letter do not differ significantly: family-wise "
            f"error rate {self.alpha:g} over {pairs}, intervals simultaneous at {level}"
        ]
        if self.is_fixed:
            lines.append("These runs alone are judged, not other seeds")
        if ranking.detectable:
            low, high = map(format_number, ranking.detectable)
            size = low if low == high else f"{low} to {high}"
            lines.append(f"Power: a difference of {size} is found with probability 0.8")
        return lines + ([] if self.is_fixed else ranking.list_needed())

    def format(self, form: str = "text", with_pairs: bool = False) -> str:
        """The verdicts as a text of one of `FORMATS`.

        Args:
          with_pairs: adds the pairs; of CSV it is their table alone.
        """
        if form == "json":
            return drawing.write_json(self.to_json())
        if form == "csv":
            records = self.list_pairs() if with_pairs else self.list_lines()
            return drawing.write_csv(records)
        write = drawing.WRITERS[form]
        parts = []
        for ranking in self.rankings:
            note = ". ".join([*self.list_note(ranking), ""]).strip()
            grids = [ranking.grid()]
            grids += (
                [ranking.pair_grid()] if with_pairs and ranking.metric.pairs else []
            )
            warnings = list(ranking.metric.warnings)
            parts.append(write(ranking.sentence, grids, note, warnings))
        return drawing.join_parts(form, parts, self.notes)

    def list_lines(self) -> list[dict[str, Any]]:
        """The systems on each metric, as records."""
        return [
            {"metric": ranking.metric.metric, **line._asdict()}
            for ranking in self.rankings
            for line in ranking.lines
        ]

    def list_pairs(self) -> list[dict[str, Any]]:
        """The pairs on each metric, as records."""
        return [
            {"metric": ranking.metric.metric}
            | {field: getattr(pair, field) for field in PAIR_FIELDS}
            for ranking in self.rankings
            for pair in ranking.metric.pairs
        ]

    def to_pandas(self, pairs: bool = False) -> Any:
        """A pandas DataFrame of the systems, or of the pairs."""
        from jaxpt import optional

        pandas = optional.need("pandas", "", "to_pandas")
        return pandas.DataFrame(self.list_pairs() if pairs else self.list_lines())

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        rankings = [
            {
                "metric": ranking.metric.metric,
                "higher_is_better": ranking.metric.higher_is_better,
                "sentence": ranking.sentence,
                "systems": [line._asdict() for line in ranking.lines],
                "pairs": [_to_record(pair) for pair in ranking.metric.pairs],
                "detectable": ranking.detectable,
                "examples": ranking.num_examples,
                "note": self.list_note(ranking),
                "warnings": ranking.metric.warnings,
            }
            for ranking in self.rankings
        ]
        return to_plain(
            {
                "alpha": self.alpha,
                "pairs_tested": self.num_tested,
                "fixed": self.is_fixed,
                "notes": self.notes,
                "metrics": rankings,
            }
        )

    def __str__(self) -> str:
        return self.format()

    def __repr__(self) -> str:
        return self.format()

    def _repr_html_(self) -> str:
        return self.format("html")


def _to_record(pair: PairVerdict) -> dict[str, Any]:
    return {field: getattr(pair, field) for field in PAIR_FIELDS}


FORMATS = (*drawing.WRITERS, "csv", "json")

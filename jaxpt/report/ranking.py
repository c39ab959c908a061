"""The first answer on a metric: one sentence, one table, one note.

A table has a line for each system, or each objective of a comparison, the best mean
first. Those that share a letter do not differ significantly (`jaxpt.judge.letters`).
`jaxpt verdict`, `jaxpt compare` and `jaxpt report` print it, in every form.
"""

import dataclasses
from typing import Any

from markupsafe import Markup

from jaxpt.files.stored import to_plain
from jaxpt.report import rank_charts, writers
from jaxpt.report.formats import (
    MISSING,
    format_count,
    format_flops,
    format_number,
    format_p,
    format_seconds,
)
from jaxpt.report.pages import inline_picture
from jaxpt.report.system_lines import SystemLine
from jaxpt.report.types import Metric, Verdict
from jaxpt.report.wording import (
    WORDS,
    join,
    name_part,
    word_best,
    word_outcome,
    word_seeds,
)
from jaxpt.report.writers import Grid

MOST_NEEDED = 2  # pairs in the note whose number of seeds is given
PAIR_FIELDS = (
    *("better", "worse", "outcome", "difference", "low", "high", "at_most", "p"),
    *("seeds", "documents", "seeds_needed"),
)
COST = "cost"  # the column's name without a known unit
AGAINST = WORDS | {"tie": "not significant"}  # a verdict against the control
WRITE_COST = {
    "FLOPs": format_flops,
    "operations": format_flops,
    "seconds": format_seconds,
}


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The systems on one metric.

    Attributes:
      metric: with the means, the pairs and the warnings, as in a comparison's report.
      lines: the systems, the best mean first.
      num_examples: of each run; 0 if the scores are of whole runs.
      names: all systems, in the order of their colours; () is those of the metric.
    """

    metric: Metric
    lines: tuple[SystemLine, ...]
    num_examples: int = 0
    names: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Which systems the best one is ahead of."""
        verdict = self.metric.verdict or word_best(self.metric) or self._word_none()
        return f"{self.metric.label}: {verdict}"

    def _word_none(self) -> str:
        """Why no system was compared with another."""
        if len(self.lines) == 1:
            return f"only {self.lines[0].system} was measured"
        control = self.metric.control
        if control and control not in self.metric.by_name:
            return f"no verdict: {control} was not measured"
        return "no verdict: their test examples differ"

    @property
    def weak(self) -> str:
        """Which systems are not above a baseline; "" if all are, or none was tested."""
        weak: dict[str, list[str]] = {}
        for line in self.lines:
            for name in line.not_above:
                weak.setdefault(name, []).append(line.system)
        parts = [f"{baseline}: {join(names)}" for baseline, names in weak.items()]
        return f"not above {'; '.join(parts)}" if parts else ""

    def list_needed(self) -> list[str]:
        """What new comparisons need to find the differences from the best system."""
        best = self.metric.control or self.metric.rank()[0]
        ties = [p for p in self.metric.pairs if p.outcome == "tie" and best in p.names]
        return [
            f"{pair.better} and {pair.worse}: {word_seeds(pair)}"
            for pair in ties[:MOST_NEEDED]
        ]

    def grid(self, kind: str = "system", cost: str = COST) -> Grid:
        """The table, a row for each system.

        Args:
          kind: the word for a system.
          cost: the unit of costs.
        """
        control = self.metric.control
        columns = {
            "rank": [_write_rank(line) for line in self.lines],
            kind: [line.system for line in self.lines],
            "mean": [format_number(line.mean) for line in self.lines],
            "interval": [_write_interval(line.low, line.high) for line in self.lines],
        }
        if control:
            told = [AGAINST.get(line.against, MISSING) for line in self.lines]
            columns[f"against {control}"] = told
        else:
            columns["letters"] = [line.letters or MISSING for line in self.lines]
        columns["seeds"] = [str(line.seeds) for line in self.lines]
        if any(line.cost is not None for line in self.lines):
            columns[cost] = [_write_cost(line.cost, cost) for line in self.lines]
        if any(line.baselines for line in self.lines):
            columns["above baselines"] = [_write_above(line) for line in self.lines]
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        return Grid(list(columns), rows, (1, 4))

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

    def write_picture(self) -> str:
        """The critical-difference picture as a part of a page; "" without letters."""
        if self.ranked_means is None:
            return ""
        svg = rank_charts.draw_file([self.ranked_means])
        source = inline_picture(svg.encode())
        return writers.write_picture(source, self.ranked_means.describe())

    def draw_chart(self) -> Markup:
        """The critical-difference picture as a chart of a page; "" without letters."""
        return (
            rank_charts.draw_chart(self.ranked_means)
            if self.ranked_means
            else Markup("")
        )

    @property
    def ranked_means(self) -> rank_charts.RankedMeans | None:
        """What the picture shows; None if not every pair was tested."""
        letters = {x.system: x.letters for x in self.lines if x.letters is not None}
        if len(letters) < len(self.lines):
            return None
        means = {line.system: line.mean for line in self.lines}
        metric, names = self.metric, self.names or self.metric.by_name
        numbers = {name_part(metric, name): i for i, name in enumerate(names)}
        return rank_charts.RankedMeans(
            metric.label,
            metric.higher_is_better,
            means,
            letters,
            {name: numbers[name] for name in means},
        )


def _write_rank(line: SystemLine) -> str:
    return "-".join(map(str, {line.rank: "", line.rank_to: ""}))


def _write_interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return MISSING
    return f"[{format_number(low)}, {format_number(high)}]"


def _write_cost(cost: float | None, unit: str) -> str:
    return MISSING if cost is None else WRITE_COST.get(unit, format_count)(cost)


def _write_above(line: SystemLine) -> str:
    num = len(line.baselines)
    return f"{num - len(line.not_above)} of {num}" if num else MISSING


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """The verdicts on some systems, which print as tables.

    Attributes:
      rankings: one for each metric.
      alpha: the family-wise error rate.
      num_tested: the pairs in the family, on all metrics.
      notes: on the input.
      is_fixed: whether the verdicts are on these runs alone.
      kind: the word for a system.
      cost: the unit of costs.
    """

    rankings: tuple[Ranking, ...]
    alpha: float
    num_tested: int
    notes: tuple[str, ...] = ()
    is_fixed: bool = False
    kind: str = "system"
    cost: str = COST

    def draw(self) -> str:
        """The critical-difference pictures as an SVG file; "" without any letters."""
        places = [each.ranked_means for each in self.rankings if each.ranked_means]
        return rank_charts.draw_file(places) if places else ""

    def list_note(self, ranking: Ranking) -> list[str]:
        """The sentences of the note below a table."""
        metric, lines = ranking.metric, []
        level = f"{100 * (1 - self.alpha):.3g} %"
        pairs = f"{self.num_tested} pair{'s' * (self.num_tested != 1)}"
        if self.num_tested and not metric.pairs:
            lines.append(f"Intervals are simultaneous at {level}")
        elif self.num_tested:
            family = f"amily-wise error rate {self.alpha:.3g} over {pairs}"
            letters = f"{self.kind.capitalize()}s that share a letter do not differ"
            start = "F" if metric.control else f"{letters} significantly: f"
            lines.append(f"{start}{family}, intervals simultaneous at {level}")
        if self.num_tested and self.is_fixed:
            lines.append("These runs alone are judged, not other seeds")
        if metric.detectable:
            low, high = map(format_number, metric.detectable)
            size = low if low == high else f"{low} to {high}"
            lines.append(f"Power: a difference of {size} is found with probability 0.8")
        if self.num_tested and not self.is_fixed:
            lines += ranking.list_needed()
        baselines = {name: "" for line in ranking.lines for name in line.baselines}
        if baselines:
            weak = f"; {ranking.weak}" * bool(ranking.weak)
            lines.append(f"Baselines: {', '.join(baselines)}{weak}")
        if missing := [n for n in ranking.names if n not in metric.by_name]:
            lines.append(f"Not measured: {join(missing)}")
        return lines

    def write_note(self, ranking: Ranking) -> str:
        """The note below a table, as one text."""
        return ". ".join([*self.list_note(ranking), ""]).strip()

    def format(self, form: str = "text", with_pairs: bool = False) -> str:
        """The verdicts as a text of one of `FORMATS`.

        Args:
          with_pairs: adds the pairs; of CSV it is their table alone.
        """
        if form == "json":
            return writers.write_json(self.to_json())
        if form == "csv":
            records = self.list_pairs() if with_pairs else self.list_lines()
            return writers.write_csv(records)
        write, parts = writers.WRITERS[form], []
        for ranking in self.rankings:
            grids = [ranking.grid(self.kind, self.cost)]
            if with_pairs and ranking.metric.pairs:
                grids.append(ranking.pair_grid())
            warnings = list(ranking.metric.warnings)
            note = self.write_note(ranking)
            parts.append(write(ranking.sentence, grids, note, warnings))
            if form == "html":
                parts[-1] += ranking.write_picture()
        return writers.join_parts(form, parts, self.notes)

    def list_lines(self) -> list[dict[str, Any]]:
        """The systems on each metric, as records."""
        records = [
            {"metric": ranking.metric.metric, **line.to_record(self.kind)}
            for ranking in self.rankings
            for line in ranking.lines
        ]
        keys = dict.fromkeys(key for record in records for key in record)
        return [{key: record.get(key) for key in keys} for record in records]

    def list_pairs(self) -> list[dict[str, Any]]:
        """The pairs on each metric, as records."""
        return [
            {"metric": ranking.metric.metric} | _to_record(pair)
            for ranking in self.rankings
            for pair in ranking.metric.pairs
        ]

    def to_pandas(self, pairs: bool = False) -> Any:
        """A pandas DataFrame of the systems, or of the pairs."""
        return writers.make_frame(self.list_pairs() if pairs else self.list_lines())

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        rankings = [
            {
                "metric": ranking.metric.metric,
                "higher_is_better": ranking.metric.higher_is_better,
                "sentence": ranking.sentence,
                "systems": [line.to_record(self.kind) for line in ranking.lines],
                "pairs": [_to_record(pair) for pair in ranking.metric.pairs],
                "detectable": ranking.metric.detectable,
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


def _to_record(pair: Verdict) -> dict[str, Any]:
    return {field: getattr(pair, field) for field in PAIR_FIELDS}


FORMATS = (*writers.WRITERS, "csv", "json")

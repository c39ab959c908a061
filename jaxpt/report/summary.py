"""The means over seeds of every metric, and the verdicts on the shared ones.

Objectives share their data and their budget, not their losses. So verdicts are given
only on shared metrics, which have the same task for all (`jaxpt.judge.verdicts`).
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jaxpt.judge import verdicts
from jaxpt.judge.assumptions import check_seeds
from jaxpt.judge.bounds import SUFFIX, open_bounds, pair_bounds, word_bounds
from jaxpt.judge.examples import Examples
from jaxpt.judge.verdicts import Pair, Results
from jaxpt.report.formats import is_number
from jaxpt.report.metrics import MetricInfo, list_metrics
from jaxpt.report.types import (
    Groups,
    Mean,
    Metric,
    RunEntry,
    Verdict,
    group_by_name,
)
from jaxpt.report.wording import (
    FREQUENCY,
    FREQUENCY_SUFFIX,
    NGRAMS,
    NGRAMS_SUFFIX,
    REFERENCE,
    UNTRAINED,
    find_parts,
    word_best,
)

WITHOUT_SEEDS = (FREQUENCY, REFERENCE)  # baselines that no seed changes
Values = tuple[dict[int, float], dict[int, Examples]]  # by seed


def summarise(
    runs: Sequence[RunEntry],
    examples: Mapping[tuple[str, int], Mapping[str, Examples]] | None = None,
    references: Mapping[str, Mapping[str, Examples]] | None = None,
    tests: Mapping[str, list[set[str]]] | None = None,
    alpha: float = verdicts.ALPHA,
    control: str = "",
) -> list[Metric]:
    """The mean and standard deviation over seeds of every metric, and verdicts.

    Args:
      runs: a metric that is absent or None is left out.
      examples: by (name, seed) and metric, the test examples of which a value is the
        mean. Only with them do intervals cover the choice of test examples.
      references: by name and metric, the baselines without a network; that of token
        frequencies has the metric's name and `FREQUENCY_SUFFIX`.
      tests: by metric, sets of names that were measured on the same test examples,
        each name in one set; only names of one set are compared. A metric that is
        absent was measured on the same examples for all names.
      alpha: the family-wise error rate.
      control: the name that all others are compared with; "": all pairs are compared.

    Returns:
      The metrics that any run measured. All pairs and bounds of all of them are one
      family, all baselines another: each objective with its random initialization and
      with the references. The intervals of all means of shared metrics are a third.
    """
    metrics = list_metrics(runs)
    measured = _Measured(group_by_name(runs), examples or {}, references or {}, metrics)
    tests = tests or {}
    values: dict[str, dict[str, Values]] = {}
    family, controls = [], []
    for name, metric in metrics.items():
        by_name = {n: measured.read(n, name) for n in measured.groups}
        by_name = {n: values for n, values in by_name.items() if values[0]}
        if not by_name:
            continue
        values[name] = by_name
        if metric.is_common:
            for names in tests.get(name, [set(by_name)]):
                same = {n: by_name[n] for n in by_name if n in names}
                family.append(measured.gather(name, same))
            if name not in tests:  # else their test examples may differ
                family += measured.list_bounds(name, by_name)
            controls += measured.list_controls(name, by_name)
    pairs = verdicts.judge(family, alpha, control)
    baselines = verdicts.judge(controls, alpha)
    shared = [name for name in values if metrics[name].is_common]
    level = alpha / max(sum(len(values[name]) for name in shared), 1)
    summary = []
    for name, by_name in values.items():
        stats = {n: measure_spread(of[0].values()) for n, of in by_name.items()}
        if name in shared:
            results = measured.gather(name, by_name)
            stats = bound_means(stats, results, level, metrics[name].span == 1)
        entry = Metric(
            **metrics[name]._asdict(),
            metric=name,
            by_name=stats,
            parts=find_parts(name, runs, stats),
            pairs=tuple(make_verdict(p) for p in pairs if p.metric == name),
            baselines=tuple(make_verdict(p) for p in baselines if p.metric == name),
            warnings=(),
            verdict="",
            control=control,
            detectable=find_detectable(pairs, name, alpha),
        )
        summary.append(measured.add_verdicts(entry, by_name, pairs))
    return summary


class _Measured(NamedTuple):
    """The arguments of `summarise`, by name."""

    groups: Groups
    examples: Mapping[tuple[str, int], Mapping[str, Examples]]
    references: Mapping[str, Mapping[str, Examples]]
    metrics: Mapping[str, MetricInfo]

    def gather(self, metric: str, by_name: Mapping[str, Values]) -> Results:
        """The values of one metric, as `verdicts.judge` takes them."""
        return Results(
            metric,
            self.metrics[metric].higher_is_better,
            self.metrics[metric].margin,
            {name: values for name, (values, _) in by_name.items()},
            {name: examples for name, (_, examples) in by_name.items() if examples},
            self.metrics[metric].span or math.inf,
            WITHOUT_SEEDS,
        )

    def read(self, name: str, metric: str) -> Values:
        """The finite values by seed, and their examples if all of them were kept."""
        values = {
            run.seed: float(value)
            for run in sorted(self.groups[name], key=lambda run: run.seed)
            if is_number(value := run.metrics.get(metric))
        }
        examples = {
            seed: self.examples[name, seed][metric]
            for seed in values
            if metric in self.examples.get((name, seed), {})
        }
        return values, examples if len(examples) == len(values) else {}

    def add_verdicts(
        self,
        metric: Metric,
        by_name: Mapping[str, Values],
        pairs: Sequence[Pair],
    ) -> Metric:
        """The metric with its bounds, warnings and verdict.

        Args:
          pairs: of all metrics, also those of bounds.
        """
        of_seeds = {name: values for name, (values, _) in by_name.items()}
        warnings = check_seeds(metric.label, of_seeds) if metric.pairs else []
        bounds, of_bounds = self.judge_bounds(metric, pairs)
        return dataclasses.replace(
            metric,
            bounds=tuple(map(make_verdict, bounds)),
            warnings=tuple(warnings),
            verdict="; ".join(filter(None, [word_best(metric), *of_bounds])),
        )

    def list_bounds(self, metric: str, exact: Mapping[str, Values]) -> list[Results]:
        """Each name of which only a bound is known against each with a value."""
        name = metric + SUFFIX
        bounds = {n: self.read(n, name) for n in self.groups if n not in exact}
        bounds = {n: values for n, values in bounds.items() if values[0]}
        gathered = self.gather(metric, bounds)._replace(metric=name)
        return pair_bounds(gathered, self.gather(metric, exact))

    def judge_bounds(
        self, metric: Metric, pairs: Iterable[Pair]
    ) -> tuple[list[Pair], list[str]]:
        """The pairs with a bound on a metric, and their verdicts in words."""
        name = metric.metric + SUFFIX
        bound_pairs = [pair for pair in pairs if pair.metric == name]
        if not bound_pairs:
            return [], []
        names = {n for pair in bound_pairs for n in (pair.better, pair.worse)}
        bounded = {
            n: statistics.fmean(self.read(n, name)[0].values())
            for n in self.groups
            if n in names - metric.by_name.keys()
        }
        bound_pairs = open_bounds(bound_pairs, bounded)
        return bound_pairs, word_bounds(bound_pairs, bounded)

    def list_controls(
        self, metric: str, by_name: Mapping[str, Values]
    ) -> list[Results]:
        """Each name against its random initialization and against the references."""
        controls = []
        for name, values in by_name.items():
            baselines = {
                UNTRAINED: self.read(name, f"{metric}_random"),
                NGRAMS: self.read(name, metric + NGRAMS_SUFFIX),
            }
            references = self.references.get(name, {})
            for control, key in (
                (FREQUENCY, metric + FREQUENCY_SUFFIX),
                (REFERENCE, metric),
            ):
                if key in references:
                    baselines[control] = {0: references[key].mean}, {0: references[key]}
            controls += [
                self.gather(metric, {name: values, control: other})
                for control, other in baselines.items()
                if other[0]
            ]
        return controls


def measure_spread(values: Iterable[float | None]) -> Mean:
    """The mean and the sample standard deviation of the values that are finite."""
    known = [float(value) for value in values if is_number(value)]
    return Mean(
        statistics.fmean(known) if known else None,
        statistics.stdev(known) if len(known) > 1 else None,
        len(known),
    )


def bound_means(
    stats: Mapping[str, Mean], results: Results, level: float, is_share: bool
) -> dict[str, Mean]:
    """The means with their intervals; those of too few seeds have none.

    Args:
      results: of the same names.
      level: the error probability of one interval.
      is_share: whether every value is between 0 and 1.
    """
    bounded = {}
    for name, mean in stats.items():
        low, high = verdicts.estimate(results.side(name)).interval(level)
        bounded[name] = mean
        if math.isfinite(low) and math.isfinite(high):
            if is_share:
                low, high = max(low, 0.0), min(high, 1.0)
            bounded[name] = dataclasses.replace(mean, low=low, high=high)
    return bounded


def find_detectable(
    pairs: Sequence[Pair], metric: str, alpha: float
) -> tuple[float, float] | None:
    """The least and the greatest true difference that pairs of a metric can show.

    Each is found with the power `verdicts.POWER`; None if no pair was tested.

    Args:
      pairs: of the family, on all metrics.
    """
    tested = [pair for pair in pairs if pair.outcome != "untested"]
    level = alpha / max(len(tested), 1)
    sizes = [p.difference.detectable(level) for p in tested if p.metric == metric]
    known = [size for size in sizes if math.isfinite(size)]
    return (min(known), max(known)) if known else None


def make_verdict(pair: Pair) -> Verdict:
    """A pair as a report has it; numbers that are not finite are None."""
    difference = pair.difference

    def known(number: float | None) -> float | None:
        return number if is_number(number) else None

    return Verdict(
        better=pair.better,
        worse=pair.worse,
        outcome=pair.outcome,
        difference=known(difference.mean),
        low=known(pair.low),
        high=known(pair.high),
        at_most=known(pair.at_most),
        p=pair.p,
        seeds=difference.num_seeds,
        documents=difference.num_groups,
        blocks=difference.is_cut,
        seeds_error=known(difference.seeds_error),
        examples_error=difference.examples_error,
        seeds_needed=pair.seeds_needed,
    )

"""A verdict on results of any program: `jaxpt.verdict` and the command of this name.

The tests are those of a comparison (`jaxpt.judge`): all pairs on all metrics are one
family, whose intervals are simultaneous.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxpt.errors import ConfigError, DataError, argument, shorten, suggest
from jaxpt.external.arrange import Arranged, arrange
from jaxpt.external.columns import SUFFIXES, read_table, to_columns
from jaxpt.external.lm_eval_files import find_path, is_samples, read_samples
from jaxpt.external.score_rows import ColumnNames, ScoreRows, find_scores
from jaxpt.judge import ALPHA
from jaxpt.judge.assumptions import check_seeds
from jaxpt.judge.reliability import LEAST, split_half
from jaxpt.judge.verdicts import (
    GOOD_SEEDS,
    MIN_DOCUMENTS,
    MIN_SEEDS,
    Pair,
    Results,
    judge,
)
from jaxpt.report.ranking import Ranking, Verdicts
from jaxpt.report.summary import (
    bound_means,
    find_detectable,
    make_verdict,
    measure_spread,
)
from jaxpt.report.system_lines import rank_systems
from jaxpt.report.types import Metric
from jaxpt.text.sources.files import split_suffixes


def verdict(
    table: Any,
    *,
    score: str | Sequence[str] = (),
    system: str = "",
    seed: str = "",
    example: str = "",
    group: str = "",
    cost: str = "",
    metric: str = "",
    step: str = "",
    weight: str = "",
    tasks: Sequence[str] = (),
    filter: str = "",
    lower: str | Sequence[str] = (),
    margin: float = 0.0,
    span: float | None = None,
    alpha: float = ALPHA,
    fixed: bool = False,
) -> Verdicts:
    """Ranks systems by their results, with tests of a stated error rate.

    Args:
      table: a pandas DataFrame, a mapping of columns, a list of mappings; or paths: a
        CSV, TSV or Parquet file, or folders and files of samples that lm_eval wrote,
        also as "NAME=PATH" or "NAME:SEED=PATH".
      score: the columns of scores; of samples, the metrics.
      system, seed, example, group, cost, metric, step, weight: the names of these
        columns, if they differ. For samples `group` is a key of the documents.
      tasks: of samples, those to compare; () is all.
      filter: of samples, the filter of answers; "" is the first.
      lower: the metrics of which a lower value is better.
      margin: systems are equivalent if their difference is within it.
      span: the largest difference that two scores can have; None is 1 if every score of
        an example is 0 or 1.
      alpha: the family-wise error rate.
      fixed: the verdict is on these runs alone, not on others with other seeds.

    Raises:
      UserError: the table or an argument is wrong.

    >>> scores = {"a": [0.71, 0.72, 0.70, 0.73], "b": [0.61, 0.60, 0.63, 0.62]}
    >>> rows = [(n, i, x) for n, own in scores.items() for i, x in enumerate(own)]
    >>> table = [dict(zip(("system", "seed", "score"), row)) for row in rows]
    >>> result = jaxpt.verdict(table)
    >>> print(result.rankings[0].sentence)
    score: a is ahead of b
    >>> result.rankings[0].metric.pairs[0].p < 0.05
    True
    """
    names = ColumnNames(
        *(system, seed, example, group, _list(score)), *(cost, metric, step, weight)
    )
    samples = _list(tasks), filter
    return judge_tables(table, names, samples, _list(lower), margin, span, alpha, fixed)


def _list(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def judge_tables(
    table: Any,
    names: ColumnNames,
    samples: tuple[Sequence[str], str] = ((), ""),
    lower: Sequence[str] = (),
    margin: float = 0.0,
    span: float | None = None,
    alpha: float = ALPHA,
    is_fixed: bool = False,
) -> Verdicts:
    """As `verdict`, whose arguments these are.

    Args:
      samples: the tasks and the filter of samples.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"{argument('alpha')}={alpha:g}: must be between 0 and 1")
    for key, value in (("margin", margin), ("span", span)):
        if value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"{argument(key)}={value:g}: must be at least 0, finite")
    scores, notes = _read(table, names, samples)
    _check_lower(lower, scores)
    arranged = [
        arrange(rows, _is_higher(rows, lower), margin, span, is_fixed)
        for rows in scores
    ]
    for rows, each in zip(scores, arranged, strict=True):
        _check_testable(rows, each, is_fixed)
    family = [each.results for each in arranged]
    if all(len(results.values) < 2 for results in family):
        name = next(iter(family[0].values))
        raise DataError(
            f"{scores[0].source}: has one system, {name}; must have at least two"
        )
    pairs = judge(family, alpha)
    num_tested = sum(pair.outcome != "untested" for pair in pairs)
    num_means = sum(len(results.values) for results in family)
    rankings = tuple(_rank(each, pairs, num_means, alpha) for each in arranged)
    return Verdicts(rankings, alpha, num_tested, tuple(notes), is_fixed)


def _read(
    table: Any, names: ColumnNames, samples: tuple[Sequence[str], str]
) -> tuple[list[ScoreRows], list[str]]:
    """The scores of a table in memory, of a file or of samples."""
    given = [table] if isinstance(table, str | os.PathLike) else table
    is_list = isinstance(given, list | tuple) and len(given) > 0
    if not is_list or not all(isinstance(x, str | os.PathLike) for x in given):
        return find_scores(to_columns(table), names), []
    words: list[str] = [os.fspath(word) for word in given]
    for word in words:
        if not os.path.exists(find_path(word)):  # False for a name that is too long
            raise DataError(f"{shorten(word)}: not found")
    if all(map(is_samples, words)):
        return read_samples(words, names.score, names.group, *samples)
    for word in words:
        if split_suffixes(Path(word))[0] not in SUFFIXES or len(words) > 1:
            raise DataError(
                f"{word}: must be one file of {', '.join(SUFFIXES)}; or folders, or "
                f"samples_*.jsonl, that lm_eval wrote"
            )
    return find_scores(read_table(Path(words[0])), names), []


def _is_higher(rows: ScoreRows, lower: Sequence[str]) -> bool:
    if rows.metric in lower or rows.label in lower:
        return False
    return rows.higher_is_better is not False


def _check_lower(lower: Sequence[str], scores: Sequence[ScoreRows]) -> None:
    known = [name for rows in scores for name in (rows.metric, rows.label)]
    for name in lower:
        if name not in known:
            metrics = ", ".join(rows.metric for rows in scores)
            raise ConfigError(
                f"{argument('lower')}={name}: no such metric{suggest(name, known)}; "
                f"must be of {metrics}"
            )


def _check_testable(rows: ScoreRows, arranged: Arranged, is_fixed: bool) -> None:
    """Raises DataError if no pair of a metric can have a verdict by its form."""
    results = arranged.results
    if is_fixed:
        num = _count_documents(results)
        if num < MIN_DOCUMENTS:
            raise DataError(
                f"{rows.source}: {rows.metric} has {num} examples or groups of them; "
                f"{argument('fixed')} needs at least {MIN_DOCUMENTS}"
            )
        return
    if all(len(by_seed) == 1 for by_seed in results.values.values()):
        fixed = ""
        if _count_documents(results) >= MIN_DOCUMENTS:
            fixed = (
                f"; or {argument('fixed')}, for a verdict on these runs alone, "
                f"whatever other seeds would give"
            )
        raise DataError(
            f"{rows.source}: {rows.metric} has one seed of each system; must have at "
            f"least {MIN_SEEDS} ({GOOD_SEEDS} are recommended){fixed}"
        )


def _count_documents(results: Results) -> int:
    for examples in results.examples.values():
        for each in examples.values():
            return len(set(each.groups.tolist()))
    return 0


def _rank(
    arranged: Arranged, pairs: Sequence[Pair], num_means: int, alpha: float
) -> Ranking:
    """The systems on one metric, the best first.

    Args:
      pairs: of all metrics.
      num_means: the systems on all metrics, whose intervals are one family.
    """
    results = arranged.results
    own = [pair for pair in pairs if pair.metric == results.metric]
    means = {n: measure_spread(v.values()) for n, v in results.values.items()}
    level = alpha / num_means
    metric = Metric(
        *(results.metric, ".3f", results.higher_is_better, True, results.margin),
        *("", "", results.span if math.isfinite(results.span) else None),
        metric=results.metric,
        by_name=bound_means(means, results, level, arranged.is_share),
        parts={},
        pairs=tuple(map(make_verdict, own)),
        baselines=(),
        warnings=tuple(_list_warnings(results)),
        verdict="",
        detectable=find_detectable(pairs, results.metric, alpha),
    )
    lines = rank_systems(metric, arranged.costs)
    return Ranking(metric, lines, arranged.num_examples)


def _list_warnings(results: Results) -> list[str]:
    """What makes the verdicts on a metric doubtful."""
    lines = check_seeds(results.metric, results.values)
    runs = {n: list(of.values()) for n, of in results.examples.items()}
    reliability = split_half(runs) if len(runs) == len(results.values) else None
    if reliability is not None and reliability < LEAST:
        lines.append(
            f"WARNING: {results.metric} does not rank these systems: the correlation "
            f"of their means on two halves of the examples is {reliability:.2f}, below "
            f"{LEAST}"
        )
    if results.examples and _count_documents(results) == 1:
        lines.append(
            f"note: all examples of {results.metric} are one group, which is cut into "
            f"blocks; intervals do not cover other groups"
        )
    if not results.examples:
        lines.append(
            f"note: {results.metric} has no scores of examples; intervals cover other "
            f"seeds, not other test examples"
        )
    return lines

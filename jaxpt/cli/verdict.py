"""The command `verdict`: which system is better, of results of any program."""

import dataclasses
import itertools

from jaxpt.cli.flags import Command, command, parse
from jaxpt.cli.running import FORMS, show
from jaxpt.errors import ConfigError

COLUMNS = {
    "score": ([], "columns of scores, or metrics of samples; commas between several"),
    "system": ("", "the column of systems, if it has another name"),
    "seed": ("", "the column of seeds, if it has another name"),
    "example": ("", "the column of test examples, if it has another name"),
    "group": (
        "",
        "the column of groups of examples, such as documents, if it has another name; "
        "of samples, a key of their documents",
    ),
    "cost": ("", "the column of costs, if it has another name"),
    "metric": ("", "the column that names the metric of a row"),
    "step": ("", "the column of steps; of a history the last score is taken"),
    "weight": ("", "the column of the weights of examples, if it has another name"),
}


@command(
    "verdict",
    example="""\
jaxpt verdict scores.csv
jaxpt verdict runs.csv --system model --score f1,accuracy --pairs
jaxpt verdict out --fixed --format markdown""",
    flags=COLUMNS
    | {
        "tasks": ([], "tasks of samples to compare; without it all"),
        "filter": ("", "filter of the answers of samples; without it the first"),
        "lower": ([], "metrics of which a lower value is better"),
        "margin": (0.0, "systems whose difference is within it are equivalent"),
        "span": (0.0, "the largest difference that two scores can have; 0: unknown"),
        "alpha": (0.05, "family-wise error rate"),
        "fixed": (False, "judge these runs alone, not other seeds of the systems"),
        "pairs": (False, "also list every two systems; with --format=csv, only these"),
        "format": ("text", "how the tables are written", FORMS),
    },
    words="PATH...",
    common=(),
)
def verdict(command: Command, argv: list[str]) -> int:
    """Rank systems by their results, from lm-eval samples or a table of scores.

    PATH is a CSV, TSV or Parquet file with the columns system, seed, example, group,
    score and cost, of which only system and score must be there; or folders that
    lm_eval wrote with --log_samples, also as NAME=PATH or NAME:SEED=PATH. A system
    needs at least four seeds, or --fixed. The tests are those of jaxpt compare.
    """
    words = list(itertools.takewhile(lambda arg: not arg.startswith("-"), argv))
    values = parse(command, argv[len(words) :])
    if not words:
        raise ConfigError("verdict: must be followed by a file, or by folders")
    from jaxpt.external.score_rows import ColumnNames
    from jaxpt.external.verdict import judge_tables

    fields = [field.name for field in dataclasses.fields(ColumnNames)]
    names = {name: values[name].value for name in fields}
    result = judge_tables(
        words,
        ColumnNames(**names | {"score": tuple(values.score)}),
        (values.tasks, values.filter),
        values.lower,
        values.margin,
        values.span if values["span"].present else None,
        values.alpha,
        values.fixed,
    )
    return show([result.format(values.format, values.pairs)])

"""Verdicts between submissions to BabyLM, from what `jaxpt babylm` has stored.

    RUN/babylm/items-RULE.csv         of 2025: metric, example, score, weight
    RUN/babylm/items-2026-RULE.csv    of 2026

A submission is a run or a folder with these files. Its name is its folder's, without a
seed (`runs/mlm-seed3` is the run 3 of mlm). If each has at least four seeds, verdicts
are over seeds and questions; otherwise they are over questions, on these models alone.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from jaxpt.errors import DataError, argument
from jaxpt.external.columns import read_table
from jaxpt.external.score_rows import ColumnNames, split_seed
from jaxpt.external.verdict import judge_tables
from jaxpt.judge.verdicts import MIN_SEEDS
from jaxpt.report.ranking import Verdicts

FOLDER = "babylm"
COLUMNS = ("metric", "example", "score", "weight")


def find_items(place: Path, year: int, rule: str = "auto") -> Path:
    """The file of items of a submission.

    Args:
      rule: of several, the one to take; "auto" and "all" need exactly one.
    """
    folder = place / FOLDER if (place / FOLDER).is_dir() else place
    start = "items-" if year == 2025 else f"items-{year}-"
    found = {
        path.stem.removeprefix(start): path
        for path in sorted(folder.glob(f"{start}*.csv"))
        if not re.match(r"\d{4}-", path.stem.removeprefix(start))
    }
    if rule in ("auto", "all"):
        if len(found) == 1:
            return next(iter(found.values()))
    elif rule in found:
        return found[rule]
    problem = f"has no items of {year}: evaluate it with jaxpt babylm"
    if found:
        problem = f"has items of {', '.join(found)}: name one with {argument('rule')}"
    raise DataError(f"{argument('against')}={place}: {problem}")


def judge_submissions(
    places: Sequence[Path], year: int, rule: str = "auto"
) -> Verdicts:
    """Compares submissions on every task that all of them have.

    All pairs on all tasks are one family (`jaxpt.external.verdict`).

    Raises:
      UserError: a submission has no items, two have one name, or the items differ.
    """
    tables = [read_table(find_items(place, year, rule)) for place in places]
    named = [split_seed(place.resolve().name) for place in places]
    names = [(name, seed or 0) for name, seed in named]
    if len(set(names)) < len(names):
        listed = ", ".join(f"{name} (seed {seed})" for name, seed in names)
        raise DataError(
            f"{argument('against')}: must have distinct names, has {listed}"
        )
    shared = set.intersection(*(set(table.values["metric"]) for table in tables))
    if not shared:
        raise DataError(
            f"{argument('against')}: the submissions have no task in common"
        )
    values: dict[str, list] = {name: [] for name in ("system", "seed", *COLUMNS)}
    for table, (name, seed) in zip(tables, names, strict=True):
        kept = [i for i, x in enumerate(table.values["metric"]) if x in shared]
        for column in COLUMNS:
            values[column] += [table.values[column][i] for i in kept]
        values["system"] += [name] * len(kept)
        values["seed"] += [seed] * len(kept)
    systems = [name for name, _ in names]
    is_fixed = min(map(systems.count, systems)) < MIN_SEEDS
    return judge_tables(values, ColumnNames(), is_fixed=is_fixed)

"""Plants a winner and a loser in a study of text with exact answers.

    python results/tools/planted.py results/known_truth-*/

The winner gives the exact answer to every question, so its regret is 0; the loser
gives the exact frequencies of the symbols. Both are added to the study as if they had
been trained with its seeds, and judged by the same code. Prints, for each metric of
regret, how many objectives the winner is ahead of, with the largest p, and how many
are ahead of the loser or behind it.
"""

import sys
from pathlib import Path

import numpy as np

from jaxpt.comparison.studies import Study, load_study
from jaxpt.errors import UserError
from jaxpt.judge.examples import Examples
from jaxpt.languages import REGRETS
from jaxpt.report.summary import summarise
from jaxpt.report.types import Metric, Verdict, read_runs
from jaxpt.report.wording import FREQUENCY_SUFFIX

WINNER, LOSER = "exact", "unigram"


def plant(study: Study) -> list[Metric]:
    """The metrics of regret of a study, with both as further names."""
    entries = study.stored["report"]["runs"]
    examples = {key: dict(own) for key, own in study.values.items() if len(key) == 2}
    first = [entry for entry in entries if entry["name"] == entries[0]["name"]]
    planted = []
    for name in (WINNER, LOSER):
        for entry in first:
            own = _answer(study, name)
            examples[name, entry["seed"]] = own
            metrics = {metric: x.mean for metric, x in own.items()}
            planted.append(entry | {"name": name, "metrics": metrics, "curve": []})
    metrics = summarise(
        read_runs([*entries, *planted]),
        examples,
        {},
        None,
        study.stored["report"]["alpha"],
        "",
    )
    return [metric for metric in metrics if metric.metric in REGRETS.values()]


def _answer(study: Study, name: str) -> dict[str, Examples]:
    """The examples of a planted name: those of exact answers, or of frequencies."""
    tables = next(own for key, own in study.values.items() if len(key) == 1)
    chosen = {}
    for metric in REGRETS.values():
        if (table := tables.get(metric + FREQUENCY_SUFFIX)) is not None:
            exact = table._replace(totals=np.zeros_like(table.totals))
            chosen[metric] = exact if name == WINNER else table
    return chosen


def list_pairs(metric: Metric, name: str) -> list[Verdict]:
    """The verdicts of a planted name and each objective."""
    other = {WINNER, LOSER} - {name}  # neither of the two depends on a seed
    return [p for p in metric.pairs if name in p.names and not other & {*p.names}]


def count_ahead(pairs: list[Verdict], name: str, wins: bool = True) -> int:
    """The number of pairs in which a name is ahead, or behind."""
    ahead = [pair for pair in pairs if pair.outcome == "ahead"]
    return sum((pair.better == name) == wins for pair in ahead)


def main(folders: list[str]) -> int:
    """Prints the verdicts; returns the exit code."""
    if not folders or folders[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if folders else 2
    for folder in folders:
        try:
            study = load_study(Path(folder))
        except UserError as error:
            print(error)
            return 1
        for metric in plant(study):
            exact, loser = (list_pairs(metric, name) for name in (WINNER, LOSER))
            num, p = len(exact), max(pair.p for pair in exact)
            print(
                f"{folder} {metric.metric}: exact answer ahead of "
                f"{count_ahead(exact, WINNER)} of {num} (p at most {p:.2g}); "
                f"frequencies behind {count_ahead(loser, LOSER, False)}, ahead of "
                f"{count_ahead(loser, LOSER)}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

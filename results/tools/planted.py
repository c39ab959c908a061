"""Plants winners, losers and equals in studies of text with exact answers.

    python results/tools/planted.py results/known_winners-*/

Every planted name is judged with the objectives, by the same code. Prints three parts.

    answers   a name that gives the exact answer to every question, whose regret is 0,
              and one that gives the exact frequencies of the symbols
    leads     for each objective, a copy whose regret is smaller by a lead at every
              position and seed: the smallest lead of LEADS that is found, in nats. Both
              have the same errors of documents, so only seeds limit it
    equals    the seeds of one objective of two studies, divided at random into two
              names of five seeds: how often a difference is found, at alpha 0.05
"""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jaxpt.comparison.studies import Study, load_study
from jaxpt.errors import UserError
from jaxpt.judge import ALPHA
from jaxpt.judge.examples import Examples
from jaxpt.languages import ACCURACY, REGRETS
from jaxpt.report.summary import summarise
from jaxpt.report.types import Metric, Verdict, read_runs
from jaxpt.report.wording import FREQUENCY_SUFFIX

WINNER, LOSER, COPY = "exact", "unigram", "copy"
LEADS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # nats
NUM_SPLITS, SIZE = 200, 5  # of equals
Planted = dict[str, dict[int, dict[str, Examples]]]  # by name and seed


def judge(study: Study, planted: Planted, is_alone: bool = False) -> list[Metric]:
    """The metrics of a study with planted names, as if they had been trained.

    Args:
      is_alone: without the study's own names, at alpha 0.05.
    """
    entries = study.stored["report"]["runs"]
    runs = [] if is_alone else list(entries)
    examples = {key: dict(own) for key, own in study.values.items() if len(key) == 2}
    for name, by_seed in planted.items():
        for seed, own in by_seed.items():
            examples[name, seed] = own
            metrics = {metric: x.mean for metric, x in own.items()}
            new = {"name": name, "seed": seed, "metrics": metrics, "curve": []}
            runs.append(entries[0] | new)
    alpha = ALPHA if is_alone else study.stored["report"]["alpha"]
    return summarise(read_runs(runs), examples, {}, None, alpha, "")


def list_seeds(study: Study, name: str) -> list[int]:
    """The seeds of a name's runs."""
    return [key[1] for key in study.values if len(key) == 2 and key[0] == name]


def list_pairs(metric: Metric, name: str, other: str = "") -> list[Verdict]:
    """The verdicts of a planted name and each objective, or one of them."""
    pairs = [p for p in metric.pairs if name in p.names]
    # Neither of the two planted answers depends on a seed.
    pairs = [p for p in pairs if {*p.names} != {WINNER, LOSER}]
    return [p for p in pairs if not other or other in p.names]


def count_ahead(pairs: list[Verdict], name: str, wins: bool = True) -> int:
    """The number of pairs in which a name is ahead, or behind."""
    ahead = [pair for pair in pairs if pair.outcome == "ahead"]
    return sum((pair.better == name) == wins for pair in ahead)


def plant_answers(study: Study) -> Iterator[str]:
    """A line for each question: what the exact answer and frequencies are ahead of."""
    tables = next(own for key, own in study.values.items() if len(key) == 1)
    planted: Planted = {WINNER: {}, LOSER: {}}
    known = {
        metric: tables[metric + FREQUENCY_SUFFIX]
        for metric in REGRETS.values()
        if metric + FREQUENCY_SUFFIX in tables
    }
    for seed in study.facts["seeds"]:
        exact = {
            k: x._replace(totals=np.zeros_like(x.totals)) for k, x in known.items()
        }
        planted[WINNER][seed], planted[LOSER][seed] = exact, known
    for metric in judge(study, planted):
        if metric.metric in known:
            exact, loser = (list_pairs(metric, name) for name in (WINNER, LOSER))
            num, p = len(exact), max(pair.p for pair in exact)
            yield (
                f"{metric.metric}: exact answer ahead of {count_ahead(exact, WINNER)} "
                f"of {num} (p at most {p:.2g}); frequencies behind "
                f"{count_ahead(loser, LOSER, False)} of {num}, ahead of "
                f"{count_ahead(loser, LOSER)}"
            )


def plant_leads(study: Study) -> Iterator[str]:
    """A line for each question: the smallest lead found over each objective."""
    found: dict[str, list[str]] = {metric: [] for metric in REGRETS.values()}
    for name in study.facts["objectives"]:
        least = dict.fromkeys(found, f"none of {LEADS[-1]:g}")
        for lead in reversed(LEADS):
            planted: Planted = {COPY: {}}
            for seed in list_seeds(study, name):
                own = study.values[name, seed]
                planted[COPY][seed] = {
                    key: own[key]._replace(
                        totals=own[key].totals - lead * own[key].weights
                    )
                    for key in found
                    if key in own
                }
            for metric in judge(study, planted):
                if count_ahead(list_pairs(metric, COPY, name), COPY):
                    least[metric.metric] = f"{lead:g}"
        for key in found:
            if key in study.values[name, list_seeds(study, name)[0]]:
                found[key].append(f"{name} {least[key]}")
    for key, words in found.items():
        if words:
            yield f"{key}: smallest lead found: {', '.join(words)}"


def plant_equals(studies: list[Study]) -> Iterator[str]:
    """A line for each objective of two studies of one text with the same settings."""
    draw = np.random.default_rng(0)
    metrics = {*REGRETS.values(), ACCURACY}
    for name in sorted(set.intersection(*({*s.facts["objectives"]} for s in studies))):
        own = [s.values[name, seed] for s in studies for seed in list_seeds(s, name)]
        wrong = 0
        for _ in range(NUM_SPLITS):
            order = draw.permutation(len(own))[: 2 * SIZE]
            halves: Planted = {
                f"{name}-{half}": {
                    int(i): {k: x for k, x in own[i].items() if k in metrics}
                    for i in order[half * SIZE : (half + 1) * SIZE]
                }
                for half in (0, 1)
            }
            judged = judge(studies[0], halves, is_alone=True)
            pairs = [pair for metric in judged for pair in metric.pairs]
            wrong += any(pair.outcome == "ahead" for pair in pairs)
        yield (
            f"{name}: {len(own)} seeds, {wrong} of {NUM_SPLITS} random divisions have "
            f"a difference on any metric"
        )


def main(folders: list[str]) -> int:
    """Prints the verdicts; returns the exit code."""
    if not folders or folders[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if folders else 2
    try:
        studies = [load_study(Path(folder)) for folder in folders]
    except UserError as error:
        print(error)
        return 1
    for plant in (plant_answers, plant_leads):
        for study in studies:
            for line in plant(study):
                print(f"{study.folder.name}: {line}")
    for one, other in itertools.combinations(studies, 2):
        if one.stored["text"] == other.stored["text"]:
            for line in plant_equals([one, other]):
                print(f"{one.folder.name} and {other.folder.name}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The multiple-choice cloze on the questions that bigrams answer wrongly.

    python results/tools/beyond_bigrams.py results/orderings-*/

Prints, for each study, the share of questions that counted bigrams answer rightly, and
for each objective the accuracy on these questions and on the others, mean over seeds.
"""

import sys
from pathlib import Path

import numpy as np

from jaxpt.comparison.studies import load_study
from jaxpt.errors import UserError
from jaxpt.report.types import group_by_name, read_runs

METRIC = "choice_bayes_accuracy"


def split_accuracy(folder: Path) -> tuple[float, dict[str, tuple[float, float]]]:
    """The accuracy of bigrams, and of each name if they are wrong and if right.

    Raises:
      UserError: the folder holds no study with this metric.
    """
    study = load_study(folder)
    parts = {}
    stored = read_runs(study.stored["report"]["runs"])
    for name, runs in group_by_name(stored).items():
        if METRIC not in study.values.get((name,), {}):
            raise UserError(f"{folder}: has no {METRIC} of bigrams")
        right = study.values[name,][METRIC].totals
        hits = [study.values[name, run.seed][METRIC].totals for run in runs]
        mean = np.mean(hits, axis=0)
        parts[name] = tuple(
            float(np.average(mean, weights=weight)) for weight in (1 - right, right)
        )
    return float(np.mean(right)), parts


def main(folders: list[str]) -> int:
    """Prints the accuracies; returns the exit code."""
    if not folders or folders[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if folders else 2
    for folder in folders:
        try:
            share, parts = split_accuracy(Path(folder))
        except UserError as error:
            print(error)
            return 1
        print(f"{folder}: bigrams {share:.3f}")
        for name, (wrong, right) in parts.items():
            print(f"  {name}: {wrong:.3f} if they are wrong, {right:.3f} otherwise")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

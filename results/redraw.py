"""Computes the verdicts of folders of results/ again, without training.

    python results/redraw.py results/*/ results/speedruns/*/*/

For each study whose stored results are unchanged, writes report.json, differences.csv
and study.json again, and prints how many pairs are ahead before and after, and each
pair whose outcome changed. Other folders are skipped.
"""

import sys
from pathlib import Path

from jaxpt.comparison.archive import redraw
from jaxpt.errors import UserError
from jaxpt.judge.verdicts import MIN_SEEDS
from jaxpt.report.formats import format_number, is_number
from jaxpt.report.studies import STUDY


def list_outcomes(report: dict) -> dict[tuple, tuple[str, str]]:
    """By metric, kind and names of a pair, its verdict and the verdict with numbers."""
    outcomes = {}
    for entry in report["metrics"]:
        for kind in ("pairs", "bounds", "baselines"):
            for pair in entry.get(kind, []):
                names = sorted((pair["better"], pair["worse"]))
                is_ahead = pair["outcome"] == "ahead"
                verdict = f"{pair['better']} ahead" if is_ahead else pair["outcome"]
                numbers = [pair[key] for key in ("difference", "low", "high")]
                words = [format_number(x) if is_number(x) else "none" for x in numbers]
                written = f"{verdict} {words[0]} [{words[1]}, {words[2]}]"
                outcomes[entry["metric"], kind, *names] = verdict, written
    return outcomes


def list_changes(before: dict, after: dict) -> list[str]:
    """The number of pairs that are ahead, then a line for each changed outcome."""
    old, new = list_outcomes(before), list_outcomes(after)
    counts = [
        sum(
            verdict.endswith(" ahead")
            for key, (verdict, _) in x.items()
            if "pairs" in key
        )
        for x in (old, new)
    ]
    num_pairs = sum("pairs" in key for key in new)
    lines = [f"{counts[0]} -> {counts[1]} of {num_pairs} pairs ahead"]
    num_untested = 0
    for key in [*old, *(key for key in new if key not in old)]:
        one, other = old.get(key, ("", "none")), new.get(key, ("", "none"))
        if other[0] == "untested":
            num_untested += 1
        elif one[0] != other[0]:
            metric, kind, *names = key
            pair = f"{metric}, {' and '.join(names)}"
            label = pair if kind == "pairs" else f"{pair} ({kind})"
            lines.append(f"  {label}: {one[1]} -> {other[1]}")
    if num_untested:
        few = f"fewer than {MIN_SEEDS} seeds"
        lines.append(f"  without a verdict, with {few}: {num_untested} differences")
    return lines


def main(folders: list[str]) -> int:
    """Redraws the folders; returns the exit code."""
    if not folders or folders[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if folders else 2
    is_valid = True
    for folder in map(Path, folders):
        if not (folder / STUDY).exists():
            print(f"{folder}: skipped: holds no {STUDY}")
            continue
        try:
            lines = list_changes(*redraw(folder))
            print("\n".join([f"{folder}: {lines[0]}", *lines[1:]]))
        except UserError as error:
            print(f"{folder}: NOT redrawn: {error}")
            is_valid = False
    return 0 if is_valid else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Counts the costs of studies again, and lists the verdicts that change with them.

    python results/tools/redraw.py results/*/ results/speedruns/*/*/*/

For a study whose costs were counted by an earlier version. The results of its runs stay
as they are; the study is written again with the new costs. Prints how many pairs are
ahead before and after, and each pair whose outcome changed. Other folders are skipped.
"""

import dataclasses
import sys
from pathlib import Path

from jaxpt.comparison.assembly import with_count_note
from jaxpt.comparison.studies import check_study
from jaxpt.comparison.study_files import STUDY, write_study
from jaxpt.config.plan import make_compare_spec
from jaxpt.errors import UserError
from jaxpt.files.folder import replaced_folder
from jaxpt.files.stored import to_plain
from jaxpt.judge.assumptions import describe_seeds
from jaxpt.judge.verdicts import MIN_SEEDS
from jaxpt.report.costs import EXTRA_COLUMNS, add_costs
from jaxpt.report.formats import format_number, is_number


def redraw(folder: Path) -> tuple[dict, dict]:
    """Writes a study again, with its costs as they are counted today.

    Returns:
      The report before and after.

    Raises:
      UserError: the folder holds no study, or one that is damaged.
    """
    study = check_study(folder)
    report, spec = study.stored["report"], make_compare_spec(study.stored["compare"])
    runs = add_costs(report["runs"], study.tasks, study.stored["plans"]["tuning"])
    for run, entry in zip(runs, report["runs"], strict=True):  # of a lost teacher
        known = {k: entry[k] for k in EXTRA_COLUMNS if entry.get(k) is not None}
        run |= {k: value for k, value in known.items() if run.get(k) is None}
    counted = report | {
        "runs": to_plain(runs),
        "budget": with_count_note(report["budget"], runs),
        "seeds_note": describe_seeds(spec.seeds, spec.earlier_seeds, spec.alpha),
    }
    after = dataclasses.replace(study, stored=study.stored | {"report": counted})
    with replaced_folder(folder, STUDY) as place:
        write_study(place, study.facts, after.stored, study.values)
        check_study(place)
    return study.report, after.report


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

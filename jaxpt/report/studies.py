"""Archived studies: folders of results/ with a report and the facts about its runs.

    study.json         title, question, command, machine, versions, date, seeds, and the
                       intervals in which the means of a repeated study must lie
    report.json, results.csv, differences.csv, *.png    as in a report's folder

`jaxpt.comparison.archive` writes them and documents the other files.
"""

import numbers
from pathlib import Path
from typing import NamedTuple

from jaxpt.config.metric_names import rename_report
from jaxpt.files.folder import load_json

STUDY = "study.json"
FOLDER_HINT = "must be the folder of a study, which jaxpt archive writes"
# The schemas of study.json and of a study's report.json.
FACTS = {
    **dict.fromkeys(("title", "question", "command", "config", "note"), str),
    "objectives": [str],
    "seeds": [int],
    "date": str,
    "machines": [{"cpu": str, "instructions": str, "cores": int}],
    "versions": [{str: str}],
    "intervals": {str: {str: {"mean": float, "low": float, "high": float}}},
}
_MEAN = {"n": int, "mean": (numbers.Real, None), "std": (numbers.Real, None)}
_RUN = {
    **dict.fromkeys(("name", "objective", "workdir"), str),
    "seed": int,
    "curve?": [{"step": int}],
}
REPORT = {
    "created": str,
    "alpha": float,
    "control?": str,
    "runs": [_RUN | {"metrics": {str: (numbers.Real, None)}}],
    "diverged?": [_RUN],
    "metrics": [{"metric": str, "by_name": {str: _MEAN}}],
    "conventions?": {"budget": str},
    "tuning?": {str: {"by": str}},
    "figures?": {str: str},
}


class Study(NamedTuple):
    """An archived study: its study.json and its report.json.

    Metrics have their present names (`config.metric_names`).
    """

    folder: Path
    facts: dict
    report: dict


def load_study(folder: Path) -> Study:
    """Reads a study.

    Raises:
      UserError: the folder holds no study, or a file was altered.
    """
    facts = load_json(folder / STUDY, FACTS, FOLDER_HINT)
    report = load_json(folder / "report.json", REPORT, FOLDER_HINT)
    return Study(folder, facts, rename_report(report))


def find_studies(root: Path, pattern: str = "*") -> list[Path]:
    """The folders of studies below a folder, by name; [] if it does not exist.

    Hidden folders are left out: a jaxpt archive that was killed may leave one.
    """
    folders = sorted(path.parent for path in root.glob(f"{pattern}/{STUDY}"))
    return [folder for folder in folders if not folder.name.startswith(".")]


def list_studies(root: Path) -> list[Study]:
    """The studies directly below a folder, by name; [] if there is no such folder."""
    return [load_study(folder) for folder in find_studies(root)]

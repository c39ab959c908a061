"""Archived studies: folders of results/ with a report and the facts about its runs.

    study.json         title, question, command, machine, versions, date, seeds, and the
                       intervals in which the means of a repeated study must lie
    report.json, results.csv, differences.csv, *.png    as in a report's folder

`jaxpt.comparison.archive` writes them and documents the other files.
"""

from pathlib import Path
from typing import NamedTuple

from jaxpt.config.metric_names import rename_report
from jaxpt.errors import UserError
from jaxpt.files.folder import load_json

STUDY = "study.json"
FOLDER_HINT = "must be the folder of a study, which jaxpt archive writes"
FACTS = (
    *("title", "question", "command", "config", "note", "objectives", "seeds"),
    *("date", "machines", "versions", "intervals"),
)


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
    facts = load_json(folder / STUDY, FOLDER_HINT)
    report = load_json(folder / "report.json", FOLDER_HINT)
    for name in FACTS:
        if not isinstance(facts, dict) or name not in facts:
            raise UserError(f"{folder / STUDY}: has no {name}; {FOLDER_HINT}")
    if not isinstance(report, dict) or "metrics" not in report:
        raise UserError(f"{folder / 'report.json'}: has no metrics; {FOLDER_HINT}")
    return Study(folder, facts, rename_report(report))


def list_studies(root: Path) -> list[Study]:
    """The studies directly below a folder, by name; [] if there is no such folder."""
    return [load_study(path.parent) for path in sorted(root.glob(f"*/{STUDY}"))]

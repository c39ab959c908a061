"""Exports the models of a comparison, with its verdicts on their model cards."""

from pathlib import Path

from jaxpt.files.folder import load_json, new_folder
from jaxpt.hub.export import ExportOptions, write_export
from jaxpt.report.studies import REPORT
from jaxpt.report.summary import format_budget, list_verdicts
from jaxpt.training.first_seeds import list_first_seeds

FILE = "report.json"


def is_comparison(workdir: Path) -> bool:
    """Whether `jaxpt compare` has written the folder, with its report."""
    return (workdir / "runs").is_dir() and (workdir / FILE).is_file()


def export_comparison(
    workdir: Path, folder: Path, options: ExportOptions
) -> dict[str, list[str]]:
    """Writes a folder with a folder of transformers for each objective's first seed.

    Returns:
      Lines to print, by the name of each model.

    Raises:
      UserError: as `jaxpt.hub.export.export_run`, for any of the runs.
    """
    report = load_json(workdir / FILE, REPORT, "must be a comparison with its report")
    seeds = sorted({run["seed"] for run in report["runs"]})
    comparison = [
        f"Budget of each run: {format_budget(report)}",
        f"Seeds: {', '.join(map(str, seeds))}",
        *list_verdicts(report),
    ]
    lines = {}
    with new_folder(folder) as place:
        for name, run in list_first_seeds([workdir]).items():
            (place / name).mkdir()
            lines[name] = write_export(
                run, folder / name, place / name, "", options, comparison
            )
    return lines

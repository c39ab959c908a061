"""Exports the models of a comparison, with its verdicts on their model cards."""

from pathlib import Path
from typing import NamedTuple

from jaxpt.errors import CheckpointError, UserError, argument
from jaxpt.files import disk
from jaxpt.files.folder import new_folder
from jaxpt.hub.export import ExportOptions, write_export
from jaxpt.report.answer import format_budget, list_conclusions
from jaxpt.report.terminal import list_verdicts
from jaxpt.report.types import load_report
from jaxpt.runs.first_seeds import list_first_seeds

FILE = "report.json"


def is_comparison(workdir: Path) -> bool:
    """Whether `jaxpt compare` has written the folder, with its report."""
    return (workdir / "runs").is_dir() and (workdir / FILE).is_file()


class ExportedModels(NamedTuple):
    """What was exported of a comparison.

    Attributes:
      lines: to print, by the name of each model.
      refused: why an objective was not exported, by its name.
    """

    lines: dict[str, list[str]]
    refused: dict[str, str]

    def summarise(self) -> list[str]:
        """The last lines to print: what was left out, if anything."""
        if not self.refused:
            return []
        num = len(self.lines) + len(self.refused)
        return [
            *(f"not exported: {name}: {why}" for name, why in self.refused.items()),
            f"exported {len(self.lines)} of {num} objectives, without "
            f"{', '.join(self.refused)}",
        ]


def export_comparison(
    workdir: Path, folder: Path, options: ExportOptions
) -> ExportedModels:
    """Writes a folder with a folder of transformers for each objective's first seed.

    An objective that cannot be exported, such as one whose network no class of
    transformers has, is left out.
    """
    report = load_report(workdir / FILE, "must be a comparison with its report")
    seeds = sorted({run.seed for run in report.runs})
    comparison = [
        f"Budget of each run: {format_budget(report)}",
        f"Seeds: {', '.join(map(str, seeds))}",
        *list_conclusions(report),
        *list_verdicts(report),
    ]
    exported = ExportedModels({}, {})
    with new_folder(folder) as place:
        for name, run in list_first_seeds([workdir]).items():
            (place / name).mkdir()
            try:
                exported.lines[name] = write_export(
                    run, folder / name, place / name, "", options, comparison
                )
            except UserError as error:
                disk.remove(place / name)
                exported.refused[name] = str(error)
        if not exported.lines:
            reasons = "; ".join(f"{n}: {why}" for n, why in exported.refused.items())
            raise CheckpointError(
                f"{argument('workdir')}={workdir}: none of its objectives can be "
                f"exported: {reasons}"
            )
    return exported

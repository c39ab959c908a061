"""Repeats an archived study and compares its means with the stated intervals."""

import copy
from pathlib import Path
from typing import NamedTuple

from jaxpt.comparison.compare import Part, do_part
from jaxpt.comparison.plan_runs import (
    CONFIG,
    PLANS,
    ComparisonPlan,
    check_folder,
    restore_plans,
)
from jaxpt.comparison.studies import Study, check_study
from jaxpt.comparison.study_files import REPORT
from jaxpt.distributed import processes
from jaxpt.errors import UserError, argument
from jaxpt.files import checksums
from jaxpt.files.folder import LOCK, hold, load_json, write_config, write_json
from jaxpt.report.formats import format_number, is_number

TOLERANCE = 1e-6  # by which a mean may lie outside an interval of no width


class Repeated(NamedTuple):
    """A mean of the repeated study next to the stated one.

    Attributes:
      mean: of the repeated study; None if it was not measured, as all runs diverged.
      stated: the archived mean.
      low, high: the stated interval.
    """

    metric: str
    name: str
    mean: float | None
    stated: float
    low: float
    high: float

    @property
    def is_within(self) -> bool:
        """Whether the new mean lies within the stated interval."""
        if self.mean is None:
            return False
        slack = TOLERANCE * max(1.0, abs(self.stated))
        return self.low - slack <= self.mean <= self.high + slack


def reproduce(folder: Path, workdir: Path, data: str = "") -> list[Repeated]:
    """Trains the runs of a study again; its means next to the stated intervals.

    Settings, steps and seeds are those of the study, also what tuning has chosen: the
    trials are not repeated. The same call resumes a stopped reproduction.

    Args:
      folder: of the study.
      workdir: of the new comparison.
      data: `data.path`, if the text lies elsewhere on this machine.
    """
    study = processes.on_all(lambda: check_study(folder))
    if not study.intervals:
        raise UserError(
            f"{folder}: has no intervals; a study needs two seeds to be reproduced"
        )
    config, plans = (copy.deepcopy(study.stored[name]) for name in ("compare", "plans"))
    if data:
        for part in [config, *(plan["config"] for plan in plans["plans"].values())]:
            part["data"]["path"] = data
    with hold(workdir):
        _prepare(study, config, plans, workdir)
        do_part(Part("runs"), config, workdir)
        do_part(Part("report"), config, workdir)
    report = load_json(workdir / "report.json", REPORT, "repeat the command")
    return compare_means(study, report)


def _prepare(study: Study, config: dict, plans: dict, workdir: Path) -> None:
    """Writes what `Part("prepare")` would, after the text was compared.

    plans.json is the last file: a process that was killed before is repeated.
    """
    if processes.on_first(_has_plans, config, workdir):
        return
    try:
        _check_text(study, restore_plans(config, plans))
    except UserError as error:
        if str(error).startswith("data.path="):
            raise type(error)(
                f"{error}; name the text with {argument('data')}"
            ) from error
        raise

    def write() -> None:
        write_config(workdir / CONFIG, config)
        write_json(workdir / PLANS, plans)

    processes.on_first(write)


def _has_plans(config: dict, workdir: Path) -> bool:
    """Whether an earlier call has prepared the folder."""
    if (workdir / PLANS).exists():
        return True
    kept = {LOCK, checksums.FILE, CONFIG}  # of a call that was killed
    if any(path.name not in kept for path in workdir.iterdir()):
        raise UserError(
            f"{argument('workdir')}={workdir}: holds other files; must be a new or "
            "empty folder, or one of an earlier jaxpt reproduce"
        )
    check_folder(workdir, config)
    return False


def _check_text(study: Study, prepared: ComparisonPlan) -> None:
    """Raises UserError if the text is not that of the study."""
    text = {name: split.fingerprint for name, split in prepared.corpora.items()}
    if study.stored["text"] != text:
        path = prepared.config["data"]["path"]
        raise UserError(f"data.path={path}: is not the text of {study.folder}")


def compare_means(study: Study, report: dict) -> list[Repeated]:
    """The means of a report next to the stated intervals, by metric and name."""
    entries = {entry["metric"]: entry["by_name"] for entry in report["metrics"]}
    repeated = []
    for metric, by_name in study.intervals.items():
        for name, stated in by_name.items():
            mean = entries.get(metric, {}).get(name, {}).get("mean")
            new = mean if is_number(mean) else None
            ends = stated["low"], stated["high"]
            repeated.append(Repeated(metric, name, new, stated["mean"], *ends))
    return repeated


def format_repeated(repeated: list[Repeated]) -> list[str]:
    """A line for each mean, then the conclusion."""
    lines = []
    for each in repeated:
        new = "not measured" if each.mean is None else format_number(each.mean)
        ends = f"[{format_number(each.low)}, {format_number(each.high)}]"
        word = "within" if each.is_within else "OUTSIDE"
        stated = format_number(each.stated)
        label = f"{each.metric} of {each.name}:"
        lines.append(f"{label:44s} {new}, {word} {ends}; stated {stated}")
    num = sum(each.is_within for each in repeated)
    word = "reproduced" if num == len(repeated) else "NOT reproduced"
    lines.append(f"{word}: {num} of {len(repeated)} means are within their intervals")
    return lines

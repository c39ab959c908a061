"""Compares objectives at one budget: plans the runs, trains them, collects the report.

`compare` does all three in one process. Processes and machines that share a folder do
them in parts:

    prepare    plans all runs (`plan_runs`), once
    runs       trains one run, or those that no other process trains (`train_runs`)
    report     collects the runs and writes the report (`collect_runs`)
"""

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jaxpt.comparison.budgets import word_share
from jaxpt.comparison.collect_runs import collect_runs, write_report
from jaxpt.comparison.countdown import Countdown, weigh_runs
from jaxpt.comparison.plan_runs import (
    ComparisonPlan,
    check_folder,
    list_runs,
    list_some,
    load_plans,
    make_compared_plans,
    plan_runs,
    register_runs,
    run_name,
    run_path,
    write_plans,
)
from jaxpt.comparison.registration import FILE, find_sha256
from jaxpt.comparison.train_runs import Trainer, train_runs
from jaxpt.config.plan import make_compare_spec
from jaxpt.config.sections import CompareSpec
from jaxpt.config.settings import to_dict
from jaxpt.distributed import processes
from jaxpt.errors import ConfigError, argument
from jaxpt.files.folder import hold, refuse_links
from jaxpt.report.terminal import format_table
from jaxpt.report.types import Report
from jaxpt.runs.workdir import DIVERGED

PARTS = ("prepare", "runs", "report", "list")  # "" is the whole comparison


def compare(
    config: Mapping[str, Any], workdir: Path, explicit_names: Collection[str] = ()
) -> dict:
    """Trains every objective with every seed; writes and returns report.json.

    Finished runs are not repeated, so the same call resumes. A run that diverges is
    reported, and the others are trained.

    Args:
      explicit_names: full names of the settings that the user has set
        (`config.plan.make_plan`).
    """
    with contextlib.ExitStack() as locks:
        locks.enter_context(hold(workdir))
        prepared = plan_runs(to_dict(config), workdir, explicit_names)
        runs = list_runs(prepared.spec)
        # Other processes must not train its runs while it trains one of them.
        for run in runs:
            locks.enter_context(hold(run_path(workdir, *run)))
        write_plans(workdir, prepared)
        trainer = Trainer(prepared, workdir)
        countdown, entries = Countdown(runs, weigh_runs(prepared, runs)), []
        for index, run in enumerate(runs):
            is_finished = processes.on_first(partial(trainer.is_finished, *run))
            with countdown.timed(index, is_finished):
                entries.append(trainer.train(*run))
        return write_report(prepared, entries, workdir).to_json()


def store_plans(
    config: Mapping[str, Any], workdir: Path, explicit_names: Collection[str] = ()
) -> ComparisonPlan:
    """Plans the runs and stores the plans; arguments and errors as of `compare`."""
    with hold(workdir):
        prepared = plan_runs(to_dict(config), workdir, explicit_names)
        write_plans(workdir, prepared)
    return prepared


def register(
    config: Mapping[str, Any], workdir: Path, explicit_names: Collection[str] = ()
) -> str:
    """Registers what is expected, without training; arguments as of `compare`.

    Returns:
      The SHA-256 of registration.json and its path, to be published.
    """
    with hold(workdir):
        text = register_runs(to_dict(config), workdir, explicit_names)
    if not text:
        raise ConfigError(
            f"{argument('register')}: needs compare.expected, such as "
            f"('pair_accuracy: clm > mlm',)"
        )
    return f"{find_sha256(text)}  {workdir / FILE}"


@dataclasses.dataclass(frozen=True)
class Part:
    """The part of a comparison that one process does.

    Attributes:
      kind: one of PARTS; "list" only lists the names of the runs, "" does everything.
      run: the only run to train; "" is all.
      run_index: its index in the list of runs, from 0, instead of its name.
    """

    kind: str = ""
    run: str = ""
    run_index: int | None = None

    def __post_init__(self) -> None:
        if self.kind and self.kind not in PARTS:
            allowed = ", ".join(PARTS)
            raise ConfigError(
                f"{argument('part')}={self.kind}: must be one of {allowed}"
            )
        runs = {"run": self.run, "run_index": self.run_index}
        given = {k: v for k, v in runs.items() if v not in ("", None)}
        named = [f"{argument(k)}={v}" for k, v in given.items()]
        if named and self.kind != "runs":
            raise ConfigError(f"{named[0]}: is for {argument('part')}=runs")
        if len(named) > 1:
            raise ConfigError(f"{' '.join(named)}: must be one of the two")

    def choose(self, spec: CompareSpec) -> list[tuple[str, int]]:
        """The runs to train, by name and seed."""
        runs = list_runs(spec)
        if self.run_index is not None:
            if not 0 <= self.run_index < len(runs):
                raise ConfigError(
                    f"{argument('run_index')}={self.run_index}: must be from 0 to "
                    f"{len(runs) - 1}, of {len(runs)} runs"
                )
            return [runs[self.run_index]]
        chosen = [run for run in runs if self.run in ("", run_name(*run))]
        if not chosen:
            names = list_some([run_name(*run) for run in runs])
            raise ConfigError(f"{argument('run')}={self.run}: must be one of {names}")
        return chosen


def do_part(
    part: Part,
    config: Mapping[str, Any],
    workdir: Path,
    explicit_names: Collection[str] = (),
) -> str:
    """Does a part of a comparison; the text to print.

    Args:
      config: the stored one, if the folder contains a comparison.
      explicit_names: as in `compare`.
    """
    config = to_dict(config)
    if not part.kind:
        report = Report.from_json(compare(config, workdir, explicit_names))
        return _format_report(report, workdir)
    runs = processes.on_all(lambda: part.choose(make_compare_spec(config)))
    if part.kind == "list":
        lines = [run_name(*run) for run in runs]
        return "\n".join(lines + list_shares(config, explicit_names))
    if part.kind == "prepare":
        store_plans(config, workdir, explicit_names)
        return f"prepared {len(runs)} runs in {workdir}"
    processes.on_first(refuse_links, workdir)  # a run's lock is below it
    processes.on_first(check_folder, workdir, config)
    prepared = load_plans(config, workdir)
    if part.kind == "runs":
        train_runs(prepared, workdir, runs)
        return processes.on_first(_format_runs, workdir, runs)
    with hold(workdir):
        entries = processes.on_all(collect_runs, prepared, workdir)
        return _format_report(write_report(prepared, entries, workdir), workdir)


def list_shares(config: dict, explicit_names: Collection[str]) -> list[str]:
    """A line with the cost of several budgets, if the comparison has any."""
    if not make_compare_spec(config).amounts:
        return []
    spec, plans, _ = make_compared_plans(config, explicit_names)
    return [word_share(spec, plans)]


def _format_runs(workdir: Path, runs: Collection[tuple[str, int]]) -> str:
    """The runs that finished and those that diverged, a line for each kind."""
    kinds: dict[str, list[str]] = {}
    for run in runs:
        has_diverged = (run_path(workdir, *run) / DIVERGED).exists()
        kind = "diverged" if has_diverged else "finished"
        kinds.setdefault(kind, []).append(run_name(*run))
    return "\n".join(f"{kind}: {list_some(names)}" for kind, names in kinds.items())


def _format_report(report: Report, workdir: Path) -> str:
    return f"{format_table(report)}\n\nreport: {workdir / 'report.html'}"

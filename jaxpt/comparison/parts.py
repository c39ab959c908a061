"""A comparison in parts, for processes and machines that share its folder.

    prepare    what all runs have in common, once
    runs       one run, or all that nobody else does, in any number of processes
    report     once all runs are finished or have diverged

Who trains a run holds its folder (`folder.claim`), and whoever finds it held waits: if
its holder is killed, the next one resumes from its last checkpoint. A run is the same
whoever trains it, so the report is that of one process (on devices of one kind).
"""

import dataclasses
import logging
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path

from jaxpt.comparison.compare import (
    Trainer,
    check_folder,
    compare,
    describe_divergence,
    describe_run,
    prepare,
    write_report,
)
from jaxpt.comparison.prepared import (
    FIRST,
    Prepared,
    list_runs,
    load_prepared,
    run_name,
    run_path,
)
from jaxpt.config.plan import make_compare_spec
from jaxpt.config.sections import CompareSpec
from jaxpt.config.settings import to_dict
from jaxpt.distributed import processes
from jaxpt.errors import UserError
from jaxpt.files.folder import LOCK, claim, hold, load_config, load_measured
from jaxpt.report.summary import format_table
from jaxpt.training.workdir import DIVERGED, check_same, load_divergence

PARTS = ("prepare", "runs", "report", "list")  # "" is all of it
WAIT_SECONDS = 2.0  # between two looks at runs that others hold
MOST_NAMED = 8  # of the runs that are missing
ENDS = ("result.json", DIVERGED)  # a run's folder has one of them when it has ended


@dataclasses.dataclass(frozen=True)
class Part:
    """What one process does of a comparison.

    Attributes:
      what: one of PARTS; "list" only says what the runs are called, "" is all.
      run: the only run to train; "" is all.
      run_index: its place among the runs, from 0, instead of its name.
    """

    what: str = ""
    run: str = ""
    run_index: int | None = None

    def __post_init__(self):
        if self.what and self.what not in PARTS:
            allowed = ", ".join(PARTS)
            raise UserError(f"--part={self.what}: must be one of {allowed}")
        given = {"run": self.run, "run_index": self.run_index}
        named = [f"--{name}={value}" for name, value in given.items() if _is(value)]
        if named and self.what != "runs":
            raise UserError(f"{named[0]}: is for --part=runs")
        if len(named) > 1:
            raise UserError(f"{' '.join(named)}: must be one of the two")

    def choose(self, spec: CompareSpec) -> list[tuple[str, int]]:
        """The runs to train, by name and seed.

        Raises:
          UserError: there is no such run.
        """
        runs = list_runs(spec)
        if self.run_index is not None:
            if not 0 <= self.run_index < len(runs):
                raise UserError(
                    f"--run_index={self.run_index}: must be from 0 to {len(runs) - 1}, "
                    f"of {len(runs)} runs"
                )
            return [runs[self.run_index]]
        chosen = [run for run in runs if self.run in ("", run_name(*run))]
        if not chosen:
            names = _list_some([run_name(*run) for run in runs])
            raise UserError(f"--run={self.run}: must be one of {names}")
        return chosen


def _is(value: str | int | None) -> bool:
    return value not in ("", None)


def load_compared(workdir: Path) -> dict:
    """The config of the comparison that a folder holds.

    Raises:
      UserError: it holds none.
    """
    path = workdir / "compare.json"
    if not path.exists():
        raise UserError(f"--workdir={workdir}: holds no comparison; {FIRST}")
    return load_config(path, FIRST)


def do_part(part: Part, config, workdir: Path, given: Collection[str] = ()) -> str:
    """Does a part of a comparison; gives what there is to tell of it.

    Args:
      config: as in the folder, if that holds a comparison.
      given: as of `compare.compare`.

    Raises:
      UserError: as `compare.compare`; or a part before this one is not done.
    """
    config = to_dict(config)
    if not part.what:
        return _tell_report(compare(config, workdir, given), workdir)
    runs = processes.on_all(lambda: part.choose(make_compare_spec(config)))
    if part.what == "list":
        return "\n".join(run_name(*run) for run in runs)
    if part.what == "prepare":
        prepare(config, workdir, given)
        return f"prepared {len(runs)} runs in {workdir}"
    processes.on_first(lambda: check_folder(workdir, config))
    prepared = load_prepared(config, workdir)
    if part.what == "runs":
        train_runs(prepared, workdir, runs)
        return processes.on_first(lambda: _tell_runs(workdir, runs))
    with hold(workdir):
        found = processes.on_all(lambda: collect_runs(prepared, workdir))
        return _tell_report(write_report(prepared, found, workdir), workdir)


def _tell_runs(workdir: Path, runs: Collection[tuple[str, int]]) -> str:
    """Which runs are finished and which have diverged, a line for each kind."""
    kinds: dict[str, list[str]] = {}
    for run in runs:
        has_diverged = (run_path(workdir, *run) / DIVERGED).exists()
        kind = "diverged" if has_diverged else "finished"
        kinds.setdefault(kind, []).append(run_name(*run))
    return "\n".join(f"{kind}: {_list_some(names)}" for kind, names in kinds.items())


def _tell_report(report: dict, workdir: Path) -> str:
    return f"{format_table(report)}\n\nreport: {workdir / 'report.html'}"


def train_runs(
    prepared: Prepared, workdir: Path, runs: Collection[tuple[str, int]]
) -> None:
    """Trains those of the runs that nobody else trains, and waits for the others.

    Of a run whose process was killed or whose machine was lost it resumes from the last
    checkpoint. It ends when all of them are finished or have diverged.

    Raises:
      UserError, Stopped: as `loop.train`.
    """
    trainer, left, told = Trainer(prepared, workdir), list(runs), set()
    while left:
        others = []
        for run in left:
            folder = run_path(workdir, *run)
            with claim(folder) as is_ours:
                if not is_ours:
                    others.append(run)
                elif not processes.on_first(partial(trainer.is_finished, *run)):
                    trainer.train(*run)
        if len(others) == len(left):
            if new := [run for run in others if run not in told]:
                _say_who_waits(workdir, new)
            told |= set(others)
            time.sleep(WAIT_SECONDS)
        left = others


def _say_who_waits(workdir: Path, runs: list[tuple[str, int]]) -> None:
    named = _list_some([run_name(*run) for run in runs])
    path = run_path(workdir, *runs[0]) / LOCK
    if processes.is_first():
        logging.getLogger(__name__).warning(
            f"waiting for other processes, which train {named} (if a machine is gone "
            f"and the disk keeps its lock, remove {path})"
        )


def collect_runs(prepared: Prepared, workdir: Path) -> list[dict]:
    """The entries of all runs in the report, also of those that diverged.

    Trains nothing.

    Raises:
      UserError: one is not finished, was altered, or is none of this comparison's.
    """
    runs = list_runs(prepared.spec)
    missing = [
        run_name(*run)
        for run in runs
        if not any((run_path(workdir, *run) / name).exists() for name in ENDS)
    ]
    if missing:
        raise UserError(
            f"--workdir={workdir}: {len(missing)} of {len(runs)} runs are not "
            f"finished: {_list_some(missing)}; train them with --part=runs"
        )
    found = []
    for name, seed in runs:
        folder = run_path(workdir, name, seed)
        plan = prepared.make_task(name, seed).plan
        check_same(folder, plan, prepared.tokenizer, prepared.corpora)
        if record := load_divergence(folder):
            found.append(describe_divergence(record, name, folder, workdir))
            continue
        result = load_measured(folder / "result.json")
        found.append(describe_run(result, name, folder, workdir, prepared.spec))
    return found


def _list_some(names: list[str]) -> str:
    """Names in a row, the first few of many.

    >>> _list_some([f"mlm-seed{i}" for i in range(10)])[-31:]
    'mlm-seed6, mlm-seed7 and 2 more'
    """
    told = ", ".join(names[:MOST_NAMED])
    rest = len(names) - MOST_NAMED
    return f"{told} and {rest} more" if rest > 0 else told

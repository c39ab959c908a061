"""Trains the runs of a planned comparison, in one process or several.

A process that trains a run holds the lock of its folder (`folder.claim`); others wait.
If the process is killed, the next one resumes from the last checkpoint. A run does not
depend on the process that trains it, so the report is the same (on devices of one
kind).
"""

import logging
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path

from jaxpt.comparison.collect_runs import (
    collect_run,
    make_diverged_entry,
    make_entry,
)
from jaxpt.comparison.compared_tasks import evaluate_run, has_results, identify_tasks
from jaxpt.comparison.plan_runs import (
    ComparisonPlan,
    list_smaller,
    list_some,
    run_name,
    run_path,
)
from jaxpt.distributed import processes
from jaxpt.errors import DivergedError
from jaxpt.files.folder import CHECKPOINTS, LOCK, claim
from jaxpt.finetuning.reuse import Reuse
from jaxpt.runs.program import Program
from jaxpt.runs.progress_bars import SILENT, make_reporter
from jaxpt.runs.workdir import DIVERGED, load_divergence
from jaxpt.training.branches import find_branch_step, plan_trunk
from jaxpt.training.clock import Branching
from jaxpt.training.loop import train

_log = logging.getLogger(__name__)
WAIT_SECONDS = 2.0  # between two checks of runs that other processes train


class Trainer:
    """Trains runs of a comparison; the compiled program is shared by their seeds.

    With several budgets, the run of the largest one comes first; those of the others
    branch from it.
    """

    def __init__(self, prepared: ComparisonPlan, workdir: Path) -> None:
        self._prepared, self._workdir = prepared, workdir
        self._smaller = [Trainer(p, f) for f, p in list_smaller(prepared, workdir)]
        self._name = ""
        self._program: Program | None = None
        self._reuse = Reuse()
        self._identity = identify_tasks(prepared.spec, self._reuse)

    def train(self, name: str, seed: int) -> dict:
        """Trains and evaluates a run; its entry in the report, even if it diverges.

        A run that is finished or has diverged is not repeated, also if its checkpoints
        were removed. Its branches, if any, are trained after it.

        Raises:
          UserError, Stopped: as `loop.train`.
        """
        branches = [each._prepared.plans[name] for each in self._smaller]
        entry = self._train(name, seed, plan_trunk(branches))
        trunk = run_path(self._workdir, name, seed)
        for each, plan in zip(self._smaller, branches, strict=True):
            until = find_branch_step(plan)
            each._train(name, seed, Branching(trunk=trunk, until=until))
        return entry

    def _train(self, name: str, seed: int, branching: Branching) -> dict:
        prepared = self._prepared
        if processes.on_first(self._is_archived, name, seed):
            return processes.on_all(collect_run, prepared, self._workdir, name, seed)
        task = prepared.make_task(name, seed)
        if self._program is None or self._name != name:
            self._program = processes.on_all(Program, task)
            self._name = name
        folder = run_path(self._workdir, name, seed)
        text, label = (prepared.tokenizer, prepared.corpora), f"{name} seed {seed}"
        if branching.trunk:
            label += f" at {prepared.spec.amount:g}"
        try:
            program = self._program
            run = train(task, *text, folder, program, label, branching=branching)
        except DivergedError as error:
            if processes.is_first():
                _log.warning(f"{label}: {error}")
            record = processes.on_first(load_divergence, folder)
            return make_diverged_entry(record, name, folder, self._workdir)
        if self._identity:
            log = make_reporter().log if processes.is_first() else SILENT.log
            evaluate_run(prepared.spec, self._identity, folder, seed, log, self._reuse)
        return make_entry(run, name, folder, self._workdir, prepared.spec)

    def _is_archived(self, name: str, seed: int) -> bool:
        """Whether a run has results and no checkpoints."""
        folder = run_path(self._workdir, name, seed)
        return not (folder / CHECKPOINTS).exists() and self._has_results(folder)

    def is_finished(self, name: str, seed: int) -> bool:
        """Whether a run is trained and evaluated on all tasks, or has diverged.

        Also at the smaller budgets.
        """
        folder = run_path(self._workdir, name, seed)
        has_ended = self._has_results(folder) or (folder / DIVERGED).exists()
        return has_ended and all(x.is_finished(name, seed) for x in self._smaller)

    def _has_results(self, folder: Path) -> bool:
        return (folder / "result.json").exists() and (
            not self._identity or has_results(folder, self._identity)
        )


def train_runs(
    prepared: ComparisonPlan, workdir: Path, runs: Collection[tuple[str, int]]
) -> None:
    """Trains the runs that no other process trains, and waits for the others.

    A run whose process was killed or whose machine was lost resumes from its last
    checkpoint. Returns when all runs are finished or have diverged.

    Raises:
      UserError, Stopped: as `loop.train`.
    """
    trainer, pending, announced = Trainer(prepared, workdir), list(runs), set()
    while pending:
        deferred = []
        for run in pending:
            with claim(run_path(workdir, *run)) as is_ours:
                if not is_ours:
                    deferred.append(run)
                elif not processes.on_first(partial(trainer.is_finished, *run)):
                    trainer.train(*run)
        if len(deferred) == len(pending):
            if new := [run for run in deferred if run not in announced]:
                _announce_wait(workdir, new)
            announced |= set(deferred)
            time.sleep(WAIT_SECONDS)
        pending = deferred


def _announce_wait(workdir: Path, runs: list[tuple[str, int]]) -> None:
    names = list_some([run_name(*run) for run in runs])
    path = run_path(workdir, *runs[0]) / LOCK
    if processes.is_first():
        _log.warning(
            f"waiting for other processes, which train {names} (if a machine is gone "
            f"and the disk keeps its lock, remove {path})"
        )

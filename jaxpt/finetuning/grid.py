"""Runs a grid of fine-tuning runs in a folder; after a kill, the same call resumes.

config.json      the settings; the grid's lists may grow
identity.json    the network and the examples
cells/NAME       a run each (`jaxpt.finetuning.cell`)
model            the parameters of the run with the best dev metric
result.json      the results of all runs, and the picked setting
"""

import itertools
import signal
import time
from collections.abc import Callable
from pathlib import Path

from jaxpt import logs
from jaxpt.config.finetuning import CHANGEABLE, GRID, FinetunePlan
from jaxpt.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    UserError,
    argument,
)
from jaxpt.files import checksums, disk, remote
from jaxpt.files.folder import (
    LOCK,
    hold,
    is_new,
    load_config,
    load_json,
    write_config,
    write_json,
)
from jaxpt.finetuning.base import BASE, SCRATCH, Base, import_source, load_base
from jaxpt.finetuning.cell import Cell, CellRun
from jaxpt.finetuning.data import TaskData, draw_train
from jaxpt.finetuning.evaluation import LabelledRows
from jaxpt.finetuning.exact_probe import check_exact_probe, run_exact_probe
from jaxpt.finetuning.export import IDENTITY, IDENTITY_FORM, find_target
from jaxpt.finetuning.meter import show_seconds
from jaxpt.finetuning.program import TuneProgram
from jaxpt.finetuning.results import CELLS, load_cell, load_cells, write_cell
from jaxpt.finetuning.reuse import Reuse, encode_split
from jaxpt.finetuning.summary import summarise
from jaxpt.runs import manifest
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.signals import SignalWatch, Stopped
from jaxpt.runs.workdir import flatten
from jaxpt.tasks.batches import choose_lengths, collate, row_length
from jaxpt.tasks.task import Labels

Log = Callable[[str], None]


def list_cells(train: dict) -> list[Cell]:
    """All runs of the grid, the seeds innermost.

    Args:
      train: the lists of the grid, by the names of `GRID`.
    """
    points = itertools.product(*(train[name] for name in GRID))
    return [Cell(float(lr), size, num, seed) for lr, size, num, seed in points]


def finetune(
    plan: FinetunePlan,
    source: str,
    folder: Path,
    log: Log,
    reuse: Reuse | None = None,
    for_export: bool = False,
) -> dict:
    """Runs the unfinished runs of a grid; the result of all runs.

    Args:
      source: as for `load_base`.
      log: gets lines of progress.
      reuse: data and programs that are shared with other fine-tunings.
      for_export: `task.head=auto` prefers a head that can be exported, and `log` gets a
        line if the result cannot be.

    Raises:
      UserError: a setting is wrong, found before training; or the folder contains
        other work.
      DivergedError: every run diverged; the result is written.
      Stopped: a signal arrived; the same call resumes.
    """
    reuse = reuse or Reuse()
    with hold(folder, "to"):
        _check_folder(folder, plan)
        data = reuse.read_data(plan)
        source = import_source(source, folder)
        base = _load_base(plan, source, folder, for_export)
        splits = reuse.encode_splits(plan, data, base.encoder)
        program = make_program(plan, base, data.labels, splits["train"], reuse)
        if plan.adapt.method == "exact_probe":
            check_exact_probe(program)
        _write_identity(folder, plan, base, data)
        baselines = measure_baselines(plan, data.splits)
        sizes = {name: len(items) for name, items in data.splits.items()}
        for line in introduce(program, sizes, splits["train"]):
            log(line)
        if for_export and (reason := _refuse_export(plan, base)):
            log(f"the result cannot be exported to transformers: {reason}")
        cells = _run_cells(program, data, splits, folder, log)
        result = {
            "task": plan.task_name,
            "source": source,
            "unfinished": base.unfinished,
            "head": base.form,
            "labels": list(data.labels),
            "method": plan.adapt.method,
            "parameters": program.counts,
            "examples": sizes,
            **summarise(cells, plan.spec.main_metric),
            "constant": baselines,
            "cells": cells,
        }
        write_json(folder / "result.json", result)
        if result["picked"] is None:
            raise DivergedError(
                f"{argument('to')}={folder}: every run diverged "
                f"({cells[0]['diverged']}); use a lower train.lr than {plan.train.lr}"
            )
        return result


def _load_base(plan: FinetunePlan, source: str, folder: Path, for_export: bool) -> Base:
    """The network; a fine-tuning that has begun keeps the head that it chose."""
    head, class_suffix = plan.spec.head, plan.spec.EXPORT
    stored = folder / IDENTITY
    if head == "auto" and stored.exists():
        head = load_json(stored, IDENTITY_FORM, f"use another {argument('to')}")["head"]
    if plan.adapt.is_frozen or not for_export:
        class_suffix = ""
    options = plan.spec.max_len, plan.train.dropout, class_suffix
    return load_base(source, head, *options)


def _refuse_export(plan: FinetunePlan, base: Base) -> str:
    """Why the result cannot be exported; "" if it can."""
    try:
        find_target(plan, base)
    except UserError as error:
        return str(error)
    return ""


def make_program(
    plan: FinetunePlan,
    base: Base,
    labels: Labels,
    train: LabelledRows,
    reuse: Reuse | None = None,
) -> TuneProgram:
    """The program, traced with two rows of the training data."""
    rows, encoder = train.rows[:2], base.encoder
    (length,) = choose_lengths([row_length(row) for row in rows], 1, encoder.max_len)
    arrays = collate(rows, length, 2, plan.spec.PADS, encoder.pad)
    del arrays["example"]
    return (reuse or Reuse()).make_program(plan, base, labels, arrays)


def introduce(
    program: TuneProgram, sizes: dict[str, int], train: LabelledRows
) -> list[str]:
    """Lines about the data, the network and the trained parameters.

    Args:
      sizes: the number of examples in each split.
      train: the examples of the first seed.
    """
    plan, base, counts = program.plan, program.base, program.counts
    task = base.task
    names = {"network": "the network", "head": "the head", "extra": plan.adapt.method}
    parts = ", ".join(f"{names[k]} {counts[k]:,}" for k in names if counts[k])
    share = counts["trained"] / counts["total"]
    rows = ", ".join(f"{name} {num:,}" for name, num in sizes.items())
    if plan.data.num_train:
        rows = rows.replace("train ", f"train {plan.data.num_train:,} of ", 1)
    labels = f", labels {', '.join(program.labels)}" if program.labels else ""
    lengths, max_len = train.lengths, base.encoder.max_len
    state = (
        "random initialization of" if base.params is None else f"step {base.step} of"
    )
    lines = [
        f"{plan.task_name}: {rows} examples{labels}",
        f"{task.plan.objective_name}: {state} {base.source.removeprefix(SCRATCH)}, "
        f"head {base.form}" + " (the checkpoint's own)" * program.keeps_head,
        f"trained: {counts['trained']:,} of {counts['total']:,} parameters "
        f"({100 * share:.{2 if share > 1e-4 else 4}f}%): {parts}",
    ]
    if base.unfinished:
        lines.insert(2, f"the run is unfinished: {base.unfinished}")
    num_cut = int((lengths >= max_len).sum())
    if num_cut and plan.spec.CUTS:
        lines.append(
            f"{num_cut:,} of {len(lengths):,} training rows have task.max_len="
            f"{max_len} tokens or more, and are truncated"
        )
    if num_long := int((lengths > task.model_spec.max_len).sum()):
        lines.append(
            f"{num_long:,} of {len(lengths):,} training rows are longer than "
            f"model.max_len={task.model_spec.max_len}; they are not truncated, in "
            f"evaluation as well"
        )
    return lines


def _run_cells(
    program: TuneProgram,
    data: TaskData,
    splits: dict[str, LabelledRows],
    folder: Path,
    log: Log,
) -> list[dict]:
    """The results of all runs of the grid; finished ones are loaded."""
    plan, results, main = program.plan, [], program.spec.main_metric
    cells = list_cells(vars(plan.train))
    left = sum(load_cell(folder, cell, main) is None for cell in cells)
    begun, done = time.monotonic(), 0
    with SignalWatch() as watch:
        for number, cell in enumerate(cells, 1):
            result = load_cell(folder, cell, main)
            if result is None:
                rest = _show_left(time.monotonic() - begun, done, left)
                position = f"run {number} of {len(cells)}" if len(cells) > 1 else ""
                if position:
                    log(f"{position}: {cell.name}{rest}")
                left, done = left - 1, done + 1
                cell_splits = splits
                if plan.data.num_train and cell.seed != plan.train.seeds[0]:
                    examples = draw_train(plan, data, cell.seed)
                    train = encode_split(plan, examples, program.base.encoder, True)
                    cell_splits = splits | {"train": train}
                with logs.part_of(f"{position}{rest}"):
                    result = _run_cell(program, cell, cell_splits, folder, log, watch)
            else:  # left by a process that was killed after it wrote the result
                disk.remove(folder / CELLS / cell.name / "checkpoints")
            results.append(result)
            if watch.signum and number < len(cells):  # too late to stop this cell
                raise Stopped(result["steps"], watch.signum)
    if watch.signum:  # all cells are finished; the caller must stop
        signal.raise_signal(watch.signum)
    return results


def _show_left(seconds: float, done: int, left: int) -> str:
    """The time left for all runs, at the mean of those that took `seconds`.

    >>> _show_left(60.0, 2, 3), _show_left(0.5, 0, 4)
    (', 1:30 left for all', '')
    """
    return f", {show_seconds(seconds / done * left)} left for all" if done else ""


def _run_cell(
    program: TuneProgram,
    cell: Cell,
    splits: dict[str, LabelledRows],
    folder: Path,
    log: Log,
    watch: SignalWatch,
) -> dict:
    """Trains a cell; if it is the best, its parameters are stored before its result."""
    cell_folder = folder / CELLS / cell.name
    if program.plan.adapt.method == "exact_probe":
        trained = run_exact_probe(program, cell, splits)
    else:
        trained = CellRun(program, cell, splits, cell_folder, log).run(watch)
    result, main = trained.result, program.spec.main_metric
    finished = [x for x in load_cells(folder, main) if "diverged" not in x]
    if "diverged" in result:
        log(f"{cell.name} diverged: {result['diverged']}")
    elif all(result["dev"][main] > other["dev"][main] for other in finished):
        used = {other["model_step"] for other in finished if "model_step" in other}
        step = 1 + max(used, default=0)
        # Two are kept: the previous one is the best until this cell's result exists.
        with Checkpointer(folder / "model", keep=2) as checkpointer:
            for orphan in {*checkpointer.steps()} - used:  # of a cell that was killed
                manifest.remove(folder / "model", orphan)
            checkpointer.save(step, {"trained": trained.params})
        result["model_step"] = step
    write_cell(folder, cell, trained)
    disk.remove(cell_folder / "checkpoints")
    remote.push(folder)
    return result


def measure_baselines(plan: FinetunePlan, splits: dict[str, list]) -> dict[str, dict]:
    """The metrics of the best prediction that ignores the input (`Task.constant`)."""
    task, spec, train = plan.task, plan.spec, splits["train"]
    metrics = {
        name: task.metrics(task.constant(train, items, spec), items, spec)
        for name, items in splits.items()
        if name != "train"
    }
    if spec.main_metric not in metrics["dev"]:
        raise ConfigError(
            f"task.metric={spec.main_metric}: must be one of "
            f"{', '.join(metrics['dev'])} for these data"
        )
    return metrics


def _check_folder(folder: Path, plan: FinetunePlan) -> None:
    """Raises UserError unless the folder is new or contains this fine-tuning."""
    kept = {LOCK, BASE, checksums.FILE}
    if is_new(folder) or {x.name for x in folder.iterdir()} <= kept:
        return
    path = folder / "config.json"
    if not path.exists() or (folder / "checkpoints").exists():
        raise CheckpointError(
            f"{argument('to')}={folder}: holds something else; must be a new folder, "
            "or one of the same fine-tuning"
        )
    stored = load_config(path, f"use another {argument('to')}")
    old, new = _settings(stored), _settings(plan.config)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            raise CheckpointError(
                f"{argument('to')}={folder}: holds a fine-tuning with "
                f"{name}={old.get(name)}, not {new.get(name)}; use another folder or "
                "the same settings"
            )


def _settings(config: dict) -> dict:
    """The settings, by full name, that the results depend on."""
    free = {f"train.{name}" for name in CHANGEABLE}
    return {k: v for k, v in flatten(config).items() if k not in free}


def _write_identity(
    folder: Path, plan: FinetunePlan, base: Base, data: TaskData
) -> None:
    """Writes the config and the identity of network and data."""
    identity = {
        "source": base.source,
        "network": base.fingerprint(),
        "step": base.step,
        "head": base.form,
        "labels": list(data.labels),
        "data": data.fingerprint,
    }
    path = folder / IDENTITY
    if path.exists():
        stored = load_json(path, IDENTITY_FORM, f"use another {argument('to')}")
        for name, word in (("network",) * 2, ("data", "examples"), ("head",) * 2):
            if stored.get(name) != identity[name]:
                raise CheckpointError(
                    f"{argument('to')}={folder}: holds a fine-tuning of another "
                    f"{word}; use another folder"
                )
    folder.mkdir(parents=True, exist_ok=True)
    # First what `_check_folder` reads: a call killed in between can be repeated.
    write_config(folder / "config.json", plan.config)
    write_json(path, identity)

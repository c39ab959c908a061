"""A grid of fine-tuning runs in a folder; after a kill, the same call resumes it.

config.json      the settings; the grid's lists may grow
identity.json    the network and the examples
cells/NAME       a run each (`jaxpt.finetuning.cell`)
model            the parameters of the run with the best dev metric
result.json      the results of all runs, and the picked setting
"""

import itertools
from collections.abc import Callable
from pathlib import Path

from jaxpt.config.finetuning import GRID, HARMLESS, FinetunePlan
from jaxpt.errors import DivergedError, UserError
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
from jaxpt.finetuning.batches import choose_lengths, collate
from jaxpt.finetuning.cell import Cell, CellRun, drop_checkpoints
from jaxpt.finetuning.data import draw_train
from jaxpt.finetuning.evaluation import Examples
from jaxpt.finetuning.exact_probe import check_exact_probe, run_exact_probe
from jaxpt.finetuning.program import TuneProgram
from jaxpt.finetuning.results import load_cell, load_cells, rename_old, write_cell
from jaxpt.finetuning.reuse import Reuse, encode_split
from jaxpt.finetuning.summary import format_summary, summarise
from jaxpt.run import manifest
from jaxpt.run.checkpoint import Checkpointer
from jaxpt.run.signals import SignalWatch
from jaxpt.run.workdir import flatten


def list_cells(plan: FinetunePlan) -> list[Cell]:
    """All points of the grid, the seeds innermost."""
    return _list_cells({name: getattr(plan.train, name) for name in GRID})


def _list_cells(train: dict) -> list[Cell]:
    points = itertools.product(*(train[name] for name in GRID))
    return [Cell(float(lr), size, num, seed) for lr, size, num, seed in points]


def finetune(
    plan: FinetunePlan,
    source: str,
    folder: Path,
    say: Callable[[str], None],
    reuse: Reuse | None = None,
) -> dict:
    """Runs what is not finished of a grid; the whole result.

    Args:
      source: as of `load_base`.
      say: gets lines of progress.
      reuse: of the fine-tunings before, what this one may have in common with them.

    Raises:
      UserError: something does not fit, found before anything is trained; or the folder
        holds other work.
      DivergedError: every run diverged; the result is written.
      Stopped: a signal came; the same call resumes.
    """
    reuse = reuse or Reuse()
    with hold(folder):
        _check_folder(folder, plan)
        data = reuse.read_data(plan)
        source = import_source(source, folder)
        base = load_base(source, plan.spec.head, plan.spec.max_len, plan.train.dropout)
        splits = reuse.encode_splits(plan, data, base.encoder)
        program = make_program(plan, base, data.labels, splits["train"], reuse)
        if plan.adapt.method == "exact_probe":
            check_exact_probe(program)
        _claim(folder, plan, base, data.fingerprint, data.labels)
        constants = find_constants(plan, data.splits)
        sizes = {name: len(items) for name, items in data.splits.items()}
        for line in describe(program, sizes, splits["train"]):
            say(line)
        cells = list_cells(plan)
        done: list[dict] = []
        with SignalWatch() as watch:
            for number, cell in enumerate(cells, 1):
                if (result := load_cell(folder, cell)) is None:
                    if len(cells) > 1:
                        say(f"run {number} of {len(cells)}: {cell.name}")
                    if plan.data.num_train and cell.seed != plan.train.seeds[0]:
                        drawn = draw_train(plan, data, cell.seed)
                        train = encode_split(plan, drawn, base.encoder, True)
                    else:
                        train = splits["train"]
                    held = splits | {"train": train}
                    result = _run_cell(program, cell, held, folder, say, watch)
                done.append(result)
        result = {
            "task": plan.task_name,
            "source": source,
            "unfinished": base.unfinished,
            "head": base.form,
            "labels": list(data.labels),
            "method": plan.adapt.method,
            "parameters": program.counts,
            "examples": sizes,
            **summarise(done, plan.spec.main_metric),
            "constant": constants,
            "cells": done,
        }
        write_json(folder / "result.json", result)
        if result["picked"] is None:
            raise DivergedError(
                f"--to={folder}: every run diverged ({done[0]['diverged']}); use a "
                f"lower train.lr than {plan.train.lr}"
            )
        return result


def make_program(
    plan: FinetunePlan, base: Base, labels, train: Examples, reuse: Reuse | None = None
) -> TuneProgram:
    """The program, traced with two rows of the training data."""
    reuse = reuse or Reuse()
    rows = train.rows[:2]
    length = choose_lengths(
        [row["tokens"].shape[-1] for row in rows], 1, base.encoder.max_len
    )[0]
    arrays = collate(rows, length, 2, plan.spec.PADS, base.encoder.pad)
    del arrays["example"]
    return reuse.make_program(plan, base, labels, arrays)


def describe(program: TuneProgram, sizes: dict[str, int], train: Examples) -> list[str]:
    """What is trained, and on what, in lines.

    Args:
      sizes: examples of each split.
      train: those that are trained on.
    """
    plan, base, counts = program.plan, program.base, program.counts
    task = base.task
    whose = "fresh parameters, as of" if base.params is None else f"step {base.step} of"
    names = {"network": "the network", "head": "the head", "extra": plan.adapt.method}
    parts = ", ".join(f"{names[k]} {counts[k]:,}" for k in names if counts[k])
    share = counts["trained"] / counts["total"]
    rows = ", ".join(f"{name} {num:,}" for name, num in sizes.items())
    if plan.data.num_train:
        rows = rows.replace("train ", f"train {plan.data.num_train:,} of ", 1)
    labels = f", labels {', '.join(program.labels)}" if program.labels else ""
    lengths = train.lengths
    most = base.encoder.max_len
    num_cut = int((lengths >= most).sum())
    folder = base.source.removeprefix(SCRATCH)
    lines = [
        f"{plan.task_name}: {rows} examples{labels}",
        f"{task.plan.objective_name}: {whose} {folder}, head {base.form}"
        + " (the checkpoint's own)" * program.goes_on,
        f"trained: {counts['trained']:,} of {counts['total']:,} parameters "
        f"({100 * share:.{2 if share > 1e-4 else 4}f}%): {parts}",
    ]
    if base.unfinished:
        lines.insert(2, f"the run is unfinished: {base.unfinished}")
    if num_cut and plan.spec.CUTS:
        lines.append(
            f"{num_cut:,} of {len(lengths):,} training rows have task.max_len={most} "
            f"tokens or more, and are cut there"
        )
    if num_long := int((lengths > task.model_spec.max_len).sum()):
        lines.append(
            f"{num_long:,} of {len(lengths):,} training rows are longer than "
            f"model.max_len={task.model_spec.max_len}; they are read whole, in "
            f"evaluation as well"
        )
    return lines


def _run_cell(program, cell: Cell, splits, folder: Path, say, watch) -> dict:
    """Trains a cell; its result is written once its parameters are kept, if best."""
    place = folder / "cells" / cell.name
    if program.plan.adapt.method == "exact_probe":
        trained = run_exact_probe(program, cell, splits)
    else:
        trained = CellRun(program, cell, splits, place, say).run(watch)
    result, main = trained.result, program.spec.main_metric
    others = [x for x in load_cells(folder) if "diverged" not in x]
    if "diverged" in result:
        say(f"{cell.name} diverged: {result['diverged']}")
    elif all(result["dev"][main] > other["dev"][main] for other in others):
        claimed = {other["model_step"] for other in others if "model_step" in other}
        step = 1 + max(claimed, default=0)
        # Two are kept: the one before is what stands until this cell's result does.
        with Checkpointer(folder / "model", keep=2) as checkpointer:
            for orphan in {
                *checkpointer.steps()
            } - claimed:  # of a cell that was killed
                manifest.remove(folder / "model", orphan)
            checkpointer.save(step, {"trained": trained.params})
        result["model_step"] = step
    write_cell(folder, cell, trained)
    drop_checkpoints(place)
    return result


def find_constants(plan: FinetunePlan, splits: dict[str, list]) -> dict[str, dict]:
    """The metrics of the best answer that looks at no input.

    Raises:
      UserError: what is to pick is not among them.
    """
    task, spec, train = plan.task, plan.spec, splits["train"]
    found = {
        name: task.metrics(task.constant(train, items, spec), items, spec)
        for name, items in splits.items()
        if name != "train"
    }
    if spec.main_metric not in found["dev"]:
        raise UserError(
            f"task.metric={spec.main_metric}: must be one of "
            f"{', '.join(found['dev'])} for these data"
        )
    return found


def _check_folder(folder: Path, plan: FinetunePlan) -> None:
    """Raises UserError unless the folder is new or holds this fine-tuning.

    Folders of its cells get the names that they have in this version.
    """
    if is_new(folder) or {x.name for x in folder.iterdir()} <= {LOCK, BASE}:
        return
    path = folder / "config.json"
    if not path.exists() or (folder / "checkpoints").exists():
        raise UserError(
            f"--to={folder}: holds something else; must be a new folder, or one of the "
            f"same fine-tuning"
        )
    stored = load_config(path, "use another --to")
    old, new = _settings(stored), _settings(plan.config)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            raise UserError(
                f"--to={folder}: holds a fine-tuning with {name}={old.get(name)}, not "
                f"{new.get(name)}; use another folder or the same settings"
            )
    rename_old(folder, _list_cells(stored["train"]))


def _settings(config: dict) -> dict:
    """The settings by full name that a cell's numbers depend on."""
    free = {f"train.{name}" for name in HARMLESS}
    return {k: v for k, v in flatten(config).items() if k not in free}


def _claim(folder: Path, plan: FinetunePlan, base: Base, data: dict, labels) -> None:
    """Writes what is fine-tuned, or finds that it is the same.

    Raises:
      UserError: the folder's is another.
    """
    identity = {
        "source": base.source,
        "network": base.fingerprint(),
        "step": base.step,
        "head": base.form,
        "labels": list(labels),
        "data": data,
    }
    path = folder / "identity.json"
    if path.exists():
        held = load_json(path, "use another --to")
        what = {"network": "network", "data": "examples", "head": "head"}
        for name, word in what.items():
            if held.get(name) != identity[name]:
                raise UserError(
                    f"--to={folder}: holds a fine-tuning of another {word}; use "
                    f"another folder"
                )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, identity)
    write_config(folder / "config.json", plan.config)


def show(result: dict) -> str:
    """The result as a terminal shows it."""
    return format_summary(result)

"""Stores and loads the results of a grid's finished runs."""

import json
import numbers
from pathlib import Path

from jaxpt.errors import CheckpointError
from jaxpt.files import checksums
from jaxpt.files.folder import load_measured, write_json
from jaxpt.finetuning.cell import HISTORY, METRICS, Cell, Trained
from jaxpt.judge.examples import Examples
from jaxpt.runs.workdir import load_examples, write_examples
from jaxpt.tasks.metrics import OF_LABEL

# The schema of a run's result.json.
SCHEMA = HISTORY | {
    "lr": float,
    "batch_size": int,
    "epochs": int,
    "seed": int,
    "seconds": float,
    "dev?": METRICS,
    "test?": METRICS,
    "model_step?": int,
    "diverged?": str,
    "report?": {
        str: {
            "confusion": [[numbers.Real]],
            "per_label": {str: dict.fromkeys(OF_LABEL, numbers.Real)},
            "auc": (numbers.Real, None),
            "ece": numbers.Real,
            "ece_bins": int,
        }
    },
}
CELLS, RESULT, PREDICTIONS = "cells", "result.json", "predictions.jsonl"
SCORES = "scores.npz"


def write_cell(folder: Path, cell: Cell, trained: Trained) -> None:
    """Writes a cell's predictions, then its result, which marks it as finished.

    Each line of the predictions is an example: "split", "row" (its number in the file,
    from 0), and its record from `Task.make_records`. `SCORES` has the scores of
    `Task.item_scores`, by "SPLIT/METRIC".
    """
    place = folder / CELLS / cell.name
    lines = [
        json.dumps({"split": name} | record, allow_nan=False) + "\n"
        for name, records in trained.records.items()
        for record in records
    ]
    place.mkdir(parents=True, exist_ok=True)
    if lines:
        checksums.write(place / PREDICTIONS, "".join(lines).encode())
    if trained.scores:
        write_examples(place, trained.scores, SCORES)
    write_json(place / RESULT, trained.result)


def load_cell(folder: Path, cell: Cell, metric: str) -> dict | None:
    """The result of a finished cell; None if it is not finished.

    Args:
      metric: that it must have of the dev split, unless it diverged.
    """
    path = folder / CELLS / cell.name / RESULT
    return _load(path, metric) if path.exists() else None


def load_scores(folder: Path, setting: dict, seed: int) -> dict[str, Examples]:
    """The scores of the examples by "SPLIT/METRIC"; {} if a cell has none.

    Args:
      setting: with "lr", "batch_size" and "epochs".
    """
    cell = Cell(setting["lr"], setting["batch_size"], setting["epochs"], seed)
    return load_examples(folder / CELLS / cell.name, SCORES)


def load_cells(folder: Path, metric: str = "") -> list[dict]:
    """The results of all finished cells in a folder.

    Args:
      metric: that each must have of the dev split, unless it diverged.
    """
    paths = sorted((folder / CELLS).glob(f"*/{RESULT}"))
    return [_load(path, metric) for path in paths]


def _load(path: Path, metric: str) -> dict:
    result = load_measured(path, SCHEMA)
    dev = result.get("dev")
    if "diverged" not in result and (dev is None or metric and metric not in dev):
        name = f"dev.{metric}" if metric else "dev"
        raise CheckpointError(
            f"{path}: has no {name}; delete its folder to train this run again"
        )
    for name, report in result.get("report", {}).items():
        if any(len(row) != len(report["confusion"]) for row in report["confusion"]):
            raise CheckpointError(f"{path}: report.{name}.confusion is not square")
        if len(report["per_label"]) != len(report["confusion"]):
            raise CheckpointError(
                f"{path}: report.{name} has {len(report['per_label'])} labels, its "
                f"confusion {len(report['confusion'])}"
            )
    return result


def find_model(folder: Path) -> dict:
    """The result of the cell whose parameters are stored."""
    stored = [
        x for x in load_cells(folder) if "model_step" in x and "diverged" not in x
    ]
    if not stored:
        raise CheckpointError(f"{folder}: holds no finished fine-tuning")
    return max(stored, key=lambda x: x["model_step"])

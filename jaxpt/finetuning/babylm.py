"""The evaluation of the BabyLM challenge: zero-shot tasks and fine-tunings of a run.

    <workdir>/babylm/scores.json             all scores with intervals, in points
                     predictions-RULE.json   in the form of the challenge's leaderboard
                     items-RULE.csv          hits of each question, for verdicts
                     glue/TASK/              the fine-tunings

Scores are those of babylm/evaluation-pipeline-2025: percent of the questions of a
paradigm, averaged over paradigms; 100 times a rank correlation; 100 times the share of
the variance of reading times that surprisal explains. A score has two values: with a
tie of k options counted 1 / k, and as the pipeline counts it, which is correct.
"""

import csv
import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from jaxpt.config.config_files import read_config_file
from jaxpt.config.finetuning import make_finetune_plan
from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.files import checksums
from jaxpt.files.folder import refuse_links, write_json
from jaxpt.finetuning.cell import Cell
from jaxpt.finetuning.grid import finetune
from jaxpt.finetuning.results import CELLS, PREDICTIONS
from jaxpt.finetuning.summary import align
from jaxpt.judge.bootstrap import Interval, draw_counts, find_ends
from jaxpt.judge.intervals import mean_interval
from jaxpt.runs.zero_shot_results import evaluate_tasks, load_columns
from jaxpt.zero_shot import babylm, pairs
from jaxpt.zero_shot.tasks import TASKS

FOLDER = "babylm"
GLUE = ("boolq", "mnli", "mrpc", "multirc", "qqp", "rte", "wsc")
CONFIG = "tasks/babylm"
ENDINGS = ("", ".xz", ".gz")
BY_COUNTS = "bootstrap over examples"


class BabyLMPart(NamedTuple):
    """A part of the zero-shot evaluation: its task, and its names in the data."""

    task: str
    places: tuple[str, ...]


# By the names of the leaderboard.
PARTS = {
    "blimp": BabyLMPart("blimp", ("blimp_filtered", "blimp_fast")),
    "blimp_supplement": BabyLMPart("blimp", ("supplement_filtered", "supplement_fast")),
    "ewok": BabyLMPart("ewok", ("ewok_filtered", "ewok_fast")),
    "entity_tracking": BabyLMPart(
        "entity_tracking", ("entity_tracking", "entity_tracking_fast")
    ),
    "wug_adj": BabyLMPart("wug", ("wug_adj_nominalization",)),
    "wug_past": BabyLMPart("wug", ("wug_past_tense",)),
    "comps": BabyLMPart("comps", ("comps",)),
    "reading": BabyLMPart("reading", ("reading/reading_data.csv",)),
}


def find_parts(data: str) -> dict[str, str]:
    """The path of each part that a folder or an archive has."""
    place = Path(data)
    if place.is_file():
        inside = _list_folders(place)
    elif place.is_dir():
        known = [name for part in PARTS.values() for name in part.places]
        inside = {name for name in known if (place / name).exists()}
    else:
        raise ConfigError(f"{argument('data')}={data}: must be a folder or an archive")
    found = {}
    for name, part in PARTS.items():
        if places := [each for each in part.places if each in inside]:
            found[name] = f"{data}/{places[0]}"
    if not found:
        names = ", ".join(part.places[0] for part in PARTS.values())
        raise DataError(f"{argument('data')}={data}: has none of {names}")
    return found


def _list_folders(archive: Path) -> set[str]:
    try:
        with tarfile.open(archive) as members:
            names = [name.removeprefix("./") for name in members.getnames()]
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(
            f"{argument('data')}={archive}: cannot be read: {error}"
        ) from None
    return {name.rpartition("/")[0] for name in names}


def find_glue(folder: str) -> list[str]:
    """The fine-tunings for which a folder has data."""
    splits = "train", "valid"
    found = [
        name
        for name in GLUE
        if all(
            any(Path(folder, f"{name}.{split}.jsonl{x}").exists() for x in ENDINGS)
            for split in splits
        )
    ]
    if not found:
        raise DataError(
            f"{argument('glue')}={folder}: has no task's TASK.train.jsonl and "
            f"TASK.valid.jsonl; TASK is one of {', '.join(GLUE)}"
        )
    return found


def evaluate_babylm(
    workdir: Path,
    data: str,
    glue: str,
    rule: str,
    num_items: int,
    bos: bool,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Evaluates a run; writes and returns its scores.

    All data is found before anything is evaluated; stored results are reused.

    Args:
      data: folder or archive of the zero-shot data; "" for no such task.
      glue: folder of the data of the fine-tunings; "" for none.
      rule, num_items: as for `evaluate_tasks`.
      bos: as its `has_left`.
      log: gets lines of progress.
    """
    parts = find_parts(data) if data else {}
    names = find_glue(glue) if glue else []
    refuse_links(workdir)  # no command holds the folder of all files
    plans = {
        name: make_finetune_plan(read_config_file(f"{CONFIG}:{glue},{name}"))
        for name in names
    }
    missing = [name for name in PARTS if data and name not in parts]
    missing += [f"glue {name}" for name in GLUE if glue and name not in names]
    folder = workdir / FOLDER
    result: dict[str, Any] = {
        "data": data,
        "glue": glue,
        "num_items": num_items,
        "missing": missing,
        "rules": {},
        "finetuning": {},
        "files": [],
    }
    predictions: dict[str, dict] = {}
    rows: dict[str, list[list]] = {}
    if parts:
        task_args = [f"{PARTS[name].task}:{path}" for name, path in parts.items()]
        outputs = evaluate_tasks(workdir, task_args, rule, num_items, has_left=bos)
        result["step"] = outputs[0]["step"]
        for name, output in zip(parts, outputs, strict=True):
            items = TASKS[PARTS[name].task].read(parts[name])
            for used, outcome in output["results"].items():
                columns = load_columns(workdir, output, used)
                chosen = [items[i] for i in columns["index"]]
                entry = result["rules"].setdefault(
                    used, {"description": output["rules"][used], "scores": {}}
                )
                entry["scores"] |= score_part(name, chosen, columns, outcome)
                rows.setdefault(used, []).extend(list_items(name, columns))
                made = predict_part(name, chosen, columns)
                if made is not None and not num_items:
                    predictions.setdefault(used, {})[name] = made
    tuned = {}
    for name, plan in plans.items():
        log(f"fine-tuning: {name}")
        output = finetune(plan, str(workdir), folder / "glue" / name, log)
        records = read_predictions(folder / "glue" / name, output["cells"][0])
        result["finetuning"][name] = score_tuned(output["metric"], records)
        tuned[name] = {
            "predictions": [
                {"id": f"{name}_{i}", "pred": int(each["prediction"])}
                for i, each in enumerate(records)
            ]
        }
    for used in predictions or ([""] if tuned else []):
        whole = predictions.get(used, {}) | ({"glue": tuned} if tuned else {})
        path = folder / ("-".join(x for x in ("predictions", used) if x) + ".json")
        write_json(path, whole)
        result["files"].append(str(path))
    write_scores(folder, rows, result)
    return result


def write_scores(
    folder: Path, rows: Mapping[str, Any], result: dict[str, Any], year: str = ""
) -> None:
    """Writes the items by rule and the scores, and lists the files in `result`."""
    folder.mkdir(exist_ok=True)
    for used, listed in rows.items():
        path = folder / ("-".join(x for x in ("items", year, used) if x) + ".csv")
        checksums.write(path, write_items(listed))
        result["files"].append(str(path))
    path = folder / ("-".join(x for x in ("scores", year) if x) + ".json")
    result["files"].append(str(path))
    write_json(path, result)


def score_part(
    name: str,
    items: Sequence,
    columns: dict[str, Float[np.ndarray, "N"]],
    outcome: dict[str, Any],
) -> dict[str, dict]:
    """The scores of a part in points, by name.

    Args:
      items, columns: the evaluated items, and their values by one rule.
      outcome: the stored result of the rule.
    """
    figures, task = outcome["figures"], PARTS[name].task
    if task == "reading":
        return {
            each: make_score(
                figures[each], figures.get(f"{each}_pipeline", figures[each])
            )
            for each in ("eye_tracking", "self_paced_reading")
        }
    if task == "wug":
        return {name: make_score(figures["spearman"], figures["spearman"], 100)}
    is_in = np.isfinite(columns["hit"])
    chosen = [item for item, used in zip(items, is_in, strict=True) if used]
    is_first = (choose(columns)[is_in] == 0).astype(np.float64)
    with_ties, _ = babylm.judge_choices(chosen, is_first)
    plain = to_json_figure(with_ties["accuracy"])
    return {name: make_score(figures["accuracy"], plain, 100)}


def to_json_figure(figure: Any) -> dict[str, Any]:
    """A figure as plain values; NaN becomes None."""
    values = figure._asdict()
    return {k: None if v != v else v for k, v in values.items()}


def choose(columns: dict[str, Float[np.ndarray, "N"]]) -> Float[np.ndarray, "N"]:
    """The first of the best options of each item; the correct one is the first."""
    if "choice" in columns:
        return columns["choice"]
    return (columns["bad"] > columns["good"]).astype(np.float64)


def make_score(figure: dict, pipeline: dict, factor: float = 1.0) -> dict[str, Any]:
    """A score and that of the pipeline in points, with their intervals."""
    entry: dict[str, Any] = {"method": figure["method"]}
    for suffix, each in (("", figure), ("_pipeline", pipeline)):
        for key in ("value", "low", "high"):
            value = each[key]
            entry[key + suffix] = None if value is None else factor * value
    return entry


def predict_part(
    name: str, items: Sequence, columns: dict[str, Float[np.ndarray, "N"]]
) -> dict[str, dict] | None:
    """The predictions of a part in the leaderboard's form; None if an item has none."""
    task = PARTS[name].task
    by_group: dict[str, list] = defaultdict(list)
    if task == "reading":
        suffix = "_pipeline" if "surprisal_pipeline" in columns else ""
        now, before = (columns[f"{x}{suffix}"] for x in ("surprisal", "previous"))
        if not np.isfinite(now).all():
            return None
        by_group["reading"] = [
            {"id": i, "pred": float(a), "prev_pred": None if np.isnan(b) else float(b)}
            for i, (a, b) in enumerate(zip(now, before, strict=True))
        ]
    elif task == "wug":
        for i, (item, margin) in enumerate(zip(items, columns["margin"], strict=True)):
            text = item.first if margin >= 0 else item.second
            record = {"id": f"{name}_{i}", "pred": text, "prob": float(expit(margin))}
            by_group[name].append(record)
    else:
        choices = choose(columns)
        if not np.isfinite(choices).all():
            return None
        for item, choice in zip(items, choices.astype(int).tolist(), strict=True):
            records = by_group[item.paradigm]
            text = _name_option(task, item, choice)
            records.append({"id": f"{item.paradigm}_{len(records)}", "pred": text})
    return {group: {"predictions": records} for group, records in by_group.items()}


def _name_option(task: str, item: Any, choice: int) -> str:
    """The text that the leaderboard expects for an option."""
    if isinstance(item, pairs.TextPair):
        return item[choice]
    text = item.question.options[choice]
    return item.question.contexts[choice] + text if task == "comps" else text


def list_items(name: str, columns: Mapping[str, np.ndarray]) -> list[list]:
    """The rows (metric, example, score, weight) of a task's items.

    A task that is not a mean over items, such as a correlation, has none.
    """
    if "hit" not in columns:
        return []
    return [
        [name, int(i), float(hit), float(weight)]
        for i, hit, weight in zip(
            columns["index"], columns["hit"], columns["weight"], strict=True
        )
        if hit == hit
    ]


def write_items(rows: Sequence[Sequence]) -> bytes:
    """Rows of items as a CSV file, which `jaxpt babylm --against` reads."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["metric", "example", "score", "weight"])
    writer.writerows(rows)
    return file.getvalue().encode()


def read_predictions(folder: Path, cell: dict) -> list[dict]:
    """The predictions of a cell for its validation data, in their order."""
    name = Cell(*(cell[each] for each in ("lr", "batch_size", "epochs", "seed"))).name
    path = folder / CELLS / name / PREDICTIONS
    lines = checksums.read(path).decode().splitlines()
    records = [json.loads(line) for line in lines]
    return sorted((x for x in records if x["split"] == "dev"), key=lambda x: x["row"])


def score_tuned(metric: str, records: Sequence[dict]) -> dict[str, Any]:
    """Accuracy, or F1 of the label 1, in points, with its interval over examples.

    >>> record = {"gold": "1", "prediction": "1"}
    >>> score_tuned("f1", [record] * 3 + [record | {"gold": "0"}] * 2)["value"]
    75.0
    """
    gold, predicted = (
        np.array([record[name] for record in records])
        for name in ("gold", "prediction")
    )
    accuracy = (gold == predicted).astype(np.float64)
    value, interval = float(accuracy.mean()), mean_interval(accuracy)
    if metric == "f1":
        cells = [
            (gold == "1") & (predicted == "1"),
            gold != predicted,
            (gold != "1") & (predicted != "1"),
        ]
        counts = np.array([np.sum(cell) for cell in cells])
        drawn = draw_counts(len(gold), counts / len(gold))
        value = float(_f1(counts[None])[0])
        interval = Interval(*find_ends(_f1(drawn)), BY_COUNTS)
    entry = {"value": value, "low": interval.low, "high": interval.high}
    points = {key: None if x != x else 100 * x for key, x in entry.items()}
    return {"metric": metric, "method": interval.method} | points


def _f1(counts: Float[np.ndarray, "S 3"]) -> Float[np.ndarray, "S"]:
    """F1 of hits, errors and the rest; 0 without hits and errors."""
    hits, errors = counts[:, 0], counts[:, 1]
    return 2 * hits / np.maximum(2 * hits + errors, 1)


def format_scores(result: dict[str, Any]) -> list[str]:
    """Lines of a table for the terminal."""
    lines = []
    for entry in result["rules"].values():
        rows = [["zero-shot", "score", "95 % interval", "pipeline"]]
        for name, score in entry["scores"].items():
            shown = f"{score['value']:.2f}", _show_ends(score)
            rows.append([name, *shown, f"{score['value_pipeline']:.2f}"])
        lines += [entry["description"], *align(rows)]
    if result["finetuning"]:
        rows = [["fine-tuning", "metric", "score", "95 % interval"]]
        for name, score in result["finetuning"].items():
            shown = f"{score['value']:.2f}", _show_ends(score)
            rows.append([name, score["metric"], *shown])
        lines += align(rows)
    if result["missing"]:
        lines.append(f"not in the data: {', '.join(result['missing'])}")
    if result["num_items"]:
        lines.append(
            f"at most {result['num_items']} items of each task: no file of their "
            f"predictions"
        )
    return lines + result["files"]


def _show_ends(score: dict) -> str:
    if score["low"] is None:
        return "[unknown]"
    return f"[{score['low']:.2f}, {score['high']:.2f}]"

"""The multilingual track of the BabyLM challenge of 2026: English, Dutch and Chinese.

    <workdir>/babylm/scores-2026.json      all scores with intervals, in points
                     items-2026-RULE.csv   hits of each question, for verdicts
                     tuning/nl/arc/        the fine-tunings

Tasks, metrics and recipe are those of babylm-org/babylm-eval (commit 45fe2c1): the
zero-shot tasks of lm-eval (multilingual/tasks/zeroshot_babybabellm/), scored by the
mean over all questions (`acc`), and fine-tunings (multilingual/finetune/). The score of
a language is the mean over its tasks. The Strict tracks of 2026 have the zero-shot
tasks and fine-tunings of 2025 (`jaxpt.finetuning.babylm`), with the same code.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpt.config.config_files import read_config_file
from jaxpt.config.finetuning import make_finetune_plan
from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.files.folder import refuse_links
from jaxpt.finetuning.babylm import (
    FOLDER,
    choose,
    list_items,
    make_score,
    read_predictions,
    score_tuned,
    to_json_figure,
    write_scores,
)
from jaxpt.finetuning.grid import finetune
from jaxpt.runs.zero_shot_results import evaluate_tasks, load_columns
from jaxpt.text.sources.reading import find_kind
from jaxpt.zero_shot import babylm
from jaxpt.zero_shot.tasks import TASKS

CONFIG = "tasks/babylm_2026"
SUM = "tasks combined as independent"
HUB = "huggingface.co/datasets"


class HarnessTask(NamedTuple):
    """A zero-shot task: the kind of its questions, and the data set on the Hub."""

    task: str
    source: str


MUBENCH = HarnessTask("prompted_choices", "aialt/MuBench")
XCOMPS = HarnessTask("sentence_pairs", "fpadovani/xcomps-dataset")
MULTIBLIMP = HarnessTask("sentence_pairs", "jumelet/multiblimp")
# By language, the zero-shot tasks under the names of their lm-eval definitions.
LANGUAGES: dict[str, dict[str, HarnessTask]] = {
    "eng": {
        "multiblimp_eng": MULTIBLIMP,
        "blimp": HarnessTask("sentence_pairs", "nyu-mll/blimp"),
        "winogrande_en_mubench": MUBENCH,
        "xstorycloze_en_mubench": MUBENCH,
        "hellaswag_en_mubench": MUBENCH,
    },
    "nld": {
        "multiblimp_nld": MULTIBLIMP,
        "blimp_nl": HarnessTask("sentence_pairs", "juletxara/blimp-nl"),
        "xcomps_nl": XCOMPS,
        "winogrande_nl_mubench": MUBENCH,
        "xstorycloze_nl_mubench": MUBENCH,
        "hellaswag_nl_mubench": MUBENCH,
    },
    "zho": {
        "zhoblimp": HarnessTask("sentence_pairs", "Junrui1202/zhoblimp"),
        "xcomps_zh": XCOMPS,
        "winogrande_zh_mubench": MUBENCH,
        "xstorycloze_zh_mubench": MUBENCH,
        "hellaswag_zh_mubench": MUBENCH,
    },
}
# By the language's folder, the fine-tunings.
TUNED = {
    "en": ("arc", "belebele", "bmlama", "mnli", "sib200", "truthfulqa", "xnli"),
    "nl": ("arc", "belebele", "bmlama", "include", "mnli", "sib200", "truthfulqa"),
    "zh": (
        *("arc", "belebele", "bmlama", "include", "mnli", "sib200", "truthfulqa"),
        "xnli",
    ),
}


def find_tasks(data: str) -> dict[str, str]:
    """The path of each zero-shot task that a folder has.

    A task is a file NAME.jsonl (or another format, compressed or not), a folder NAME,
    or the files test* in it, if there are such.
    """
    place = Path(data)
    if not place.is_dir():
        raise ConfigError(f"{argument('data')}={data}: must be a folder")
    found = {}
    for name in _list_names():
        folder = place / name
        if folder.is_dir():
            has_test = any(folder.glob("test*"))
            found[name] = str(folder / "test*") if has_test else str(folder)
        files = [x for x in sorted(place.glob(f"{name}.*")) if find_kind(x.name)]
        if len(files) + folder.is_dir() > 1:
            raise DataError(f"{argument('data')}={data}: has {name} several times")
        if files:
            found[name] = str(files[0])
    if not found:
        names = ", ".join(_list_names())
        raise DataError(f"{argument('data')}={data}: has none of {names}")
    return found


def _list_names() -> list[str]:
    return [name for parts in LANGUAGES.values() for name in parts]


def _find_part(name: str) -> HarnessTask:
    return next(parts[name] for parts in LANGUAGES.values() if name in parts)


def find_tunings(folder: str) -> list[tuple[str, str]]:
    """The (language, task) of the fine-tunings for which a folder has data."""
    found = [
        (language, name)
        for language, names in TUNED.items()
        for name in names
        if all(
            Path(folder, language, name, f"{name}_{language}.{split}.jsonl").exists()
            for split in ("train", "valid")
        )
    ]
    if not found:
        raise DataError(
            f"{argument('glue')}={folder}: has no LANGUAGE/TASK/TASK_LANGUAGE.train."
            f"jsonl with its .valid.jsonl, such as nl/arc/arc_nl.train.jsonl"
        )
    return found


def evaluate_multilingual(
    workdir: Path,
    data: str,
    tuning: str,
    rule: str,
    num_items: int,
    bos: bool,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Evaluates a run on the tasks of 2026; writes and returns its scores.

    All data is found before anything is evaluated; stored results are reused.

    Args:
      data: folder of the zero-shot tasks; "" for none.
      tuning: folder of the data of the fine-tunings; "" for none.
      bos: whether a causal rule gives a text the token that precedes texts in training.
        Otherwise, as in lm-eval with the exported run, a prompt follows nothing, and a
        sentence without a prompt [BOS] or else [EOS].
    """
    paths = find_tasks(data) if data else {}
    tunings = find_tunings(tuning) if tuning else []
    refuse_links(workdir)
    plans = {
        (language, name): make_finetune_plan(
            read_config_file(f"{CONFIG}:{tuning},{language},{name}")
        )
        for language, name in tunings
    }
    missing = [
        f"{name} ({HUB}/{_find_part(name).source})"
        for name in _list_names()
        if data and name not in paths
    ]
    missing += [
        f"{language}/{name}"
        for language, names in TUNED.items()
        for name in names
        if tuning and (language, name) not in tunings
    ]
    result: dict[str, Any] = {
        "year": 2026,
        "data": data,
        "glue": tuning,
        "num_items": num_items,
        "missing": missing,
        "rules": {},
        "finetuning": {},
        "files": [],
    }
    rows = _evaluate_paths(workdir, paths, rule, num_items, bos, result)
    folder = workdir / FOLDER
    for (language, name), plan in plans.items():
        log(f"fine-tuning: {language} {name}")
        place = folder / "tuning" / language / name
        output = finetune(plan, str(workdir), place, log)
        records = read_predictions(place, output["cells"][0])
        score = score_tuned(output["metric"], records)
        result["finetuning"][f"{language}/{name}"] = score
    write_scores(folder, rows, result, "2026")
    return result


def _evaluate_paths(
    workdir: Path,
    paths: Mapping[str, str],
    rule: str,
    num_items: int,
    bos: bool,
    result: dict[str, Any],
) -> dict[str, list[list]]:
    """Adds the scores of zero-shot tasks to a result; by rule, the rows of items."""
    rows: dict[str, list[list]] = {}
    for kind in ("sentence_pairs", "prompted_choices"):
        own = {n: path for n, path in paths.items() if _find_part(n).task == kind}
        if not own:
            continue
        arguments = [f"{kind}:{path}" for path in own.values()]
        is_bare = kind == "sentence_pairs"
        outputs = evaluate_tasks(
            workdir,
            arguments,
            rule,
            num_items,
            has_left=bos or is_bare,
            as_harness=is_bare and not bos,
        )
        result["step"] = outputs[0]["step"]
        for name, output in zip(own, outputs, strict=True):
            items = TASKS[kind].read(own[name])
            for used, outcome in output["results"].items():
                columns = load_columns(workdir, output, used)
                chosen = [items[i] for i in columns["index"]]
                entry = result["rules"].setdefault(
                    used, {"description": output["rules"][used], "scores": {}}
                )
                figures = outcome["figures"]
                entry["scores"][name] = score_task(chosen, columns, figures)
                rows.setdefault(used, []).extend(list_items(name, columns))
    for entry in result["rules"].values():
        scores = entry["scores"]
        ordered = {name: scores[name] for name in _list_names() if name in scores}
        entry["scores"] = ordered | average(ordered)
    return rows


def score_task(
    items: Sequence[babylm.BabyLMQuestion],
    columns: Mapping[str, np.ndarray],
    figures: Mapping[str, dict],
) -> dict[str, Any]:
    """The score of a task in points, also with the harness's rule for ties.

    Args:
      items, columns: the evaluated items, and their values by one rule.
    """
    is_in = np.isfinite(columns["hit"])
    chosen = [item for item, used in zip(items, is_in, strict=True) if used]
    answers = np.array([item.question.answer for item in chosen])
    is_first = (choose(dict(columns))[is_in] == answers).astype(np.float64)
    _, plain = babylm.judge_choices(chosen, is_first)[0].values()
    return make_score(figures["accuracy"], to_json_figure(plain), 100)


def average(scores: Mapping[str, dict]) -> dict[str, dict[str, Any]]:
    """The mean over the tasks of each language that has all of them.

    >>> score = {"value": 50.0, "low": 47.0, "high": 53.0}
    >>> score |= {f"{key}_pipeline": value for key, value in score.items()}
    >>> scores = average({name: score for name in LANGUAGES["eng"]})
    >>> round(scores["average_eng"]["high"], 3), 50 + round(3 / 5**0.5, 3)
    (51.342, 51.342)
    """
    means = {}
    for language, parts in LANGUAGES.items():
        own = [scores[name] for name in parts if name in scores]
        if len(own) < len(parts):
            continue
        mean: dict[str, Any] = {"method": SUM}
        for end in ("", "_pipeline"):
            value = sum(score[f"value{end}"] for score in own) / len(own)
            mean[f"value{end}"] = value
            for side in ("low", "high"):
                ends = [score[side + end] for score in own]
                mean[side + end] = None
                if None not in ends:
                    gaps = [
                        x - score[f"value{end}"]
                        for x, score in zip(ends, own, strict=True)
                    ]
                    gap = math.sqrt(sum(x * x for x in gaps)) / len(own)
                    mean[side + end] = value + (gap if side == "high" else -gap)
        means[f"average_{language}"] = mean
    return means

"""Downstream evaluation of the finished runs of a comparison, zero-shot or fine-tuned.

`compare.tasks` lists the tasks:

    blimp:FOLDER                     zero-shot, as `jaxpt evaluate --tasks` (each run by
                                     the first scoring rule of its network)
    finetune:configs/tasks/sst2.py   fine-tuned as by `jaxpt finetune`, from the run and
                                     from a random initialization of its network, with
                                     each number of labels in `compare.task_sizes`

Classification and tagging also have a baseline without a network, on the same labelled
examples (`jaxpt.tasks.ngrams`).

The results are shared metrics, measured on the same data for all objectives. The seed
of a fine-tuning is that of the run. It also draws the labelled examples, so runs of one
seed are fine-tuned on the same ones. The results are stored in the run's folder:

    tasks.json, task_examples.npz    read by the report
    evaluations, finetune            the complete results; finished ones are reused
"""

import hashlib
import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxpt import trust
from jaxpt.comparison.listed_tasks import (
    MARGIN,
    RANDOM_SUFFIX,
    CompareTask,
    can_evaluate,
    find_span,
    list_compare_tasks,
    list_compared,
    read_zero_shot,
)
from jaxpt.config.config_files import read_config_file
from jaxpt.config.finetuning import FinetunePlan, find_types, make_finetune_plan
from jaxpt.config.sections import FINETUNE, CompareSpec
from jaxpt.config.settings import override, to_dict
from jaxpt.config.shipped import find_config, is_shipped
from jaxpt.distributed import processes
from jaxpt.errors import ConfigError, DivergedError, UserError, argument
from jaxpt.files.folder import load_measured, write_json
from jaxpt.files.remote import localise
from jaxpt.finetuning.base import SCRATCH, make_fresh_base
from jaxpt.finetuning.evaluation import LabelledRows
from jaxpt.finetuning.grid import finetune, make_program
from jaxpt.finetuning.results import load_scores
from jaxpt.finetuning.reuse import Reuse
from jaxpt.hub.opened import load_model
from jaxpt.judge.examples import Examples
from jaxpt.report.wording import NGRAMS_SUFFIX
from jaxpt.runs.task import Task
from jaxpt.runs.text_judge import RunJudge
from jaxpt.runs.workdir import load_examples, write_examples
from jaxpt.runs.zero_shot_results import evaluate_tasks
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.zero_shot.outcomes import SAMPLES
from jaxpt.zero_shot.scoring import AUTO
from jaxpt.zero_shot.tasks import TASKS, list_tasks

DATA_PATHS = ("train", "dev", "test")  # settings of `data`
RESULTS, EXAMPLES = "tasks.json", "task_examples.npz"
# The schema of tasks.json.
RESULTS_FORM = {
    "asked": {str: str},
    "tasks": [
        {
            **dict.fromkeys(("task", "metric", "label", "title", "reference"), str),
            "higher_is_better": bool,
            "margin": float,
            "num_labels?": int,
            "constant?": (numbers.Real, None),
            "span?": (float, None),
            "finetune_seconds?": float,
        }
    ],
    "metrics": {str: (numbers.Real, None)},
}


def make_task_plan(
    task: CompareTask, size: int, seed: int, settings: dict
) -> FinetunePlan:
    """The plan to fine-tune a run with this seed on `size` labels.

    Args:
      settings: `compare.task_settings`.
    """
    if not is_shipped(find_config(task.path)):
        trust.check(task.path.partition(":")[0], f"compare.tasks={task.setting}")
    config = to_dict(read_config_file(task.path))
    types = find_types(config)
    config = override(config, settings, "compare.task_settings", types)
    config["data"] = config.get("data", {}) | {"num_train": size}
    config["train"] = config.get("train", {}) | {"seeds": (seed,)}
    return make_finetune_plan(config)


def identify_tasks(spec: CompareSpec, reuse: Reuse) -> dict[str, str]:
    """Reads the data of all tasks; the sha256 of each task and size.

    Args:
      reuse: keeps the data for `evaluate_run`.
    """
    tasks = list_compare_tasks(spec)
    if tasks and not processes.is_alone():
        raise ConfigError(
            f"compare.tasks={','.join(spec.tasks)}: must be empty with "
            f"{argument('distributed')}; spread the runs with {argument('part')} "
            "instead"
        )
    digests: dict[str, str] = {}
    tuned: dict[str, str] = {}  # the entry of each fine-tuning, by what defines it
    for task in tasks:
        if task.is_zero_shot:
            for name, path in list_tasks([task.setting]):
                items: Any = TASKS[name].read(localise(path))
                if TASKS[name].reads == SAMPLES:
                    judge = items[0].spec.judge
                    items = [items, RunJudge(load_model(judge), judge).fingerprint()]
                digests[f"{task.setting} {spec.task_items}"] = _digest(items)
        for size in task.sizes:
            plan = make_task_plan(task, size, spec.seeds[0], spec.task_settings)
            data = reuse.read_data(plan)
            digests[f"{task.setting} {size}"] = _digest([plan.config, data.fingerprint])
            _check_distinct(task, plan, data.fingerprint, tuned)
    return digests


def _check_distinct(
    task: CompareTask,
    plan: FinetunePlan,
    fingerprint: dict[str, str],
    tuned: dict[str, str],
) -> None:
    """Raises ConfigError for a fine-tuning that another entry names, too.

    Args:
      fingerprint: of the data, which may be read from two paths.
      tuned: the entries before it, by what defines them; this one is added.
    """
    data = {k: v for k, v in plan.config["data"].items() if k not in DATA_PATHS}
    key = _digest([plan.config | {"data": data}, fingerprint])
    other = tuned.setdefault(key, task.setting)
    if other != task.setting:
        raise ConfigError(
            f"compare.tasks={task.setting}: has the settings and the data of {other}; "
            f"must be named once"
        )


def check_networks(
    spec: CompareSpec, tasks: Mapping[str, Task], tokenizer: Tokenizer, reuse: Reuse
) -> None:
    """Checks before training that every network can be fine-tuned on every task.

    Args:
      tasks: the pretraining task of each name.
    """
    for task_of_all in list_compare_tasks(spec):
        if task_of_all.is_zero_shot:
            continue
        size = max(task_of_all.sizes)
        plan = make_task_plan(task_of_all, size, spec.seeds[0], spec.task_settings)
        data = reuse.read_data(plan)
        items = data.splits["train"][:2]
        settings = plan.spec.head, plan.spec.max_len, plan.train.dropout
        for name, task in tasks.items():
            try:
                base = make_fresh_base(task, tokenizer, *settings)
                rows = plan.task.encode(
                    items, base.encoder, plan.spec, is_training=True
                )
                make_program(plan, base, data.labels, LabelledRows(items, rows))
            except UserError as error:
                raise type(error)(
                    f"{error} (for {name}, {task_of_all.setting})"
                ) from error


def _digest(value: Any) -> str:
    text = repr(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def evaluate_run(
    spec: CompareSpec,
    identity: dict[str, str],
    folder: Path,
    seed: int,
    log: Callable[[str], None],
    reuse: Reuse,
) -> None:
    """Evaluates a finished run on every task; finished results are reused.

    Args:
      identity: from `identify_tasks`.
      log: gets lines of progress.
      reuse: data and programs that are shared with other runs.

    Raises:
      UserError, Stopped: as `inference.zero_shot_results.evaluate_tasks` and
        `finetune.grid.finetune`.
    """
    if has_results(folder, identity):
        return
    entries: list[dict] = []
    metrics: dict[str, float | None] = {}
    examples: dict[str, Examples] = {}
    tasks = list_compare_tasks(spec)
    zero_shot = [task for task in tasks if can_evaluate(task, folder)]
    if zero_shot:
        settings = [task.setting for task in zero_shot]
        results = evaluate_tasks(
            folder, settings, AUTO, spec.task_items, load_model=load_model
        )
        for task, result in zip(zero_shot, results, strict=True):
            for figure in list_compared(task):
                described = read_zero_shot(task, result, folder, figure)
                if described is not None:
                    entry, value, task_examples = described
                    entries.append(entry)
                    metrics[entry["metric"]] = value
                    if task_examples is not None:
                        examples[entry["metric"]] = task_examples
    for task in tasks:
        for size in task.sizes:
            plan = make_task_plan(task, size, seed, spec.task_settings)
            tuned, scratch = [
                _finetune(plan, source, place, log, reuse)
                for source, place in _list_sources(task, size, folder)
            ]
            ngrams = reuse.measure_ngrams(plan, reuse.read_data(plan))
            entry, values = _describe_tuned(task, size, tuned, scratch, ngrams)
            entries.append(entry)
            metrics |= values
            places = [place for _, place in _list_sources(task, size, folder)]
            examples |= _load_scores(entry, tuned, scratch, places, seed)
    write_examples(folder, examples, EXAMPLES)
    stored = {"asked": identity, "tasks": entries, "metrics": metrics}
    write_json(folder / RESULTS, stored)


def has_results(folder: Path, identity: dict[str, str]) -> bool:
    """Whether a run has results of exactly these tasks on these data."""
    path = folder / RESULTS
    return path.exists() and load_measured(path, RESULTS_FORM)["asked"] == identity


def _list_sources(task: CompareTask, size: int, folder: Path) -> list[tuple[str, Path]]:
    """The source and the folder of each fine-tuning: pretrained, and from scratch."""
    place = folder / FINETUNE / f"{task.name}-{size or 'all'}"
    return [
        (str(folder), place / "pretrained"),
        (f"{SCRATCH}{folder}", place / "scratch"),
    ]


def _finetune(
    plan: FinetunePlan,
    source: str,
    place: Path,
    log: Callable[[str], None],
    reuse: Reuse,
) -> dict:
    """As `finetune`; if every run diverged, the stored result, which picks none."""
    try:
        return finetune(plan, source, place, log, reuse)
    except DivergedError as error:
        log(str(error))
        return load_measured(place / "result.json", {str: object})


def _describe_tuned(
    task: CompareTask,
    size: int,
    tuned: dict,
    scratch: dict,
    ngrams: dict[str, dict[str, float]],
) -> tuple[dict, dict[str, float | None]]:
    """A fine-tuning's entry, and its metric with those of the baselines.

    Args:
      ngrams: the metrics of the n-gram baseline by split; {} for none.

    The metric of the test split, for the setting with the best dev metric; without a
    test split, the dev metric. None if every run diverged.
    """
    name = tuned["metric"]
    split = "test" if "test" in tuned["constant"] else "dev"
    values = {
        task.metric(size) + suffix: picked and picked[split][name]["median"]
        for suffix, picked in (
            ("", tuned["picked"]),
            (RANDOM_SUFFIX, scratch["picked"]),
        )
    }
    if ngrams:
        values[task.metric(size) + NGRAMS_SUFFIX] = ngrams[split][name]
    measure = f"{split} {name.replace('_', ' ')}"
    labels = f"{size:,} labels" if size else "all labels"
    entry = {
        "task": task.name,
        "metric": task.metric(size),
        "label": f"{task.name} {measure} ({labels})",
        "title": f"{task.name} {size or 'all'}",
        "higher_is_better": True,
        "margin": MARGIN,
        "reference": "",
        "span": find_span(name),
        "measure": measure,
        "num_labels": size or tuned["examples"]["train"],
        "constant": tuned["constant"][split][name],
        "finetune_seconds": sum(cell["seconds"] for cell in tuned["cells"]),
    }
    return entry, values


def _load_scores(
    entry: dict, tuned: dict, scratch: dict, places: list[Path], seed: int
) -> dict[str, Examples]:
    """The scores by example of a fine-tuning's metric and of its random initialization.

    {} for a metric that is not a mean over examples.
    """
    split = "test" if "test" in tuned["constant"] else "dev"
    examples = {}
    for suffix, result, place in zip(
        ("", "_random"), (tuned, scratch), places, strict=True
    ):
        if picked := result["picked"]:
            scores = load_scores(place, picked, seed)
            if (key := f"{split}/{tuned['metric']}") in scores:
                examples[entry["metric"] + suffix] = scores[key]
    return examples


def load_task_results(
    spec: CompareSpec, folder: Path
) -> tuple[list[dict], dict[str, float | None], dict[str, Examples]]:
    """The entries, metrics and examples of a run's downstream tasks.

    A metric that ends in _random is that of random initialization, one that ends in
    `NGRAMS_SUFFIX` that of the n-gram baseline.
    """
    if not spec.tasks:
        return [], {}, {}
    path = folder / RESULTS
    if not path.exists():
        raise ConfigError(f"{path}: is missing; do the comparison's runs again")
    stored = load_measured(path, RESULTS_FORM)
    return stored["tasks"], stored["metrics"], load_examples(folder, EXAMPLES)

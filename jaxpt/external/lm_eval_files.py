"""Reads the samples that EleutherAI's lm-evaluation-harness writes with log_samples.

    OUT/MODEL/samples_TASK_DATE.jsonl     a line for each document and filter
    OUT/MODEL/results_DATE.json           whether a higher value of a metric is better

A model is a system. A seed in its name (`split_seed`) or in that of the folder above
makes it a run of the system; `NAME=PATH` and `NAME:SEED=PATH` name one in words.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxpt.errors import DataError, UserError, argument, suggest
from jaxpt.external.score_rows import ScoreRows, split_seed
from jaxpt.files import disk, schema
from jaxpt.text.sources.files import read_whole

FILE = re.compile(
    r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+))?\.jsonl"
)
NAMED = re.compile(r"(?P<name>[^/=:]+)(?::(?P<seed>\d+))?=(?P<path>.+)")
HINT = "as lm_eval writes with log_samples"
# Of which lower is better, if no file of results has it.
LOWER = {"perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "ter"}
LOWER |= {"brier_score", "loss", "wer", "cer"}


class SampleFile(NamedTuple):
    """A file of samples, whose run and task are known."""

    path: Path
    system: str
    seed: int
    task: str
    date: str


class RunSamples(NamedTuple):
    """The samples of one run on one task, under one filter."""

    file: SampleFile
    documents: list
    scores: dict[str, list]
    groups: list | None
    lines: list[int]


def find_path(word: str) -> Path:
    """The path of a word of the command, which may be NAME=PATH."""
    match = None if os.path.exists(word) else NAMED.fullmatch(word)
    return Path(match["path"] if match else word)


def is_samples(word: str) -> bool:
    """Whether a word of the command names samples: a folder, or a file of them."""
    path = find_path(word)
    return path.is_dir() or path.suffix == ".jsonl"


def read_samples(
    words: Iterable[str],
    scores: Sequence[str] = (),
    group: str = "",
    tasks: Sequence[str] = (),
    filter_name: str = "",
) -> tuple[list[ScoreRows], list[str]]:
    """The scores of each task's metric, and notes on the choices made.

    Args:
      words: folders, files, or NAME=PATH.
      scores: the metrics; () is the first of each task.
      group: a key of the documents, whose value is the group; "" is the document.
      tasks: to read; () is all.
      filter_name: of the answers; "" is the first of each file.
    """
    files, notes = _list_files(words)
    by_task: dict[str, list[SampleFile]] = {}
    for file in files:
        by_task.setdefault(file.task, []).append(file)
    for task in tasks:
        if task not in by_task:
            raise DataError(
                f"{argument('tasks')}={task}: not among the samples"
                f"{suggest(task, by_task)}; must be of {', '.join(sorted(by_task))}"
            )
    by_task = {task: by_task[task] for task in tasks or sorted(by_task)}
    _check_tasks(by_task)
    found: list[ScoreRows] = []
    for task, group_files in by_task.items():
        runs = [_read_file(file, group, filter_name) for file in group_files]
        metrics, note = _choose_metrics(task, runs, scores)
        notes += note
        found += [_join(runs, metric, f"{task}/{metric}") for metric in metrics]
    return found, notes


def _list_files(words: Iterable[str]) -> tuple[list[SampleFile], list[str]]:
    """The newest file of each run and task, and a note on older ones."""
    newest: dict[tuple, SampleFile] = {}
    notes = []
    for word in words:
        match = None if Path(word).exists() else NAMED.fullmatch(word)
        root = find_path(word)
        paths = sorted(root.rglob("samples_*.jsonl")) if root.is_dir() else [root]
        if not paths:
            raise DataError(f"{root}: no samples_*.jsonl below it; must be, {HINT}")
        for path in paths:
            file = _name_file(path, match)
            key = file.system, file.seed, file.task
            other = newest.get(key)
            if other and other.path.parent.resolve() != path.parent.resolve():
                raise DataError(
                    f"{path.parent}: is {file.system}, seed {file.seed}, as is "
                    f"{other.path.parent}; must be named apart, by NAME:SEED=PATH"
                )
            if other and other.path != path:
                first, file = sorted((other, file), key=lambda each: each.date)
                notes.append(f"{first.path}: is left out, as {file.path.name} is newer")
            newest[key] = file
    return list(newest.values()), notes


def _name_file(path: Path, match: re.Match | None) -> SampleFile:
    parts = FILE.fullmatch(path.name)
    if not parts:
        raise DataError(f"{path}: must be named samples_TASK_DATE.jsonl, {HINT}")
    folder = path.absolute().parent
    system, seed = split_seed(folder.name)
    if seed is None:
        seed = split_seed(folder.parent.name)[1]
    if match:
        system, seed = match["name"], int(match["seed"]) if match["seed"] else seed
    return SampleFile(path, system, seed or 0, parts["task"], parts["date"] or "")


def _check_tasks(by_task: Mapping[str, list[SampleFile]]) -> None:
    """Raises DataError if a run has no samples of a task that another has."""
    runs = {(f.system, f.seed): f for files in by_task.values() for f in files}
    for task, files in by_task.items():
        own = {(file.system, file.seed) for file in files}
        for (system, seed), file in runs.items():
            if (system, seed) not in own:
                raise DataError(
                    f"{file.path.parent}: {system}, seed {seed}, has no samples of "
                    f"{task}, as {files[0].path.parent} has; every run must have the "
                    f"same tasks, or {argument('tasks')} names those to compare"
                )


def _read_file(file: SampleFile, group: str, filter_name: str) -> RunSamples:
    """The samples of one filter."""
    lines = read_whole(file.path, "").split(b"\n")
    samples, numbers = [], []
    for number, line in enumerate(lines, 1):
        if line.strip():
            sample = _parse(line, f"{file.path}: line {number}")
            samples.append(sample)
            numbers.append(number)
    if not samples:
        raise DataError(f"{file.path}: is empty; must have samples, {HINT}")
    filters = list(dict.fromkeys(str(each.get("filter", "none")) for each in samples))
    chosen = filter_name or filters[0]
    if chosen not in filters:
        raise DataError(
            f"{file.path}: has no samples of the filter {chosen!r}; "
            f"{argument('filter')} must be of {', '.join(filters)}"
        )
    kept = [i for i, x in enumerate(samples) if str(x.get("filter", "none")) == chosen]
    samples, numbers = [samples[i] for i in kept], [numbers[i] for i in kept]
    names = _list_metrics(samples[0])
    for sample, number in zip(samples, numbers, strict=True):
        for name in names:
            if name not in sample:
                raise DataError(
                    f"{file.path}: line {number}: has no {name!r}, as the samples "
                    f"before it have; must be {HINT}"
                )
    groups = None
    if group:
        groups = [
            _find_group(sample, group, f"{file.path}: line {number}")
            for sample, number in zip(samples, numbers, strict=True)
        ]
    scores = {name: [sample[name] for sample in samples] for name in names}
    documents = [sample["doc_id"] for sample in samples]
    return RunSamples(file, documents, scores, groups, numbers)


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        sample = schema.parse(line, {str: object})
    except (ValueError, UserError) as error:
        raise DataError(f"{place}: {error}; must be a sample, {HINT}") from None
    if not isinstance(sample.get("doc_id"), int | str):
        raise DataError(
            f"{place}: its doc_id is {sample.get('doc_id')!r}; must be the number of a "
            f"document, {HINT}"
        )
    return sample


def _list_metrics(sample: Mapping[str, Any]) -> list[str]:
    """The metrics of a sample: those it lists, or else all that are numbers."""
    listed = sample.get("metrics")
    if isinstance(listed, list):
        return [name for name in listed if isinstance(name, str) and name in sample]
    return [
        name
        for name, value in sample.items()
        if isinstance(value, float | int) and not name.endswith(("_id", "_hash"))
    ]


def _find_group(sample: Mapping[str, Any], key: str, place: str) -> Any:
    value = sample.get("doc")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if not isinstance(value, str | int):
        raise DataError(
            f"{place}: its doc has no text or number {key!r}; {argument('group')} must "
            f"be a key of every document"
        )
    return value


def _choose_metrics(
    task: str, runs: Sequence[RunSamples], scores: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The metrics of a task, and a note on those that were not chosen."""
    first = runs[0]
    known = [name for name in first.scores if _is_mean(first.scores[name][0])]
    chosen = list(scores) or known[:1]
    for name in chosen:
        if name not in known:
            known_names = ", ".join(known) or "none"
            raise DataError(
                f"{argument('score')}={name}: {task} has no such score of each document"
                f"{suggest(name, known)}; must be of {known_names}"
            )
    if not chosen:
        raise DataError(
            f"{first.file.path}: has no metric that is a number for each document; "
            f"must have one, {HINT}"
        )
    for run in runs:
        for name in chosen:
            if name not in run.scores:
                raise DataError(
                    f"{run.file.path}: has no {name!r}, as {first.file.path} has; "
                    f"every run must have the same metrics"
                )
    rest = [name for name in known if name not in chosen]
    if scores or not rest:
        return chosen, []
    more = f"{task}: {chosen[0]} is compared; {argument('score')} chooses among "
    return chosen, [f"{more}{', '.join(known)}"]


def _is_mean(value: Any) -> bool:
    """Whether a metric is the mean of such values; log-likelihoods come with sizes."""
    return isinstance(value, bool | int | float)


def _join(runs: Sequence[RunSamples], metric: str, label: str) -> ScoreRows:
    """The scores of all runs on a task."""
    places = [(run, i) for run in runs for i in range(len(run.documents))]

    def at(row: int) -> str:
        run, i = places[row]
        return f"{run.file.path}: line {run.lines[i]}"

    is_grouped = all(run.groups is not None for run in runs)
    return ScoreRows(
        metric=label,
        source=runs[0].file.task,
        at=at,
        system=[run.file.system for run in runs for _ in run.documents],
        seed=[run.file.seed for run in runs for _ in run.documents],
        score=[x for run in runs for x in run.scores[metric]],
        example=[x for run in runs for x in run.documents],
        group=[x for run in runs for x in run.groups or ()] if is_grouped else None,
        label=metric,
        higher_is_better=_read_direction(runs[0].file, metric),
    )


def _read_direction(file: SampleFile, metric: str) -> bool:
    """Whether a higher value is better, by the file of results next to the samples."""
    for path in sorted(file.path.parent.glob("results_*.json"), reverse=True):
        try:
            value = schema.parse(disk.read(path), {str: object})
            known = value["higher_is_better"][file.task][metric]
        except (ValueError, KeyError, TypeError, OSError):
            continue
        if isinstance(known, bool):
            return known
    return metric not in LOWER

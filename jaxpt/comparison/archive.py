"""Archives a comparison as a study: small files from which verdicts are computed again.

    study.json, report.json, *.csv, *.png    as `jaxpt.report.studies` describes them
    compare.json, plans.json    the settings of the comparison and of each objective
    config.txt                  the config file that the command names, if it names one
    references.npz              the baselines without a network, by test example
    runs/NAME-seedN/            what `jaxpt report --runs` reads of each run: settings,
                                results, values by test example; no checkpoints

checksums.json has the checksums of the files next to it. Absolute paths are shortened
(`short_paths`).
"""

import dataclasses
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from jaxpt.comparison import compared_tasks
from jaxpt.comparison.assembly import (
    NOTES,
    describe_count,
    judge_runs,
    measure_references,
)
from jaxpt.comparison.collect_runs import describe_run
from jaxpt.comparison.plan_runs import (
    CONFIG,
    PLANS,
    PLANS_FORM,
    load_compared_config,
    load_plans,
    run_name,
    run_path,
)
from jaxpt.comparison.short_paths import shorten_paths
from jaxpt.config.metric_names import rename_result
from jaxpt.config.plan import make_compare_spec, make_plan
from jaxpt.config.shipped import find_config
from jaxpt.errors import CheckpointError, UserError
from jaxpt.files import checksums, disk
from jaxpt.files.folder import (
    check_output,
    hold,
    load_json,
    load_measured,
    replaced_folder,
    write_json,
)
from jaxpt.judge.assumptions import describe_seeds
from jaxpt.judge.intervals import repeat_interval
from jaxpt.report.conventions import with_costs
from jaxpt.report.costs import EXTRA_COLUMNS, add_costs
from jaxpt.report.formats import to_plain
from jaxpt.report.studies import FOLDER_HINT, REPORT, STUDY, Study, load_study
from jaxpt.report.tables import format_differences, format_results
from jaxpt.report.types import Report
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.workdir import NAMES, load_examples, write_examples
from jaxpt.text.tokens import tokenizer
from jaxpt.training.finished_runs import load_runs
from jaxpt.training.metrics_log import METRICS_FILE
from jaxpt.training.result import SCHEMA

REFERENCES, SOURCE = "references.npz", "config.txt"
# What is copied of the comparison's folder, and of each run's.
FILES = ("report.json", "results.csv", "differences.csv", CONFIG, PLANS)
FIGURES = ("learning_curves", "shared_metrics", "finetuning_curves")
RUN_FILES = (
    *NAMES,
    METRICS_FILE,
    compared_tasks.RESULTS,
    compared_tasks.EXAMPLES,
    checksums.FILE,
)
ALPHA = 0.05  # that any mean of a repeated study lies outside its interval
# What a verdict is made of, in a metric's entry of report.json.
VERDICT_FIELDS = ("by_name", "pairs", "bounds", "baselines")
TOLERANCE = 1e-6  # relative; another machine may sum in another order
REPEAT_HINT = (
    "repeat the jaxpt compare that wrote it; finished runs are not trained again"
)


def archive(
    workdir: Path,
    folder: Path,
    title: str,
    question: str,
    command: str = "",
    note: str = "",
    has_pictures: bool = True,
) -> Study:
    """Writes the study of a finished comparison; an earlier study there is replaced.

    Args:
      workdir: of the comparison.
      folder: of the study: new, empty, or with a study.
      title, question: one line each.
      command: that made the comparison; "" is one that reads compare.json.
      note: what readers should know, such as other load on the machine.
      has_pictures: whether the report's first pictures are copied.

    Raises:
      UserError: `workdir` holds no finished comparison, its text has changed, `folder`
        holds other files, or the verdicts cannot be computed again. An earlier study
        is then kept.
    """
    check_output(folder, STUDY)  # before the text, which may take long to prepare
    config = load_compared_config(workdir)
    report = _load_report(workdir)
    source = _read_config(command)
    prepared = load_plans(config, workdir)
    tasks = {n: make_task(p, prepared.vocabs[n]) for n, p in prepared.plans.items()}
    references = measure_references(tasks, prepared.corpora)
    with replaced_folder(folder, STUDY) as place:
        _copy_files(report, workdir, place, has_pictures)
        flat = {
            f"{name}/{metric}": values
            for name, by_metric in references.items()
            for metric, values in by_metric.items()
        }
        write_examples(place, flat, REFERENCES)
        if source.data is not None:
            checksums.write(place / SOURCE, source.data)
        command = command or f"jaxpt compare --config {CONFIG} --workdir DIR"
        words = {"title": title, "question": question, "command": command}
        words |= {"config": source.name, "note": note}
        write_json(place / STUDY, words | _list_facts(report, place))
        shorten_paths(place, (CONFIG, PLANS), command)
        try:
            check_study(place)
        except UserError as error:  # about the copy of one of its files
            message = str(error).replace(str(place), str(workdir))
            raise type(error)(message) from error
    return load_study(folder)


def _load_report(workdir: Path) -> dict:
    return load_json(workdir / "report.json", REPORT, REPEAT_HINT, REPEAT_HINT)


def _copy_files(report: dict, workdir: Path, place: Path, has_pictures: bool) -> None:
    """Copies what a study has of a comparison.

    Raises:
      UserError: a file is missing or was altered.
    """
    for entry in [*report["runs"], *report.get("diverged", [])]:
        run = entry["name"], entry["seed"]
        _copy_run(run_path(workdir, *run), run_path(place, *run))
    pictures = [report["figures"].get(name) for name in FIGURES if has_pictures]
    for name in (*FILES, *(Path(picture).name for picture in pictures if picture)):
        try:
            data = checksums.read(workdir / name, REPEAT_HINT)
        except OSError as error:
            raise CheckpointError(
                f"{workdir / name}: cannot be read: {error.strerror}; {REPEAT_HINT}"
            ) from error
        checksums.write(place / name, data)


def _copy_run(source: Path, target: Path) -> None:
    faults = checksums.find_faults(source, logs=(METRICS_FILE,))
    for name in RUN_FILES:
        if name in faults:
            raise CheckpointError(
                f"{source / name}: {faults[name]}; {checksums.REMEDY}"
            )
    target.mkdir(parents=True)
    for name in RUN_FILES:
        if (source / name).is_file():
            disk.replace(target / name, disk.read(source / name))


class _Source(NamedTuple):
    """The config that a command names; "" and None if it names none."""

    name: str = ""
    data: bytes | None = None


def _read_config(command: str) -> _Source:
    """The config that a command names, with its content if it is a file.

    Raises:
      UserError: the command cannot be read, or its config.
    """
    try:
        words = [part for word in shlex.split(command) for part in word.split("=", 1)]
    except ValueError as error:  # a quotation that does not end
        raise UserError(f"--command={command}: cannot be read: {error}") from error
    if "--config" not in words[:-1]:
        return _Source()
    config = words[words.index("--config") + 1]
    path = Path(find_config(config).rpartition(".py:")[0] or find_config(config))
    path = path if path.suffix else path.with_suffix(".py")
    if path.suffix != ".py":
        return _Source(config)
    try:
        return _Source(config, disk.read(path))
    except OSError as error:
        raise UserError(
            f"--command: its config {path} cannot be read: {error.strerror}"
        ) from error


def _list_facts(report: dict, folder: Path) -> dict:
    """What study.json states in addition to its words."""
    runs = [*report["runs"], *report.get("diverged", [])]
    results = [run for run in report["runs"] if "machine" in run]
    return {
        "objectives": list(dict.fromkeys(run["name"] for run in runs)),
        "seeds": sorted({run["seed"] for run in runs}),
        "date": report["created"],
        "machines": _list_distinct(run["machine"] for run in results),
        "versions": _list_distinct(run["versions"] for run in results),
        "intervals": list_intervals(report),
    }


def _list_distinct(items: Iterable[dict]) -> list[dict]:
    distinct: list[dict] = []
    for item in items:
        if item not in distinct:
            distinct.append(item)
    return distinct


def list_intervals(report: dict) -> dict[str, dict[str, dict[str, float]]]:
    """By shared metric and name: the mean, and where that of a repeated study lies.

    Prediction intervals of the mean over the same number of seeds, simultaneous
    (Bonferroni): a repetition of the study has all means within them with a probability
    of at least 0.95. A name with one seed has none.
    """
    stated = [
        (entry["metric"], name, stats)
        for entry in report["metrics"]
        if entry["is_common"]
        for name, stats in entry["by_name"].items()
        if stats["n"] > 1
    ]
    intervals: dict[str, dict[str, dict[str, float]]] = {}
    for metric, name, stats in stated:
        mean = stats["mean"]
        low, high = repeat_interval(mean, stats["std"], stats["n"], ALPHA / len(stated))
        by_name = intervals.setdefault(metric, {})
        by_name[name] = {"mean": mean, "low": low, "high": high}
    return intervals


def check_study(folder: Path) -> Study:
    """Checks a study's files, and that its verdicts follow from its runs.

    Raises:
      UserError: a file is missing or was altered, or a mean, an interval or a verdict
        of report.json is not what the runs' values by example give.
    """
    study = load_study(folder)
    for name in (*FILES, STUDY, REFERENCES):
        if not (folder / name).exists():
            raise UserError(f"{folder / name}: is missing")
        checksums.read(folder / name)
    entries = [*study.report["runs"], *study.report.get("diverged", [])]
    named = {run_path(folder, run["name"], run["seed"]) for run in entries}
    if named != set((folder / "runs").iterdir()):
        raise UserError(
            f"{folder / 'runs'}: must hold the runs of report.json and no others"
        )
    load_runs(sorted(named), takes_diverged=True)
    stored = {entry["metric"]: entry for entry in study.report["metrics"]}
    redrawn = {entry["metric"]: entry for entry in redraw_verdicts(study)}
    for metric in [*stored, *redrawn]:
        for part in VERDICT_FIELDS:
            one, other = (x.get(metric, {}).get(part) for x in (stored, redrawn))
            if not is_close(one, other):
                raise UserError(
                    f"{folder / 'report.json'}: {metric}: {part} is not what the "
                    f"values by example in {folder / 'runs'} give"
                )
    if not is_close(study.facts["intervals"], list_intervals(study.report)):
        raise UserError(f"{folder / STUDY}: its intervals are not those of its report")
    return study


class _Results(NamedTuple):
    """What a study's folder stores of its runs, as `assembly.judge_runs` takes it."""

    runs: list[dict]
    examples: dict[tuple[str, int], dict]
    references: dict[str, dict]


def _load_results(study: Study) -> _Results:
    """The results of a study's runs and baselines, with the costs of its report."""
    folder, report = study.folder, study.report
    spec = make_compare_spec(load_compared_config(folder))
    runs, examples = [], {}
    for entry in report["runs"]:
        name, seed = entry["name"], entry["seed"]
        place = run_path(folder, name, seed)
        result = rename_result(load_measured(place / "result.json", SCHEMA))
        run = describe_run(result, name, place, folder, spec)
        if (run["objective"], run["seed"]) != (entry["objective"], seed):
            raise UserError(f"{place}: is not the run {run_name(name, seed)}")
        parts = {"parts": entry["parts"]} if "parts" in entry else {}
        runs.append(with_costs(run, entry) | parts)
        task_examples = compared_tasks.describe_tasks(spec, place)[2]
        examples[name, seed] = load_examples(place) | task_examples
    references: dict[str, dict] = {}
    for key, values in load_examples(folder, REFERENCES).items():
        name, _, metric = key.rpartition("/")
        references.setdefault(name, {})[metric] = values
    return _Results(runs, examples, references)


def redraw_verdicts(study: Study) -> list[dict]:
    """The "metrics" of a study's report, from the stored results of its runs."""
    judged = judge_runs(study.report, *_load_results(study))
    return json.loads(json.dumps(to_plain(judged["metrics"])))


def redraw(folder: Path) -> tuple[dict, dict]:
    """Writes a study's report again, from the stored results of its runs.

    For a study whose costs were counted or whose verdicts were computed by an earlier
    version. Nothing is trained; pictures show no verdicts and are kept.

    Returns:
      The report before and after.

    Raises:
      UserError: the folder holds no study, a file was altered, or the report that was
        written is not valid.
    """
    study = load_study(folder)
    spec = make_compare_spec(load_compared_config(folder))
    results, tasks = _load_results(study), _load_tasks(study)
    tuning = study.report.get("tuning")
    known = {(run["name"], run["seed"]): run for run in study.report["runs"]}
    runs = [
        run | _keep_costs(run, known[run["name"], run["seed"]])
        for run in add_costs(results.runs, tasks, tuning)
    ]
    report = study.report | {
        "runs": runs,
        "budget": describe_count(study.report["budget"], runs),
        "notes": NOTES,
        "seeds_note": describe_seeds(spec.seeds, spec.earlier_seeds, spec.alpha),
    }
    report |= judge_runs(report, runs, results.examples, results.references)
    report = json.loads(json.dumps(to_plain(report)))
    with hold(folder):
        write_json(folder / "report.json", report)
        for name, write in (
            ("results.csv", format_results),
            ("differences.csv", format_differences),
        ):
            checksums.write(folder / name, write(Report.from_json(report)).encode())
        facts = study.facts | {"intervals": list_intervals(report)}
        write_json(folder / STUDY, facts)
        check_study(folder)
    return study.report, report


def _load_tasks(study: Study) -> dict[str, Task]:
    """The task of each name of a study, for the counts of its operations."""
    plans = load_json(study.folder / PLANS, PLANS_FORM, FOLDER_HINT)
    tasks = {}
    for run in study.report["runs"]:
        name = run["name"]
        if name in tasks:
            continue
        plan = make_plan(plans["plans"][name]["config"], is_stored=True)
        path = run_path(study.folder, name, run["seed"]) / "tokenizer.json"
        vocab = tokenizer.load(path).vocab
        if plan.spec.needs.counts:  # no operation depends on them
            vocab = dataclasses.replace(vocab, counts=(1,) * vocab.size)
        tasks[name] = make_task(plan, vocab)
    return tasks


def _keep_costs(run: dict, entry: dict) -> dict:
    """The costs of an entry that its run does not have: those of a lost teacher."""
    return {
        key: entry[key]
        for key in EXTRA_COLUMNS
        if run.get(key) is None and entry.get(key) is not None
    }


def is_close(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers up to rounding.

    >>> is_close({"p": [1.0, "a"]}, {"p": [1.0 + 1e-9, "a"]}), is_close(1.0, 1.1)
    (True, False)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            is_close(one[key], other[key]) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_close, one, other))
    numbers = (int, float)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return abs(one - other) <= TOLERANCE * max(abs(one), abs(other), 1e-3)
    return one == other

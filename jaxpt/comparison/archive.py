"""Archives a finished comparison as a study (`jaxpt.comparison.studies`).

The study has the runs of the comparison's report, without checkpoints and logs.
Absolute paths are shortened (`short_paths`).
"""

import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from jaxpt.comparison import compared_tasks
from jaxpt.comparison.assembly import measure_references
from jaxpt.comparison.budgets import config_at
from jaxpt.comparison.collect_runs import collect_run
from jaxpt.comparison.plan_runs import (
    CONFIG,
    PLANS,
    PLANS_FORM,
    ComparisonPlan,
    load_compared_config,
    load_plans,
    run_path,
)
from jaxpt.comparison.record import make_record
from jaxpt.comparison.short_paths import shorten_paths
from jaxpt.comparison.studies import (
    COMPUTED,
    REPEATED,
    Study,
    check_study,
    load_study,
)
from jaxpt.comparison.study_files import REPORT, STUDY, write_study
from jaxpt.config.plan import make_compare_spec
from jaxpt.config.shipped import find_config
from jaxpt.errors import CheckpointError, UserError, argument
from jaxpt.files import checksums, disk
from jaxpt.files.folder import check_output, load_json, replaced_folder
from jaxpt.files.stored import to_plain
from jaxpt.judge.examples import Examples
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import NAMES, load_examples
from jaxpt.text.tokens import tokenizer as tokenizers

# What a verdict is made of, in a metric's entry of report.json.
VERDICT_FIELDS = ("by_name", "pairs", "bounds", "baselines")
TOLERANCE = 1e-5  # relative; values are stored as float32
RUN_FILES = {
    *NAMES,
    compared_tasks.RESULTS,
    compared_tasks.EXAMPLES,
    checksums.FILE,
}  # that a study is made of
COUNTED = {"flops", "curve"}  # of an entry; the report may count them again
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
    record: bool = False,
    rerun_of: str = "",
) -> Study:
    """Writes the study of a finished comparison; an earlier study there is replaced.

    Args:
      workdir: of the comparison.
      folder: of the study: new, empty, or with a study.
      title, question: one line each.
      command: that made the comparison; "" is one that reads compare.json.
      note: what readers should know, such as other load on the machine.
      record: whether it is a record of a speedrun (`jaxpt.comparison.record`).
      rerun_of: of a record: the name of the one that it repeats.
    """
    check_output(folder, STUDY)  # before the text, which may take long to prepare
    config = load_compared_config(workdir)
    path = workdir / "report.json"
    report = load_json(path, REPORT, REPEAT_HINT, REPEAT_HINT)
    source = _read_config(command)
    prepared = load_plans(config, workdir)
    if amounts := make_compare_spec(config).amounts:
        config = config_at(config, amounts[-1])
    tasks = {n: make_task(p, prepared.vocabs[n]) for n, p in prepared.plans.items()}
    references = measure_references(tasks, prepared.corpora)
    values = _load_values(report, prepared, workdir)
    values |= {(name,): x for name, x in references.items()}
    words = {"title": title, "question": question, "note": note, "config": source.name}
    words["command"] = command or f"jaxpt compare --config {CONFIG} --workdir DIR"
    plans = load_json(workdir / PLANS, PLANS_FORM, REPEAT_HINT)
    left_out = {*COMPUTED, *REPEATED}
    stored = {
        "compare": config,
        "plans": plans,
        "text": {name: x.fingerprint for name, x in prepared.corpora.items()},
        "dtypes": {name: task.model_spec.dtype for name, task in tasks.items()},
        "report": {k: value for k, value in report.items() if k not in left_out},
    }
    more = _list_facts(report)
    if record:
        more["record"] = make_record(
            report, stored["text"], prepared.tokenizer, rerun_of
        )
    facts, stored = shorten_paths(
        [words | more, stored],
        [config, plans, shlex.split(words["command"]), os.path.abspath(workdir)],
    )
    stored |= {
        "source": source.text,
        "tokenizer": json.loads(tokenizers.dump(prepared.tokenizer)),
    }
    with replaced_folder(folder, STUDY) as place:
        write_study(place, facts, stored, values)
        try:
            _check_verdicts(check_study(place).report, report)
        except UserError as error:
            fault = str(error).removeprefix(f"{place}: ")
            raise type(error)(f"{path}: {fault}; {REPEAT_HINT}") from error
    return load_study(folder)


def _load_values(
    report: dict, prepared: ComparisonPlan, workdir: Path
) -> dict[tuple, dict[str, Examples]]:
    """The values by example of a report's runs."""
    values: dict[tuple, dict[str, Examples]] = {}
    for entry in [*report["runs"], *report.get("diverged", [])]:
        name, seed = entry["name"], entry["seed"]
        path = run_path(workdir, name, seed)
        if not path.is_dir() or name not in prepared.plans:
            raise CheckpointError(f"{path}: is missing; {REPEAT_HINT}")
        for file, fault in checksums.find_faults(path).items():
            if file in RUN_FILES:
                raise CheckpointError(f"{path / file}: {fault}; {checksums.REMEDY}")
        run = to_plain(collect_run(prepared, workdir, name, seed))
        for key in run.keys() - COUNTED:
            if not is_close(run[key], entry.get(key)):
                raise CheckpointError(
                    f"{workdir / 'report.json'}: its {key} of {path.name} is not that "
                    f"of {path}; {REPEAT_HINT}"
                )
        if "diverged_at" not in run:
            downstream = compared_tasks.load_task_results(prepared.spec, path)[2]
            examples = load_examples(path) | downstream
            for metric, x in examples.items():  # half of a study, and never read singly
                if metric.endswith(compared_tasks.RANDOM_SUFFIX):
                    examples[metric] = x.by_document()
            values[name, seed] = examples
    return values


class _Source(NamedTuple):
    """The config that a command names, and its content if it is a file."""

    name: str = ""
    text: str = ""


def _read_config(command: str) -> _Source:
    """The config that a command names, with its content if it is a file."""
    try:
        words = [part for word in shlex.split(command) for part in word.split("=", 1)]
    except ValueError as error:  # a quotation that does not end
        raise UserError(
            f"{argument('command')}={command}: cannot be read: {error}"
        ) from error
    if "--config" not in words[:-1]:
        return _Source()
    config = words[words.index("--config") + 1]
    path = Path(find_config(config).rpartition(".py:")[0] or find_config(config))
    path = path if path.suffix else path.with_suffix(".py")
    if path.suffix != ".py":
        return _Source(config)
    try:
        return _Source(config, disk.read_text(path))
    except OSError as error:
        raise UserError(
            f"{argument('command')}: its config {path} cannot be read: {error.strerror}"
        ) from error


def _list_facts(report: dict) -> dict:
    """What study.json states in addition to its words."""
    runs = [*report["runs"], *report.get("diverged", [])]
    results = [run for run in report["runs"] if "machine" in run]
    return {
        "objectives": list(dict.fromkeys(run["name"] for run in runs)),
        "seeds": sorted({run["seed"] for run in runs}),
        "date": report["created"],
        "machines": _list_distinct(run["machine"] for run in results),
        "versions": _list_distinct(run["versions"] for run in results),
    }


def _list_distinct(items: Iterable[dict]) -> list[dict]:
    distinct: list[dict] = []
    for item in items:
        if item not in distinct:
            distinct.append(item)
    return distinct


def _check_verdicts(redrawn: dict, report: dict) -> None:
    """Raises UserError if the verdicts of a report are not those of its values."""
    both = [
        {entry["metric"]: entry for entry in x["metrics"]} for x in (report, redrawn)
    ]
    for metric in dict.fromkeys(name for each in both for name in each):
        for part in VERDICT_FIELDS:
            one, other = (_without_ratios(x.get(metric, {}).get(part)) for x in both)
            if not is_close(one, other):
                raise CheckpointError(
                    f"{metric}: {part} is not what the values by example of its runs "
                    f"give"
                )


def _without_ratios(part: Any) -> Any:
    """A part of a metric without the cost ratios of pairs.

    With several budgets they are of all of them, and a study is that of one.
    """
    if not isinstance(part, list):
        return part
    return [{k: v for k, v in pair.items() if k != "ratios"} for pair in part]


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
        # At least 1e-7: values are stored as float32, however small a difference is.
        return abs(one - other) <= TOLERANCE * max(abs(one), abs(other), 1e-2)
    return one == other

"""Archived studies, from whose values a report is computed again.

Verdicts, intervals, tables and charts are not stored: `Study.report` computes them.
`jaxpt.comparison.study_files` has the form of a study's folder, and
`jaxpt.comparison.archive` writes one.
"""

import dataclasses
import functools
import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from jaxpt.comparison.assembly import NOTES, judge_runs
from jaxpt.comparison.plan_runs import run_name
from jaxpt.comparison.registration import judge_registration, list_faults
from jaxpt.comparison.study_files import STUDY, Values, find_studies, read_files
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import override
from jaxpt.errors import CheckpointError, argument
from jaxpt.files.stored import to_plain
from jaxpt.judge.intervals import repeat_interval
from jaxpt.report.formats import is_number
from jaxpt.report.types import Metric
from jaxpt.runs.finished_runs import FoundRun, load_runs
from jaxpt.runs.result import SCHEMA
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.workdir import DIVERGENCE, list_settings
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer

ALPHA = 0.05  # that any mean of a repeated study is outside its interval
TOLERANCE = 1e-6  # of a mean, relative: values are float32
# The parts of a report that a study computes.
COMPUTED = ("metrics", "reliability", "conventions", "whole_cost")
# Constant, or stored elsewhere: each of several budgets is a separate study.
REPEATED = ("config", "tuning", "notes", "figures", "budgets")


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """An archived study.

    Attributes:
      facts: its study.json.
      stored: its runs.json.gz (`STORED`).
      values: by run or baseline and metric, the values by test example.
    """

    folder: Path
    facts: dict
    stored: dict
    values: Values

    @functools.cached_property
    def report(self) -> dict:
        """The report (report.json), with verdicts from the values by example."""
        stored, plans = self.stored["report"], self.stored["plans"]
        report = stored | {"config": self.stored["compare"], "notes": NOTES}
        report |= {"tuning": plans["tuning"]} if plans["tuning"] else {}
        keys = [(run["name"], run["seed"]) for run in report["runs"]]
        examples = {key: self.values.get(key, {}) for key in keys}
        references = {key[0]: x for key, x in self.values.items() if len(key) == 1}
        report |= judge_runs(report, report["runs"], examples, references)
        if "registration" in report:
            metrics = [Metric.from_json(metric) for metric in report["metrics"]]
            text = report["registration"]["text"]
            report["registration"] = judge_registration(text, metrics).to_json()
        return json.loads(json.dumps(to_plain(report | {"figures": {}})))

    @functools.cached_property
    def intervals(self) -> dict[str, dict[str, dict[str, float]]]:
        """`list_intervals` of its report."""
        return list_intervals(self.report)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of all runs."""
        return tokenizers.from_json(self.stored["tokenizer"])

    @functools.cached_property
    def tasks(self) -> dict[str, Task]:
        """The task of each name; its seed is that of no run."""
        tasks = {}
        for name in self.stored["plans"]["plans"]:
            plan = make_plan(self.find_config(name), is_stored=True)
            vocab = self.tokenizer.vocab
            if plan.spec.needs.counts:  # no operation depends on them
                vocab = dataclasses.replace(vocab, counts=(1,) * vocab.size)
            tasks[name] = make_task(plan, vocab)
        return tasks

    def find_config(self, name: str) -> dict:
        """The settings of a name's runs, complete but for the seed."""
        config = self.stored["plans"]["plans"][name]["config"]
        model = config["model"] | {"dtype": self.stored["dtypes"][name]}
        return config | {"model": model}


def load_study(place: Path) -> Study:
    """Reads a study."""
    return Study(place, *read_files(place))


def load_all_runs(
    folders: Iterable[Path], takes_diverged: bool = False
) -> list[FoundRun]:
    """The runs of these folders: of runs, and of studies.

    Args:
      takes_diverged: as of `load_runs`.
    """
    places = list(folders)
    archived = [place for place in places if (place / STUDY).exists()]
    runs = load_runs([p for p in places if p not in archived], takes_diverged)
    for place in dict.fromkeys(archived):
        study = check_study(place)
        diverged = study.stored["report"].get("diverged", [])
        if diverged and not takes_diverged:
            name = run_name(diverged[0]["name"], diverged[0]["seed"])
            raise CheckpointError(
                f"{argument('runs')}={place}: its run {name} diverged"
            )
        runs += list_runs(study)
    return runs


def list_runs(study: Study) -> list[FoundRun]:
    """The runs of a study, also those that diverged, as those of other folders."""
    report = study.stored["report"]
    sha256 = tokenizers.fingerprint(study.tokenizer)
    kept = {key.rstrip("?") for key in (*SCHEMA, *DIVERGENCE, "tasks")} - {"workdir"}
    runs = []
    for entry in [*report["runs"], *report.get("diverged", [])]:
        name, seed = entry["name"], entry["seed"]
        config = override(study.find_config(name), {"train": {"seed": seed}}, "")
        run = FoundRun(
            folder=study.folder / run_name(name, seed),
            version=entry.get("versions", {}).get("jaxpt", ""),
            settings=json.loads(json.dumps(list_settings(config))),
            result={key: value for key, value in entry.items() if key in kept},
            examples=dict(study.values.get((name, seed), {})),
            text=study.stored["text"],
            task=study.tasks[name],
            tokenizer=study.tokenizer,
            tokenizer_sha256=sha256,
        )
        runs.append(run)
    return runs


def list_studies(root: Path) -> list[Study]:
    """The studies directly below a folder, by name; [] if it does not exist."""
    return [load_study(place) for place in find_studies(root)]


def list_intervals(report: dict) -> dict[str, dict[str, dict[str, float]]]:
    """By shared metric and name, the mean and the interval of a repeated study's mean.

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


def check_study(place: Path) -> Study:
    """Checks a study's files, and that its runs have its settings and values."""
    study = load_study(place)
    registered = study.stored["report"].get("registration")
    faults = [_list_strays(study), _list_wrong_means(study)]
    if registered:
        faults.append(list_faults(registered, study.stored["compare"]))
    for fault in itertools.chain(*faults):
        raise CheckpointError(f"{place}: {fault}")
    return study


def _list_strays(study: Study) -> Iterator[str]:
    """What shows that a run is not of the study's settings."""
    report, plans = study.stored["report"], study.stored["plans"]["plans"]
    runs = [*report["runs"], *report.get("diverged", [])]
    keys = [(run["name"], run["seed"]) for run in runs]
    twice = Counter(keys) - Counter(set(keys))
    yield from (f"has two runs {run_name(*key)}" for key in twice)
    finished = [(run["name"], run["seed"]) for run in report["runs"]]
    for key in sorted(own for own in study.values.keys() - finished if len(own) == 2):
        yield f"{run_name(*key)}: has values by example, but no results"
    metrics: dict[str, Collection[str]] = {}
    for key in finished:
        own = study.values.get(key, {}).keys()
        if metrics.setdefault(key[0], own) != own:
            yield f"{run_name(*key)}: has values by example of other metrics"
    for run, key in zip(runs, keys, strict=True):
        if run["name"] not in plans:
            yield f"{run_name(*key)}: has no plan"
            continue
        config = study.find_config(run["name"])
        is_free = "steps" not in run or config["train"].get("seconds")
        for name, value in (
            ("objective", config["objective"]),
            ("steps", run.get("steps") if is_free else config["train"]["steps"]),
        ):
            if run.get(name) != value:
                yield f"{run_name(*key)}: has {name} {run[name]}; its plan {value}"


def _list_wrong_means(study: Study) -> Iterator[str]:
    """Metrics that are not the mean of their values by example."""
    for run in study.stored["report"]["runs"]:
        key = run["name"], run["seed"]
        for metric, examples in study.values.get(key, {}).items():
            value, mean = run["metrics"].get(metric), examples.mean
            is_right = not is_number(mean)
            if is_number(value):
                slack = {"rel_tol": TOLERANCE, "abs_tol": TOLERANCE}
                is_right = math.isclose(value, mean, **slack)
            if not is_right:
                yield (
                    f"{run_name(*key)}: its {metric} is {value}, but the mean of its "
                    f"values by example is {mean:.6g}"
                )

"""Speedruns: the least cost at which an objective reaches a target.

A record is a study (`jaxpt.comparison.studies`) of one objective, in the folder
results/speedruns/OBJECTIVE/NAME. results/speedruns/targets.json has the rules:

    {"min_seeds": 3, "max_p": 0.01,
     "settings": {"data.row_length": 64, ...},    the others of FIXED have defaults
     "objectives": {"clm": {"metric": "bits_per_byte", "below": 2.8}, ...}}
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from jaxpt.comparison.studies import Study, check_study, list_runs
from jaxpt.comparison.study_files import find_studies
from jaxpt.config.settings import default_settings
from jaxpt.errors import UserError
from jaxpt.files.folder import load_json
from jaxpt.report.formats import format_flops, format_number, format_p, format_seconds
from jaxpt.runs.finished_runs import FoundRun
from jaxpt.runs.workdir import flatten

TARGETS = "targets.json"
FIXED = ("data.", "tokenizer.", "eval.")  # sections whose settings are the same for all
# Settings of these sections on which no result depends.
FREE = {
    "data.cache_dir",
    "data.tfds_data_dir",
    "data.sentences",
    "eval.batch_size",
    "eval.probe_every_eval",
    "eval.samples",
}


class Record(NamedTuple):
    """A study that reaches the target of its objective.

    Attributes:
      mean: of the metric, over seeds.
      p: of the one-sided t-test that the mean is better than the target.
      flops, seconds: mean of a run.
    """

    study: Study
    objective: str
    metric: str
    target: str
    mean: float
    p: float
    seeds: int
    flops: float
    seconds: float

    def describe(self) -> str:
        """The record in one line."""
        machine = describe_machines(self.study)
        return (
            f"{self.objective}: {self.metric} {format_number(self.mean)} over "
            f"{self.seeds} seeds, target {self.target} (p {format_p(self.p)}); "
            f"{format_flops(self.flops)} FLOPs, {format_seconds(self.seconds)} s on "
            f"{machine}"
        )


def describe_machines(study: Study) -> str:
    """The machines of a study.

    >>> study = Study(Path(), {"machines": []}, {}, {})
    >>> describe_machines(study)
    'a machine that was not recorded'
    """
    machines = [
        f"{m['cpu']} ({m['instructions']}, {m['cores']} cores)"
        for m in study.facts["machines"]
    ]
    return "; ".join(machines) or "a machine that was not recorded"


# The schema of the targets.
RULES = {
    "min_seeds": int,
    "max_p": float,
    "settings": {str: object},
    "objectives": {str: {"metric": str, "above?": float, "below?": float}},
}


def load_targets(root: Path) -> dict:
    """The rules of results/speedruns.

    Raises:
      UserError: there are none, or they are not JSON.
    """
    return load_json(root / TARGETS, RULES, "must have the targets of speedruns")


def word_target(rule: dict) -> str:
    """A target as text.

    >>> word_target({"metric": "bits_per_byte", "below": 2.8})
    'below 2.8'
    """
    (side,) = rule.keys() - {"metric"}
    return f"{side} {rule[side]:g}"


def check_folder(folder: Path) -> str:
    """Checks a study, or a record of a speedrun; a line about it.

    Raises:
      UserError: a file is missing or was altered, a verdict does not follow from the
        runs, or a record does not satisfy the rules.
    """
    folder = Path(folder)
    if (folder.resolve().parent.parent / TARGETS).exists():
        return f"{folder}: valid record. {check_record(folder).describe()}"
    study = check_study(folder)
    return f"{folder}: valid study of {len(study.stored['report']['runs'])} runs"


def check_record(folder: Path) -> Record:
    """Checks a record: its study, seeds, settings, and that it reaches the target.

    Raises:
      UserError: it does not satisfy the rules.
    """
    folder = folder.resolve()
    rules, objective = load_targets(folder.parent.parent), folder.parent.name
    rule = rules["objectives"].get(objective)
    if rule is None:
        names = ", ".join(rules["objectives"])
        raise UserError(f"{folder}: must be in a folder of one of {names}")
    study = check_study(folder)
    entries = study.stored["report"]["runs"]
    if {run["objective"] for run in entries} != {objective}:
        raise UserError(f"{folder}: must have runs of {objective} and no other")
    if len({run["name"] for run in entries}) > 1:
        raise UserError(f"{folder}: must have runs that differ only in their seed")
    if study.stored["report"].get("diverged"):
        raise UserError(f"{folder}: must have no diverged run")
    seeds = sorted(run["seed"] for run in entries)
    if len(seeds) < rules["min_seeds"] or seeds != list(range(len(seeds))):
        raise UserError(
            f"{folder}: has the seeds {seeds}; must have 0, 1, ... without a gap, at "
            f"least {rules['min_seeds']}"
        )
    runs = list_runs(study)
    _check_settings(runs, rules["settings"])
    values = [run["metrics"].get(rule["metric"]) for run in entries]
    if not all(isinstance(value, float) for value in values):
        raise UserError(f"{folder}: a run has no {rule['metric']}")
    mean, p = float(np.mean(values)), one_sided_p(values, rule)
    target = word_target(rule)
    if not p < rules["max_p"]:
        raise UserError(
            f"{folder}: the mean {rule['metric']} is {format_number(mean)}; must be "
            f"{target} with p below {rules['max_p']}, but p is {format_p(p)}"
        )
    return Record(
        study,
        objective,
        rule["metric"],
        target,
        mean,
        p,
        len(values),
        float(np.mean([_count_flops(run) for run in runs])),
        float(np.mean([run["train_seconds"] for run in entries])),
    )


def one_sided_p(values: list[float], rule: dict) -> float:
    """p of the one-sided t-test that a mean over seeds is better than the target.

    >>> round(one_sided_p([2.6, 2.7, 2.8], {"metric": "x", "below": 2.8}), 3)
    0.113
    """
    side = "below" if "below" in rule else "above"
    if len(set(values)) == 1:  # no spread, for which the test is not defined
        difference = values[0] - rule[side]
        return float(difference >= 0 if side == "below" else difference <= 0)
    alternative = "less" if side == "below" else "greater"
    return float(stats.ttest_1samp(values, rule[side], alternative=alternative).pvalue)


def _count_flops(run: FoundRun) -> float:
    """FLOPs as they are counted today; earlier results leave out the optimizer."""
    return run.task.count_costs(run.result["steps"])["flops"]


def _check_settings(runs: Iterable[FoundRun], settings: dict) -> None:
    """Raises UserError if text, tokenizer or evaluation are not those of the rules."""
    expected = flatten(default_settings()) | settings
    names = [n for n in expected if n.startswith(FIXED) and n not in FREE]
    for run in runs:
        if start := run.settings["train.init_from"]:
            raise UserError(f"{run.folder}: must start at random, not from {start}")
        for name in names:
            if run.settings.get(name, expected[name]) != expected[name]:
                raise UserError(
                    f"{run.folder}: has {name}={run.settings[name]}; must be "
                    f"{expected[name]} in a speedrun"
                )


def list_records(root: Path) -> dict[str, list[Record]]:
    """By objective of the targets, its records, the fewest FLOPs first.

    Raises:
      UserError: a folder holds a study that is not a record.
    """
    return {
        objective: sorted(
            map(check_record, find_studies(root, f"{objective}/*")),
            key=lambda record: record.flops,
        )
        for objective in load_targets(root)["objectives"]
    }

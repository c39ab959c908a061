"""Speedruns: the least cost at which an objective reaches a target, at three scales.

A record is a study (`jaxpt.comparison.studies`) of one objective, in the folder
results/speedruns/SCALE/OBJECTIVE/NAME. docs/speedruns.md explains the rules;
results/speedruns/targets.json has them:

    {"min_seeds": 3, "max_p": 0.01,
     "scales": {"cpu": {
        "title": "10 CPU minutes", "max_seconds": 600, "device": "cpu",
        "max_devices": 1,
        "text": {"train": SHA256, "valid": SHA256}, "tokenizer_sha256": SHA256,
        "settings": {"data.row_length": 64, ...},   other fixed ones have defaults
        "objectives": {"clm": {"metric": "bits_per_byte", "below": 2.8,
                               "examples_sha256": SHA256}, ...}}}}

An objective without "below" and "above" has no target yet, and a text or tokenizer
without a hash is not fixed yet: the first record sets them. accepted.json has the
checksum of each accepted record.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import exchange
import numpy as np
from cheats import FIRST, THEN, Check, Submission
from scipy import stats

from jaxpt.comparison.studies import Study, check_study, list_runs, load_study
from jaxpt.comparison.study_files import find_studies
from jaxpt.errors import UserError
from jaxpt.files.folder import load_json
from jaxpt.report.formats import format_flops, format_number, format_p, format_seconds
from jaxpt.runs.finished_runs import FoundRun

TARGETS, ACCEPTED = "targets.json", "accepted.json"
# The sha256 of targets.json: a submission that changes the rules is refused.
RULES_SHA256 = "90f0ba558b653f0aef1fc89a42228fd19f1f0d62d48ccc537c15c4b42593d844"


class Record(NamedTuple):
    """A study that reaches the target of its objective, or repeats such a record.

    Attributes:
      target: as text; "" if there is none yet.
      values, costs: by seed, the metric and the FLOPs of a run.
      p: of the one-sided t-test that the mean is better than the target; NaN without.
      seconds: mean of a run.
      rerun_of: the name of the record that it repeats; is_repeated: whether its mean
        is within the interval of that record.
    """

    study: Study
    scale: str
    objective: str
    rule: Mapping[str, Any]
    target: str
    values: tuple[float, ...]
    costs: tuple[float, ...]
    p: float
    seconds: float
    rerun_of: str = ""
    is_repeated: bool = False

    @property
    def mean(self) -> float:
        """The mean of the metric."""
        return float(np.mean(self.values))

    @property
    def flops(self) -> float:
        """The mean of the FLOPs."""
        return float(np.mean(self.costs))

    def describe(self) -> str:
        """The record in one line."""
        machine = describe_machines(self.study)
        start = (
            f"{self.objective}: {self.rule['metric']} {format_number(self.mean)} over "
            f"{len(self.values)} seeds"
        )
        if self.rerun_of:
            outcome = "repeats" if self.is_repeated else "does NOT repeat"
            aim = f"{outcome} {self.rerun_of}"
        elif self.target:
            aim = f"target {self.target} (p {format_p(self.p)})"
        else:
            aim = "the first baseline, which sets the target"
        return (
            f"{start}, {aim}; {format_flops(self.flops)} FLOPs, "
            f"{format_seconds(self.seconds)} s on {machine}"
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
SCALE = {
    **dict.fromkeys(("title", "device", "tokenizer_sha256"), str),
    **dict.fromkeys(("max_seconds", "max_devices"), int),
    "text": {str: str},
    "settings": {str: object},
    "objectives": {
        str: {
            "metric": str,
            "above?": float,
            "below?": float,
            "examples_sha256?": str,
        }
    },
}
RULES = {"min_seeds": int, "max_p": float, "scales": {str: SCALE}}


def load_targets(root: Path) -> dict:
    """The rules of results/speedruns.

    Raises:
      UserError: there are none, or they are not JSON.
    """
    return load_json(root / TARGETS, RULES, "must have the targets of speedruns")


def load_accepted(root: Path) -> dict[str, str]:
    """The checksum of each accepted record, by SCALE/OBJECTIVE/NAME."""
    return load_json(root / ACCEPTED, {str: str}, "must have the accepted records")


def word_target(rule: Mapping[str, Any]) -> str:
    """A target as text; "" if there is none.

    >>> word_target({"metric": "bits_per_byte", "below": 2.8})
    'below 2.8'
    """
    sides = [side for side in ("above", "below") if side in rule]
    return f"{sides[0]} {rule[sides[0]]:g}" if sides else ""


def check_folder(folder: Path) -> str:
    """Checks a study, or a record of a speedrun; a line about it.

    Raises:
      UserError: a file is missing or was altered, a verdict does not follow from the
        runs, or a record does not satisfy the rules.
    """
    folder = Path(folder)
    root = folder.resolve().parents[2]
    if (root / TARGETS).exists():
        if hashlib.sha256((root / TARGETS).read_bytes()).hexdigest() != RULES_SHA256:
            raise _refuse(
                folder, "changed-rules", f"{TARGETS} is not that of the tools"
            )
        return f"{folder}: valid record. {check_record(folder).describe()}"
    study = check_study(folder)
    return f"{folder}: valid study of {len(study.stored['report']['runs'])} runs"


def _refuse(folder: Path, name: str, fault: str) -> UserError:
    return UserError(f"{folder}: refused, {name}: {fault}")


def check_record(folder: Path) -> Record:
    """Checks a record: its study, the rules, and that it reaches the target.

    Raises:
      UserError: it does not satisfy the rules.
    """
    folder = folder.resolve()
    root, objective, scale = (
        folder.parents[2],
        folder.parent.name,
        folder.parents[1].name,
    )
    rules = load_targets(root)
    place = rules["scales"].get(scale, {}).get("objectives", {})
    if objective not in place:
        listed = [
            f"{n}/{each}"
            for n, x in rules["scales"].items()
            for each in x["objectives"]
        ]
        raise UserError(f"{folder}: must be in a folder of one of {', '.join(listed)}")
    try:
        study = load_study(folder)
    except UserError as error:
        fault = str(error).removeprefix(f"{folder}: ")
        raise _refuse(folder, "edited-values", fault) from error
    accepted = load_accepted(root).get(f"{scale}/{objective}/{folder.name}", "")
    given = Submission(
        study,
        [],
        objective,
        rules["scales"][scale],
        place[objective],
        rules["min_seeds"],
        accepted,
    )
    _run_checks(given, FIRST)
    try:
        check_study(folder)
        given = given._replace(runs=list_runs(study))
    except UserError as error:
        fault = str(error).removeprefix(f"{folder}: ")
        raise _refuse(folder, "edited-values", fault) from error
    _run_checks(given, THEN)
    record = _make_record(given, scale)
    if record.rerun_of:
        return _compare_rerun(record, folder.parent / record.rerun_of)
    if record.target and not record.p < rules["max_p"]:
        fault = (
            f"the mean {record.rule['metric']} is {format_number(record.mean)}; must "
            f"be {record.target} with p below {rules['max_p']}, but p is "
            f"{format_p(record.p)}"
        )
        raise _refuse(folder, "missed-target", fault)
    return record


def _run_checks(given: Submission, checks: Mapping[str, Check]) -> None:
    """Raises UserError for the first fault, with the name of its check."""
    for name, check in checks.items():
        for fault in check(given):
            raise _refuse(given.study.folder, name, fault)


def _make_record(given: Submission, scale: str) -> Record:
    entries, rule = given.entries, given.rule
    values = tuple(run["metrics"][rule["metric"]] for run in entries)
    return Record(
        given.study,
        scale,
        given.objective,
        rule,
        word_target(rule),
        values,
        tuple(map(_count_flops, given.runs)),
        one_sided_p(list(values), rule),
        float(np.mean([run["train_seconds"] for run in entries])),
        given.record.get("rerun_of", ""),
    )


def _compare_rerun(record: Record, folder: Path) -> Record:
    """Whether a repeated record has its mean within the interval of the first.

    Raises:
      UserError: there is no such record, or it has other settings.
    """
    own, other = record.study, load_study(folder)
    configs = []
    for study in (own, other):
        (plan,) = study.stored["plans"]["plans"].values()
        parts = {
            k: v for k, v in plan["config"].items() if k not in ("compare", "version")
        }
        configs.append(parts)
    if configs[0] != configs[1]:
        raise _refuse(own.folder, "other-settings", f"has not the settings of {folder}")
    (stated,) = other.intervals[record.rule["metric"]].values()
    is_within = stated["low"] <= record.mean <= stated["high"]
    return record._replace(is_repeated=is_within)


def one_sided_p(values: list[float], rule: Mapping[str, Any]) -> float:
    """p of the one-sided t-test that a mean over seeds is better than the target.

    >>> round(one_sided_p([2.6, 2.7, 2.8], {"metric": "x", "below": 2.8}), 3)
    0.113
    """
    sides = [side for side in ("above", "below") if side in rule]
    if not sides:
        return float("nan")
    side = sides[0]
    if len(set(values)) == 1:  # no spread, for which the test is not defined
        difference = values[0] - rule[side]
        return float(difference >= 0 if side == "below" else difference <= 0)
    alternative = "less" if side == "below" else "greater"
    return float(stats.ttest_1samp(values, rule[side], alternative=alternative).pvalue)


def _count_flops(run: FoundRun) -> float:
    """FLOPs as they are counted today; earlier results leave out the optimizer."""
    return run.task.count_costs(run.result["steps"])["flops"]


def list_records(root: Path, scale: str) -> dict[str, list[Record]]:
    """By objective of a scale, its records and re-runs, the fewest FLOPs first.

    Raises:
      UserError: a folder holds a study that is not a record.
    """
    return {
        objective: sorted(
            map(check_record, find_studies(root, f"{scale}/{objective}/*")),
            key=lambda record: record.flops,
        )
        for objective in load_targets(root)["scales"][scale]["objectives"]
    }


def judge_records(one: Record, other: Record) -> exchange.Exchange:
    """The equivalent costs of two records at the target.

    Raises:
      UserError: they have other targets, or the objective has no rate.
    """
    if (one.scale, one.objective) != (other.scale, other.objective) or not one.target:
        raise UserError("records: must be of one scale and objective with a target")
    root = one.study.folder.resolve().parents[2]
    rates = exchange.load_rates(root) if one.scale == exchange.SCALE else {}
    if one.objective not in rates:
        raise UserError(f"{one.scale}/{one.objective}: has no exchange rate yet")
    rate, target = rates[one.objective], float(one.target.split()[1])
    costs = [exchange.list_costs(x.values, x.costs, target, rate) for x in (one, other)]
    return exchange.compare(*costs, one.mean - other.mean, rate)


def exchange_records(one: Record, other: Record) -> str:
    """The comparison of two records in a line."""
    judged = judge_records(one, other)
    names = [x.study.folder.name for x in (one, other)]
    words = "is" if judged.p < 0.01 else "is not significantly"
    return (
        f"{names[0]} {words} better than {names[1]}: at the target it costs "
        f"{judged.ratio:.3g} times as much [{judged.low:.3g}, {judged.high:.3g}] "
        f"(p {format_p(judged.p)}, one-sided)"
    )

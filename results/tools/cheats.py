"""The ways in which a record of a speedrun can be wrong, each with a name.

A check yields what is wrong. `check_record` of `speedruns.py` refuses the first:

    FOLDER: refused, chosen-seeds: has the seeds [0, 2, 3]; must have 0, 1, ...

Checks read the files of a record. They see that values contradict each other, the
settings or the rules; values that were invented consistently are seen only by
`jaxpt reproduce`, which trains the runs again.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxpt.comparison.record import identify_code
from jaxpt.comparison.studies import Study
from jaxpt.config.settings import default_settings
from jaxpt.judge.examples import Examples
from jaxpt.objectives import is_outside
from jaxpt.runs.finished_runs import FoundRun
from jaxpt.runs.workdir import flatten
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.version import __version__

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
EXACT = 1e-6  # relative; of numbers that are computed twice
CLOCK = 0.02  # relative; of seconds that are computed from steps per second
LEAST_LOSS = 0.9  # of ln(vocabulary), before the first step
MOST_CHANCE = 0.1  # by which a random network may exceed chance in a choice


class Submission(NamedTuple):
    """A record as it is checked.

    Attributes:
      runs: of the study; [] before `check_study`.
      scale: the rules of its scale; rule: those of its objective.
      accepted: the checksum under which it was accepted; "" for a new one.
    """

    study: Study
    runs: list[FoundRun]
    objective: str
    scale: Mapping[str, Any]
    rule: Mapping[str, Any]
    min_seeds: int
    accepted: str

    @property
    def entries(self) -> list[dict]:
        """The entries of the runs in the report."""
        entries: list[dict] = self.study.stored["report"]["runs"]
        return entries

    @property
    def record(self) -> dict:
        """What `jaxpt archive --record` has stated; {} in older records."""
        stated: dict = self.study.facts.get("record", {})
        return stated

    def find_values(self) -> list[Examples]:
        """The values by example of the metric, for each run that has them."""
        values, metric = self.study.values, self.rule["metric"]
        own = [values.get((x["name"], x["seed"]), {}) for x in self.entries]
        return [each[metric] for each in own if metric in each]


Check = Callable[[Submission], Iterator[str]]


def find_altered(given: Submission) -> Iterator[str]:
    """An accepted record whose files have changed, or a folder without a record."""
    sha256 = given.study.facts["sha256"]
    if given.accepted and given.accepted != sha256:
        accepted = given.accepted[:12]
        yield f"study.json has the checksum {sha256[:12]}; accepted was {accepted}"
    if not given.accepted and not given.record:
        yield "is a study without a record; repeat jaxpt archive with --record"


def find_unknown(given: Submission) -> Iterator[str]:
    """An objective from outside the package."""
    for name in sorted({run["objective"] for run in given.entries}):
        if is_outside(name):
            yield f"its objective {name} is not one of the package"


def find_other_code(given: Submission) -> Iterator[str]:
    """A new record that was archived by other code than this checkout."""
    if given.accepted:
        return
    if (stated := given.record["code_sha256"]) != (own := identify_code()):
        yield (
            f"was archived by code with the hash {stated[:12]}, this checkout has "
            f"{own[:12]}; check it with the code that it needs"
        )
    for version in sorted({run.version for run in given.runs} - {__version__}):
        yield f"has runs of jaxpt {version or '(unknown)'}, not {__version__}"


def find_mixed(given: Submission) -> Iterator[str]:
    """Runs of several objectives or settings."""
    if {run["objective"] for run in given.entries} != {given.objective}:
        yield f"must have runs of {given.objective} and no other"
    if len({run["name"] for run in given.entries}) > 1:
        yield "must have runs that differ only in their seed"


def find_diverged(given: Submission) -> Iterator[str]:
    """Diverged runs, whose seeds would be missing from the mean."""
    if given.study.stored["report"].get("diverged"):
        yield "must have no diverged run"


def find_chosen_seeds(given: Submission) -> Iterator[str]:
    """Other seeds than 0, 1, 2, ..., or fewer than the comparison was made with."""
    seeds = sorted(run["seed"] for run in given.entries)
    if len(seeds) < given.min_seeds or seeds != list(range(len(seeds))):
        yield (
            f"has the seeds {seeds}; must have 0, 1, ... without a gap, at least "
            f"{given.min_seeds}"
        )
    declared = sorted(given.study.stored["compare"]["compare"]["seeds"])
    if declared != seeds:
        yield f"has the seeds {seeds}, and its comparison {declared}"


def find_duplicates(given: Submission) -> Iterator[str]:
    """The values of one run under two seeds."""
    runs = zip(given.entries, given.find_values(), strict=True)
    pairs = itertools.combinations(runs, 2)
    for (one, first), (other, second) in pairs:
        same = np.array_equal(first.totals, second.totals)
        if same or one["curve"][1:] == other["curve"][1:]:
            yield f"the seeds {one['seed']} and {other['seed']} have the same values"


def find_validation_text(given: Submission) -> Iterator[str]:
    """Training text that is, or may contain, the validation text."""
    text, expected = given.study.stored["text"], given.scale["text"]
    for run in given.runs[:1]:
        data = {k: v for k, v in run.settings.items() if k.startswith("data.")}
        read = {
            data["data.path"],
            *(x.rpartition("=")[0] for x in data["data.mixture"]),
        }
        if data["data.valid_path"] in read - {""}:
            yield f"trains on data.valid_path={data['data.valid_path']}"
    if text["train"] == text["valid"]:
        yield "the training text is the validation text"
    if expected and text["valid"] == expected["valid"]:
        if text["train"] != expected["train"]:
            yield (
                "the validation text is that of the rules and the training text is "
                "not: it may contain the validation text"
            )


def find_other_text(given: Submission) -> Iterator[str]:
    """Another text, or another split."""
    yield from _list_other_settings(given, "data.")
    text, expected = given.study.stored["text"], given.scale["text"]
    for name, sha256 in expected.items():
        if text.get(name) != sha256:
            yield f"the text of {name} has another hash than the rules"


def find_other_tokenizer(given: Submission) -> Iterator[str]:
    """Another tokenizer: a metric per token is then another metric."""
    yield from _list_other_settings(given, "tokenizer.")
    expected = given.scale["tokenizer_sha256"]
    own = tokenizers.fingerprint(given.study.tokenizer)
    if expected and own != expected:
        yield f"the tokenizer has the hash {own[:12]}; must be {expected[:12]}"


def find_changed_evaluation(given: Submission) -> Iterator[str]:
    """Other settings of the evaluation, or other or fewer examples."""
    yield from _list_other_settings(given, "eval.")
    expected = given.rule.get("examples_sha256")
    for values in given.find_values():
        own = identify_examples(values)
        if expected and own != expected:
            yield (
                f"its {len(values.totals)} examples of {given.rule['metric']} are not "
                f"those of the rules"
            )


def identify_examples(values: Examples) -> str:
    """The sha256 of the weights and documents of test examples, in hex."""
    parts = values.weights.astype("<f8"), values.groups.astype("<i8")
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def _list_other_settings(given: Submission, section: str) -> Iterator[str]:
    expected = flatten(default_settings()) | given.scale["settings"]
    for run in given.runs:
        for name in expected:
            if not name.startswith(section) or name in FREE:
                continue
            if (own := run.settings.get(name, expected[name])) != expected[name]:
                yield f"has {name}={own}; must be {expected[name]} in a speedrun"


def find_start(given: Submission) -> Iterator[str]:
    """Parameters that are not random before the first step, declared or not."""
    for run in given.runs:
        for name, value in run.settings.items():
            if name == "train.init_from" or name.endswith(".teacher"):
                if value:
                    yield f"must start at random, not from {name}={value}"
    least = LEAST_LOSS * math.log(given.study.tokenizer.vocab.size)
    for run in given.entries:
        first = run["curve"][0]
        loss = first.get("valid_loss", math.nan)
        if first["step"] != 0 or not loss >= least:
            yield (
                f"seed {run['seed']}: the loss before the first step is {loss:.3g}; "
                f"must be at least {least:.3g} with random parameters"
            )
    choices = given.scale["settings"].get("eval.num_choices")
    most = 1 / choices + MOST_CHANCE if choices else 1.0
    for run in given.entries:
        value = run["metrics"].get("choice_bayes_accuracy_random", 0.0)
        if value > most:
            yield (
                f"seed {run['seed']}: a random network chooses {value:.3g} correctly; "
                f"must be at most {most:.3g}"
            )


def find_early_stop(given: Submission) -> Iterator[str]:
    """A number of steps that was not fixed, or metrics of an earlier step."""
    for name, plan in given.study.stored["plans"]["plans"].items():
        train = plan["config"]["train"]
        if train.get("seconds"):
            yield f"{name}: train.seconds={train['seconds']}; must have fixed steps"
        for run in given.entries:
            if run["name"] == name and run["steps"] != train["steps"]:
                yield (
                    f"seed {run['seed']}: has {run['steps']} of {train['steps']} steps"
                )
    for run in given.entries:
        *earlier, last = run["curve"]
        loss = run["metrics"].get("valid_loss")
        if last["step"] != run["steps"]:
            yield f"seed {run['seed']}: its curve ends at step {last['step']}"
        elif loss != last["valid_loss"] and loss in [
            x.get("valid_loss") for x in earlier
        ]:
            yield f"seed {run['seed']}: its valid_loss is that of an earlier step"


def find_understated_cost(given: Submission) -> Iterator[str]:
    """Costs that do not follow from the settings and steps."""
    for run, entry in zip(given.runs, given.entries, strict=True):
        counted = run.task.count_costs(entry["steps"])
        ends = entry["curve"][-1]
        for name in ("flops", "raw_tokens"):
            for place, own in (("", entry), ("the end of its curve: ", ends)):
                if not math.isclose(own[name], counted[name], rel_tol=EXACT):
                    yield (
                        f"seed {entry['seed']}: {place}has {own[name]:.6g} {name}; its "
                        f"settings give {counted[name]:.6g}"
                    )
        if rate := entry.get("steps_per_second"):
            seconds = entry["steps"] / rate
            if not math.isclose(entry["train_seconds"], seconds, rel_tol=CLOCK):
                yield (
                    f"seed {entry['seed']}: has {entry['train_seconds']:.4g} seconds; "
                    f"its steps per second give {seconds:.4g}"
                )


def find_over_limit(given: Submission) -> Iterator[str]:
    """More time or devices than the scale allows."""
    seconds = np.mean([run["train_seconds"] for run in given.entries])
    if seconds > (most := given.scale["max_seconds"]):
        yield f"a run takes {seconds:.0f} s; must be at most {most}"
    for device in sorted({run.get("device", "") for run in given.entries}):
        number, _, kind = device.partition(" x ")
        is_cpu = kind == "cpu"
        if is_cpu != (given.scale["device"] == "cpu") or (
            not number.isdigit() or int(number) > given.scale["max_devices"]
        ):
            yield (
                f"was trained on {device or 'an unknown device'}; must be at most "
                f"{given.scale['max_devices']} x {given.scale['device']}"
            )


def find_edited(given: Submission) -> Iterator[str]:
    """Values that contradict each other."""
    for run in given.entries:
        loss, last = run["metrics"].get("valid_loss"), run["curve"][-1]["valid_loss"]
        if loss != last:
            yield (
                f"seed {run['seed']}: its valid_loss is {loss}, and {last} at the end "
                f"of its curve"
            )
    metric = given.rule["metric"]
    for values in given.find_values():
        most = values.weights if metric.endswith("accuracy") else np.inf
        if np.any(values.totals < 0) or np.any(values.totals > most):
            yield f"has values of {metric} that are not possible"
    own = tokenizers.fingerprint(given.study.tokenizer)
    stated = given.record
    if stated and stated["tokenizer_sha256"] != own:
        yield "the stated hash of the tokenizer is not that of its tokenizer"
    if stated and stated["text"] != given.study.stored["text"]:
        yield "the stated hashes of the text are not those of its runs"


def find_other_metric(given: Submission) -> Iterator[str]:
    """Runs without the metric of the rules."""
    metric = given.rule["metric"]
    values = [run["metrics"].get(metric) for run in given.entries]
    if not all(isinstance(value, float) for value in values):
        yield f"a run has no {metric}"
    elif len(given.find_values()) != len(values):
        yield f"a run has no values by example of {metric}"


# Before the study's own check, and after it; the first that finds something counts.
FIRST: dict[str, Check] = {
    "altered-record": find_altered,
    "unknown-objective": find_unknown,
    "mixed-runs": find_mixed,
    "diverged-run": find_diverged,
    "early-stopping": find_early_stop,
}
THEN: dict[str, Check] = {
    "chosen-seeds": find_chosen_seeds,
    "undeclared-start": find_start,
    "validation-in-training": find_validation_text,
    "other-text": find_other_text,
    "other-tokenizer": find_other_tokenizer,
    "changed-evaluation": find_changed_evaluation,
    "other-metric": find_other_metric,
    "duplicated-runs": find_duplicates,
    "understated-cost": find_understated_cost,
    "edited-values": find_edited,
    "over-limit": find_over_limit,
    "other-code": find_other_code,
}

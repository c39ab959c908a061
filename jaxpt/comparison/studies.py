"""Archived studies: folders of results/ from which a report is computed again.

    study.json     title, question, command, note, date, machines, versions, seeds; the
                   checksums of the other two files and of itself
    runs.json.gz   settings and plans, the tokenizer, hashes of the text, and the entry
                   of each run in the report: metrics, learning curve, costs
    values.npz     the value of each metric on each test example, for each run and for
                   the baselines without a network

Verdicts, intervals, tables and charts are not stored: `Study.report` computes them.
In values.npz the runs with the same examples are the rows of one array. Hits are bits,
whole numbers have the smallest type of integer that fits, all others are float32.
`jaxpt.comparison.archive` writes studies.
"""

import dataclasses
import functools
import gzip
import hashlib
import io
import itertools
import json
import math
import numbers
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jaxpt.comparison.assembly import NOTES, judge_runs
from jaxpt.comparison.plan_runs import PLANS_FORM, run_name
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import override
from jaxpt.errors import CheckpointError, UserError, argument
from jaxpt.files import disk, folder, schema
from jaxpt.judge.examples import Examples
from jaxpt.judge.intervals import repeat_interval
from jaxpt.report.formats import is_number, to_plain
from jaxpt.runs.finished_runs import FoundRun, load_runs
from jaxpt.runs.result import SCHEMA
from jaxpt.runs.task import Task, make_task
from jaxpt.runs.workdir import DATA, DIVERGENCE, list_settings
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer

STUDY, RUNS, VALUES = "study.json", "runs.json.gz", "values.npz"
FOLDER_HINT = "must be the folder of a study, which jaxpt archive writes"
REMEDY = "restore it from version control, or repeat jaxpt archive"
FORMAT = 1
ALPHA = 0.05  # that any mean of a repeated study lies outside its interval
TOLERANCE = 1e-6  # of a mean, relative: values are float32
FACTS = {
    **dict.fromkeys(("title", "question", "command", "config", "note"), str),
    "format": int,
    "objectives": [str],
    "seeds": [int],
    "date": str,
    "machines": [{"cpu": str, "instructions": str, "cores": int}],
    "versions": [{str: str}],
    "files": {str: str},
    "sha256": str,
}
_VALUE = (numbers.Real, None)  # None for a number that is not finite
_MEAN = {"n": int, "mean": _VALUE, "std": _VALUE}
_RUN = {
    **dict.fromkeys(("name", "objective", "workdir"), str),
    "seed": int,
    "curve?": [{"step": int}],
}
# The schemas of report.json, and of what a study has of it.
REPORT = {
    "created": str,
    "alpha": float,
    "control?": str,
    "runs": [_RUN | {"metrics": {str: _VALUE}}],
    "diverged?": [_RUN],
    "metrics": [{"metric": str, "by_name": {str: _MEAN}}],
    "conventions?": {"budget": str},
    "tuning?": {str: {"by": str}},
    "figures?": {str: str},
}
_ENTRY = (
    SCHEMA | _RUN | {"metrics": {str: _VALUE}, "curve": [{"step": int, str: _VALUE}]}
)
STORED = {
    "compare": folder.CONFIG,
    "plans": PLANS_FORM,
    "source": str,
    "tokenizer": {str: object},
    "text": DATA,
    "dtypes": {str: str},  # of each name; plans may leave them to the machine
    "report": {
        **{k: REPORT[k] for k in ("created", "alpha", "control?", "diverged?")},
        "runs": [_ENTRY],
        "budget": {"kind": str, "amount": float, "note": str},
        "data": {str: object},
    },
    "values": [
        {
            "metric": str,
            "of": [[object]],
            "size": int,
            **dict.fromkeys(Examples._fields, str),
        }
    ],
}
# What a report has and a study computes.
COMPUTED = ("metrics", "reliability", "conventions", "whole_cost")
REPEATED = ("config", "tuning", "notes", "figures")  # constant, or stored elsewhere

# The name and the seed of a run; of a baseline, the name alone.
Owner: TypeAlias = tuple[str, int] | tuple[str]
Values: TypeAlias = Mapping[Owner, Mapping[str, Examples]]


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
    facts = _load_facts(place)
    files = {name: _read_file(place, name, facts) for name in (RUNS, VALUES)}
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(files[RUNS])) as file:
            text = file.read(schema.MAX_BYTES + 1)
        stored = schema.parse(text, STORED)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"{place / RUNS}: {error}; {FOLDER_HINT}") from None
    try:
        values = unpack_values(files[VALUES], stored["values"])
    except (ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{place / VALUES}: {error}; {FOLDER_HINT}") from None
    return Study(place, facts, stored, values)


def _load_facts(place: Path) -> dict:
    """The content of study.json."""
    facts = folder.load_json(place / STUDY, {str: object}, FOLDER_HINT)
    if facts.get("format", FORMAT) != FORMAT:
        raise CheckpointError(
            f"{place / STUDY}: has format {facts['format']}; this version of jaxpt "
            f"reads format {FORMAT}"
        )
    facts = folder.load_json(place / STUDY, FACTS, FOLDER_HINT)
    if facts["sha256"] != _digest_facts(facts):
        raise CheckpointError(f"{place / STUDY}: was altered; {REMEDY}")
    return facts


def _digest_facts(facts: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in facts.items() if key != "sha256"}
    return _digest(json.dumps(rest, sort_keys=True).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_file(place: Path, name: str, facts: dict) -> bytes:
    path = place / name
    try:
        data = disk.read(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: is missing; {REMEDY}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if _digest(data) != facts["files"].get(name):
        raise CheckpointError(f"{path}: was altered; {REMEDY}")
    return data


def list_faults(place: Path) -> dict[str, str]:
    """The files of a study that are missing or were altered, each with its fault."""
    faults = {}

    def look(name: str, function: Any, *values: Any) -> Any:
        try:
            return function(place, *values)
        except UserError as error:
            faults[name] = str(error).removeprefix(f"{place / name}: ")

    if facts := look(STUDY, _load_facts):
        for name in (RUNS, VALUES):
            look(name, _read_file, name, facts)
    return faults


def write_study(place: Path, facts: dict, stored: dict, values: Values) -> None:
    """Writes the files of a study.

    Args:
      facts: of study.json, without its checksums and its format.
      stored: as `STORED`, without "values".
    """
    packed, index = pack_values(values)
    text = json.dumps(stored | {"values": index}, separators=(",", ":"))
    files = {RUNS: gzip.compress(text.encode(), 9, mtime=0), VALUES: packed}
    facts = facts | {"format": FORMAT}
    facts["files"] = {name: _digest(data) for name, data in files.items()}
    facts["sha256"] = _digest_facts(facts)
    files[STUDY] = (json.dumps(facts, indent=2) + "\n").encode()  # last
    for name, data in files.items():
        try:
            disk.replace(place / name, data)
        except OSError as error:
            raise CheckpointError(
                f"{place / name}: cannot be written: {error.strerror}"
            ) from error


def pack_values(values: Values) -> tuple[bytes, list[dict]]:
    """Values by example as an NPZ file, and the index of its arrays."""
    groups: dict[tuple, list[tuple[Owner, Examples]]] = {}
    for owner, by_metric in values.items():
        for metric, x in by_metric.items():
            key = metric, x.weights.tobytes(), x.groups.tobytes()
            groups.setdefault(key, []).append((owner, x))
    arrays: dict[str, np.ndarray] = {}
    names: dict[tuple, str] = {}
    index = []
    for (metric, *_), items in groups.items():
        first = items[0][1]
        entry: dict[str, Any] = {"metric": metric, "size": len(first.totals)}
        entry["of"] = [list(owner) for owner, _ in items]
        totals = np.stack([x.totals for _, x in items])
        for field, array in first._replace(totals=totals)._asdict().items():
            packed, kind = _pack(array)
            content = kind, packed.dtype, packed.shape, packed.tobytes()
            name = names.setdefault(content, f"{len(names)}{kind}")
            arrays[name], entry[field] = packed, name
        index.append(entry)
    data = io.BytesIO()
    np.savez_compressed(data, allow_pickle=False, **arrays)
    return data.getvalue(), index


BITS = "-bits"


def _pack(array: np.ndarray) -> tuple[np.ndarray, str]:
    """An array in the smallest type, and the suffix of its name."""
    is_whole = array.size and np.all(array >= 0) and np.all(array == np.floor(array))
    if is_whole and np.max(array) <= 1:
        return np.packbits(array.astype(bool), axis=-1), BITS
    for kind in (np.uint8, np.uint16, np.uint32):
        if is_whole and np.max(array) <= np.iinfo(kind).max:
            return array.astype(kind), ""
    return (array if array.dtype.kind in "iu" else array.astype(np.float32)), ""


def unpack_values(data: bytes, index: list[dict]) -> Values:
    """The values that `pack_values` has packed.

    Raises:
      ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile: they do not match.
    """
    values: dict[Owner, dict[str, Examples]] = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        for entry in index:
            owners, size = [_read_owner(own) for own in entry["of"]], entry["size"]
            totals, weights, groups = (
                _unpack(arrays[entry[field]], entry[field], size, (*rows, size))
                for field, rows in zip(
                    Examples._fields, ((len(owners),), (), ()), strict=True
                )
            )
            weights, groups = weights.astype(np.float64), groups.astype(np.int64)
            for owner, row in zip(owners, totals.astype(np.float64), strict=True):
                own = values.setdefault(owner, {})
                own[entry["metric"]] = Examples(row, weights, groups)
    return values


def _read_owner(own: list) -> Owner:
    kinds = [type(each) for each in own]
    if kinds not in ([str], [str, int]):
        raise ValueError(f"values of {own}; must be of a name, or a name and a seed")
    return tuple(own)


def _unpack(array: np.ndarray, name: str, size: int, shape: tuple) -> np.ndarray:
    if name.endswith(BITS):
        array = np.unpackbits(array, axis=-1, count=size)
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}; must be {shape}")
    return array


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


def find_studies(root: Path, pattern: str = "*") -> list[Path]:
    """The folders of studies below a folder, by name; [] if it does not exist.

    Hidden folders are left out: a jaxpt archive that was killed may leave one.
    """
    folders = sorted(path.parent for path in root.glob(f"{pattern}/{STUDY}"))
    return [place for place in folders if not place.name.startswith(".")]


def list_studies(root: Path) -> list[Study]:
    """The studies directly below a folder, by name; [] if there is no such folder."""
    return [load_study(place) for place in find_studies(root)]


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


def check_study(place: Path) -> Study:
    """Checks a study's files, and that its runs have its settings and values."""
    study = load_study(place)
    for fault in itertools.chain(_list_strays(study), _list_wrong_means(study)):
        raise CheckpointError(f"{place}: {fault}")
    return study


def _list_strays(study: Study) -> Iterator[str]:
    """What shows that a run is not of the study's settings."""
    report, plans = study.stored["report"], study.stored["plans"]["plans"]
    runs = [*report["runs"], *report.get("diverged", [])]
    keys = [(run["name"], run["seed"]) for run in runs]
    yield from (f"has two runs {run_name(*k)}" for k in keys if keys.count(k) > 1)
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

"""The files of an archived study, a folder of results/: read, checked and written.

    study.json     title, question, command, note, date, machines, versions, seeds; the
                   checksums of the other two files and of itself
    runs.json.gz   settings and plans, the tokenizer, hashes of the text, and the entry
                   of each run in the report: metrics, learning curve, costs
    values.npz     the value of each metric on each test example, for each run and for
                   the baselines without a network

In values.npz the runs with the same examples are the rows of one array. Hits are bits,
whole numbers have the smallest type of integer that fits, all others are float32.
"""

import gzip
import hashlib
import io
import json
import numbers
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxpt.comparison.plan_runs import PLANS_FORM
from jaxpt.errors import CheckpointError, UserError
from jaxpt.files import disk, folder, schema
from jaxpt.judge.examples import Examples
from jaxpt.runs.result import SCHEMA
from jaxpt.runs.workdir import DATA

STUDY, RUNS, VALUES = "study.json", "runs.json.gz", "values.npz"
FOLDER_HINT = "must be the folder of a study, which jaxpt archive writes"
REMEDY = "restore it from version control, or repeat jaxpt archive"
FORMAT = 1
FACTS = {
    **dict.fromkeys(("title", "question", "command", "config", "note"), str),
    "format": int,
    "objectives": [str],
    "seeds": [int],
    "date": str,
    "machines": [{"cpu": str, "instructions": str, "cores": int}],
    "versions": [{str: str}],
    "record?": {
        **dict.fromkeys(("objective", "tokenizer_sha256", "code_sha256"), str),
        "rerun_of": str,
        "text": {str: str},
        "devices": [str],
    },
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
# The schemas of report.json, and of its parts in a study.
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
        "registration?": {"text": str, "sha256": str},
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
# The name and the seed of a run; of a baseline, the name alone.
Owner: TypeAlias = tuple[str, int] | tuple[str]
Values: TypeAlias = Mapping[Owner, Mapping[str, Examples]]


class StudyFiles(NamedTuple):
    """The content of study.json, of runs.json.gz (`STORED`) and of values.npz."""

    facts: dict
    stored: dict
    values: Values


def read_files(place: Path) -> StudyFiles:
    """Reads the files of a study."""
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
    return StudyFiles(facts, stored, values)


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


def find_studies(root: Path, pattern: str = "*") -> list[Path]:
    """The folders of studies below a folder, by name; [] if it does not exist.

    Hidden folders are left out: a jaxpt archive that was killed may leave one.
    """
    folders = sorted(path.parent for path in root.glob(f"{pattern}/{STUDY}"))
    return [place for place in folders if not place.name.startswith(".")]


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

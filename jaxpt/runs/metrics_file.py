"""metrics.jsonl: the log of a run's metrics, as it is read."""

import math
import numbers
import os
from pathlib import Path
from typing import Any

from jaxpt.errors import CheckpointError
from jaxpt.files import checksums, schema

METRICS_FILE = "metrics.jsonl"
# Advice where a log was altered, because it cannot be written again.
ALTERED_HINT = (
    "put it back as it was, or train in another folder, which "
    "train.init_from can begin at this run's parameters"
)
_LINE = {"step": int, str: (numbers.Real, str)}  # the schema of a line
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`, without a last line that was cut off by a kill."""
    return [row for _, row in read_lines(Path(workdir) / METRICS_FILE)]


def read_last_line(workdir: Path, step: int) -> dict:
    """The last line of a run's log up to `step`; {} if there is none."""
    if not step:
        return {}
    lines = [line for line in read_metrics(workdir) if line["step"] <= step]
    return lines[-1] if lines else {}


def read_lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Each complete line, as bytes and parsed."""
    try:
        lines = checksums.read_log(path, ALTERED_HINT).split(b"\n")[:-1]
    except OSError as error:
        raise CheckpointError(f"metrics: {path}: {error.strerror}") from error
    parsed = []
    for number, line in enumerate(lines, start=1):
        try:
            row = schema.parse(line, _LINE)
            row = {k: _from_json(value) for k, value in row.items()}
        except ValueError as error:
            raise CheckpointError(
                f"metrics: {path} line {number}: {line[:60].decode(errors='replace')}; "
                'must be a JSON object with a "step"'
            ) from error
        parsed.append((line, row))
    return parsed


def keep_until(path: Path, resume_step: int) -> list[tuple[bytes, dict[str, Any]]]:
    """The log without lines that a resumed run writes again; [] if there is none."""
    if not path.exists():
        return []
    return [pair for pair in read_lines(path) if pair[1]["step"] <= resume_step]


def _from_json(value: Any) -> Any:
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value

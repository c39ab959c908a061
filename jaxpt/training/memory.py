"""The least memory that a run needs, by its sizes, against what this machine has."""

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import jax

from jaxpt.config.plan import Plan
from jaxpt.errors import DeviceError
from jaxpt.runs.program import Program
from jaxpt.runs.sharding import count_bytes
from jaxpt.setting_types import list_types, strip

# The limits of a container, by version of cgroups; "max" is none.
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
ID_BYTES = 4  # int32


def check_memory(program: Program) -> None:
    """Raises DeviceError if a run needs more memory than there is; allocates nothing.

    Only what every run holds is counted: parameters and optimizer state on each device,
    and the rows of a call or of an evaluation on the host. So a run that passes may
    still be out of memory (`jaxpt train --dry_run` compiles it, and says).
    """
    plan = program.task.plan
    local = [d for d in program.devices if d.process_index == jax.process_index()]
    state, _ = count_bytes(program.abstract_state())
    is_host = local[0].platform == "cpu"
    rows = count_rows_bytes(plan)
    if is_host:  # whose devices share its memory
        check_parts({**rows, _name_state(program): state * len(local)}, host_bytes())
        return
    check_parts(rows, host_bytes())
    limit = (local[0].memory_stats() or {}).get("bytes_limit", math.inf)
    check_parts({_name_state(program): state}, limit, "a device")


def _name_state(program: Program) -> str:
    sizes = _list_sizes(program.task.model_spec) | _list_sizes(program.task.spec)
    largest = sorted(sizes, key=lambda name: sizes[name][1], reverse=True)[:3]
    named = ", ".join(f"{name}={sizes[name][0]}" for name in largest)
    return f"parameters and optimizer state ({named})"


def _list_sizes(spec: Any) -> dict[str, tuple[Any, float]]:
    """The whole numbers of a spec, or lists of them, and their ratios to defaults."""
    sizes, defaults = {}, {f.name: f.default for f in dataclasses.fields(spec)}
    for name, kind in list_types(type(spec)).items():
        if strip(kind) in (int, tuple[int, ...]):
            value = getattr(spec, name)
            now, usual = (
                max((1, *x) if isinstance(x, tuple) else (1, x))
                for x in (value, defaults[name])
            )
            sizes[spec.full_name(name)] = value, now / usual
    return sizes


def count_rows_bytes(plan: Plan) -> dict[str, int]:
    """Bytes of the rows that are on the host at once, by name."""
    train, evaluation, length = plan.train, plan.eval, plan.spec.row_length
    num_steps = min(train.steps_per_call, train.steps)
    num_rows = max(evaluation.num_rows, evaluation.batch_size)
    return {
        f"the rows of a call (train.batch_size={train.batch_size}, "
        f"train.steps_per_call={num_steps}, rows of {length} tokens)": (
            num_steps * train.batch_size * length * ID_BYTES
        ),
        f"the rows of evaluation (eval.num_rows={evaluation.num_rows}, "
        f"eval.batch_size={evaluation.batch_size}, rows of {length} tokens)": (
            num_rows * length * ID_BYTES
        ),
    }


def check_parts(
    parts: dict[str, int], limit: float, place: str = "this machine"
) -> None:
    """Raises DeviceError if parts together exceed a limit; the error names the largest.

    >>> check_parts({"rows (eval.num_rows=9)": 4 * 10**12, "rest": 5}, 24e9)
    Traceback (most recent call last):
    jaxpt.errors.DeviceError: rows (eval.num_rows=9): needs 4 TB, this machine has 24 GB
    """
    if sum(parts.values()) > limit:
        name, size = max(parts.items(), key=lambda part: part[1])
        raise DeviceError(
            f"{name}: needs {format_bytes(size)}, {place} has {format_bytes(limit)}"
        )


def format_bytes(num: float) -> str:
    """A size in the largest unit, with two digits.

    >>> format_bytes(24e9), format_bytes(4_100_000_000_000), format_bytes(10**40)
    ('24 GB', '4.1 TB', '1e+28 TB')
    """
    unit, power = next(
        (each for each in (("TB", 12), ("GB", 9), ("MB", 6)) if num >= 10 ** each[1]),
        ("kB", 3),
    )
    return f"{num / 10**power:.2g} {unit}"


def host_bytes() -> float:
    """The memory of this machine, or of its container if that is less."""
    sizes: list[Any] = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in CGROUP_LIMITS:
        try:
            sizes.append(int(path.read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(sizes)

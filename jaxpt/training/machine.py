"""The machine and the library versions that a run was trained with."""

import importlib.metadata
import os
import platform
from pathlib import Path

from jaxpt.version import __version__

CPUINFO = Path("/proc/cpuinfo")
# Instruction sets by the flag of /proc/cpuinfo, the widest vectors first.
INSTRUCTIONS = {
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "avx": "AVX",
    "sse2": "SSE2",
    "sve": "SVE",
    "asimd": "NEON",
}


def read_machine() -> dict[str, str | int]:
    """The CPU model, its widest instruction set, and the cores that may be used."""
    try:
        text = CPUINFO.read_text(errors="replace")
    except OSError:
        text = ""
    fields = parse_cpuinfo(text)
    return {
        "cpu": fields["cpu"] or platform.processor() or platform.machine(),
        "instructions": fields["instructions"] or platform.machine(),
        "cores": _count_cores(),
    }


def parse_cpuinfo(text: str) -> dict[str, str]:
    r"""The CPU model and the instruction set of /proc/cpuinfo; "" if unknown.

    >>> parse_cpuinfo("model name\t: A 7\nflags\t\t: fpu sse2 avx avx2\n")
    {'cpu': 'A 7', 'instructions': 'AVX2'}
    """
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = {*fields.get("flags", "").split(), *fields.get("Features", "").split()}
    known = [name for flag, name in INSTRUCTIONS.items() if flag in flags]
    return {
        "cpu": fields.get("model name", ""),
        "instructions": known[0] if known else "",
    }


def _count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def list_versions() -> dict[str, str]:
    """The versions of Python, JAX and jaxpt."""
    return {
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "jaxpt": __version__,
    }

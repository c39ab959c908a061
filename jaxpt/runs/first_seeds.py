"""Runs to show or to export: single ones, or those of a comparison's first seed."""

import re
from collections.abc import Sequence
from pathlib import Path

from jaxpt.errors import ConfigError, argument
from jaxpt.runs.workdir import DIVERGED


def list_first_seeds(workdirs: Sequence[Path]) -> dict[str, Path]:
    """The folders of runs, and of a comparison's first seeds, by short names."""
    runs: dict[str, Path] = {}
    for workdir in workdirs:
        for path in _list_runs(workdir):
            name, number = _short(path), 2
            while name in runs:
                name, number = f"{_short(path)}-{number}", number + 1
            runs[name] = path
    if not runs:
        raise ConfigError(f"{argument('workdir')}: must name at least one run")
    return runs


def _list_runs(workdir: Path) -> list[Path]:
    """A run itself, or those of a comparison: the first seed that has not diverged."""
    if not (workdir / "runs").is_dir():
        return [workdir]
    firsts: dict[str, Path] = {}
    for path in sorted((workdir / "runs").glob("*-seed*"), key=_order):
        if (path / DIVERGED).exists():
            continue
        firsts.setdefault(_short(path), path)
    return list(firsts.values())


def _order(path: Path) -> tuple[str, int]:
    """The name and the seed of a comparison's run: seed 9 is before seed 10."""
    name, _, seed = path.name.rpartition("-seed")
    return name, int(seed) if seed.isdecimal() else 0


def _short(path: Path) -> str:
    """A run's name without the seed that a comparison adds, safe in a URL."""
    return re.sub(r"[^\w.-]+", "-", path.resolve().name.rsplit("-seed", 1)[0])

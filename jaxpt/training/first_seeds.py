"""Runs to show or to export: single ones, or those of a comparison's first seed."""

import re
from collections.abc import Sequence
from pathlib import Path

from jaxpt.errors import ConfigError
from jaxpt.training.workdir import DIVERGED


def name_runs(workdirs: Sequence[Path]) -> dict[str, Path]:
    """The runs' folders by short names: those of the objectives.

    Raises:
      UserError: there is none.
    """
    runs: dict[str, Path] = {}
    for workdir in workdirs:
        for path in _list_runs(workdir):
            name, number = _short(path), 2
            while name in runs:
                name, number = f"{_short(path)}-{number}", number + 1
            runs[name] = path
    if not runs:
        raise ConfigError("--workdir: must name at least one run")
    return runs


def _list_runs(workdir: Path) -> list[Path]:
    """A run itself, or those of a comparison, the first seed of each."""
    if not (workdir / "runs").is_dir():
        return [workdir]
    firsts: dict[str, Path] = {}
    for path in sorted((workdir / "runs").glob("*-seed*")):
        if (path / DIVERGED).exists():
            continue
        firsts.setdefault(_short(path), path)
    return list(firsts.values())


def _short(path: Path) -> str:
    """A run's name without the seed that a comparison adds, safe in a URL."""
    return re.sub(r"[^\w.-]+", "-", path.resolve().name.rsplit("-seed", 1)[0])

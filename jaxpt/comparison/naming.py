"""Names separately trained runs; runs that differ only in their seed share a name.

An objective with one setting has the objective's name, "mlm"; several settings are
named by their differences, "mlm masking=words".
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxpt.errors import CheckpointError, argument
from jaxpt.runs.finished_runs import (
    OF_TEXT,
    FoundRun,
    is_same_text,
    is_same_tokenizer,
    number_alike,
)

LONGEST = 48  # characters of a name; longer ones are replaced by numbers
# A name is also a part of file names.
UNSAFE = re.compile(r"[^\w.,=+ -]+")

# Settings that do not name a run: its seed and its objective do, and no final value
# depends on evaluations.
UNNAMED = ("train.seed", "objective", "train.eval_every", "eval.probe_every_eval")


def name_runs(runs: Iterable[FoundRun]) -> dict[str, list[FoundRun]]:
    """The runs by name, each with its seeds in ascending order."""
    groups: dict[str, list[FoundRun]] = {}
    for run in runs:
        groups.setdefault(_identify(run), []).append(run)
    by_objective: dict[str, list[list[FoundRun]]] = {}
    for group in groups.values():
        by_objective.setdefault(group[0].objective, []).append(group)
    named: dict[str, list[FoundRun]] = {}
    for objective, members in by_objective.items():
        names = _distinguish(objective, [group[0] for group in members])
        named |= dict(zip(names, members, strict=True))
    for name, group in named.items():
        group.sort(key=lambda run: run.seed)
        for one, other in zip(group, group[1:], strict=False):
            if one.seed == other.seed:
                raise CheckpointError(
                    f"{argument('runs')}={other.folder}: has the settings and the seed "
                    f"({other.seed}) of {one.folder}, both are {name}; name one of them"
                )
    return named


def list_own_settings(run: FoundRun) -> dict:
    """The settings that a run's results depend on, except text, tokenizer and seed."""
    return {
        name: value
        for name, value in run.settings.items()
        if name not in OF_TEXT
        and name not in UNNAMED
        and not name.startswith("tokenizer.")
    }


def _identify(run: FoundRun) -> str:
    settings = sorted(list_own_settings(run).items())
    return repr(
        (run.objective, settings, sorted(run.text.items()), run.tokenizer_sha256)
    )


def _distinguish(objective: str, runs: list[FoundRun]) -> list[str]:
    """A name for each of an objective's runs with different settings."""
    if len(runs) == 1:
        return [objective]
    listed = [list_own_settings(run) for run in runs]
    parts: list[list[str]] = [[] for _ in runs]
    for setting in dict.fromkeys(name for settings in listed for name in settings):
        values = [settings.get(setting) for settings in listed]
        if any(value != values[0] for value in values):
            short = setting.rpartition(".")[2]
            for part, value in zip(parts, values, strict=True):
                part.append(f"{short}={format_value(value)}")
    for word, numbers, labels in (
        ("text", number_alike(runs, is_same_text), map(_label_text, runs)),
        (
            "tokenizer",
            number_alike(runs, is_same_tokenizer),
            map(_label_tokenizer, runs),
        ),
    ):
        if max(numbers) > 0:
            chosen = _choose_labels(numbers, list(labels))
            for part, label in zip(parts, chosen, strict=True):
                part.append(f"{word}={label}")
    names = [UNSAFE.sub("_", " ".join([objective, *part])) for part in parts]
    if len(set(names)) < len(names) or max(map(len, names)) > LONGEST:
        names = [f"{objective} {number}" for number in range(1, len(runs) + 1)]
    return names


def _label_text(run: FoundRun) -> tuple[str, ...]:
    """Labels for a run's text, the shortest first."""
    path = str(run.settings.get("data.path", ""))
    return Path(path).name, path, run.text.get("train", "")[:8]


def _label_tokenizer(run: FoundRun) -> tuple[str, ...]:
    """Labels for a run's tokenizer, the shortest first."""
    kind = str(run.settings.get("tokenizer.kind", ""))
    return kind, f"{kind}-{run.tokenizer.vocab.size}", run.tokenizer_sha256[:8]


def _choose_labels(numbers: list[int], labels: list[tuple[str, ...]]) -> list[str]:
    """The first kind of label that is unique for different numbers; or the last.

    >>> _choose_labels([0, 1], [("a.txt", "x/a.txt"), ("a.txt", "y/a.txt")])
    ['x/a.txt', 'y/a.txt']
    """
    kinds = list(zip(*labels, strict=True))
    num = len(set(numbers))
    return list(next((kind for kind in kinds if len(set(kind)) == num), kinds[-1]))


def format_value(value: Any) -> str:
    """A setting's value as a short string.

    >>> [format_value(value) for value in (0.003, "", [1, 2], None)]
    ['0.003', 'none', '1,2', 'none']
    """
    if isinstance(value, list):
        return ",".join(map(format_value, value)) or "none"
    return "none" if value is None or value == "" else str(value)

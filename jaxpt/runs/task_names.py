"""Names of downstream tasks, from the entries of `compare.tasks` or `eval.tasks`.

A zero-shot task has the name of its kind, a fine-tuning that of its config file. Tasks
that would share a name are named by the last parts of their data's path, or of the
config's argument, too. Names do not depend on the order of the tasks, as runs store
their results under them.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from jaxpt.config.sections import FINETUNE
from jaxpt.errors import ConfigError

UNSAFE = re.compile(r"[^\w-]+")
SPELT = {"/": "root", "..": "up"}  # parts of a path without a name


def name_tasks(
    settings: Sequence[str],
    list_metrics: Callable[[str, str], Collection[str]],
    setting_name: str = "compare.tasks",
) -> list[str]:
    """A name for each entry, so that no two tasks have a metric of the same name.

    Args:
      list_metrics: (an entry, its name) -> the names of its metrics.
      setting_name: of the list, for an error.

    >>> tasks = ["blimp:x", "finetune:sst2.py:a", "finetune:sst2.py:b", "pairs:p.tsv"]
    >>> name_tasks(tasks, lambda setting, name: [name])
    ['blimp', 'sst2_a', 'sst2_b', 'pairs']
    """
    choices = [_list_names(setting) for setting in settings]
    levels = [0] * len(settings)
    while True:
        names = [choice[level] for choice, level in zip(choices, levels, strict=True)]
        metrics = [
            set(list_metrics(setting, name))
            for setting, name in zip(settings, names, strict=True)
        ]
        clashes = _find_clashes(metrics)
        longer = {
            i for pair in clashes for i in pair if levels[i] + 1 < len(choices[i])
        }
        if not clashes:
            return names
        if not longer:
            first, second = min(clashes)
            raise ConfigError(
                f"{setting_name}={settings[second]}: has the name {names[second]}, as "
                f"has {settings[first]}; name each task once, or rename a file"
            )
        for i in longer:
            levels[i] += 1


def _find_clashes(metrics: Sequence[set[str]]) -> list[tuple[int, int]]:
    return [
        (i, j)
        for j in range(len(metrics))
        for i in range(j)
        if not metrics[i].isdisjoint(metrics[j])
    ]


def _list_names(setting: str) -> list[str]:
    """The possible names of a task, the shortest first.

    >>> _list_names("pairs:a/b.tsv")
    ['pairs', 'pairs_b', 'pairs_a_b', 'pairs_a_b_tsv', 'pairs_a_b_tsv']
    >>> _list_names("finetune:own/sst2.py:../x,1")
    ['sst2', 'sst2_x_1', 'sst2_up_x_1', 'sst2_up_x_1', 'own_sst2_up_x_1']
    """
    kind, _, path = setting.partition(":")
    outer: tuple[str, ...] = ()
    if kind == FINETUNE:
        config, _, path = path.partition(":")
        kind, outer = Path(config).stem, Path(config).parent.parts
    parts = Path(path).parts if path else ()
    names = [kind]
    for num in range(1, len(parts) + 1):
        *folders, last = parts[-num:]
        names.append(_join([kind, *folders, last.partition(".")[0]]))
    if not parts:
        names.append(kind)  # others have an argument
    return [*names, _join([kind, *parts]), _join([*outer, kind, *parts])]


def _join(parts: Iterable[str]) -> str:
    words = (UNSAFE.sub("_", SPELT.get(part, part)).strip("_") for part in parts)
    return "_".join(filter(None, words))

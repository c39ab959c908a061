"""Reads, checks and samples the labelled examples of a fine-tuning."""

import dataclasses
import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxpt.config.finetuning import FinetunePlan
from jaxpt.errors import ConfigError, UserError, argument
from jaxpt.tasks.task import Labels
from jaxpt.text.labelled.tables import Table, TableSpec, read_table
from jaxpt.text.sources.reading import is_data_set


@dataclasses.dataclass(frozen=True)
class TaskData:
    """The checked examples of each split: "train", "dev" and maybe "test".

    Attributes:
      numbers: for a held-out split, the numbers of its examples in the file of the
        training data, from 0.
    """

    splits: dict[str, list[Any]]
    labels: Labels
    numbers: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """sha256 of each split's examples, in hex."""
        return {
            name: hashlib.sha256(repr(items).encode(errors="replace")).hexdigest()
            for name, items in self.splits.items()
        }


def read_data(plan: FinetunePlan) -> TaskData:
    """Reads all splits."""
    data = read_splits(plan)
    check_num_train(plan, data)
    return data


def read_splits(plan: FinetunePlan) -> TaskData:
    """`read_data` without the check of `data.num_train`."""
    task, splits, labels = plan.task, {}, None
    numbers = {}
    for name in ("train", "dev", "test"):
        if spec := plan.data.table(name):
            table = _read(spec, name, plan.spec.columns)
            splits[name], known = task.read(table, plan.spec, labels)
            labels = known if labels is None else labels
    if "dev" not in splits:
        items = splits["train"]
        rest, numbers["dev"] = hold_out(list(range(len(items))), plan.data.dev_share)
        splits["train"] = [items[i] for i in rest]
        splits["dev"] = [items[i] for i in numbers["dev"]]
    return TaskData(splits, labels or (), numbers)


def _read(spec: TableSpec, split: str, columns: Iterable[str]) -> Table:
    """`read_table`, whose error names the setting that replaces a data set."""
    try:
        return read_table(spec, list(columns))
    except UserError as error:
        if not is_data_set(spec.path):
            raise
        raise type(error)(
            f"{error}; for your own file set {argument(f'config.data.{split}')}=FILE"
        ) from error


def check_num_train(plan: FinetunePlan, data: TaskData) -> None:
    """Raises UserError if there are fewer examples than `data.num_train`."""
    num, size = plan.data.num_train, len(data.splits["train"])
    if num > size:
        raise ConfigError(
            f"data.num_train={num}: must be at most {size}, all there are"
        )


def hold_out(items: list, share: float) -> tuple[list, list]:
    """Holds out a share of the examples, the same every time: the rest, the share."""
    num = round(share * len(items))
    if not 0 < num < len(items):
        raise ConfigError(
            f"data.dev_share={share}: gives {num} of {len(items)} examples; both parts "
            f"must have some, or data.dev must be set"
        )
    is_dev = np.zeros(len(items), bool)
    is_dev[np.random.default_rng(0).permutation(len(items))[:num]] = True
    rest = [x for x, is_out in zip(items, is_dev, strict=True) if not is_out]
    return rest, [x for x, is_out in zip(items, is_dev, strict=True) if is_out]


def draw_nested(items: list, num: int, seed: int) -> list:
    """A random subset that is balanced by label; smaller subsets are in larger ones.

    Only examples of classification have labels.

    >>> draw_nested([1, 2, 3, 4], 2, 0) == draw_nested([1, 2, 3, 4], 3, 0)[:2]
    True
    """
    order = np.random.default_rng([seed, 1]).permutation(len(items))
    by_label = defaultdict(list)
    for i in order:
        by_label[getattr(items[i], "labels", ())].append(int(i))
    queues = [by_label[label] for label in sorted(by_label)]
    chosen: list[int] = []
    depth = 0
    while len(chosen) < num:
        chosen += [queue[depth] for queue in queues if depth < len(queue)]
        depth += 1
    return [items[i] for i in chosen[:num]]


def draw_train(plan: FinetunePlan, data: TaskData, seed: int) -> list[Any]:
    """The training examples for a seed: all, or `data.num_train` of them."""
    items, num = data.splits["train"], plan.data.num_train
    return draw_nested(items, num, seed) if num else items

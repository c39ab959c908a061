"""Shares data, encoded rows and compiled programs between consecutive fine-tunings.

Those of a comparison differ in the run, the number of labels and the seed; the data and
the network are the same, also for random initialization.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

from jaxpt.config.finetuning import FinetunePlan
from jaxpt.finetuning.base import Base
from jaxpt.finetuning.data import TaskData, check_num_train, draw_train, read_splits
from jaxpt.finetuning.evaluation import LabelledRows
from jaxpt.finetuning.program import TuneProgram
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.tasks.ngrams import has_ngrams, measure_ngrams
from jaxpt.tasks.task import Labels
from jaxpt.text.tokens import tokenizer as tokenizers

MAX_KEPT = 8  # entries of a cache; the oldest is dropped


class Reuse:
    """Caches for several fine-tunings; each file is read once."""

    def __init__(self) -> None:
        self._data: dict[str, TaskData] = {}
        self._rows: dict[str, LabelledRows] = {}
        self._programs: dict[str, TuneProgram] = {}
        self._network = ""
        self._ngrams: dict[str, dict[str, dict[str, float]]] = {}

    def read_data(self, plan: FinetunePlan) -> TaskData:
        """As `jaxpt.finetuning.data.read_data`, cached."""
        data = _keep(self._data, _name_data(plan), lambda: read_splits(plan))
        check_num_train(plan, data)
        return data

    def encode_splits(
        self, plan: FinetunePlan, data: TaskData, encoder: TextEncoder
    ) -> dict[str, LabelledRows]:
        """The rows of all splits; the training rows are those of the first seed."""
        drawn = draw_train(plan, data, plan.train.seeds[0])
        splits = {"train": encode_split(plan, drawn, encoder, is_training=True)}
        how = encoder.form, encoder.max_len, encoder.pad, encoder.writing
        whole = f"{_name_data(plan)} {tokenizers.fingerprint(encoder.tokenizer)} {how}"
        for name in data.splits.keys() - {"train"}:
            encode = functools.partial(_encode_known, plan, data, name, encoder)
            splits[name] = _keep(self._rows, f"{name} {whole}", encode)
        return {name: splits[name] for name in data.splits}

    def measure_ngrams(
        self, plan: FinetunePlan, data: TaskData
    ) -> dict[str, dict[str, float]]:
        """The metrics of the n-gram baseline on each split; {} if the task has none.

        It learns from the training examples of the first seed.
        """
        if not has_ngrams(plan.spec):
            return {}
        num, seed = plan.data.num_train, plan.train.seeds[0]
        key = f"{_name_data(plan)} {num} {seed if num else 'all'}"
        if key not in self._ngrams:  # a few numbers, all of which are kept
            splits = data.splits | {"train": draw_train(plan, data, seed)}
            self._ngrams[key] = measure_ngrams(splits, plan.spec)
        return self._ngrams[key]

    def make_program(
        self, plan: FinetunePlan, base: Base, labels: Labels, batch: dict
    ) -> TuneProgram:
        """A program for this base; bases with the same network share compiled steps.

        Args:
          batch: as for `TuneProgram`.
        """
        if base.head is not None:
            return TuneProgram(plan, base, labels, batch)
        if (network := repr(base.network)) != self._network:
            # Those of earlier networks are not needed again. Each maps thousands of
            # memory areas, of which Linux allows a process 65,530.
            self._programs.clear()
            self._network = network
        left_out = {"data": ("num_train",), "train": ("seeds",)}
        config = {
            name: {k: v for k, v in part.items() if k not in left_out.get(name, ())}
            for name, part in plan.config.items()
        }
        encoder = base.encoder
        # Without a decoder, a vocabulary may have no start.
        start = base.task.vocab.start if type(base.task.model).HAS_DECODER else 0
        how = encoder.max_len, encoder.pad, encoder.writing, start
        key = f"{json.dumps(config)} {network} {base.form} {labels} {how}"
        program = _keep(
            self._programs, key, lambda: TuneProgram(plan, base, labels, batch)
        )
        return program.with_base(plan, base)


def encode_split(
    plan: FinetunePlan, items: list, encoder: TextEncoder, is_training: bool = False
) -> LabelledRows:
    """Examples with their rows."""
    rows = plan.task.encode(items, encoder, plan.spec, is_training=is_training)
    return LabelledRows(items, rows)


def _encode_known(
    plan: FinetunePlan, data: TaskData, name: str, encoder: TextEncoder
) -> LabelledRows:
    """A split for evaluation, with the numbers of its examples in their file."""
    split = encode_split(plan, data.splits[name], encoder)
    return dataclasses.replace(split, numbers=data.numbers.get(name))


def _name_data(plan: FinetunePlan) -> str:
    """The key of the data: all settings that the examples depend on."""
    data = {k: v for k, v in plan.config["data"].items() if k != "num_train"}
    return f"{plan.task_name} {plan.spec} {json.dumps(data)}"


def _keep(cache: dict[str, Any], key: str, make: Callable[[], Any]) -> Any:
    """The cached value of a key, made if it is missing."""
    if key not in cache:
        while len(cache) >= MAX_KEPT:
            del cache[next(iter(cache))]
        cache[key] = make()
    return cache[key]

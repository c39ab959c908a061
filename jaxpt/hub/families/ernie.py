"""ERNIE 1, 2 and 3: BERT's form.

ERNIE 3 adds an embedding of the task of each token (`use_task_id`). A text without task
ids is of task 0, whose embedding an import adds to those of all segment types: the
same function, and an export has no tasks. Embeddings of other tasks are left out.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxpt.errors import DataError
from jaxpt.hub.entries import Table
from jaxpt.hub.families import bert
from jaxpt.hub.families.bert_form import list_body, list_heads, name_copies
from jaxpt.hub.fields import Config, FieldRow
from jaxpt.hub.files import LazyTensors
from jaxpt.hub.task_names import (
    ANSWERS,
    CHOICES,
    QUESTIONS,
    TAGS,
    TEXTS,
    TOKENS,
    pooled,
)
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, "ernie")
    yield from list_heads(spec, head, "ernie")


def _add_task(config: Config, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tensors with the embedding of task 0 in the table of segment types."""
    if not config.get("use_task_id"):
        return tensors
    end = "embeddings.{}_type_embeddings.weight"
    task, types = (
        next((name for name in tensors if name.endswith(end.format(kind))), "")
        for kind in ("task", "token")
    )
    if not task or not types:
        missing = end.format("token" if task else "task")
        raise DataError(f"tensor {missing}: is missing")
    table = tensors[types] + tensors[task][:1]
    names = {name: name for name in tensors if name != task}
    return LazyTensors(names, lambda name: table if name == types else tensors[name])


_POOLED = pooled("bert", "ernie.pooler.dense", "classifier")
FAMILY = replace(
    bert.FAMILY,
    name="ernie",
    heads={"masked": "ErnieForMaskedLM", "pretraining": "ErnieForPreTraining"},
    rows=(
        *bert.FAMILY.rows,
        FieldRow(lambda config: {}, lambda spec: {}, {"use_task_id": False}),
    ),
    tensors=list_tensors,
    body="ernie.",
    inert=bert.FAMILY.inert + " task_type_vocab_size",
    fold=_add_task,
    copies=name_copies("ernie", "cls.predictions"),
    buffers=r"ernie\.embeddings\.(position_ids|token_type_ids)",
    task_heads={
        TEXTS: _POOLED,
        CHOICES: _POOLED,
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

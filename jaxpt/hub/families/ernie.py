"""ERNIE 1 and 2: BERT's form. Those with embeddings of tasks are refused."""

from dataclasses import replace

from jaxpt.hub.entries import Table
from jaxpt.hub.families import bert
from jaxpt.hub.families.bert_form import list_body, list_heads, name_copies
from jaxpt.hub.fields import fixed
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


_POOLED = pooled("bert", "ernie.pooler.dense", "classifier")
FAMILY = replace(
    bert.FAMILY,
    name="ernie",
    heads={"masked": "ErnieForMaskedLM", "pretraining": "ErnieForPreTraining"},
    rows=(*bert.FAMILY.rows, fixed(use_task_id=False)),
    tensors=list_tensors,
    body="ernie.",
    inert=bert.FAMILY.inert + " task_type_vocab_size",
    copies=name_copies("ernie", "cls.predictions"),
    buffers=r"ernie\.embeddings\.(position_ids|token_type_ids)",
    task_heads={
        TEXTS: _POOLED,
        CHOICES: _POOLED,
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

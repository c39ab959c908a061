"""BERT, with its sentence head or without."""

from jaxpt.hub.entries import Table
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    LENGTH,
    list_body,
    list_heads,
    list_rows,
    name_copies,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import NO_ROPE, activation
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
    yield from list_body(spec, "bert")
    yield from list_heads(spec, head, "bert")


_POOLED = pooled("bert", "bert.pooler.dense", "classifier")
FAMILY = Family(
    "bert",
    {"masked": "BertForMaskedLM", "pretraining": "BertForPreTraining"},
    (*list_rows(30522), LENGTH, activation("hidden_act", "gelu")),
    list_tensors,
    body="bert.",
    constants=BERT_FORM,
    inert=NO_ROPE + "classifier_dropout",
    copies=name_copies("bert", "cls.predictions"),
    buffers=r"bert\.embeddings\.position_ids",
    unused=r"pooler\..*|cls\.seq_relationship\..*",
    freezes_pad=True,
    task_heads={
        TEXTS: _POOLED,
        CHOICES: _POOLED,
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

"""BERT, with its sentence head or without."""

from jaxpt.hub.entries import Table, map_head, map_linear
from jaxpt.hub.families.bert_form import BERT_FORM, LENGTH, list_body, list_rows
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
    yield from list_body(spec, "bert")
    hf_prefix = "cls.predictions"
    dense, norm = f"{hf_prefix}.transform.dense", f"{hf_prefix}.transform.LayerNorm"
    yield from map_head(spec, dense, norm, f"{hf_prefix}.bias")
    if head == "pretraining":
        yield from map_linear(spec, "bert.pooler.dense", "pair_score/pool")
        yield from map_linear(spec, "cls.seq_relationship", "pair_score/out")


_POOLED = pooled("bert", "bert.pooler.dense", "classifier")
FAMILY = Family(
    "bert",
    {"masked": "BertForMaskedLM", "pretraining": "BertForPreTraining"},
    (*list_rows(30522), LENGTH, activation("hidden_act", "gelu")),
    list_tensors,
    body="bert.",
    constants=BERT_FORM,
    inert=NO_ROPE + "classifier_dropout",
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
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

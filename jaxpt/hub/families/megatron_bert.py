"""Megatron-BERT: BERT with norms before attention and MLP, and a last one."""

from dataclasses import replace

from jaxpt.hub.entries import Table, map_norm
from jaxpt.hub.families import bert
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    LENGTH,
    MODULES,
    list_body,
    list_heads,
    list_rows,
)
from jaxpt.hub.fields import NO_ROPE, activation
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    name: path for name, path in MODULES.items() if not path.endswith("norm")
} | {"attention.ln": "attention_norm", "ln": "mlp_norm"}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, "bert", _MODULES)
    yield from map_norm(spec, "bert.encoder.ln", "encoder/norm")
    yield from list_heads(spec, head, "bert")


FAMILY = replace(
    bert.FAMILY,
    name="megatron-bert",
    heads={
        "masked": "MegatronBertForMaskedLM",
        "pretraining": "MegatronBertForPreTraining",
    },
    rows=(
        *list_rows(29056, 1024, 16, 4096, layers=24),
        LENGTH,
        activation("hidden_act", "gelu"),
    ),
    tensors=list_tensors,
    constants=BERT_FORM | {"norm_position": "pre"},
    inert=NO_ROPE,
)

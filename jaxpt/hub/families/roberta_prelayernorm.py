"""RoBERTa with norms before attention and MLP, as fairseq's pre-norm option trains it.

The published ones are those of Wettig et al. 2023, "Should you mask 15%".
"""

from dataclasses import replace

from jaxpt.hub.entries import Table, map_head, map_norm
from jaxpt.hub.families import roberta
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    MODULES,
    list_body,
    name_copies,
)
from jaxpt.hub.task_names import ANSWERS, QUESTIONS, TAGS, TEXTS, TOKENS, pooled
from jaxpt.nn.model_spec import ModelSpec

_PREFIX = "roberta_prelayernorm"
_MODULES = {
    name: path for name, path in MODULES.items() if not path.endswith("norm")
} | {"attention.LayerNorm": "attention_norm", "intermediate.LayerNorm": "mlp_norm"}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, _PREFIX, _MODULES)
    yield from map_norm(spec, f"{_PREFIX}.LayerNorm", "encoder/norm")
    yield from map_head(spec, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


FAMILY = replace(
    roberta.FAMILY,
    name="roberta-prelayernorm",
    heads={"masked": "RobertaPreLayerNormForMaskedLM"},
    tensors=list_tensors,
    body=f"{_PREFIX}.",
    constants=BERT_FORM
    | {
        "activation": "gelu",
        "norm_position": "pre",
        "embed_norm": True,
        "first_norm": True,
    },
    copies=name_copies(_PREFIX, "lm_head"),
    buffers=rf"{_PREFIX}\.embeddings\.position_ids",
    task_heads={
        TEXTS: pooled("roberta", "classifier.dense", "classifier.out_proj"),
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

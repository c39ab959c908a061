"""MPNet: learned positions and T5's bias.

Position 0 is the row after that of padding, which is always 1.
"""

from jaxpt.hub.entries import Table, TensorEntry, map_head, name_attention
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    GELU,
    list_body,
    list_rows,
    name_copies,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import NO_ROPE, field, fixed
from jaxpt.nn.model_spec import ModelSpec

_MODULES = name_attention("attention.attn.{}") | {
    "attention.LayerNorm": "attention_norm",
    "intermediate.dense": "mlp/up",
    "output.dense": "mlp/down",
    "output.LayerNorm": "mlp_norm",
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    bias = "mpnet.encoder.relative_attention_bias.weight"
    yield TensorEntry(bias, ("encoder/relative/table",))
    yield from list_body(spec, "mpnet", _MODULES)
    yield from map_head(spec, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


FAMILY = Family(
    "mpnet",
    {"masked": "MPNetForMaskedLM"},
    (
        *list_rows(30527, has_types=False),
        GELU,
        field(
            "max_position_embeddings",
            "max_len",
            512,
            lambda length, _: length - 2,
            lambda spec: spec.max_len + spec.position_offset,
        ),
        # The class's code has 32 whatever its table has.
        fixed(relative_attention_num_buckets=32, is_written=True),
    ),
    list_tensors,
    body="mpnet.",
    constants=BERT_FORM
    | {
        "activation": "gelu",
        "position_offset": 2,
        "relative_bias": True,
        "relative_buckets": 32,
        "relative_max_distance": 128,
        "relative_directions": "both",
    },
    inert=NO_ROPE,
    copies=name_copies("mpnet", "lm_head"),
    buffers=r"mpnet\.embeddings\.position_ids",
    unused=r"pooler\..*",
    counts_from_pad=True,
    freezes_pad=True,
)

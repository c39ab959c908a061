"""BART."""

from jaxpt.hub.entries import Table, TensorEntry, map_norm
from jaxpt.hub.families.bart_form import (
    ALIASES,
    COPIES,
    INERT,
    has_head_bias,
    list_rows,
    list_stacks,
    list_zeros,
    map_bias,
    map_positions,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import fixed
from jaxpt.hub.task_names import TEXTS, pooled
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("model.shared.weight", ("embed/tokens",))
    for stack, embed, layers in list_stacks(spec):
        yield from map_positions(stack, embed)
        name = f"model.{stack}.layernorm_embedding"
        yield from map_norm(spec, name, f"{embed}/norm")
        yield from layers
    yield from map_bias(spec)


FAMILY = Family(
    "bart",
    {"seq2seq": "BartForConditionalGeneration"},
    (
        *list_rows(50265, (12, 12), 1024, 16, 4096, 1024),
        # Fields of older versions of the class, which some checkpoints have.
        fixed(
            normalize_before=False,
            normalize_embedding=True,
            add_final_layer_norm=False,
            static_position_embeddings=False,
        ),
    ),
    list_tensors,
    body="model.",
    # The positions begin after fairseq's padding row and the one before it.
    constants={"norm_position": "post", "position_offset": 2},
    aliases=ALIASES,
    inert=INERT + "classifier_dropout",
    unwritten={"head_bias": has_head_bias},
    zeros=list_zeros,
    copies=COPIES,
    freezes_pad=True,
    ids={
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    task_heads={
        TEXTS: pooled(
            "bart",
            "classification_head.dense",
            "classification_head.out_proj",
            finds_last="eos",
        )
    },
)

"""Blenderbot: BART's form with norms before attention and MLP, and a last one."""

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
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("model.shared.weight", ("embed/tokens",))
    for stack, embed, layers in list_stacks(spec):
        yield from map_positions(stack, embed)
        yield from layers
        yield from map_norm(spec, f"model.{stack}.layer_norm", f"{stack}/norm")
    yield from map_bias(spec)


FAMILY = Family(
    "blenderbot",
    {"seq2seq": "BlenderbotForConditionalGeneration"},
    (
        *list_rows(8008, (2, 24), 2560, 32, 10240, 128),
        # Fields of older versions of the class, which published checkpoints have.
        fixed(
            normalize_before=True,
            add_final_layer_norm=True,
            static_position_embeddings=False,
            extra_pos_embeddings=0,
        ),
    ),
    list_tensors,
    body="model.",
    aliases=ALIASES,
    # Generation of transformers reads the last one.
    inert=INERT + "encoder_no_repeat_ngram_size",
    unwritten={"head_bias": has_head_bias},
    zeros=list_zeros,
    copies=COPIES,
    freezes_pad=True,
    ids={
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": 2,
    },
)

"""Blenderbot: BART's form with norms before attention and MLP, and a last one."""

from jaxpt.hub.families.bart_form import (
    ALIASES,
    COPIES,
    INERT,
    has_head_bias,
    list_computed,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import fixed

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
    computed=list_computed,
    copies=COPIES,
    freezes_pad=True,
    ids={
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": 2,
    },
)

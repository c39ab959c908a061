"""Pegasus: norms before attention and MLP, sinusoidal positions."""

from jaxpt.hub.families.bart_form import (
    ALIASES,
    COPIES,
    INERT,
    SINUSOIDAL,
    has_head_bias,
    list_rows,
    list_sinusoids,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import fixed

FAMILY = Family(
    "pegasus",
    {"seq2seq": "PegasusForConditionalGeneration"},
    (
        *list_rows(50265, (12, 12), 1024, 16, 4096, 1024),
        # Fields of older versions of the class, which published checkpoints have.
        fixed(
            normalize_before=True,
            normalize_embedding=False,
            add_final_layer_norm=True,
            add_bias_logits=False,
            static_position_embeddings=True,
        ),
    ),
    list_tensors,
    body="model.",
    constants=SINUSOIDAL,
    aliases=ALIASES,
    inert=INERT,
    unwritten={"head_bias": has_head_bias},
    computed=list_sinusoids,
    copies=COPIES,
    freezes_pad=True,
    ids={"eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1},
)

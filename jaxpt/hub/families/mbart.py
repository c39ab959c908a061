"""mBART and mBART-50: BART with norms before attention and MLP, and a last one."""

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
    "mbart",
    {"seq2seq": "MBartForConditionalGeneration"},
    (
        *list_rows(50265, (12, 12), 1024, 16, 4096, 1024),
        # Fields of older versions of the class, which published checkpoints have.
        fixed(
            normalize_before=True,
            normalize_embedding=True,
            add_final_layer_norm=True,
            add_bias_logits=False,
            static_position_embeddings=False,
        ),
    ),
    list_tensors,
    body="model.",
    # The embeddings are normed, and the first layer's input again.
    constants={"embed_norm": True, "first_norm": True, "position_offset": 2},
    aliases=ALIASES,
    inert=INERT + "classifier_dropout",
    unwritten={"head_bias": has_head_bias},
    computed=list_computed,
    copies=COPIES,
    freezes_pad=True,
    ids={"bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2},
    starts_with_last=True,
)

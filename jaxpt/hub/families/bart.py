"""BART."""

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
from jaxpt.hub.task_names import TEXTS, pooled

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
    computed=list_computed,
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

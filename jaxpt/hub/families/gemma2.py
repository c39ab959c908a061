"""Gemma 2: soft caps, norms before and after each part, local layers."""

from jaxpt.hub.families.gemma_form import (
    GEMMA_FORM,
    IDS,
    cap,
    list_gemma_rows,
    list_tensors,
    local_layers,
)
from jaxpt.hub.families.llama_form import COPIES, RATE
from jaxpt.hub.family import Family
from jaxpt.hub.rotary import rope

FAMILY = Family(
    "gemma2",
    {"causal": "Gemma2ForCausalLM"},
    (
        *list_gemma_rows(rope(), vocab_size=256000, max_position_embeddings=8192),
        local_layers(),
        cap("final_logit_softcapping", "logit_softcap", 30.0),
        cap("attn_logit_softcapping", "attention_softcap", 50.0),
    ),
    list_tensors,
    body="model.",
    constants=GEMMA_FORM | {"norm_position": "both"},
    copies=COPIES,
    freezes_pad=True,
    ids=IDS,
    rate=RATE,
)

"""Mistral: Llama's form, with a window in every layer. A window of null is none."""

from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    RATE,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import field, fixed
from jaxpt.hub.windows import decode_window

FAMILY = Family(
    "mistral",
    {"causal": "MistralForCausalLM"},
    (
        fixed(is_causal=True, attention_chunk_size=None, layer_types=None),
        *list_rows(
            num_key_value_heads=8,
            intermediate_size=14336,
            max_position_embeddings=131072,
        ),
        field(
            "sliding_window",
            "window",
            4096,
            lambda width, _: decode_window("sliding_window", width),
            lambda spec: spec.window + 1 if spec.window else None,
            is_nullable=True,
        ),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM,
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
    ids={"bos_token_id": 1, "eos_token_id": 2},
    rate=RATE,
)

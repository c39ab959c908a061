"""Qwen 2 and 2.5: biases of queries, keys and values."""

from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    RATE,
    list_tensors,
)
from jaxpt.hub.families.qwen_form import list_qwen_rows
from jaxpt.hub.family import Family

FAMILY = Family(
    "qwen2",
    {"causal": "Qwen2ForCausalLM"},
    list_qwen_rows(),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM | {"qkv_bias": "yes"},
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
    rate=RATE,
)

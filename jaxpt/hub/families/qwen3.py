"""Qwen 3: norms of queries and keys, without biases."""

from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    RATE,
    list_tensors,
)
from jaxpt.hub.families.qwen_form import list_qwen_rows
from jaxpt.hub.family import Family
from jaxpt.hub.fields import fixed

FAMILY = Family(
    "qwen3",
    {"causal": "Qwen3ForCausalLM"},
    (
        fixed(attention_bias=False, is_written=True),
        *list_qwen_rows(head_dim=128),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM | {"qk_norm": "scaled"},
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
    rate=RATE,
)

"""Llama 1 to 3.2."""

from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    RATE,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, fixed

FAMILY = Family(
    "llama",
    {"causal": "LlamaForCausalLM"},
    (
        CAUSAL,
        fixed(attention_bias=False, mlp_bias=False, is_written=True),
        *list_rows(),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM,
    inert="pretraining_tp",
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
    ids={"bos_token_id": 1, "eos_token_id": 2},
    rate=RATE,
)

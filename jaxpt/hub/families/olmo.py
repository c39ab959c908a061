"""OLMo 1 (Groeneveld et al. 2024): Llama's form; its LayerNorms have no parameters."""

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
    "olmo",
    {"causal": "OlmoForCausalLM"},
    (
        CAUSAL,
        fixed(attention_bias=False, clip_qkv=None, is_written=True),
        *list_rows(vocab_size=50304, rms_norm_eps=None),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM
    | {"norm": "layernorm", "norm_scale": False, "norm_epsilon": 1e-5},
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
    ids={"eos_token_id": 50279},
    rate=RATE,
)

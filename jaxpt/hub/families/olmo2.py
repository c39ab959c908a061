"""OLMo 2."""

from jaxpt.hub.families.llama_form import COPIES, RATE, list_rows
from jaxpt.hub.families.olmo_form import OLMO_FORM, list_tensors
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, fixed

FAMILY = Family(
    "olmo2",
    {"causal": "Olmo2ForCausalLM"},
    (
        CAUSAL,
        fixed(attention_bias=False, is_written=True),
        *list_rows(vocab_size=50304, rms_norm_eps=1e-5),
    ),
    list_tensors,
    body="model.",
    constants=OLMO_FORM,
    freezes_pad=True,
    copies=COPIES,
    ids={"eos_token_id": 50279},
    rate=RATE,
)

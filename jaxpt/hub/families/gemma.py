"""Gemma 1: Llama's form, with norms of 1 + w and scaled embeddings."""

from jaxpt.hub.families.gemma_form import GEMMA_FORM, IDS, ONE_WAY
from jaxpt.hub.families.llama_form import COPIES, RATE, list_rows, list_tensors
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, activation, fixed, read_activation
from jaxpt.hub.rotary import rope


def _decode_gelu(name: str, value: str) -> str:
    # "gelu" in the first configs means the tanh form, as transformers' class says.
    return "gelu_tanh" if value == "gelu" else read_activation(name, value)


FAMILY = Family(
    "gemma",
    {"causal": "GemmaForCausalLM"},
    (
        CAUSAL,
        fixed(attention_bias=False, is_written=True),
        ONE_WAY,
        *list_rows(
            rope(),
            activation("hidden_act", "gelu_pytorch_tanh", _decode_gelu),
            vocab_size=256000,
            hidden_size=3072,
            intermediate_size=24576,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=16,
            head_dim=256,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
        ),
    ),
    list_tensors,
    body="model.",
    constants=GEMMA_FORM,
    copies=COPIES,
    freezes_pad=True,
    ids=IDS,
    rate=RATE,
)

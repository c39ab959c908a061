"""ERNIE 4.5's dense models: Llama's form with neighbouring rotary pairs."""

from dataclasses import replace

from jaxpt.hub.entries import Table
from jaxpt.hub.families import llama_form
from jaxpt.hub.families.llama_form import COPIES, LLAMA_FORM, RATE, list_heads
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, activation, field, fixed
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

_HEADS = {"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    for entry in llama_form.list_tensors(spec, head):
        for name, num in (("query", spec.num_heads), ("key", spec.kv_heads)):
            if f"attention/{name}/" in entry.paths[0]:
                entry = replace(entry, num_heads=num, paired=entry.paths)
        yield entry


FAMILY = Family(
    "ernie4_5",
    {"causal": "Ernie4_5ForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        field("vocab_size", "vocab_size", 103424),
        field("num_hidden_layers", "num_layers", 18),
        field("hidden_size", "d_model", 1024),
        *list_heads(_HEADS),
        field("intermediate_size", "d_ff", 3072),
        field("max_position_embeddings", "max_len", 131072),
        field("rms_norm_eps", "norm_epsilon", 1e-5),
        activation("hidden_act", "silu"),
        rope(theta=500000.0),
        field("use_bias", "use_bias", False),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="model.",
    constants={name: x for name, x in LLAMA_FORM.items() if name != "use_bias"},
    copies=COPIES,
    freezes_pad=True,
    ids={"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    rate=RATE,
)

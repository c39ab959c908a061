"""Nemotron 3 and 4, Minitron: LayerNorms of 1 + w, relu² and partly rotated heads."""

from jaxpt.hub.entries import ATTENTION, Table
from jaxpt.hub.families.llama_form import COPIES, RATE, list_heads, map_form
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, activation, field, fixed
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

_HEADS = {"num_attention_heads": 48, "num_key_value_heads": None, "head_dim": None}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    modules = {
        "input_layernorm": "attention_norm",
        **ATTENTION,
        "post_attention_layernorm": "mlp_norm",
        "mlp.up_proj": "mlp/up",
        "mlp.down_proj": "mlp/down",
    }
    yield from map_form(spec, modules)


FAMILY = Family(
    "nemotron",
    {"causal": "NemotronForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        fixed(attention_bias=False, mlp_bias=False, is_written=True),
        field("vocab_size", "vocab_size", 256000),
        field("num_hidden_layers", "num_layers", 32),
        field("hidden_size", "d_model", 6144),
        *list_heads(_HEADS),
        field("intermediate_size", "d_ff", 24576),
        field("max_position_embeddings", "max_len", 4096),
        field("norm_eps", "norm_epsilon", 1e-5),
        activation("hidden_act", "relu2"),
        rope(fraction_name="partial_rotary_factor", fraction=0.5),
        field("tie_word_embeddings", "tie_embeddings", False),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.0134),
    ),
    list_tensors,
    body="model.",
    constants={"positions": "rotary", "norm_offset": True, "use_bias": False},
    copies=COPIES,
    freezes_pad=True,
    ids={"bos_token_id": 2, "eos_token_id": 3},
    rate=RATE,
)

"""StarCoder 2: rotary positions, LayerNorms and biases, and a window."""

from jaxpt.hub.entries import ATTENTION, Table
from jaxpt.hub.families.llama_form import COPIES, RATE, list_heads, map_form
from jaxpt.hub.family import Family
from jaxpt.hub.fields import activation, field, fixed
from jaxpt.hub.rotary import rope
from jaxpt.hub.windows import decode_window
from jaxpt.nn.model_spec import ModelSpec

_HEADS = {"num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": None}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    modules = {
        "input_layernorm": "attention_norm",
        **ATTENTION,
        "post_attention_layernorm": "mlp_norm",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    yield from map_form(spec, modules)


FAMILY = Family(
    "starcoder2",
    {"causal": "Starcoder2ForCausalLM"},
    (
        fixed(is_causal=True, attention_chunk_size=None, layer_types=None),
        fixed(is_encoder_decoder=False),
        field("vocab_size", "vocab_size", 49152),
        field("num_hidden_layers", "num_layers", 30),
        field("hidden_size", "d_model", 3072),
        *list_heads(_HEADS),
        field("intermediate_size", "d_ff", 12288),
        field("max_position_embeddings", "max_len", 4096),
        rope(),
        field(
            "sliding_window",
            "window",
            None,
            lambda width, _: decode_window("sliding_window", width),
            lambda spec: spec.window + 1 if spec.window else None,
        ),
        field("use_bias", "use_bias", True),
        field("norm_epsilon", "norm_epsilon", 1e-5),
        activation("hidden_act", "gelu_pytorch_tanh"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("residual_dropout", "dropout", 0.0),
        field("embedding_dropout", "embed_dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.018042),
    ),
    list_tensors,
    body="model.",
    constants={"positions": "rotary"},
    copies=COPIES,
    freezes_pad=True,
    ids={"bos_token_id": 50256, "eos_token_id": 50256},
    rate=RATE,
)

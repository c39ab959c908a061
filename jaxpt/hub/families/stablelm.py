"""StableLM: Llama's form with LayerNorms, and heads of which a part is rotated."""

from jaxpt.hub.entries import ATTENTION, GATED, Table
from jaxpt.hub.families.llama_form import COPIES, RATE, list_heads, map_form
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, activation, field, fixed
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

_HEADS = {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": None}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    modules = {"input_layernorm": "attention_norm", **ATTENTION, **GATED}
    if not spec.shared_norm:
        modules["post_attention_layernorm"] = "mlp_norm"
    yield from map_form(spec, modules)


FAMILY = Family(
    "stablelm",
    {"causal": "StableLmForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False, head_dim=None),
        fixed(qk_layernorm=False, is_written=True),
        field("vocab_size", "vocab_size", 50304),
        field("num_hidden_layers", "num_layers", 32),
        field("hidden_size", "d_model", 2560),
        *list_heads(_HEADS)[:2],
        field("intermediate_size", "d_ff", 6912),
        field("max_position_embeddings", "max_len", 4096),
        rope(fraction_name="partial_rotary_factor", fraction=0.25),
        field("use_parallel_residual", ("parallel_residual", "shared_norm"), False),
        field(
            "use_qkv_bias",
            "qkv_bias",
            False,
            lambda value, _: "yes" if value else "auto",
            "has_qkv_bias",
        ),
        field("layer_norm_eps", "norm_epsilon", 1e-5),
        activation("hidden_act", "silu"),
        field("tie_word_embeddings", "tie_embeddings", False),
        field("hidden_dropout", "dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="model.",
    constants={"positions": "rotary", "gated_mlp": True, "use_bias": False},
    copies=COPIES,
    freezes_pad=True,
    ids={"bos_token_id": 0, "eos_token_id": 0},
    rate=RATE,
)

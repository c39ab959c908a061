"""What decoders of Llama's form share: Llama, Mistral, Qwen, OLMo, Phi 3, Gemma, ..."""

from typing import Any

from jaxpt.hub.entries import (
    ATTENTION,
    GATED,
    HEAD_NORMS,
    Modules,
    Table,
    TensorEntry,
    map_layers,
    map_norm,
    map_untied,
)
from jaxpt.hub.fields import FieldRow, activation, field, fixed, size
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

LLAMA_FORM = {
    "norm": "rmsnorm",
    "gated_mlp": True,
    "positions": "rotary",
    "use_bias": False,
}
COPIES = {"lm_head.weight": "model.embed_tokens.weight"}
BUFFERS = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
RATE = 2e-5  # to train them further: they are larger than other models
_DEFAULTS = {
    "vocab_size": 32000,
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def list_heads(values: dict[str, Any]) -> tuple[FieldRow, ...]:
    """The rows of the numbers of heads and of their width, with these defaults."""
    return (
        size("num_attention_heads", "num_heads", values["num_attention_heads"]),
        size(
            "num_key_value_heads",
            "num_kv_heads",
            values["num_key_value_heads"],
            lambda config: config["num_attention_heads"],
            "kv_heads",
        ),
        size(
            "head_dim",
            "head_dim",
            values["head_dim"],
            lambda config: config["hidden_size"] // config["num_attention_heads"],
            "head_width",
        ),
    )


def list_rows(
    rotary: FieldRow | None = None, activations: FieldRow | None = None, **defaults: Any
) -> tuple[FieldRow, ...]:
    """The rows that all share.

    Args:
      rotary: that of rotary positions; None for a family that rotates whole heads.
      activations: that of the activation; None for one named `hidden_act`.
      defaults: of the class, where they differ from Llama's; rms_norm_eps=None for one
        whose norms have a constant.
    """
    values = _DEFAULTS | defaults

    def plain(name: str, spec_field: str) -> FieldRow:
        return field(name, spec_field, values[name])

    is_read = values["rms_norm_eps"] is not None
    epsilon = [plain("rms_norm_eps", "norm_epsilon")] if is_read else []
    return (
        fixed(is_encoder_decoder=False),
        plain("vocab_size", "vocab_size"),
        plain("num_hidden_layers", "num_layers"),
        plain("hidden_size", "d_model"),
        *list_heads(values),
        plain("intermediate_size", "d_ff"),
        plain("max_position_embeddings", "max_len"),
        *epsilon,
        activations or activation("hidden_act", values["hidden_act"]),
        rotary or rope(),
        plain("tie_word_embeddings", "tie_embeddings"),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    )


def map_form(spec: ModelSpec, modules: Modules) -> Table:
    """The entries of a model with these modules in its layers."""
    yield TensorEntry("model.embed_tokens.weight", ("embed/tokens",))
    yield from map_layers(spec, spec.num_layers, "model.layers", "encoder", modules)
    yield from map_norm(spec, "model.norm", "encoder/norm")
    yield from map_untied(spec)


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of Llama itself, and of those whose names are the same."""
    modules = {
        "input_layernorm": "attention_norm",
        **ATTENTION,
        **(HEAD_NORMS if spec.qk_norm == "scaled" else {}),
        "post_attention_layernorm": "mlp_norm",
        **GATED,
    }
    yield from map_form(spec, modules)

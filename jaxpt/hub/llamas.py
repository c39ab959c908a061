"""Config fields of decoders in Llama's form: Llama, Mistral, Qwen 2, Qwen 3."""

from typing import Any

from jaxpt.hub.fields import (
    CAUSAL,
    Config,
    Family,
    Row,
    Values,
    activation,
    field,
    fixed,
    refusal,
    size,
)
from jaxpt.hub.rotary import rope
from jaxpt.hub.windows import LOCAL, decode_window, find_global_every, list_kinds
from jaxpt.nn.model_spec import ModelSpec

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


def list_rows(
    rotary: Row | None = None, activations: Row | None = None, **defaults: Any
) -> tuple[Row, ...]:
    """The rows that all share.

    Args:
      rotary: that of rotary positions; None for a family that rotates whole heads.
      activations: that of the activation; None for one named `hidden_act`.
      defaults: of the class, where they differ from Llama's.
    """
    values = _DEFAULTS | defaults

    def plain(name: str, spec_field: str) -> Row:
        return field(name, spec_field, values[name])

    return (
        fixed(is_encoder_decoder=False),
        plain("vocab_size", "vocab_size"),
        plain("num_hidden_layers", "num_layers"),
        plain("hidden_size", "d_model"),
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
        plain("intermediate_size", "d_ff"),
        plain("max_position_embeddings", "max_len"),
        plain("rms_norm_eps", "norm_epsilon"),
        activations or activation("hidden_act", values["hidden_act"]),
        rotary or rope(),
        plain("tie_word_embeddings", "tie_embeddings"),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    )


LLAMA_FORM = {
    "norm": "rmsnorm",
    "gated_mlp": True,
    "positions": "rotary",
    "use_bias": False,
}
LLAMA = Family(
    "llama",
    {"causal": "LlamaForCausalLM"},
    (
        CAUSAL,
        fixed(attention_bias=False, mlp_bias=False, is_written=True),
        *list_rows(),
    ),
    constants=LLAMA_FORM,
    inert="pretraining_tp",
    freezes_pad=True,
)


# Llama's form, with a window in every layer. A window of null is none.
MISTRAL = Family(
    "mistral",
    {"causal": "MistralForCausalLM"},
    (
        fixed(is_causal=True, attention_chunk_size=None, layer_types=None),
        *list_rows(
            num_key_value_heads=8,
            intermediate_size=14336,
            max_position_embeddings=131072,
        ),
        field(
            "sliding_window",
            "window",
            4096,
            lambda width, _: decode_window("sliding_window", width),
            lambda spec: spec.window + 1 if spec.window else None,
            is_nullable=True,
        ),
    ),
    constants=LLAMA_FORM,
    like="llama",
    freezes_pad=True,
)


def _read_qwen_windows(config: Config) -> Values:
    """The window of those layers that have one; by default none has."""
    num_layers, kinds = config["num_hidden_layers"], config.get("layer_types")
    width = config["sliding_window"] if config["use_sliding_window"] else None
    if kinds is not None:
        every = find_global_every(kinds, num_layers)
    else:
        num_full = num_layers if width is None else max(0, config["max_window_layers"])
        if 1 < num_full < num_layers:
            raise refusal(
                "max_window_layers", num_full, f"0, 1 or at least {num_layers}, all"
            )
        # With one full layer, it is the first of all num_layers.
        every = 1 if num_full >= num_layers else num_full * num_layers
    if every == 1:
        return {}
    if width is None:
        raise refusal("sliding_window", width, f"at least 2 with {LOCAL} layers")
    window = decode_window("sliding_window", width)
    return {"window": window, "global_every": every}


def _write_qwen_windows(spec: ModelSpec) -> Config:
    kinds = list_kinds(spec)
    # Versions before layer_types count the full layers before all others.
    num_full = kinds.index(LOCAL) if LOCAL in kinds else len(kinds)
    return {
        "layer_types": kinds,
        "max_window_layers": num_full,
        "use_sliding_window": LOCAL in kinds,
        "sliding_window": spec.window + 1 if LOCAL in kinds else None,
    }


_QWEN_WINDOWS = Row(
    _read_qwen_windows,
    _write_qwen_windows,
    {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
    ("sliding_window",),
)
_QWEN_CAUSAL = fixed(is_causal=True, attention_chunk_size=None)
_QWEN: dict[str, Any] = {
    "vocab_size": 151936,
    "num_key_value_heads": 32,
    "intermediate_size": 22016,
    "max_position_embeddings": 32768,
}
# Qwen 2 and 2.5.
QWEN2 = Family(
    "qwen2",
    {"causal": "Qwen2ForCausalLM"},
    (
        _QWEN_CAUSAL,
        *list_rows(**_QWEN),
        _QWEN_WINDOWS,
    ),
    constants=LLAMA_FORM | {"qkv_bias": "yes"},
    like="llama",
    freezes_pad=True,
)
QWEN3 = Family(
    "qwen3",
    {"causal": "Qwen3ForCausalLM"},
    (
        _QWEN_CAUSAL,
        fixed(attention_bias=False, is_written=True),
        *list_rows(**_QWEN, head_dim=128),
        _QWEN_WINDOWS,
    ),
    constants=LLAMA_FORM | {"qk_norm": "scaled"},
    like="llama",
    freezes_pad=True,
)

"""Config fields of decoders near Llama's form: SmolLM3, OLMo 2, Phi 1 to 3."""

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
from jaxpt.hub.llamas import LLAMA_FORM, list_rows
from jaxpt.hub.rotary import rope
from jaxpt.hub.windows import FULL, decode_window
from jaxpt.nn.model_spec import ModelSpec


def _read_unrotated(config: Config) -> Values:
    """The layers without rotary positions, which are the last of every n."""
    num_layers, every = config["num_hidden_layers"], config["no_rope_layer_interval"]
    flags, kinds = config.get("no_rope_layers"), config.get("layer_types")
    if kinds is not None and kinds != [FULL] * min(num_layers, len(kinds) + 1):
        raise refusal("layer_types", kinds, f"{FULL} in all {num_layers} layers")
    if flags is None:
        if every < 1:
            raise refusal("no_rope_layer_interval", every, "at least 1")
        return {"unrotated_every": every}
    is_complete = isinstance(flags, list) and len(flags) >= num_layers
    for n in (every, 0, *range(1, num_layers + 1)) if is_complete else ():
        if n >= 0 and flags[:num_layers] == _flag_rotated(num_layers, n):
            return {"unrotated_every": n}
    raise refusal(
        "no_rope_layers",
        flags,
        f"0 in the last of every n of the {num_layers} layers, and else 1",
    )


def _flag_rotated(num_layers: int, every: int) -> list[int]:
    return [int(every == 0 or (i + 1) % every > 0) for i in range(num_layers)]


def _write_unrotated(spec: ModelSpec) -> Config:
    num_layers, every = spec.num_layers, spec.unrotated_every
    return {
        "no_rope_layers": _flag_rotated(num_layers, every),
        "no_rope_layer_interval": every or num_layers + 1,
        "layer_types": [FULL] * num_layers,
    }


SMOLLM3 = Family(
    "smollm3",
    {"causal": "SmolLM3ForCausalLM"},
    (
        fixed(is_causal=True, attention_chunk_size=None),
        fixed(
            use_sliding_window=False,
            attention_bias=False,
            mlp_bias=False,
            is_written=True,
        ),
        *list_rows(
            rope(theta=2000000.0),
            vocab_size=128256,
            num_hidden_layers=36,
            hidden_size=2048,
            num_attention_heads=16,
            num_key_value_heads=4,
            max_position_embeddings=32768,
            tie_word_embeddings=True,
        ),
        Row(_read_unrotated, _write_unrotated, {"no_rope_layer_interval": 4}),
    ),
    constants=LLAMA_FORM,
    inert="sliding_window",
    like="llama",
    freezes_pad=True,
)
OLMO2 = Family(
    "olmo2",
    {"causal": "Olmo2ForCausalLM"},
    (
        CAUSAL,
        fixed(attention_bias=False, is_written=True),
        *list_rows(vocab_size=50304, rms_norm_eps=1e-5),
    ),
    constants=LLAMA_FORM | {"norm_position": "output", "qk_norm": "width"},
    freezes_pad=True,
)
# Phi 1, 1.5 and 2.
PHI = Family(
    "phi",
    {"causal": "PhiForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        fixed(qk_layernorm=False, is_written=True),
        field("vocab_size", "vocab_size", 51200),
        field("num_hidden_layers", "num_layers", 24),
        field("hidden_size", "d_model", 2048),
        size("num_attention_heads", "num_heads", 32),
        size(
            "num_key_value_heads",
            "num_kv_heads",
            None,
            lambda config: config["num_attention_heads"],
            "kv_heads",
        ),
        size(
            "head_dim",
            "head_dim",
            None,
            lambda config: config["hidden_size"] // config["num_attention_heads"],
            "head_width",
        ),
        field("intermediate_size", "d_ff", 8192),
        field("max_position_embeddings", "max_len", 2048),
        rope(fraction_name="partial_rotary_factor", fraction=0.5),
        field("layer_norm_eps", "norm_epsilon", 1e-5),
        activation("hidden_act", "gelu_new"),
        field("tie_word_embeddings", "tie_embeddings", False),
        field("resid_pdrop", "dropout", 0.0),
        field("embd_pdrop", "embed_dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    constants={
        "positions": "rotary",
        "parallel_residual": True,
        "shared_norm": True,
        "head_bias": True,
    },
    freezes_pad=True,
)
PHI3 = Family(
    "phi3",
    {"causal": "Phi3ForCausalLM"},
    (
        fixed(is_causal=True, attention_chunk_size=None, layer_types=None),
        *list_rows(
            rope(fraction_name="partial_rotary_factor", fraction=1.0, is_scaled=False),
            vocab_size=32064,
            hidden_size=3072,
            intermediate_size=8192,
            max_position_embeddings=4096,
            rms_norm_eps=1e-5,
        ),
        field(
            "sliding_window",
            "window",
            None,
            lambda width, _: decode_window("sliding_window", width),
            lambda spec: spec.window + 1 if spec.window else None,
        ),
        field("resid_pdrop", "dropout", 0.0),
    ),
    constants=LLAMA_FORM,
    # Without scaled frequencies, the original length has no effect.
    inert="embd_pdrop original_max_position_embeddings",
    freezes_pad=True,
)

"""Config fields of Gemma 2 and of Gemma 3's text models."""

from typing import Any

from jaxpt.hub.fields import (
    ACTIVATION_NAMES,
    Config,
    Family,
    Row,
    Values,
    check_type,
    field,
    fixed,
    read_activation,
    refusal,
    size,
)
from jaxpt.hub.llamas import LLAMA_FORM, list_rows
from jaxpt.hub.rotary import read_layer_base, rope, write_rope
from jaxpt.hub.windows import (
    FULL,
    LOCAL,
    decode_window,
    find_global_every,
    list_kinds,
)
from jaxpt.nn.model_spec import ModelSpec


def _read_layers(config: Config) -> Values:
    """The window of local layers, between which every n-th is global."""
    num_layers, kinds = config["num_hidden_layers"], config.get("layer_types")
    every = config.get("sliding_window_pattern", 2)
    if kinds is not None:
        every = find_global_every(kinds, num_layers, is_last=True)
    elif every < 1:
        raise refusal("sliding_window_pattern", every, "at least 1")
    if every == 1:
        return {}
    width = config["sliding_window"]
    if width is None:
        raise refusal("sliding_window", width, f"at least 2 with {LOCAL} layers")
    return {
        "window": decode_window("sliding_window", width),
        "global_every": every if every <= num_layers else 0,
        "global_last": True,
    }


def _write_layers(spec: ModelSpec) -> Config:
    return {
        "layer_types": list_kinds(spec),
        "sliding_window": spec.window + 1 if spec.window else 4096,
    }


def _layers(**more: Any) -> Row:
    defaults = {"sliding_window": 4096, **more}
    return Row(_read_layers, _write_layers, defaults, ("sliding_window",))


def _cap(name: str, spec_field: str, default: float | None) -> Row:
    """A soft cap; null is none."""

    def read(config: Config) -> Values:
        value = config.get(name, default)
        if value is None:
            return {spec_field: 0.0}
        check_type(name, value, (int, float), "a number or null")
        if value <= 0:
            raise refusal(name, value, "null or above 0")
        return {spec_field: float(value)}

    return Row(read, lambda spec: {name: getattr(spec, spec_field) or None})


def _read_causal(config: Config) -> Values:
    value = config.get("use_bidirectional_attention")
    if value not in (None, False):
        raise refusal("use_bidirectional_attention", value, "null or false")
    return {}


def _list_gemma_rows(rotary: Row, **defaults: Any) -> tuple[Row, ...]:
    return (
        fixed(is_causal=True, attention_chunk_size=None),
        fixed(attention_bias=False, is_written=True),
        Row(_read_causal, lambda _: {"use_bidirectional_attention": False}),
        *list_rows(
            rotary,
            field(
                "hidden_activation",
                "activation",
                "gelu_pytorch_tanh",
                lambda value, _: read_activation("hidden_activation", value),
                lambda spec: (
                    "gelu_pytorch_tanh"
                    if spec.activation == "gelu_tanh"
                    else ACTIVATION_NAMES[spec.activation]
                ),
            ),
            hidden_size=2304,
            intermediate_size=9216,
            num_hidden_layers=26,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=256,
            tie_word_embeddings=True,
            **defaults,
        ),
        size(
            "query_pre_attn_scalar",
            "attention_scalar",
            256,
            encode=lambda spec: spec.attention_scalar or spec.head_width,
        ),
    )


_FORM = LLAMA_FORM | {
    "norm_position": "both",
    "norm_offset": True,
    "scale_embeddings": True,
}
GEMMA2 = Family(
    "gemma2",
    {"causal": "Gemma2ForCausalLM"},
    (
        *_list_gemma_rows(rope(), vocab_size=256000, max_position_embeddings=8192),
        _layers(),
        _cap("final_logit_softcapping", "logit_softcap", 30.0),
        _cap("attn_logit_softcapping", "attention_softcap", 50.0),
    ),
    constants=_FORM,
    freezes_pad=True,
)


def _read_bases(config: Config) -> Values:
    scaling = config.get("rope_scaling") or {}
    return {
        "rotary_base": read_layer_base(config, FULL, "rope_theta", 1e6, scaling),
        "local_rotary_base": read_layer_base(
            config, LOCAL, "rope_local_base_freq", 1e4, {}
        ),
    }


def _write_bases(spec: ModelSpec) -> Config:
    bases = {FULL: spec.rotary_base, LOCAL: spec.local_rotary_base or spec.rotary_base}
    return {
        "rope_theta": bases[FULL],
        "rope_local_base_freq": bases[LOCAL],
        "rope_parameters": {kind: write_rope(spec, bases[kind]) for kind in bases},
    }


GEMMA3 = Family(
    "gemma3_text",
    {"causal": "Gemma3ForCausalLM"},
    (
        *_list_gemma_rows(
            Row(_read_bases, _write_bases),
            vocab_size=262208,
            max_position_embeddings=131072,
        ),
        _layers(sliding_window_pattern=6),
        _cap("final_logit_softcapping", "logit_softcap", None),
        fixed(attn_logit_softcapping=None),
    ),
    constants=_FORM | {"qk_norm": "scaled"},
    inert="partial_rotary_factor original_max_position_embeddings "
    "_sliding_window_pattern",
    like="gemma2",
    freezes_pad=True,
)

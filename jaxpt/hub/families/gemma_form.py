"""What Gemma 1, 2 and 3's text models share."""

from typing import Any

from jaxpt.hub.entries import ATTENTION, GATED, HEAD_NORMS, Table
from jaxpt.hub.families.llama_form import LLAMA_FORM, list_rows, map_form
from jaxpt.hub.fields import (
    Config,
    FieldRow,
    Values,
    activation,
    check_type,
    fixed,
    refusal,
    size,
)
from jaxpt.hub.windows import read_last_global, write_last_global
from jaxpt.nn.model_spec import ModelSpec

GEMMA_FORM = LLAMA_FORM | {"norm_offset": True, "scale_embeddings": True}
IDS = {"bos_token_id": 2, "eos_token_id": 1}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of Gemma 2 and 3."""
    modules = {
        "input_layernorm": "attention_norm",
        **ATTENTION,
        **(HEAD_NORMS if spec.qk_norm == "scaled" else {}),
        "post_attention_layernorm": "attention_out_norm",
        "pre_feedforward_layernorm": "mlp_norm",
        **GATED,
        "post_feedforward_layernorm": "mlp_out_norm",
    }
    yield from map_form(spec, modules)


def _read_layers(config: Config) -> Values:
    name = "sliding_window_pattern"
    return read_last_global(config, name, config.get(name, 2))


def local_layers(**more: Any) -> FieldRow:
    """The row of windows; `more` are defaults of the class."""
    defaults = {"sliding_window": 4096, **more}
    return FieldRow(_read_layers, write_last_global, defaults, ("sliding_window",))


def cap(name: str, spec_field: str, default: float | None) -> FieldRow:
    """A soft cap; null is none."""

    def read(config: Config) -> Values:
        value = config.get(name, default)
        if value is None:
            return {spec_field: 0.0}
        check_type(name, value, (int, float), "a number or null")
        if value <= 0:
            raise refusal(name, value, "null or above 0")
        return {spec_field: float(value)}

    return FieldRow(read, lambda spec: {name: getattr(spec, spec_field) or None})


def _read_causal(config: Config) -> Values:
    value = config.get("use_bidirectional_attention")
    if value not in (None, False):
        raise refusal("use_bidirectional_attention", value, "null or false")
    return {}


ONE_WAY = FieldRow(_read_causal, lambda _: {"use_bidirectional_attention": False})


SCALAR = size(
    "query_pre_attn_scalar",
    "attention_scalar",
    256,
    encode=lambda spec: spec.attention_scalar or spec.head_width,
)


def list_gemma_rows(
    rotary: FieldRow, sides: FieldRow = ONE_WAY, **defaults: Any
) -> tuple[FieldRow, ...]:
    """The rows that Gemma 2 and 3 share, without those of windows and caps.

    Args:
      sides: that of `use_bidirectional_attention`.
    """
    return (
        fixed(is_causal=True, attention_chunk_size=None),
        fixed(attention_bias=False, is_written=True),
        sides,
        *list_rows(
            rotary,
            activation("hidden_activation", "gelu_pytorch_tanh"),
            hidden_size=2304,
            intermediate_size=9216,
            num_hidden_layers=26,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=256,
            tie_word_embeddings=True,
            **defaults,
        ),
        SCALAR,
    )

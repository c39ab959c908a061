"""Ettin's decoders: ModernBERT's form, whose window counts the token itself."""

from jaxpt.hub.families.modernbert_form import (
    COPIES,
    FORM,
    INERT,
    LAYER_DEFAULTS,
    list_rows,
    list_tensors,
    read_layers,
    write_layers,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, fixed
from jaxpt.nn.model_spec import ModelSpec


def _read_layers(config: Config) -> Values:
    """Which layers have a window, its width, and the rotary base of either kind."""
    width = config["local_attention"]
    return read_layers(config, 0 if width is None else width // 2, 2)


def _write_layers(spec: ModelSpec) -> Config:
    width = {"local_attention": 2 * (spec.window + 1)} if spec.window else {}
    return {**write_layers(spec), **width}


FAMILY = Family(
    "modernbert-decoder",
    {"causal": "ModernBertDecoderForCausalLM"},
    (
        fixed(is_causal=True),
        *list_rows(
            FieldRow(
                _read_layers,
                _write_layers,
                LAYER_DEFAULTS,
                nullable=("local_attention",),
            )
        ),
    ),
    list_tensors,
    body="model.",
    constants=FORM,
    inert=INERT,
    copies=COPIES,
    freezes_pad=True,
    ids={"bos_token_id": 50281, "eos_token_id": 50282},
)

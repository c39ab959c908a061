"""Granite 3 and 4's dense models: Llama's form with four factors."""

from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    RATE,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, Config, FieldRow, Values, fixed, refusal
from jaxpt.nn.model_spec import ModelSpec

# In the order of `ModelSpec.multipliers`.
_NAMES = ("embedding_multiplier", "residual_multiplier", "logits_scaling")
_ATTENTION = "attention_multiplier"


def _read_factors(config: Config) -> Values:
    """The factors; that of attention is one over the root of an integer."""
    for name in (*_NAMES, _ATTENTION):
        if config[name] <= 0:
            raise refusal(name, config[name], "above 0")
    scalar = max(1, round(config[_ATTENTION] ** -2))
    if abs(scalar**-0.5 / config[_ATTENTION] - 1) > 1e-6:
        raise refusal(_ATTENTION, config[_ATTENTION], "1 / sqrt(n) of an integer n")
    factors = tuple(float(config[name]) for name in _NAMES)
    is_one = factors == (1.0, 1.0, 1.0)
    return {"attention_scalar": scalar, "multipliers": () if is_one else factors}


def _write_factors(spec: ModelSpec) -> Config:
    values = spec.multipliers or (1.0, 1.0, 1.0)
    factors: Config = dict(zip(_NAMES, values, strict=True))
    return factors | {_ATTENTION: spec.attention_divisor**-0.5}


FAMILY = Family(
    "granite",
    {"causal": "GraniteForCausalLM"},
    (
        CAUSAL,
        fixed(attention_bias=False, mlp_bias=False, is_written=True),
        *list_rows(),
        FieldRow(
            _read_factors, _write_factors, dict.fromkeys((*_NAMES, _ATTENTION), 1.0)
        ),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM,
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
    ids={"bos_token_id": 1, "eos_token_id": 2},
    rate=RATE,
)

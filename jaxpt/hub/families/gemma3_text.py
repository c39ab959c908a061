"""Gemma 3's text models: as Gemma 2, with norms of queries and keys and two bases.

With `use_bidirectional_attention` (EmbeddingGemma) a token attends to all others, and
in local layers to half of `sliding_window` on either side.
"""

from jaxpt.hub.families.gemma_form import (
    GEMMA_FORM,
    IDS,
    cap,
    list_gemma_rows,
    list_tensors,
    local_layers,
)
from jaxpt.hub.families.llama_form import COPIES, RATE
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, fixed, refusal
from jaxpt.hub.rotary import MAX_LENGTH, read_layer_rope, write_layer_ropes
from jaxpt.hub.windows import FULL, LOCAL
from jaxpt.nn.model_spec import ModelSpec

_BOTH = "use_bidirectional_attention"


def _read_bases(config: Config) -> Values:
    scaling, length = config.get("rope_scaling") or {}, config[MAX_LENGTH]
    local = read_layer_rope(config, LOCAL, "rope_local_base_freq", 1e4, {})
    return {
        **read_layer_rope(config, FULL, "rope_theta", 1e6, scaling, length),
        "local_rotary_base": local["rotary_base"],
    }


def _write_bases(spec: ModelSpec) -> Config:
    return {
        "rope_theta": spec.rotary_base,
        "rope_local_base_freq": spec.local_rotary_base or spec.rotary_base,
        "rope_parameters": write_layer_ropes(spec),
    }


def _read_sides(config: Config) -> Values:
    """Nothing: whether a text is read in both directions is a model's purpose."""
    if config.get(_BOTH) not in (None, False, True):
        raise refusal(_BOTH, config[_BOTH], "true, false or null")
    return {}


def _halve(config: Config) -> Config:
    """The config with the window that the class makes of its two sides."""
    width = config.get("sliding_window", 4096)
    if not config.get(_BOTH) or type(width) is not int:
        return config
    return config | {"sliding_window": width // 2 + 1}


def _double(config: Config) -> Config:
    """The reverse of `_halve`."""
    if not config.get(_BOTH):
        return config
    return config | {"sliding_window": 2 * (config["sliding_window"] - 1)}


FAMILY = Family(
    "gemma3_text",
    {"causal": "Gemma3ForCausalLM", "masked": "Gemma3ForCausalLM"},
    (
        *list_gemma_rows(
            FieldRow(_read_bases, _write_bases),
            FieldRow(_read_sides, lambda spec: {_BOTH: False}),
            vocab_size=262208,
            max_position_embeddings=131072,
        ),
        local_layers(sliding_window_pattern=6),
        cap("final_logit_softcapping", "logit_softcap", None),
        fixed(attn_logit_softcapping=None),
    ),
    list_tensors,
    body="model.",
    constants=GEMMA_FORM | {"norm_position": "both", "qk_norm": "scaled"},
    inert="partial_rotary_factor original_max_position_embeddings "
    "_sliding_window_pattern",
    copies=COPIES,
    freezes_pad=True,
    ids=IDS,
    complete=_halve,
    restore=_double,
    purpose_fields={"masked": {_BOTH: True}},
    rate=RATE,
)

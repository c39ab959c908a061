"""Gemma 3's text models: as Gemma 2, with norms of queries and keys and two bases."""

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
from jaxpt.hub.fields import Config, FieldRow, Values, fixed
from jaxpt.hub.rotary import MAX_LENGTH, read_layer_rope, write_layer_ropes
from jaxpt.hub.windows import FULL, LOCAL
from jaxpt.nn.model_spec import ModelSpec


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


FAMILY = Family(
    "gemma3_text",
    {"causal": "Gemma3ForCausalLM"},
    (
        *list_gemma_rows(
            FieldRow(_read_bases, _write_bases),
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
    rate=RATE,
)

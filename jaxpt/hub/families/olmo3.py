"""OLMo 3: as OLMo 2, with local layers between every n-th."""

from jaxpt.hub.families.llama_form import COPIES, RATE, list_rows
from jaxpt.hub.families.olmo_form import OLMO_FORM, list_tensors
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, fixed
from jaxpt.hub.rotary import MAX_LENGTH, read_layer_rope, write_layer_ropes
from jaxpt.hub.windows import FULL, LOCAL, read_last_global, write_last_global
from jaxpt.nn.model_spec import ModelSpec


def _read_layers(config: Config) -> Values:
    """The window of local layers, every fourth being global, and either base."""
    layers = read_last_global(config, "layer_types", 4)
    scaling, length = config.get("rope_scaling") or {}, config[MAX_LENGTH]
    full = read_layer_rope(config, FULL, "rope_theta", 500000.0, scaling, length)
    # The class takes rope_theta for the global layers only.
    local = read_layer_rope(config, LOCAL, "", 500000.0, {})
    bases = {"local_rotary_base": local["rotary_base"]} if layers else {}
    return layers | full | bases


def _write_layers(spec: ModelSpec) -> Config:
    return {
        **write_last_global(spec),
        "rope_theta": spec.rotary_base,
        "rope_parameters": write_layer_ropes(spec),
    }


FAMILY = Family(
    "olmo3",
    {"causal": "Olmo3ForCausalLM"},
    (
        fixed(is_causal=True, attention_chunk_size=None),
        fixed(attention_bias=False, is_written=True),
        *list_rows(
            FieldRow(
                _read_layers,
                _write_layers,
                {"sliding_window": 4096},
                ("sliding_window",),
            ),
            vocab_size=50304,
            rms_norm_eps=1e-5,
        ),
    ),
    list_tensors,
    body="model.",
    constants=OLMO_FORM,
    inert="partial_rotary_factor original_max_position_embeddings",
    copies=COPIES,
    freezes_pad=True,
    ids={"eos_token_id": 50279},
    rate=RATE,
)

"""SmolLM3: Llama's form, with layers without rotary positions."""

from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    RATE,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, fixed, refusal
from jaxpt.hub.rotary import rope
from jaxpt.hub.windows import FULL
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


FAMILY = Family(
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
        FieldRow(_read_unrotated, _write_unrotated, {"no_rope_layer_interval": 4}),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM,
    inert="sliding_window",
    freezes_pad=True,
    copies=COPIES,
    buffers=BUFFERS,
    ids={"bos_token_id": 128000, "eos_token_id": 128001},
    rate=RATE,
)

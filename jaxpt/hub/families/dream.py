"""Dream (Ye et al. 2025): Qwen 2 that reads in both directions, for masked diffusion.

transformers loads it with the repository's code only, which is not run here: its config
is read as data. As in the causal model that it began as, a token is predicted at the
position before it.
"""

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

_CODE = "Dream-org/Dream-v0-Base-7B--"
_AUTO_MAP = {
    "AutoConfig": f"{_CODE}configuration_dream.DreamConfig",
    "AutoModel": f"{_CODE}modeling_dream.DreamModel",
}


def _read_width(config: Config) -> Values:
    """Nothing, if heads have the width that the code gives them."""
    width = config["hidden_size"] // config["num_attention_heads"]
    if config["head_dim"] not in (None, width):
        raise refusal("head_dim", config["head_dim"], f"null or {width}")
    return {}


def _complete(config: Config) -> Config:
    """The config, if all its fields are known."""
    return FAMILY.check_known(config, _IDLE)


FAMILY = Family(
    "Dream",
    {"causal": "DreamModel"},
    (
        FieldRow(lambda config: {}, lambda spec: {"auto_map": _AUTO_MAP}),
        fixed(use_sliding_window=False, is_written=True),
        *list_rows(
            vocab_size=151936,
            num_key_value_heads=32,
            intermediate_size=22016,
            max_position_embeddings=32768,
        ),
        FieldRow(_read_width, lambda spec: {}),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM | {"qkv_bias": "yes"},
    inert="mask_token_id max_window_layers sliding_window",
    complete=_complete,
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
    rate=RATE,
    settings={"masked_diffusion.shift": True},
    objective="masked_diffusion",
    own_mask=True,
)
# Those whose rows check them, and those of the repository's older configs.
_IDLE = """
    is_causal is_encoder_decoder original_max_position_embeddings
    partial_rotary_factor rope_parameters rope_scaling rope_theta tokenizer_class
    use_sliding_window
""".split()

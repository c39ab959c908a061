"""Marian: norms after attention and MLP, sinusoidal positions, a bias of the head."""

from jaxpt.hub.families.bart_form import (
    ALIASES,
    COPIES,
    INERT,
    SINUSOIDAL,
    has_head_bias,
    list_rows,
    list_sinusoids,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, fixed, refusal
from jaxpt.nn.model_spec import ModelSpec


def _read_target(config: Config) -> Values:
    size, allowed = config["decoder_vocab_size"], config["vocab_size"]
    if size not in (None, 0, allowed):
        raise refusal("decoder_vocab_size", size, f"vocab_size={allowed}")
    return {}


def _write_target(spec: ModelSpec) -> Config:
    return {"decoder_vocab_size": spec.vocab_size}


FAMILY = Family(
    "marian",
    {"seq2seq": "MarianMTModel"},
    (
        *list_rows(58101, (12, 12), 1024, 16, 4096, 1024),
        fixed(share_encoder_decoder_embeddings=True, is_written=True),
        FieldRow(_read_target, _write_target, {"decoder_vocab_size": None}),
        # Fields of older versions of the class, which published checkpoints have.
        fixed(
            normalize_before=False,
            normalize_embedding=False,
            add_final_layer_norm=False,
            static_position_embeddings=True,
        ),
    ),
    list_tensors,
    body="model.",
    constants=SINUSOIDAL | {"norm_position": "post", "post_embed_norm": False},
    aliases=ALIASES,
    # The last one is the presence of the bias, which the tensors determine.
    inert=INERT + "add_bias_logits",
    unwritten={"head_bias": has_head_bias},
    computed=list_sinusoids,
    copies=COPIES,
    freezes_pad=True,
    ids={
        "eos_token_id": 0,
        "pad_token_id": 58100,
        "decoder_start_token_id": 58100,
        "forced_eos_token_id": 0,
    },
)

"""LongT5 with local attention in its encoder: T5 with a window.

transformers computes local attention in blocks of `local_radius` + 1 tokens, of which
each reads three, and masks the tokens farther than `local_radius`: a window. Transient
global attention adds a token for each block of 16, and has no counterpart.
"""

from jaxpt.hub.families.t5_form import (
    ALIASES,
    COPIES,
    IDS,
    INERT,
    T5_FORM,
    count_decoder,
    is_head_tied,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, refusal, require, size


def _read_scale(config: Config) -> Values:
    """Whether the head's input is scaled; whether it is tied, the tensors say."""
    is_tied = config["tie_word_embeddings"]
    is_scaled = config.get("scale_decoder_outputs", is_tied)
    require({"scale_decoder_outputs": is_scaled}, scale_decoder_outputs=bool(is_scaled))
    return {"scale_logits": bool(is_scaled)}


def _read_kind(config: Config) -> Values:
    kind = config.get("encoder_attention_type", "local")
    if kind != "local":
        allowed = "'local': tokens that summarise blocks have no counterpart"
        raise refusal("encoder_attention_type", kind, allowed)
    return {}


FAMILY = Family(
    "longt5",
    {"seq2seq": "LongT5ForConditionalGeneration"},
    (
        *list_rows(
            FieldRow(
                _read_scale,
                lambda spec: {"tie_word_embeddings": spec.scale_logits},
                {"tie_word_embeddings": True},
            ),
            vocab_size=32128,
            num_layers=6,
            num_heads=8,
            d_ff=2048,
            feed_forward_proj="relu",
        ),
        FieldRow(_read_kind, lambda spec: {"encoder_attention_type": "local"}),
        size("local_radius", "window", 127),
    ),
    lambda spec, head: list_tensors(spec, head, encoder="LocalSelfAttention"),
    constants=T5_FORM | {"decoder_window": 0},
    aliases=ALIASES,
    inert=INERT.replace("classifier_dropout", "global_block_size")
    + "decoder_start_token_id",
    complete=lambda config: count_decoder(config, 6),
    unwritten={"tie_embeddings": is_head_tied},
    copies=COPIES,
    ids=IDS,
    rate=1e-4,
)

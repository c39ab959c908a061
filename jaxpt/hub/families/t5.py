"""T5 1.0 and 1.1, and ByT5."""

from jaxpt.hub.families.t5_form import (
    ALIASES,
    BUFFERS,
    COPIES,
    IDS,
    INERT,
    T5_FORM,
    count_decoder,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, Values, require


def _read_tie(config: Config) -> Values:
    """T5 1.0 ties its head and scales the head's input; 1.1 does neither."""
    is_tied = config.get("tie_word_embeddings") is not False
    is_tied = config.get("scale_decoder_outputs", is_tied)
    require({"scale_decoder_outputs": is_tied}, scale_decoder_outputs=bool(is_tied))
    return {"tie_embeddings": bool(is_tied), "scale_logits": bool(is_tied)}


FAMILY = Family(
    "t5",
    {"seq2seq": "T5ForConditionalGeneration"},
    list_rows(
        FieldRow(_read_tie, lambda spec: {"tie_word_embeddings": spec.tie_embeddings}),
        vocab_size=32128,
        num_layers=6,
        num_heads=8,
        d_ff=2048,
        feed_forward_proj="relu",
    ),
    list_tensors,
    constants=T5_FORM,
    aliases=ALIASES,
    inert=INERT,
    complete=lambda config: count_decoder(config, 6),
    copies=COPIES,
    buffers=BUFFERS,
    ids=IDS,
    rate=1e-4,
)

"""UMT5: mT5 with a table of relative positions for each layer.

A tied head reads scaled states, an untied one does not, as in transformers 4 and as the
published models were trained. Departure: transformers 5 takes every config for a tied
one, and so also scales what the published, untied heads read.
"""

from jaxpt.hub.families.t5_form import (
    ALIASES,
    COPIES,
    IDS,
    INERT,
    T5_FORM,
    count_decoder,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import field

FAMILY = Family(
    "umt5",
    {"seq2seq": "UMT5ForConditionalGeneration"},
    list_rows(
        field("tie_word_embeddings", ("tie_embeddings", "scale_logits"), True),
        vocab_size=250112,
        num_layers=8,
        num_heads=6,
        d_ff=1024,
        feed_forward_proj="gated-gelu",
    ),
    list_tensors,
    constants=T5_FORM | {"relative_every_layer": True},
    aliases=ALIASES,
    inert=INERT + "decoder_start_token_id",
    complete=lambda config: count_decoder(config, 8),
    copies=COPIES,
    ids=IDS,
    rate=1e-4,
)

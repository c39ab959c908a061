"""mT5: the form of T5 1.1.

Whether the head is tied is known from the tensors only: published configs say that it
is not, and transformers reads them as if they said that it is.
"""

from jaxpt.hub.families.t5_form import (
    ALIASES,
    BUFFERS,
    COPIES,
    IDS,
    INERT,
    T5_FORM,
    UNREAD_TIE,
    count_decoder,
    is_head_tied,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family

FAMILY = Family(
    "mt5",
    {"seq2seq": "MT5ForConditionalGeneration"},
    list_rows(
        UNREAD_TIE,
        vocab_size=250112,
        num_layers=8,
        num_heads=6,
        d_ff=1024,
        feed_forward_proj="gated-gelu",
    ),
    list_tensors,
    constants=T5_FORM,
    aliases=ALIASES,
    inert=INERT + "tie_word_embeddings decoder_start_token_id",
    complete=lambda config: count_decoder(config, 8),
    unwritten={"tie_embeddings": is_head_tied},
    copies=COPIES,
    buffers=BUFFERS,
    ids=IDS,
    rate=1e-4,
)

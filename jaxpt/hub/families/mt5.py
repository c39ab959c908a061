"""mT5: the form of T5 1.1.

Whether the head is tied is known from the tensors only: published configs say that it
is not, and transformers reads them as if they said that it is.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

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
from jaxpt.hub.fields import FieldRow


def _is_head_tied(tensors: Mapping[str, Any]) -> bool:
    head, table = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    return head is None or table is None or np.array_equal(head, table)


FAMILY = Family(
    "mt5",
    {"seq2seq": "MT5ForConditionalGeneration"},
    list_rows(
        FieldRow(
            lambda _: {}, lambda spec: {"tie_word_embeddings": spec.tie_embeddings}
        ),
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
    unwritten={"tie_embeddings": _is_head_tied},
    copies=COPIES,
    buffers=BUFFERS,
    ids=IDS,
    rate=1e-4,
)

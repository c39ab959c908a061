"""data2vec for text: RoBERTa's form."""

from dataclasses import replace
from functools import partial

from jaxpt.hub.families import roberta
from jaxpt.hub.families.bert_form import name_copies

_PREFIX = "data2vec_text"
FAMILY = replace(
    roberta.FAMILY,
    name="data2vec-text",
    heads={"masked": "Data2VecTextForMaskedLM"},
    rows=roberta.list_all_rows(30522),
    tensors=partial(roberta.list_tensors, prefix=_PREFIX),
    body=f"{_PREFIX}.",
    copies=name_copies(_PREFIX, "lm_head"),
    buffers=rf"{_PREFIX}\.embeddings\.position_ids",
)

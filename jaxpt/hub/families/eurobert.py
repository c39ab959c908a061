"""EuroBERT: Llama's form, as an encoder."""

from jaxpt.hub.families.llama_form import (
    BUFFERS,
    COPIES,
    LLAMA_FORM,
    list_rows,
    list_tensors,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import fixed
from jaxpt.hub.rotary import rope

FAMILY = Family(
    "eurobert",
    {"masked": "EuroBertForMaskedLM"},
    (
        # The last bias is the head's, too.
        fixed(attention_bias=False, mlp_bias=False, is_written=True),
        *list_rows(
            rope(),
            vocab_size=128256,
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=12,
            max_position_embeddings=8192,
            rms_norm_eps=1e-5,
        ),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM,
    inert="pretraining_tp mask_token_id classifier_pooling",
    copies=COPIES,
    buffers=BUFFERS,
    freezes_pad=True,
)

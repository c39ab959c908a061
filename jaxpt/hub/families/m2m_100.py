"""M2M-100 and NLLB: norms before attention and MLP, fairseq's sinusoidal positions."""

from jaxpt.hub.families.bart_form import ALIASES, COPIES, INERT, list_rows, list_tensors
from jaxpt.hub.families.roberta import PADDING
from jaxpt.hub.family import Family

FAMILY = Family(
    "m2m_100",
    {"seq2seq": "M2M100ForConditionalGeneration"},
    (
        *list_rows(
            128112,
            (12, 12),
            1024,
            16,
            4096,
            1024,
            activation_name="relu",
            scale_embedding=True,
            attention_dropout=0.1,
        ),
        PADDING,
    ),
    list_tensors,
    body="model.",
    constants={"positions": "sinusoidal", "sinusoids": "fairseq"},
    aliases=ALIASES,
    inert=INERT.replace("forced_eos_token_id", ""),
    copies=COPIES,
    # Its code computes the tables of positions, which old checkpoints have, too.
    buffers=r"model\.(en|de)coder\.embed_positions\.weights",
    counts_from_pad=True,
    freezes_pad=True,
    ids={"bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2},
)

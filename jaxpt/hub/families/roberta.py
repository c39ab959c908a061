"""RoBERTa, whose form XLM-R, CamemBERT and others have.

Position 0 is the row after that of the padding (fairseq: padding_idx + 1).
"""

from jaxpt.hub.entries import Table, map_head
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    GELU,
    list_body,
    list_rows,
    name_copies,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import NO_ROPE, Config, FieldRow, field, refusal
from jaxpt.hub.task_names import ANSWERS, QUESTIONS, TAGS, TEXTS, TOKENS, pooled
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str, prefix: str = "roberta") -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, prefix)
    yield from map_head(spec, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


def _decode_pad(pad: int, config: Config) -> int:
    if pad < 0:
        raise refusal("pad_token_id", pad, "at least 0")
    return pad + 1


PADDING = field(
    "pad_token_id",
    "position_offset",
    1,
    _decode_pad,
    lambda spec: spec.position_offset - 1,
)


def list_all_rows(vocab_size: int) -> tuple[FieldRow, ...]:
    """The rows of a family with this default."""
    return (
        *list_rows(vocab_size),
        GELU,
        PADDING,
        field(
            "max_position_embeddings",
            "max_len",
            512,
            lambda length, config: length - config["pad_token_id"] - 1,
            lambda spec: spec.max_len + spec.position_offset,
        ),
    )


FAMILY = Family(
    "roberta",
    {"masked": "RobertaForMaskedLM"},
    list_all_rows(50265),
    list_tensors,
    body="roberta.",
    constants=BERT_FORM | {"activation": "gelu"},
    inert=NO_ROPE + "classifier_dropout",
    copies=name_copies("roberta", "lm_head"),
    buffers=r"roberta\.embeddings\.position_ids",
    unused=r"pooler\..*",
    counts_from_pad=True,
    freezes_pad=True,
    task_heads={
        TEXTS: pooled("roberta", "classifier.dense", "classifier.out_proj"),
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

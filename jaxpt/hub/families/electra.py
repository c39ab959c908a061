"""ELECTRA: its two networks, or either alone."""

from jaxpt.hub.entries import Table, map_head, map_linear
from jaxpt.hub.families.bert_form import (
    BERT_FORM,
    GELU,
    LENGTH,
    list_body,
    list_rows,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import NO_ROPE, field
from jaxpt.hub.task_names import (
    ANSWERS,
    CHOICES,
    QUESTIONS,
    TAGS,
    TEXTS,
    TOKENS,
    HeadNames,
    pooled,
)
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, "electra")
    if head != "discriminator":
        hf_prefix = "generator_predictions"
        dense, norm = f"{hf_prefix}.dense", f"{hf_prefix}.LayerNorm"
        yield from map_head(spec, dense, norm, "generator_lm_head.bias")
    else:
        hf_prefix = "discriminator_predictions"
        yield from map_linear(spec, f"{hf_prefix}.dense", "score/Dense_0")
        yield from map_linear(spec, f"{hf_prefix}.dense_prediction", "score/out")


# How transformers' ElectraSequenceSummary pools the states of an option.
_SUMMARY = (
    ("summary_type", "first"),
    ("summary_use_proj", True),
    ("summary_activation", "gelu"),
)
FAMILY = Family(
    "electra",
    {
        "masked": "ElectraForMaskedLM",  # a generator alone
        "generator": "ElectraForMaskedLM",
        "discriminator": "ElectraForPreTraining",
    },
    (
        *list_rows(30522, 256, 4, 1024),
        GELU,
        LENGTH,
        field(
            "embedding_size",
            "embedding_size",
            128,
            lambda width, config: 0 if width == config["hidden_size"] else width,
            "embedding_dim",
        ),
    ),
    list_tensors,
    body="electra.",
    constants=BERT_FORM | {"activation": "gelu"},
    inert=NO_ROPE + "classifier_dropout summary_type summary_use_proj "
    "summary_activation summary_last_dropout",
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    buffers=r"electra\.embeddings\.position_ids",
    marks={"discriminator": "discriminator_predictions."},
    freezes_pad=True,
    task_heads={
        TEXTS: pooled("electra_dense", "classifier.dense", "classifier.out_proj"),
        CHOICES: (
            HeadNames(
                "electra_dense",
                {"sequence_summary.summary": "pool", "classifier": "out"},
                settings=_SUMMARY,
            ),
        ),
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
    rate=1e-4,
)

"""RemBERT (Chung et al. 2021): narrow embeddings and a head with a wider table."""

from jaxpt.hub.entries import Table, map_linear, map_norm
from jaxpt.hub.families.bert_form import BERT_FORM, LENGTH, list_body, list_rows
from jaxpt.hub.family import Family
from jaxpt.hub.fields import NO_ROPE, Config, activation, field, refusal
from jaxpt.hub.task_names import (
    ANSWERS,
    CHOICES,
    QUESTIONS,
    TAGS,
    TEXTS,
    TOKENS,
    pooled,
)
from jaxpt.nn.model_spec import ModelSpec

_IN, _OUT = "input_embedding_size", "output_embedding_size"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    project = "encoder.embedding_hidden_mapping_in"
    yield from list_body(spec, "rembert", project=project)
    yield from map_linear(spec, "cls.predictions.dense", "head/transform")
    yield from map_norm(spec, "cls.predictions.LayerNorm", "head/norm")
    yield from map_linear(spec, "cls.predictions.decoder", "head/out", bias=True)


def _read_width(width: int, config: Config) -> int:
    """The embeddings' width: the class has a projection from it, always."""
    if width < 1 or width == config["hidden_size"]:
        allowed = f"at least 1, and not hidden_size={config['hidden_size']}"
        raise refusal(_IN, width, allowed)
    return width


def _read_out(width: int, config: Config) -> int:
    if width < 1:
        raise refusal(_OUT, width, "at least 1")
    return width


_POOLED = pooled("bert", "rembert.pooler.dense", "classifier")
FAMILY = Family(
    "rembert",
    {"masked": "RemBertForMaskedLM"},
    (
        *list_rows(250300, 1152, 18, 4608, layers=32, is_tied=False, dropout=0.0),
        LENGTH,
        activation("hidden_act", "gelu"),
        field(_IN, "embedding_size", 256, _read_width, "embedding_dim"),
        field(_OUT, "transform_size", 1664, _read_out, "transform_width"),
    ),
    list_tensors,
    body="rembert.",
    constants=BERT_FORM | {"tie_embeddings": False},
    inert=NO_ROPE + "classifier_dropout_prob",
    buffers=r"rembert\.embeddings\.position_ids",
    unused=r"pooler\..*",
    freezes_pad=True,
    ids={"bos_token_id": 312, "eos_token_id": 313},
    task_heads={
        TEXTS: _POOLED,
        CHOICES: _POOLED,
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

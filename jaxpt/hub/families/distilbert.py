"""DistilBERT."""

from jaxpt.hub.entries import (
    Table,
    TensorEntry,
    map_head,
    map_layers,
    map_norm,
    name_attention,
)
from jaxpt.hub.families.bert_form import LENGTH
from jaxpt.hub.family import Family
from jaxpt.hub.fields import NO_ROPE, activation, field, fixed
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


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    hf_prefix = "distilbert.embeddings"
    yield TensorEntry(f"{hf_prefix}.word_embeddings.weight", ("embed/tokens",))
    yield TensorEntry(
        f"{hf_prefix}.position_embeddings.weight", ("embed/positions/table",)
    )
    yield from map_norm(spec, f"{hf_prefix}.LayerNorm", "embed/norm")
    modules = name_attention("attention.{}_lin", out="out") | {
        "sa_layer_norm": "attention_norm",
        "ffn.lin1": "mlp/up",
        "ffn.lin2": "mlp/down",
        "output_layer_norm": "mlp_norm",
    }
    layers = "distilbert.transformer.layer"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", modules)
    yield from map_head(
        spec, "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
    )


_POOLED = pooled("distilbert", "pre_classifier", "classifier")
FAMILY = Family(
    "distilbert",
    {"masked": "DistilBertForMaskedLM"},
    (
        fixed(is_encoder_decoder=False),
        fixed(tie_word_embeddings=True, is_written=True),
        field("vocab_size", "vocab_size", 30522),
        field("n_layers", "num_layers", 6),
        field("dim", "d_model", 768),
        field("n_heads", "num_heads", 12),
        field("hidden_dim", "d_ff", 3072),
        LENGTH,
        activation("activation", "gelu"),
        field("dropout", ("dropout", "embed_dropout"), 0.1),
        field("attention_dropout", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="distilbert.",
    constants={
        "norm_position": "post",
        "norm_epsilon": 1e-12,
        "head_transform": True,
        "head_bias": True,
    },
    aliases={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    inert=NO_ROPE + "qa_dropout seq_classif_dropout sinusoidal_pos_embds",
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    freezes_pad=True,
    task_heads={
        TEXTS: _POOLED,
        CHOICES: _POOLED,
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

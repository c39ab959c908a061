"""What BERT, RoBERTa, ELECTRA, MPNet and their relatives share."""

from jaxpt.hub.entries import (
    Modules,
    Table,
    TensorEntry,
    map_head,
    map_layers,
    map_linear,
    map_norm,
)
from jaxpt.hub.fields import FieldRow, field, fixed
from jaxpt.nn.model_spec import ModelSpec

# transformers' classes cannot be without segment types.
_TYPES = field(
    "type_vocab_size", "num_types", 2, encode=lambda spec: max(1, spec.num_types)
)
LENGTH = field("max_position_embeddings", "max_len", 512)
# The head has GELU whatever the layers have, so the layers must have it, too.
GELU = fixed(hidden_act="gelu", is_written=True)
BERT_FORM = {
    "norm_position": "post",
    "head_transform": True,
    "head_bias": True,
    "init": "truncated",
}
MODULES = {
    "attention.self.query": "attention/query",
    "attention.self.key": "attention/key",
    "attention.self.value": "attention/value",
    "attention.output.dense": "attention/out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "mlp/up",
    "output.dense": "mlp/down",
    "output.LayerNorm": "mlp_norm",
}


def list_rows(
    vocab_size: int,
    width: int = 768,
    heads: int = 12,
    mlp_width: int = 3072,
    layers: int = 12,
    has_types: bool = True,
    epsilon: float = 1e-12,
    positions: str = "absolute",
    is_tied: bool = True,
    dropout: float = 0.1,
) -> tuple[FieldRow, ...]:
    """The rows that all share, with the defaults of a class.

    Args:
      positions: `position_embedding_type`, a field of the classes' older versions.
    """
    types = (_TYPES,) if has_types else ()
    return (
        fixed(position_embedding_type=positions, is_written=positions != "absolute"),
        fixed(
            is_decoder=False,
            is_encoder_decoder=False,
            add_cross_attention=False,
        ),
        fixed(tie_word_embeddings=is_tied, is_written=True),
        field("vocab_size", "vocab_size", vocab_size),
        field("num_hidden_layers", "num_layers", layers),
        field("hidden_size", "d_model", width),
        field("num_attention_heads", "num_heads", heads),
        field("intermediate_size", "d_ff", mlp_width),
        *types,
        field("layer_norm_eps", "norm_epsilon", epsilon),
        field("hidden_dropout_prob", ("dropout", "embed_dropout"), dropout),
        field("attention_probs_dropout_prob", "attention_dropout", dropout),
        field("initializer_range", "init_std", 0.02),
    )


def list_body(
    spec: ModelSpec,
    prefix: str,
    modules: Modules = MODULES,
    project: str = "embeddings_project",
) -> Table:
    """The entries of embeddings and layers.

    Args:
      project: the name of the layer from embeddings to hidden states, if there is one.
    """
    hf_prefix = f"{prefix}.embeddings"
    yield TensorEntry(f"{hf_prefix}.word_embeddings.weight", ("embed/tokens",))
    yield TensorEntry(
        f"{hf_prefix}.position_embeddings.weight", ("embed/positions/table",)
    )
    if spec.num_types:
        yield TensorEntry(f"{hf_prefix}.token_type_embeddings.weight", ("embed/types",))
    if spec.norms_embeddings:
        yield from map_norm(spec, f"{hf_prefix}.LayerNorm", "embed/norm")
    if spec.embedding_dim != spec.d_model:
        yield from map_linear(spec, f"{prefix}.{project}", "project")
    layers = f"{prefix}.encoder.layer"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", modules)


def list_heads(spec: ModelSpec, head: str, prefix: str) -> Table:
    """The entries of BERT's two heads."""
    hf_prefix = "cls.predictions"
    dense, norm = f"{hf_prefix}.transform.dense", f"{hf_prefix}.transform.LayerNorm"
    yield from map_head(spec, dense, norm, f"{hf_prefix}.bias")
    if head == "pretraining":
        yield from map_linear(spec, f"{prefix}.pooler.dense", "pair_score/pool")
        yield from map_linear(spec, "cls.seq_relationship", "pair_score/out")


def name_copies(prefix: str, head: str) -> dict[str, str]:
    """The copies of a tied head's tensors, whose names begin with `head`."""
    return {
        f"{head}.decoder.weight": f"{prefix}.embeddings.word_embeddings.weight",
        f"{head}.decoder.bias": f"{head}.bias",
    }

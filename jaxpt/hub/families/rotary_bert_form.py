"""What NomicBERT, GTE and Jina Embeddings 3 share: BERT's form, rotary positions."""

from jaxpt.hub.entries import Modules, Table, TensorEntry, map_layers, map_norm
from jaxpt.hub.families.bert_form import BERT_FORM
from jaxpt.hub.fields import FieldRow, field, fixed, size
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

ROTARY_BERT_FORM = BERT_FORM | {"positions": "rotary"}


def list_rows(
    vocab_size: int,
    types: FieldRow,
    epsilon: float,
    theta: float,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    width: int = 768,
    heads: int = 12,
    mlp_width: int = 3072,
    layers: int = 12,
    length: int = 8192,
) -> tuple[FieldRow, ...]:
    """The rows that all share, with the defaults of a class.

    Args:
      types: that of the number of segment types.
      theta: the base of the rotary positions.
    """
    return (
        fixed(is_encoder_decoder=False),
        fixed(tie_word_embeddings=True, is_written=True),
        field("vocab_size", "vocab_size", vocab_size),
        field("num_hidden_layers", "num_layers", layers),
        field("hidden_size", "d_model", width),
        size("num_attention_heads", "num_heads", heads),
        size(
            "head_dim",
            "head_dim",
            None,
            lambda config: config["hidden_size"] // config["num_attention_heads"],
            "head_width",
        ),
        field("intermediate_size", "d_ff", mlp_width),
        field("max_position_embeddings", "max_len", length),
        types,
        field("layer_norm_eps", "norm_epsilon", epsilon),
        rope(theta=theta),
        field("hidden_dropout_prob", ("dropout", "embed_dropout"), dropout),
        field("attention_probs_dropout_prob", "attention_dropout", attention_dropout),
        field("initializer_range", "init_std", 0.02),
    )


def list_body(
    spec: ModelSpec, prefix: str, norm: str, layers: str, modules: Modules
) -> Table:
    """The entries of embeddings and layers.

    Args:
      norm: the name of the embeddings' norm.
      layers: that of the list of layers.
    """
    embeddings = f"{prefix}.embeddings"
    yield TensorEntry(f"{embeddings}.word_embeddings.weight", ("embed/tokens",))
    if spec.num_types:
        yield TensorEntry(
            f"{embeddings}.token_type_embeddings.weight", ("embed/types",)
        )
    yield from map_norm(spec, f"{prefix}.{norm}", "embed/norm")
    layers = f"{prefix}.{layers}"
    yield from map_layers(spec, spec.num_layers, layers, "encoder", modules)

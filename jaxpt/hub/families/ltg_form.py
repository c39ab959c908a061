"""What the encoders of Oslo's Language Technology Group share (Samuel et al. 2023).

transformers loads them with their repositories' code only, which is not run here: their
configs are read as data.

Departures in further training: attention's output has the dropout of the MLPs, there
that of attention's weights; the dense layer of the head has none; initial values of the
MLPs do not depend on the layer.
"""

import math

from jaxpt.hub.entries import Modules, Table, TensorEntry, map_linear, map_norm
from jaxpt.hub.fields import Config, FieldRow, Values, field, fixed, refusal, size
from jaxpt.nn.model_spec import ModelSpec

# The least number of buckets on a side for which that code has logarithms.
_LEAST_SIDE = 3
_BUCKETS, _LENGTH = "position_bucket_size", "max_position_embeddings"
LTG_FORM = {
    "positions": "none",
    "disentangled": "both",
    "disentangled_norm": True,
    "norm_scale": False,
    "embed_norm": True,
    "first_norm": True,
    "gated_mlp": True,
    "activation": "gelu_tanh",
    "inner_norm": True,
    "up_bias": "no",
    "down_bias": "no",
    "head_transform": True,
    "head_activation": "gelu",
    "head_bias": True,
    "init": "truncated",
}
# Fields that change no number with given weights.
IDLE = set(
    """
    auto_map classifier_dropout cls_dropout gradient_checkpointing is_decoder
    model_type output_all_encoded_layers temperature tie_word_embeddings
    tokenizer_class
    """.split()
)
MLP = {"mlp.1": "mlp/up mlp/gate", "mlp.4": "mlp/down"}


def _read_buckets(config: Config) -> Values:
    """2 k - 1 buckets, and the number of positions for which they are made."""
    side, most = config[_BUCKETS], config[_LENGTH]
    if side < _LEAST_SIDE:
        raise refusal(_BUCKETS, side, f"at least {_LEAST_SIDE}")
    if most < side // 2 + 2:
        allowed = f"at least {side // 2 + 2} with {_BUCKETS}={side}"
        raise refusal(_LENGTH, most, allowed)
    distances = {"relative_buckets": 2 * side - 1, "relative_max_distance": most}
    return distances | {"max_len": most}


def _write_buckets(spec: ModelSpec) -> Config:
    side, most = (spec.relative_buckets + 1) // 2, spec.relative_max_distance
    return {_BUCKETS: side, _LENGTH: most}


def _read_std(config: Config) -> Values:
    """The initial values: of the variance 2 / (5 D)."""
    width = config["hidden_size"]
    return {"init_std": math.sqrt(2 / (5 * width))} if width > 0 else {}


def list_rows(
    vocab_size: int = 16384, mlp_width: int = 2048, epsilon: float = 1e-7
) -> tuple[FieldRow, ...]:
    """The rows that all share, with the defaults of a class."""
    return (
        field("vocab_size", "vocab_size", vocab_size),
        field("num_hidden_layers", "num_layers", 12),
        field("hidden_size", "d_model", 768),
        size("num_attention_heads", "num_heads", 12),
        field("intermediate_size", "d_ff", mlp_width),
        FieldRow(_read_buckets, _write_buckets, {_BUCKETS: 32, _LENGTH: 512}),
        field("layer_norm_eps", "norm_epsilon", epsilon),
        field("hidden_dropout_prob", ("dropout", "embed_dropout"), 0.1),
        field("attention_probs_dropout_prob", "attention_dropout", 0.1),
        FieldRow(_read_std, lambda spec: {}),
        fixed(tie_word_embeddings=True),
    )


def list_classes(repository: str, config: str, **classes: str) -> FieldRow:
    """The row of an export's `auto_map`: the code with which transformers loads it.

    Args:
      repository: its name and two hyphens.
      config: the class of the config, behind its file: `file.Class`, as `classes`.
    """
    names = {"AutoConfig": config, **classes}
    value = {name: f"{repository}{each}" for name, each in names.items()}
    return FieldRow(lambda config: {}, lambda spec: {"auto_map": value})


def list_embeddings(spec: ModelSpec, prefix: str) -> Table:
    """The entries of the tables of tokens and of distances."""
    table = "encoder/disentangled"
    yield TensorEntry(f"{prefix}.word_embedding.weight", ("embed/tokens",))
    yield TensorEntry(f"{prefix}.relative_embedding", (f"{table}/table",))
    norm = f"{prefix}.relative_layer_norm"
    yield from map_norm(spec, norm, f"{table}/norm", has_scale=True)


def list_head(spec: ModelSpec, prefix: str) -> Table:
    """The entries of the head for tokens; its kernel is the table of tokens."""
    yield from map_linear(spec, f"{prefix}.nonlinearity.1", "head/transform")
    yield TensorEntry(f"{prefix}.nonlinearity.5.bias", ("head/bias",))


def prefix_modules(prefix: str, modules: Modules) -> Modules:
    """Modules with a prefix before their names."""
    return {f"{prefix}.{name}": path for name, path in modules.items()}

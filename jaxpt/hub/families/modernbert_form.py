"""What ModernBERT and its decoder share."""

from jaxpt.hub.entries import (
    QKV,
    Modules,
    Table,
    TensorEntry,
    map_head,
    map_layers,
    map_norm,
)
from jaxpt.hub.fields import (
    Config,
    FieldRow,
    Values,
    activation,
    field,
    fixed,
    read_activation,
    refusal,
    require,
    same,
    write_activation,
)
from jaxpt.hub.rotary import read_layer_rope, write_layer_ropes
from jaxpt.hub.windows import FULL, LOCAL, find_global_every, list_kinds
from jaxpt.nn.model_spec import ModelSpec

FORM = {
    "norm_bias": False,
    "embed_norm": True,
    "gated_mlp": True,
    "positions": "rotary",
    "use_bias": False,
    "head_transform": True,
    "head_bias": True,
}
# The class has a rope_theta for each kind of layer, and reads no partial factor.
INERT = (
    "rope_theta partial_rotary_factor cls_token_id sep_token_id classifier_dropout "
    "initializer_cutoff_factor "
)
LAYER_DEFAULTS = {"global_attn_every_n_layers": 3, "local_attention": 128}
COPIES = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    is_causal = head == "causal"
    yield TensorEntry("model.embeddings.tok_embeddings.weight", ("embed/tokens",))
    yield from map_norm(spec, "model.embeddings.norm", "embed/norm")
    inputs: Modules = {"attn.Wqkv": QKV}
    if is_causal:
        inputs = {
            f"attn.{name[0]}_proj": f"attention/{name}"
            for name in ("query", "key", "value")
        }
    modules = {
        "attn_norm": "attention_norm",
        **inputs,
        "attn.Wo": "attention/out",
        "mlp_norm": "mlp_norm",
        "mlp.Wi": "mlp/gate mlp/up",
        "mlp.Wo": "mlp/down",
    }
    for entry in map_layers(spec, spec.num_layers, "model.layers", "encoder", modules):
        # Before the first layer there is only the norm of the embeddings.
        if not entry.hf_name.startswith("model.layers.0.attn_norm"):
            yield entry
    yield from map_norm(spec, "model.final_norm", "encoder/norm")
    prefix = "lm_head" if is_causal else "head"
    yield from map_head(spec, f"{prefix}.dense", f"{prefix}.norm", "decoder.bias")


def read_layers(config: Config, width: int, least: int) -> Values:
    """Fields of a spec: the rotary bases, and the window of local layers.

    Args:
      width: half of `local_attention`, which `sliding_window` must repeat.
      least: the smallest width, at which `window` is 1.

    Raises:
      UserError: `sliding_window` differs from the width, or the width is below `least`.
    """
    every = _read_layer_types(config)
    if every != 1 and config.get("sliding_window") is not None:  # which overrules it
        require(config, sliding_window=width)
    if every != 1 and width < least:
        raise refusal(
            "local_attention", config["local_attention"], f"at least {2 * least}"
        )
    scaling = config.get("rope_scaling") or {}
    full = read_layer_rope(config, FULL, "global_rope_theta", 160000.0, scaling)
    local = read_layer_rope(config, LOCAL, "local_rope_theta", 10000.0, scaling)
    if every == 1:
        return full
    return {
        **full,
        "local_rotary_base": local["rotary_base"],
        "window": width - least + 1,
        "global_every": every,
    }


def _read_layer_types(config: Config) -> int:
    """`ModelSpec.global_every`; 1 if every layer has full attention."""
    kinds, every = config.get("layer_types"), config["global_attn_every_n_layers"]
    layers = config["num_hidden_layers"]
    if kinds is None:
        if every < 1:
            raise refusal("global_attn_every_n_layers", every, "at least 1")
        return 1 if layers == 1 else every
    return find_global_every(kinds, layers)


def write_layers(spec: ModelSpec) -> Config:
    """The type and the rotary base of each layer, as transformers stores them."""
    return {
        "layer_types": list_kinds(spec),
        "rope_parameters": write_layer_ropes(spec),
    }


def list_rows(layers: FieldRow) -> tuple[FieldRow, ...]:
    """The rows that ModernBERT and its decoder share."""
    return (
        # The last bias is the head's.
        fixed(is_encoder_decoder=False, head_dim=None, classifier_bias=False),
        fixed(
            norm_bias=False,
            attention_bias=False,
            mlp_bias=False,
            decoder_bias=True,
            tie_word_embeddings=True,
            is_written=True,
        ),
        layers,
        field("vocab_size", "vocab_size", 50368),
        field("num_hidden_layers", "num_layers", 22),
        field("hidden_size", "d_model", 768),
        field("num_attention_heads", "num_heads", 12),
        field("intermediate_size", "d_ff", 1152),
        field("max_position_embeddings", "max_len", 8192),
        field("norm_eps", "norm_epsilon", 1e-5),
        activation("hidden_activation", "gelu"),
        same(  # the head's
            "classifier_activation",
            "hidden_activation",
            "gelu",
            write_activation,
            read_activation,
        ),
        field("mlp_dropout", "dropout", 0.0),
        field("embedding_dropout", "embed_dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    )

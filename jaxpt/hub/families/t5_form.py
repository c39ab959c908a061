"""What T5, mT5, UMT5 and LongT5 share."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxpt.hub.entries import (
    Modules,
    Table,
    TensorEntry,
    map_layers,
    map_norm,
    map_untied,
    name_attention,
)
from jaxpt.hub.fields import (
    ACTIVATION_NAMES,
    CAUSAL,
    NO_ROPE,
    Config,
    FieldRow,
    Values,
    field,
    fixed,
    read_activation,
    refusal,
    size,
)
from jaxpt.nn.model_spec import ModelSpec

T5_FORM = {
    "norm": "rmsnorm",
    "positions": "relative",
    "use_bias": False,
    "scale_attention": False,
    "init": "t5",
}
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}
INERT = NO_ROPE + "classifier_dropout initializer_factor "
COPIES = {
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
    "lm_head.weight": "shared.weight",
}
# Old checkpoints have a bias of cross-attention, which no code reads.
BUFFERS = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\..*"
IDS = {"eos_token_id": 1, "decoder_start_token_id": 0}


def list_tensors(spec: ModelSpec, head: str, encoder: str = "SelfAttention") -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`).

    Args:
      encoder: the name of the encoder's attention.
    """
    yield TensorEntry("shared.weight", ("embed/tokens",))
    mlp = {"wi": "up", "wo": "down"}
    if spec.gated_mlp:
        mlp = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    for stack, num in (
        ("encoder", spec.num_layers),
        ("decoder", spec.num_decoder_layers),
    ):
        own = encoder if stack == "encoder" else "SelfAttention"
        parts = {"attention": name_attention(f"{own}.{{}}")}
        if stack == "decoder":
            parts["cross"] = name_attention("EncDecAttention.{}", "cross")
        parts["mlp"] = {
            f"DenseReluDense.{hf_name}": f"mlp/{path}" for hf_name, path in mlp.items()
        }
        modules: Modules = {}
        for place, (part, names) in enumerate(parts.items()):
            modules |= {f"layer.{place}.{name}": path for name, path in names.items()}
            modules[f"layer.{place}.layer_norm"] = f"{part}_norm"
        hf_prefix = f"{stack}.block"
        paths = [f"{stack}/relative/table"]
        if spec.relative_every_layer:
            paths = [f"{stack}/layer_{i}/relative/table" for i in range(num)]
        for i, path in enumerate(paths):
            name = f"{hf_prefix}.{i}.layer.0.{own}.relative_attention_bias"
            yield TensorEntry(f"{name}.weight", (path,))
        yield from map_layers(spec, num, hf_prefix, stack, modules)
        yield from map_norm(spec, f"{stack}.final_layer_norm", f"{stack}/norm")
    yield from map_untied(spec)


# Whether the head is tied, which the config of a class does not determine.
UNREAD_TIE = FieldRow(
    lambda _: {}, lambda spec: {"tie_word_embeddings": spec.tie_embeddings}
)


def is_head_tied(tensors: Mapping[str, Any]) -> bool:
    """Whether the head is the token table, for a family whose config does not say."""
    head, table = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    return head is None or table is None or np.array_equal(head, table)


def count_decoder(config: Config, num_layers: int) -> Config:
    """Sets the decoder's number of layers, as transformers does before aliases."""
    if config.get("num_decoder_layers") is not None:
        return config
    return config | {"num_decoder_layers": config.get("num_layers", num_layers)}


def _read_mlp(config: Config) -> Values:
    kind = config["feed_forward_proj"]
    gate, _, name = kind.rpartition("-")
    if gate not in ("", "gated"):
        raise refusal(
            "feed_forward_proj", kind, "an activation, or one behind 'gated-'"
        )
    # In transformers "gated-gelu" is the tanh form. It also writes, and reads, two more
    # fields that it derives from this one.
    derived = {
        "dense_act_fn": "gelu_new" if kind == "gated-gelu" else name,
        "is_gated_act": bool(gate),
    }
    derived |= {key: config[key] for key in derived if key in config}
    is_gated = bool(derived["is_gated_act"])
    if derived["is_gated_act"] != is_gated:
        raise refusal("is_gated_act", derived["is_gated_act"], repr(is_gated))
    our_name = read_activation("dense_act_fn", derived["dense_act_fn"])
    return {"activation": our_name, "gated_mlp": is_gated}


def _write_mlp(spec: ModelSpec) -> Config:
    name = ACTIVATION_NAMES[spec.activation]
    if not spec.gated_mlp:
        return {"feed_forward_proj": name}
    name = "gelu" if name == "gelu_new" else spec.activation
    return {"feed_forward_proj": f"gated-{name}"}


def list_rows(tie: FieldRow, **defaults: Any) -> tuple[FieldRow, ...]:
    """The rows of a family with the defaults of its class.

    Args:
      tie: whether its head is tied.
    """

    def plain(name: str, *spec_fields: str) -> FieldRow:
        return field(name, spec_fields, defaults[name])

    mlp_default = {"feed_forward_proj": defaults["feed_forward_proj"]}
    return (
        CAUSAL,
        fixed(is_encoder_decoder=True, is_written=True),
        fixed(is_decoder=False),
        FieldRow(_read_mlp, _write_mlp, mlp_default),
        tie,
        plain("vocab_size", "vocab_size"),
        plain("num_layers", "num_layers"),
        size("num_decoder_layers", "num_decoder_layers", None),
        field("d_model", "d_model", 512),
        plain("num_heads", "num_heads"),
        size("d_kv", "head_dim", 64, encode="head_width"),
        plain("d_ff", "d_ff"),
        # transformers has no such limit: relative positions have no end.
        field("n_positions", "max_len", 512),
        field("layer_norm_epsilon", "norm_epsilon", 1e-6),
        field("relative_attention_num_buckets", "relative_buckets", 32),
        field("relative_attention_max_distance", "relative_max_distance", 128),
        field("dropout_rate", ("dropout", "embed_dropout", "attention_dropout"), 0.1),
    )

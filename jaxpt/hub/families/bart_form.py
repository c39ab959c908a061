"""What BART and its relatives share: encoder-decoders, most of them of fairseq."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxpt.hub.entries import (
    Computed,
    Modules,
    Table,
    TensorEntry,
    map_layers,
    map_norm,
    name_attention,
    zeros,
)
from jaxpt.hub.fields import (
    CAUSAL,
    NO_ROPE,
    FieldRow,
    activation,
    field,
    fixed,
    same,
    size,
)
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.positions import sinusoidal

_BIAS = "final_logits_bias"
STACKS = ("encoder", "decoder")
ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}
INERT = NO_ROPE + (
    "activation_dropout encoder_layerdrop decoder_layerdrop decoder_start_token_id "
    "forced_eos_token_id "
)
COPIES = {
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "lm_head.weight": "model.shared.weight",
}


def list_stacks(spec: ModelSpec) -> Iterator[tuple[str, str, Table]]:
    """The two stacks: name, path of the embeddings, and the entries of the layers."""
    cross = name_attention("encoder_attn.{}_proj", "cross", out="out")
    cross["encoder_attn_layer_norm"] = "cross_norm"
    for stack, num, embed in (
        ("encoder", spec.num_layers, "embed"),
        ("decoder", spec.num_decoder_layers, "decoder_embed"),
    ):
        modules: Modules = name_attention("self_attn.{}_proj", out="out")
        modules["self_attn_layer_norm"] = "attention_norm"
        modules |= cross if stack == "decoder" else {}
        modules |= {"fc1": "mlp/up", "fc2": "mlp/down", "final_layer_norm": "mlp_norm"}
        layers = f"model.{stack}.layers"
        yield stack, embed, map_layers(spec, num, layers, stack, modules)


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("model.shared.weight", ("embed/tokens",))
    for stack, embed, layers in list_stacks(spec):
        prefix = f"model.{stack}"
        if spec.positions == "learned":
            positions = (f"{embed}/positions/table",)
            yield TensorEntry(f"{prefix}.embed_positions.weight", positions)
        if spec.norms_embeddings:
            yield from map_norm(spec, f"{prefix}.layernorm_embedding", f"{embed}/norm")
        yield from layers
        if spec.has_last_norm:
            yield from map_norm(spec, f"{prefix}.layer_norm", f"{stack}/norm")
    yield from map_bias(spec)


def map_bias(spec: ModelSpec) -> Table:
    """The entry of the head's bias, unless it is all zero."""
    if spec.head_bias:
        yield TensorEntry(_BIAS, ("head/bias",), is_row=True)


def has_head_bias(tensors: Mapping[str, Any]) -> bool | None:
    """Whether the bias is not all zero; None if there is none."""
    bias = tensors.get(_BIAS)
    return None if bias is None else bool(np.any(bias))


def list_computed(spec: ModelSpec) -> dict[str, Computed]:
    """The bias of a head that has none (`Family.computed`)."""
    return {} if spec.head_bias else {_BIAS: zeros(1, spec.vocab_size)}


def list_sinusoids(spec: ModelSpec) -> dict[str, Computed]:
    """The same, and the tables of positions, which no class of Marian's form trains."""
    shape = spec.max_len, spec.d_model
    table = Computed(shape, lambda: sinusoidal(*shape, spec.sinusoids))
    names = (f"model.{stack}.embed_positions.weight" for stack in STACKS)
    return list_computed(spec) | dict.fromkeys(names, table)


SINUSOIDAL = {"positions": "sinusoidal", "sinusoids": "halves"}


def list_rows(
    vocab_size: int,
    layers: tuple[int, int],
    width: int,
    heads: int,
    mlp_width: int,
    length: int,
    activation_name: str = "gelu",
    scale_embedding: bool = False,
    attention_dropout: float = 0.0,
) -> tuple[FieldRow, ...]:
    """The rows that all share, with the defaults of a class."""
    return (
        CAUSAL,
        fixed(is_encoder_decoder=True, tie_word_embeddings=True, is_written=True),
        fixed(is_decoder=False),
        field("vocab_size", "vocab_size", vocab_size),
        field("encoder_layers", "num_layers", layers[0]),
        size("decoder_layers", "num_decoder_layers", layers[1]),
        field("d_model", "d_model", width),
        field("encoder_attention_heads", "num_heads", heads),
        same("decoder_attention_heads", "encoder_attention_heads", heads, "num_heads"),
        field("encoder_ffn_dim", "d_ff", mlp_width),
        same("decoder_ffn_dim", "encoder_ffn_dim", mlp_width, "d_ff"),
        field("max_position_embeddings", "max_len", length),
        field("scale_embedding", "scale_embeddings", scale_embedding),
        activation("activation_function", activation_name),
        field("dropout", ("dropout", "embed_dropout"), 0.1),
        field("attention_dropout", "attention_dropout", attention_dropout),
        field("init_std", "init_std", 0.02),
    )

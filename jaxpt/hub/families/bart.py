"""BART."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxpt.hub.entries import Table, TensorEntry, map_layers, map_norm, name_attention
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, NO_ROPE, activation, field, fixed, same, size
from jaxpt.hub.task_names import TEXTS, pooled
from jaxpt.nn.model_spec import ModelSpec

_BIAS = "final_logits_bias"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("model.shared.weight", ("embed/tokens",))
    cross = name_attention("encoder_attn.{}_proj", "cross", out="out")
    cross["encoder_attn_layer_norm"] = "cross_norm"
    for stack, num, embed in (
        ("encoder", spec.num_layers, "embed"),
        ("decoder", spec.num_decoder_layers, "decoder_embed"),
    ):
        hf_prefix = f"model.{stack}"
        yield TensorEntry(
            f"{hf_prefix}.embed_positions.weight", (f"{embed}/positions/table",)
        )
        yield from map_norm(spec, f"{hf_prefix}.layernorm_embedding", f"{embed}/norm")
        modules = name_attention("self_attn.{}_proj", out="out")
        modules["self_attn_layer_norm"] = "attention_norm"
        modules |= cross if stack == "decoder" else {}
        modules |= {"fc1": "mlp/up", "fc2": "mlp/down", "final_layer_norm": "mlp_norm"}
        yield from map_layers(spec, num, f"{hf_prefix}.layers", stack, modules)
    if spec.head_bias:
        yield TensorEntry(_BIAS, ("head/bias",), is_row=True)


def _has_head_bias(tensors: Mapping[str, Any]) -> bool | None:
    """Whether the bias is not all zero; None if there is none."""
    bias = tensors.get(_BIAS)
    return None if bias is None else bool(np.any(bias))


FAMILY = Family(
    "bart",
    {"seq2seq": "BartForConditionalGeneration"},
    (
        CAUSAL,
        fixed(
            is_encoder_decoder=True,
            tie_word_embeddings=True,
            is_written=True,
        ),
        fixed(
            is_decoder=False,
            # Fields of older versions of the class, which some checkpoints have.
            normalize_before=False,
            normalize_embedding=True,
            add_final_layer_norm=False,
            static_position_embeddings=False,
        ),
        field("vocab_size", "vocab_size", 50265),
        field("encoder_layers", "num_layers", 12),
        size("decoder_layers", "num_decoder_layers", 12),
        field("d_model", "d_model", 1024),
        field("encoder_attention_heads", "num_heads", 16),
        same("decoder_attention_heads", "encoder_attention_heads", 16, "num_heads"),
        field("encoder_ffn_dim", "d_ff", 4096),
        same("decoder_ffn_dim", "encoder_ffn_dim", 4096, "d_ff"),
        field("max_position_embeddings", "max_len", 1024),
        field("scale_embedding", "scale_embeddings", False),
        activation("activation_function", "gelu"),
        field("dropout", ("dropout", "embed_dropout"), 0.1),
        field("attention_dropout", "attention_dropout", 0.0),
        field("init_std", "init_std", 0.02),
    ),
    list_tensors,
    body="model.",
    # The positions begin after fairseq's padding row and the one before it.
    constants={"norm_position": "post", "position_offset": 2},
    aliases={
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    },
    inert=NO_ROPE + "classifier_dropout activation_dropout encoder_layerdrop "
    "decoder_layerdrop decoder_start_token_id forced_eos_token_id",
    unwritten={"head_bias": _has_head_bias},
    zeros=lambda spec: {} if spec.head_bias else {_BIAS: (1, spec.vocab_size)},
    copies={
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
        "lm_head.weight": "model.shared.weight",
    },
    freezes_pad=True,
    ids={
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    task_heads={
        TEXTS: pooled(
            "bart",
            "classification_head.dense",
            "classification_head.out_proj",
            finds_last="eos",
        )
    },
)

"""Config fields of families that generate text: GPT-2, GPT-NeoX, OPT, T5, BART, ..."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxpt.hub.fields import (
    ACTIVATION_NAMES,
    CAUSAL,
    NO_ROPE,
    Config,
    Family,
    Row,
    Values,
    activation,
    field,
    fixed,
    read_activation,
    refusal,
    require,
    same,
    size,
)
from jaxpt.hub.rotary import rope
from jaxpt.hub.windows import LOCAL, decode_window, find_global_every, list_kinds
from jaxpt.nn.model_spec import ModelSpec

GPT2 = Family(
    "gpt2",
    {"causal": "GPT2LMHeadModel"},
    (
        fixed(
            is_encoder_decoder=False,
            scale_attn_weights=True,
            scale_attn_by_inverse_layer_idx=False,
            reorder_and_upcast_attn=False,
            add_cross_attention=False,
        ),
        CAUSAL,
        field("vocab_size", "vocab_size", 50257),
        field("n_layer", "num_layers", 12),
        field("n_embd", "d_model", 768),
        field("n_head", "num_heads", 12),
        size("n_inner", "d_ff", None, lambda config: 4 * config["n_embd"]),
        field("n_positions", "max_len", 1024),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        activation("activation_function", "gelu_new"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("resid_pdrop", "dropout", 0.1),
        field("embd_pdrop", "embed_dropout", 0.1),
        field("attn_pdrop", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    ),
    constants={"init": "gpt2"},
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    # The class reads n_positions, not n_ctx.
    inert=NO_ROPE + "n_ctx summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout",
)


_MOST_LAYERS = 1000  # of a family whose config lists all layers


def _read_neo_layers(config: Config) -> Values:
    """The window of the local layers, which by default alternate with global ones."""
    num_layers, kinds = config["num_layers"], config.get("attention_layers")
    if num_layers > _MOST_LAYERS:
        raise refusal("num_layers", num_layers, f"at most {_MOST_LAYERS}")
    if kinds is None:
        types = config.get("attention_types") or [[["global", "local"], 12]]
        most = _MOST_LAYERS + 1
        try:
            kinds = [kind for part, n in types for kind in part * min(n, most)]
        except (TypeError, ValueError) as error:
            allowed = "a list of [kinds of layers, times]"
            raise refusal("attention_types", types, allowed) from error
    names = "global", "local"
    every = find_global_every(kinds, num_layers, "attention_types", names)
    if every == 1:
        return {}
    window = decode_window("window_size", config["window_size"])
    return {"window": window, "global_every": every}


def _write_neo_layers(spec: ModelSpec) -> Config:
    kinds = ["local" if kind == LOCAL else "global" for kind in list_kinds(spec)]
    return {
        "attention_types": [[kinds, 1]],
        "window_size": spec.window + 1 if "local" in kinds else 256,
    }


GPT_NEO = Family(
    "gpt_neo",
    {"causal": "GPTNeoForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        field("vocab_size", "vocab_size", 50257),
        field("num_layers", "num_layers", 24),
        field("hidden_size", "d_model", 2048),
        field("num_heads", "num_heads", 16),
        size(
            "intermediate_size", "d_ff", None, lambda config: 4 * config["hidden_size"]
        ),
        field("max_position_embeddings", "max_len", 2048),
        Row(_read_neo_layers, _write_neo_layers, {"window_size": 256}),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        activation("activation_function", "gelu_new"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("resid_dropout", "dropout", 0.0),
        field("embed_dropout", "embed_dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    constants={"qkv_bias": "no", "scale_attention": False},
    aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    inert=NO_ROPE + "classifier_dropout",
)


def _read_opt_table(config: Config) -> Values:
    width, allowed = config["word_embed_proj_dim"], config["hidden_size"]
    if width not in (None, allowed):
        raise refusal("word_embed_proj_dim", width, f"hidden_size={allowed}")
    return {}


_OPT_TABLE = Row(
    _read_opt_table,
    lambda spec: {"word_embed_proj_dim": spec.d_model},
    {"word_embed_proj_dim": None},
)
GPT_NEOX = Family(
    "gpt_neox",
    {"causal": "GPTNeoXForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False, head_dim=None),
        fixed(attention_bias=True, is_written=True),
        field("vocab_size", "vocab_size", 50432),
        field("num_hidden_layers", "num_layers", 44),
        field("hidden_size", "d_model", 6144),
        field("num_attention_heads", "num_heads", 64),
        field("intermediate_size", "d_ff", 24576),
        field("max_position_embeddings", "max_len", 2048),
        rope("rotary_emb_base", "rotary_pct"),
        field("use_parallel_residual", "parallel_residual", True),
        field("layer_norm_eps", "norm_epsilon", 1e-5),
        activation("hidden_act", "gelu"),
        field("tie_word_embeddings", "tie_embeddings", False),
        field("hidden_dropout", ("dropout", "embed_dropout"), 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    constants={"positions": "rotary"},
    inert="is_decoder classifier_dropout rope_theta partial_rotary_factor",
)
# OPT-350m, whose norms come after the residual and whose embeddings are narrower, has
# no counterpart: its positions are added behind the projection.
OPT = Family(
    "opt",
    {"causal": "OPTForCausalLM"},
    (
        CAUSAL,
        fixed(
            is_encoder_decoder=False,
            do_layer_norm_before=True,
            layer_norm_elementwise_affine=True,
            _remove_final_layer_norm=False,
            is_written=True,
        ),
        field("vocab_size", "vocab_size", 50272),
        field("num_hidden_layers", "num_layers", 12),
        field("hidden_size", "d_model", 768),
        _OPT_TABLE,
        field("num_attention_heads", "num_heads", 12),
        field("ffn_dim", "d_ff", 3072),
        field("max_position_embeddings", "max_len", 2048),
        field("enable_bias", "use_bias", True),
        activation("activation_function", "relu"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("dropout", "dropout", 0.1),
        field("attention_dropout", "attention_dropout", 0.0),
        field("init_std", "init_std", 0.02),
    ),
    constants={"position_offset": 2},
    inert=NO_ROPE + "layerdrop",
    freezes_pad=True,
)


def _prepare_t5(config: Config, num_layers: int) -> Config:
    """Sets the decoder's number of layers, as transformers does before aliases."""
    if config.get("num_decoder_layers") is not None:
        return config
    return config | {"num_decoder_layers": config.get("num_layers", num_layers)}


def _read_t5_mlp(config: Config) -> Values:
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
    require(derived, is_gated_act=is_gated)
    our_name = read_activation("dense_act_fn", derived["dense_act_fn"])
    return {"activation": our_name, "gated_mlp": is_gated}


def _write_t5_mlp(spec: ModelSpec) -> Config:
    name = ACTIVATION_NAMES[spec.activation]
    if not spec.gated_mlp:
        return {"feed_forward_proj": name}
    name = "gelu" if name == "gelu_new" else spec.activation
    return {"feed_forward_proj": f"gated-{name}"}


def _read_t5_tie(config: Config) -> Values:
    """T5 1.0 ties its head and scales the head's input; 1.1 does neither."""
    is_tied = config.get("tie_word_embeddings") is not False
    is_tied = config.get("scale_decoder_outputs", is_tied)
    require({"scale_decoder_outputs": is_tied}, scale_decoder_outputs=bool(is_tied))
    return {"tie_embeddings": bool(is_tied), "scale_logits": bool(is_tied)}


_T5_TIE = Row(_read_t5_tie, lambda spec: {"tie_word_embeddings": spec.tie_embeddings})


def _make_t5(name: str, class_name: str, tie: Row, **defaults: Any) -> Family:
    """T5, or a family of its form; `defaults` are those of the class."""

    def plain(name: str, *spec_fields: str) -> Row:
        return field(name, spec_fields, defaults[name])

    mlp_default = {"feed_forward_proj": defaults["feed_forward_proj"]}
    return Family(
        name,
        {"seq2seq": class_name},
        (
            CAUSAL,
            fixed(is_encoder_decoder=True, is_written=True),
            fixed(is_decoder=False),
            Row(_read_t5_mlp, _write_t5_mlp, mlp_default),
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
            field(
                "dropout_rate", ("dropout", "embed_dropout", "attention_dropout"), 0.1
            ),
        ),
        constants={
            "norm": "rmsnorm",
            "positions": "relative",
            "use_bias": False,
            "scale_attention": False,
            "init": "t5",
        },
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "num_heads",
            "num_hidden_layers": "num_layers",
            "head_dim": "d_kv",
        },
        inert=NO_ROPE + "classifier_dropout initializer_factor",
        prepare=lambda config: _prepare_t5(config, defaults["num_layers"]),
    )


T5 = _make_t5(
    "t5",
    "T5ForConditionalGeneration",
    _T5_TIE,
    vocab_size=32128,
    num_layers=6,
    num_heads=8,
    d_ff=2048,
    feed_forward_proj="relu",
)


def _is_head_tied(tensors: Mapping[str, Any]) -> bool:
    head, table = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    return head is None or table is None or np.array_equal(head, table)


# The form of T5 1.1. Whether the head is tied is known from the tensors only: published
# configs say that it is not, and transformers reads them as if they said that it is.
MT5 = replace(
    _make_t5(
        "mt5",
        "MT5ForConditionalGeneration",
        Row(lambda _: {}, lambda spec: {"tie_word_embeddings": spec.tie_embeddings}),
        vocab_size=250112,
        num_layers=8,
        num_heads=6,
        d_ff=1024,
        feed_forward_proj="gated-gelu",
    ),
    inert=NO_ROPE + "classifier_dropout initializer_factor tie_word_embeddings "
    "decoder_start_token_id",
    like="t5",
    unwritten={"tie_embeddings": _is_head_tied},
)


def _has_head_bias(tensors: Mapping[str, Any]) -> bool | None:
    """Whether the bias is not all zero; None if there is none."""
    bias = tensors.get("final_logits_bias")
    return None if bias is None else bool(np.any(bias))


BART = Family(
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
    freezes_pad=True,
)

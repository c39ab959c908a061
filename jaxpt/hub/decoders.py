"""Configs of families that generate text: GPT-2, Llama, Mistral, T5, BART."""

import dataclasses
from typing import Any

from jaxpt.errors import UserError
from jaxpt.hub.fields import (
    ACTIVATION_NAMES,
    read_activation,
    read_rope,
    read_size,
    require,
    require_causal,
    with_defaults,
)
from jaxpt.nn.model_spec import ModelSpec

# For each family: the fields that are used, with the defaults of its class, and aliases
# of some of them (`attribute_map`).
GPT2 = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
}
GPT2_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
T5: dict[str, Any] = {
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_decoder_layers": None,
    "num_heads": 8,
    "n_positions": 512,  # theirs has none: of relative positions there is no end
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
}
T5_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}
BART = {
    "vocab_size": 50265,
    "max_position_embeddings": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "d_model": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "init_std": 0.02,
}
BART_ALIASES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}
LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
    "head_dim": None,
}
MISTRAL = LLAMA | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": None,  # null is none; left out, MISTRAL_WINDOW
}
MISTRAL_WINDOW = 4096


def read_gpt2(config: dict) -> ModelSpec:
    """GPT-2's config as a spec."""
    config = with_defaults(config, GPT2, GPT2_ALIASES)
    require_causal(config)
    require(
        config,
        is_encoder_decoder=False,
        scale_attn_weights=True,
        scale_attn_by_inverse_layer_idx=False,
        reorder_and_upcast_attn=False,
        add_cross_attention=False,
    )
    width = config["n_embd"]
    return ModelSpec(
        vocab_size=config["vocab_size"],
        num_layers=config["n_layer"],
        d_model=width,
        num_heads=config["n_head"],
        d_ff=read_size(config, "n_inner", 4 * width),
        max_len=config["n_positions"],
        norm_epsilon=config["layer_norm_epsilon"],
        activation=read_activation(config, "activation_function"),
        tie_embeddings=config["tie_word_embeddings"],
        dropout=config["resid_pdrop"],
        embed_dropout=config["embd_pdrop"],
        attention_dropout=config["attn_pdrop"],
        init="gpt2",
        init_std=config["initializer_range"],
    )


def write_gpt2(spec: ModelSpec) -> dict:
    """The config of a spec of GPT-2's family."""
    return {
        "vocab_size": spec.vocab_size,
        "n_layer": spec.num_layers,
        "n_embd": spec.d_model,
        "n_head": spec.num_heads,
        "n_inner": spec.d_ff,
        "n_positions": spec.max_len,
        "layer_norm_epsilon": spec.norm_epsilon,
        "activation_function": ACTIVATION_NAMES[spec.activation],
        "tie_word_embeddings": spec.tie_embeddings,
        "resid_pdrop": spec.dropout,
        "embd_pdrop": spec.embed_dropout,
        "attn_pdrop": spec.attention_dropout,
        "initializer_range": spec.init_std,
    }


def read_t5(config: dict) -> ModelSpec:
    """T5's config as a spec. T5 1.0 scales its tied head's input; 1.1 has neither."""
    # transformers reads the decoder's number of layers before it applies aliases.
    layers = config.get("num_layers", T5["num_layers"])
    config = with_defaults(config, T5, T5_ALIASES)
    require_causal(config)
    require(config, is_encoder_decoder=True, is_decoder=False)
    activation, is_gated = _read_t5_mlp(config)
    is_tied = config.get("tie_word_embeddings") is not False
    is_tied = config.get("scale_decoder_outputs", is_tied)
    require({"scale_decoder_outputs": is_tied}, scale_decoder_outputs=bool(is_tied))
    return ModelSpec(
        vocab_size=config["vocab_size"],
        num_layers=config["num_layers"],
        num_decoder_layers=read_size(config, "num_decoder_layers", layers),
        d_model=config["d_model"],
        num_heads=config["num_heads"],
        head_dim=read_size(config, "d_kv", 0),
        d_ff=config["d_ff"],
        max_len=config["n_positions"],
        norm="rmsnorm",
        norm_epsilon=config["layer_norm_epsilon"],
        activation=activation,
        gated_mlp=is_gated,
        positions="relative",
        relative_buckets=config["relative_attention_num_buckets"],
        relative_max_distance=config["relative_attention_max_distance"],
        use_bias=False,
        scale_attention=False,
        tie_embeddings=bool(is_tied),
        scale_logits=bool(is_tied),
        dropout=config["dropout_rate"],
        embed_dropout=config["dropout_rate"],
        attention_dropout=config["dropout_rate"],
        init="t5",
    )


def _read_t5_mlp(config: dict) -> tuple[str, bool]:
    """Our name of T5's activation, and whether its MLP is gated."""
    kind = config["feed_forward_proj"]
    gate, _, name = kind.rpartition("-")
    if gate not in ("", "gated"):
        raise UserError(
            f"config.json: feed_forward_proj={kind!r}: must be an activation, or one "
            "behind 'gated-'"
        )
    # In transformers "gated-gelu" is the tanh form. It also writes, and reads, two more
    # fields that it derives from this one.
    made = {
        "dense_act_fn": "gelu_new" if kind == "gated-gelu" else name,
        "is_gated_act": bool(gate),
    }
    made |= {key: config[key] for key in made if key in config}
    require(made, is_gated_act=bool(made["is_gated_act"]))
    return read_activation(made, "dense_act_fn"), bool(made["is_gated_act"])


def write_t5(spec: ModelSpec) -> dict:
    """The config of a spec of T5's family."""
    name = {"gelu_tanh": "gelu"}.get(spec.activation, spec.activation)
    if not spec.gated_mlp:
        name = ACTIVATION_NAMES[spec.activation]
    return {
        "vocab_size": spec.vocab_size,
        "num_layers": spec.num_layers,
        "num_decoder_layers": spec.num_decoder_layers,
        "d_model": spec.d_model,
        "num_heads": spec.num_heads,
        "d_kv": spec.head_width,
        "d_ff": spec.d_ff,
        "n_positions": spec.max_len,
        "layer_norm_epsilon": spec.norm_epsilon,
        "feed_forward_proj": f"gated-{name}" if spec.gated_mlp else name,
        "relative_attention_num_buckets": spec.relative_buckets,
        "relative_attention_max_distance": spec.relative_max_distance,
        "tie_word_embeddings": spec.tie_embeddings,
        "dropout_rate": spec.dropout,
        "is_encoder_decoder": True,
    }


def read_bart(config: dict) -> ModelSpec:
    """BART's config as a spec."""
    config = with_defaults(config, BART, BART_ALIASES)
    require_causal(config)
    require(
        config,
        is_encoder_decoder=True,
        is_decoder=False,
        scale_embedding=False,
        tie_word_embeddings=True,
        # Fields of older versions of the class, which some checkpoints have.
        normalize_before=False,
        normalize_embedding=True,
        add_final_layer_norm=False,
        static_position_embeddings=False,
    )
    for ours, theirs in (("attention_heads", "heads"), ("ffn_dim", "widths")):
        if config[f"encoder_{ours}"] != config[f"decoder_{ours}"]:
            raise UserError(
                f"config.json: decoder_{ours}={config[f'decoder_{ours}']}: must be "
                f"encoder_{ours}={config[f'encoder_{ours}']}; other {theirs} in the "
                "decoder are not supported"
            )
    return ModelSpec(
        vocab_size=config["vocab_size"],
        num_layers=config["encoder_layers"],
        num_decoder_layers=read_size(config, "decoder_layers", 0),
        d_model=config["d_model"],
        num_heads=config["encoder_attention_heads"],
        d_ff=config["encoder_ffn_dim"],
        max_len=config["max_position_embeddings"],
        position_offset=2,  # fairseq's padding row and the one before it
        norm_position="post",
        activation=read_activation(config, "activation_function"),
        dropout=config["dropout"],
        embed_dropout=config["dropout"],
        attention_dropout=config["attention_dropout"],
        init_std=config["init_std"],
    )


def write_bart(spec: ModelSpec) -> dict:
    """The config of a spec of BART's family."""
    sizes = {"attention_heads": spec.num_heads, "ffn_dim": spec.d_ff}
    return {
        "vocab_size": spec.vocab_size,
        "encoder_layers": spec.num_layers,
        "decoder_layers": spec.num_decoder_layers,
        "d_model": spec.d_model,
        **{f"encoder_{key}": value for key, value in sizes.items()},
        **{f"decoder_{key}": value for key, value in sizes.items()},
        "max_position_embeddings": spec.max_len,
        "activation_function": ACTIVATION_NAMES[spec.activation],
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "dropout": spec.dropout,
        "attention_dropout": spec.attention_dropout,
        "activation_dropout": 0.0,
        "init_std": spec.init_std,
        "is_encoder_decoder": True,
    }


def read_llama(config: dict) -> ModelSpec:
    """Llama's config as a spec."""
    config = with_defaults(config, LLAMA)
    require_causal(config)
    require(
        config,
        is_encoder_decoder=False,
        attention_bias=False,
        mlp_bias=False,
        partial_rotary_factor=1.0,
    )
    return _read_llama_form(config)


def read_mistral(config: dict) -> ModelSpec:
    """Mistral's config as a spec: Llama's form, whose layers see a window.

    `sliding_window` counts the token itself, `ModelSpec.window` those before it.
    """
    config = with_defaults({"sliding_window": MISTRAL_WINDOW} | config, MISTRAL)
    require(
        config,
        is_causal=True,
        attention_chunk_size=None,
        layer_types=None,
        is_encoder_decoder=False,
        partial_rotary_factor=1.0,
    )
    width = config["sliding_window"]
    if width is not None and width < 2:
        raise UserError(
            f"config.json: sliding_window={width}: must be null or at least 2"
        )
    window = 0 if width is None else width - 1
    return dataclasses.replace(_read_llama_form(config), window=window)


def _read_llama_form(config: dict) -> ModelSpec:
    """A spec of a config with all fields that Llama's family and Mistral's share."""
    width, heads = config["hidden_size"], read_size(config, "num_attention_heads", 0)
    # The older name takes precedence.
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return ModelSpec(
        vocab_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        d_model=width,
        num_heads=heads,
        num_kv_heads=read_size(config, "num_key_value_heads", heads),
        head_dim=read_size(config, "head_dim", width // heads),
        d_ff=config["intermediate_size"],
        max_len=config["max_position_embeddings"],
        norm="rmsnorm",
        norm_epsilon=config["rms_norm_eps"],
        activation=read_activation(config, "hidden_act"),
        gated_mlp=True,
        positions="rotary",
        rotary_base=read_rope(rope, config.get("rope_theta", 10000.0)),
        use_bias=False,
        tie_embeddings=config["tie_word_embeddings"],
        attention_dropout=config["attention_dropout"],
        init_std=config["initializer_range"],
    )


def write_llama(spec: ModelSpec) -> dict:
    """The config of a spec of Llama's family."""
    return {
        "vocab_size": spec.vocab_size,
        "num_hidden_layers": spec.num_layers,
        "hidden_size": spec.d_model,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_width,
        "intermediate_size": spec.d_ff,
        "max_position_embeddings": spec.max_len,
        "rms_norm_eps": spec.norm_epsilon,
        "hidden_act": ACTIVATION_NAMES[spec.activation],
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rotary_base},
        "rope_theta": spec.rotary_base,
        "tie_word_embeddings": spec.tie_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": spec.attention_dropout,
        "initializer_range": spec.init_std,
    }


def write_mistral(spec: ModelSpec) -> dict:
    """The config of a spec of Mistral's family."""
    config = write_llama(spec)
    for name in ("attention_bias", "mlp_bias"):  # which it has not
        del config[name]
    return config | {"sliding_window": spec.window + 1 if spec.window else None}

"""Configs of encoder families: BERT, RoBERTa, ELECTRA, DistilBERT, ModernBERT."""

import dataclasses

from jaxpt.errors import UserError
from jaxpt.hub.fields import (
    ACTIVATION_NAMES,
    read_activation,
    read_rope,
    require,
    with_defaults,
)
from jaxpt.nn.model_spec import ModelSpec

# For each family: the fields that are used, with the defaults of its class, and aliases
# of some of them (`attribute_map`).
BERT = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
ROBERTA = BERT | {"vocab_size": 50265, "pad_token_id": 1}
ELECTRA = BERT | {
    "embedding_size": 128,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
DISTILBERT = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "n_layers": 6,
    "n_heads": 12,
    "dim": 768,
    "hidden_dim": 3072,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation": "gelu",
    "initializer_range": 0.02,
}
DISTILBERT_ALIASES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}
MODERNBERT = {
    "vocab_size": 50368,
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",  # the head's
    "max_position_embeddings": 8192,
    "initializer_range": 0.02,
    "norm_eps": 1e-5,
    "attention_dropout": 0.0,
    "embedding_dropout": 0.0,
    "mlp_dropout": 0.0,
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
}


def read_bert(config: dict, defaults: dict = BERT, offset: int = 0) -> ModelSpec:
    """BERT's config, and RoBERTa's and ELECTRA's, which have the same names."""
    config = with_defaults(config, defaults)
    require(
        config,
        position_embedding_type="absolute",  # of the class's older versions
        is_decoder=False,
        is_encoder_decoder=False,
        add_cross_attention=False,
        tie_word_embeddings=True,
    )
    return ModelSpec(
        vocab_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        d_model=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        d_ff=config["intermediate_size"],
        max_len=config["max_position_embeddings"] - offset,
        position_offset=offset,
        num_types=config["type_vocab_size"],
        norm_position="post",
        norm_epsilon=config["layer_norm_eps"],
        activation=read_activation(config, "hidden_act"),
        head_transform=True,
        head_bias=True,
        dropout=config["hidden_dropout_prob"],
        embed_dropout=config["hidden_dropout_prob"],
        attention_dropout=config["attention_probs_dropout_prob"],
        init="truncated",
        init_std=config["initializer_range"],
    )


def write_bert(spec: ModelSpec) -> dict:
    """The config of a spec of BERT's family."""
    return {
        "vocab_size": spec.vocab_size,
        "num_hidden_layers": spec.num_layers,
        "hidden_size": spec.d_model,
        "num_attention_heads": spec.num_heads,
        "intermediate_size": spec.d_ff,
        "max_position_embeddings": spec.max_len + spec.position_offset,
        "type_vocab_size": max(1, spec.num_types),  # theirs cannot be without
        "layer_norm_eps": spec.norm_epsilon,
        "hidden_act": ACTIVATION_NAMES[spec.activation],
        "hidden_dropout_prob": spec.dropout,
        "attention_probs_dropout_prob": spec.attention_dropout,
        "initializer_range": spec.init_std,
        "tie_word_embeddings": True,
    }


def read_roberta(config: dict) -> ModelSpec:
    """RoBERTa's config as a spec."""
    require(config, hidden_act="gelu")  # the head's, whatever the layers'
    pad = with_defaults(config, ROBERTA)["pad_token_id"]
    if pad < 0:
        raise UserError(f"config.json: pad_token_id={pad}: must be at least 0")
    # Position 0 is the row after that of the padding (fairseq: padding_idx + 1).
    return read_bert(config, ROBERTA, pad + 1)


def write_roberta(spec: ModelSpec) -> dict:
    """The config of a spec of RoBERTa's family, adapted to the padding's id."""
    return write_bert(spec) | {"pad_token_id": spec.position_offset - 1}


def read_electra(config: dict) -> ModelSpec:
    """ELECTRA's config as a spec."""
    require(config, hidden_act="gelu")  # the generator's head's
    spec = read_bert(config, ELECTRA)
    width = with_defaults(config, ELECTRA)["embedding_size"]
    return dataclasses.replace(
        spec, embedding_size=0 if width == spec.d_model else width
    )


def write_electra(spec: ModelSpec) -> dict:
    """The config of a spec of ELECTRA's family."""
    return write_bert(spec) | {"embedding_size": spec.embedding_dim}


def read_distilbert(config: dict) -> ModelSpec:
    """DistilBERT's config as a spec."""
    config = with_defaults(config, DISTILBERT, DISTILBERT_ALIASES)
    require(config, is_encoder_decoder=False, tie_word_embeddings=True)
    return ModelSpec(
        vocab_size=config["vocab_size"],
        num_layers=config["n_layers"],
        d_model=config["dim"],
        num_heads=config["n_heads"],
        d_ff=config["hidden_dim"],
        max_len=config["max_position_embeddings"],
        norm_position="post",
        norm_epsilon=1e-12,
        activation=read_activation(config, "activation"),
        head_transform=True,
        head_bias=True,
        dropout=config["dropout"],
        embed_dropout=config["dropout"],
        attention_dropout=config["attention_dropout"],
        init_std=config["initializer_range"],
    )


def write_distilbert(spec: ModelSpec) -> dict:
    """The config of a spec of DistilBERT's family."""
    return {
        "vocab_size": spec.vocab_size,
        "n_layers": spec.num_layers,
        "dim": spec.d_model,
        "n_heads": spec.num_heads,
        "hidden_dim": spec.d_ff,
        "max_position_embeddings": spec.max_len,
        "activation": ACTIVATION_NAMES[spec.activation],
        "dropout": spec.dropout,
        "attention_dropout": spec.attention_dropout,
        "initializer_range": spec.init_std,
        "sinusoidal_pos_embds": False,
        "tie_word_embeddings": True,
    }


def read_modernbert(config: dict) -> ModelSpec:
    """ModernBERT's config as a spec."""
    config = with_defaults(config, MODERNBERT)
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    require(
        config,
        is_encoder_decoder=False,
        norm_bias=False,
        attention_bias=False,
        mlp_bias=False,
        decoder_bias=True,
        classifier_bias=False,  # the head's
        tie_word_embeddings=True,
        head_dim=None,
    )
    every, window = _read_layer_types(config, layers), config["local_attention"] // 2
    if every != 1 and config.get("sliding_window") is not None:  # which overrules it
        require(config, sliding_window=window)
    if every != 1 and window < 1:
        raise UserError(
            f"config.json: local_attention={config['local_attention']}: must be at "
            f"least 2"
        )
    bases = [
        _read_modernbert_rope(config, *of_kind)
        for of_kind in (
            ("full_attention", "global_rope_theta", 160000.0),
            ("sliding_attention", "local_rope_theta", 10000.0),
        )
    ]
    activation = read_activation(config, "hidden_activation")
    if read_activation(config, "classifier_activation") != activation:
        raise UserError(
            f"config.json: classifier_activation={config['classifier_activation']!r}: "
            f"must be hidden_activation={config['hidden_activation']!r}; another one "
            "in the head is not supported"
        )
    return ModelSpec(
        vocab_size=config["vocab_size"],
        num_layers=layers,
        d_model=width,
        num_heads=config["num_attention_heads"],
        d_ff=config["intermediate_size"],
        max_len=config["max_position_embeddings"],
        norm_epsilon=config["norm_eps"],
        norm_bias=False,
        embed_norm=True,
        activation=activation,
        gated_mlp=True,
        positions="rotary",
        rotary_base=bases[0],
        window=0 if every == 1 else window,
        global_every=0 if every == 1 else every,
        local_rotary_base=0.0 if every == 1 else bases[1],
        use_bias=False,
        head_transform=True,
        head_bias=True,
        dropout=config["mlp_dropout"],
        embed_dropout=config["embedding_dropout"],
        attention_dropout=config["attention_dropout"],
        init_std=config["initializer_range"],
    )


def _read_layer_types(config: dict, layers: int) -> int:
    """`ModelSpec.global_every`: 1 where every layer has full attention.

    Raises:
      UserError: the kinds of layers follow no such rule.
    """
    kinds, every = config.get("layer_types"), config["global_attn_every_n_layers"]
    if kinds is None:
        if every < 1:
            raise UserError(
                f"config.json: global_attn_every_n_layers={every}: must be at least 1"
            )
        return 1 if layers == 1 else every
    full, local = "full_attention", "sliding_attention"
    for every in (1, *range(2, layers + 1), 0):
        wanted = [local if every == 0 or i % every else full for i in range(layers)]
        if kinds == wanted:
            return every
    raise UserError(
        f"config.json: layer_types={kinds}: must be {full} in the first of {layers} "
        f"layers and then in one of every n, or in none, and else {local}"
    )


def _read_modernbert_rope(config: dict, kind: str, own: str, theta: float) -> float:
    """The rotary base of one kind of layers, which may stand under its `own` key."""
    rope = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or {}
    for key, value in {"rope_parameters": rope, "rope_scaling": scaling}.items():
        if not isinstance(value, dict):
            raise UserError(f"config.json: {key}={value!r}: must be an object")
    for key, value in rope.items():
        if not isinstance(value, dict):
            raise UserError(
                f"config.json: rope_parameters.{key}={value!r}: must be an object; "
                "they are those of 'full_attention' and 'sliding_attention'"
            )
    rope = rope.get(kind, {}) | scaling
    told = config.get(own, theta)
    return read_rope(rope, theta if told is None else told)


def write_modernbert(spec: ModelSpec) -> dict:
    """The config of a spec of ModernBERT's family."""
    kinds = {
        "full_attention": spec.rotary_base,
        "sliding_attention": spec.local_rotary_base or spec.rotary_base,
    }
    full, local = kinds
    layers = range(spec.num_layers)
    windows = {"local_attention": 2 * spec.window} if spec.window else {}
    return {
        "vocab_size": spec.vocab_size,
        "num_hidden_layers": spec.num_layers,
        "hidden_size": spec.d_model,
        "num_attention_heads": spec.num_heads,
        "intermediate_size": spec.d_ff,
        "max_position_embeddings": spec.max_len,
        **windows,
        "norm_eps": spec.norm_epsilon,
        "norm_bias": False,
        "hidden_activation": ACTIVATION_NAMES[spec.activation],
        "classifier_activation": ACTIVATION_NAMES[spec.activation],
        "global_attn_every_n_layers": (spec.global_every or 1) if spec.window else 1,
        "layer_types": [local if spec.is_local(i) else full for i in layers],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base}
            for kind, base in kinds.items()
        },
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": True,
        "tie_word_embeddings": True,
        "mlp_dropout": spec.dropout,
        "embedding_dropout": spec.embed_dropout,
        "attention_dropout": spec.attention_dropout,
        "initializer_range": spec.init_std,
    }

"""Config fields of encoders from BERT to ModernBERT, and of ModernBERT's decoder."""

import dataclasses

from jaxpt.hub.fields import (
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
    write_activation,
)
from jaxpt.hub.rotary import read_layer_base, write_rope
from jaxpt.hub.windows import FULL, LOCAL, find_global_every, list_kinds
from jaxpt.nn.model_spec import ModelSpec

# transformers' classes cannot be without segment types.
_TYPES = field(
    "type_vocab_size", "num_types", 2, encode=lambda spec: max(1, spec.num_types)
)


def _list_bert_rows(
    vocab_size: int, width: int, heads: int, mlp_width: int, has_types: bool = True
) -> tuple[Row, ...]:
    """The rows that BERT, RoBERTa and ELECTRA share, with their defaults."""
    types = (_TYPES,) if has_types else ()
    return (
        fixed(
            position_embedding_type="absolute",  # of the class's older versions
            is_decoder=False,
            is_encoder_decoder=False,
            add_cross_attention=False,
        ),
        fixed(tie_word_embeddings=True, is_written=True),
        field("vocab_size", "vocab_size", vocab_size),
        field("num_hidden_layers", "num_layers", 12),
        field("hidden_size", "d_model", width),
        field("num_attention_heads", "num_heads", heads),
        field("intermediate_size", "d_ff", mlp_width),
        *types,
        field("layer_norm_eps", "norm_epsilon", 1e-12),
        field("hidden_dropout_prob", ("dropout", "embed_dropout"), 0.1),
        field("attention_probs_dropout_prob", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    )


_LENGTH = field("max_position_embeddings", "max_len", 512)
_BERT_FORM = {
    "norm_position": "post",
    "head_transform": True,
    "head_bias": True,
    "init": "truncated",
}
BERT = Family(
    "bert",
    {"masked": "BertForMaskedLM", "pretraining": "BertForPreTraining"},
    (
        *_list_bert_rows(30522, 768, 12, 3072),
        _LENGTH,
        activation("hidden_act", "gelu"),
    ),
    constants=_BERT_FORM,
    inert=NO_ROPE + "classifier_dropout",
    freezes_pad=True,
)
# The head has GELU whatever the layers have, so the layers must have it, too.
_GELU = fixed(hidden_act="gelu", is_written=True)


def _decode_pad(pad: int, config: Config) -> int:
    if pad < 0:
        raise refusal("pad_token_id", pad, "at least 0")
    return pad + 1


def _list_roberta_rows(vocab_size: int) -> tuple[Row, ...]:
    return (
        *_list_bert_rows(vocab_size, 768, 12, 3072),
        _GELU,
        # Position 0 is the row after that of the padding (fairseq: padding_idx + 1).
        field(
            "pad_token_id",
            "position_offset",
            1,
            _decode_pad,
            lambda spec: spec.position_offset - 1,
        ),
        field(
            "max_position_embeddings",
            "max_len",
            512,
            lambda length, config: length - config["pad_token_id"] - 1,
            lambda spec: spec.max_len + spec.position_offset,
        ),
    )


ROBERTA = Family(
    "roberta",
    {"masked": "RobertaForMaskedLM"},
    _list_roberta_rows(50265),
    constants=_BERT_FORM | {"activation": "gelu"},
    inert=NO_ROPE + "classifier_dropout",
    counts_from_pad=True,
    freezes_pad=True,
)
XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    name="xlm-roberta",
    heads={"masked": "XLMRobertaForMaskedLM"},
    rows=_list_roberta_rows(30522),
    like="roberta",
)
CAMEMBERT = dataclasses.replace(
    XLM_ROBERTA, name="camembert", heads={"masked": "CamembertForMaskedLM"}
)
# Positions and T5's bias. Position 0 is the row after that of padding, always 1.
MPNET = Family(
    "mpnet",
    {"masked": "MPNetForMaskedLM"},
    (
        *_list_bert_rows(30527, 768, 12, 3072, has_types=False),
        _GELU,
        field(
            "max_position_embeddings",
            "max_len",
            512,
            lambda length, _: length - 2,
            lambda spec: spec.max_len + spec.position_offset,
        ),
        # The class's code has 32 whatever its table has.
        fixed(relative_attention_num_buckets=32, is_written=True),
    ),
    constants=_BERT_FORM
    | {
        "activation": "gelu",
        "position_offset": 2,
        "relative_bias": True,
        "relative_buckets": 32,
        "relative_max_distance": 128,
        "relative_directions": "both",
    },
    inert=NO_ROPE,
    counts_from_pad=True,
    freezes_pad=True,
)
ELECTRA = Family(
    "electra",
    {
        "masked": "ElectraForMaskedLM",  # a generator alone
        "generator": "ElectraForMaskedLM",
        "discriminator": "ElectraForPreTraining",
    },
    (
        *_list_bert_rows(30522, 256, 4, 1024),
        _GELU,
        _LENGTH,
        field(
            "embedding_size",
            "embedding_size",
            128,
            lambda width, config: 0 if width == config["hidden_size"] else width,
            "embedding_dim",
        ),
    ),
    constants=_BERT_FORM | {"activation": "gelu"},
    inert=NO_ROPE + "classifier_dropout summary_type summary_use_proj "
    "summary_activation summary_last_dropout",
    freezes_pad=True,
)
DISTILBERT = Family(
    "distilbert",
    {"masked": "DistilBertForMaskedLM"},
    (
        fixed(is_encoder_decoder=False),
        fixed(tie_word_embeddings=True, is_written=True),
        field("vocab_size", "vocab_size", 30522),
        field("n_layers", "num_layers", 6),
        field("dim", "d_model", 768),
        field("n_heads", "num_heads", 12),
        field("hidden_dim", "d_ff", 3072),
        _LENGTH,
        activation("activation", "gelu"),
        field("dropout", ("dropout", "embed_dropout"), 0.1),
        field("attention_dropout", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    ),
    constants={
        "norm_position": "post",
        "norm_epsilon": 1e-12,
        "head_transform": True,
        "head_bias": True,
    },
    aliases={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    inert=NO_ROPE + "qa_dropout seq_classif_dropout sinusoidal_pos_embds",
    freezes_pad=True,
)


def _read_modernbert_layers(config: Config) -> Values:
    """Which layers have a window, its width, and the rotary base of either kind."""
    return _read_local_layers(config, config["local_attention"] // 2, 1)


def _read_decoder_layers(config: Config) -> Values:
    """The same for the decoder, whose window counts the token itself."""
    width = config["local_attention"]
    return _read_local_layers(config, 0 if width is None else width // 2, 2)


def _read_local_layers(config: Config, width: int, least: int) -> Values:
    every = _read_layer_types(config)
    if every != 1 and config.get("sliding_window") is not None:  # which overrules it
        require(config, sliding_window=width)
    if every != 1 and width < least:
        raise refusal(
            "local_attention", config["local_attention"], f"at least {2 * least}"
        )
    scaling = config.get("rope_scaling") or {}
    full = read_layer_base(config, FULL, "global_rope_theta", 160000.0, scaling)
    local = read_layer_base(config, LOCAL, "local_rope_theta", 10000.0, scaling)
    if every == 1:
        return {"rotary_base": full}
    return {
        "rotary_base": full,
        "local_rotary_base": local,
        "window": width - least + 1,
        "global_every": every,
    }


def _read_layer_types(config: Config) -> int:
    """`ModelSpec.global_every`; 1 if every layer has full attention.

    Raises:
      UserError: the kinds of layers follow no such rule.
    """
    kinds, every = config.get("layer_types"), config["global_attn_every_n_layers"]
    layers = config["num_hidden_layers"]
    if kinds is None:
        if every < 1:
            raise refusal("global_attn_every_n_layers", every, "at least 1")
        return 1 if layers == 1 else every
    return find_global_every(kinds, layers)


def _write_modernbert_layers(spec: ModelSpec) -> Config:
    width = {"local_attention": 2 * spec.window} if spec.window else {}
    every = (spec.global_every or 1) if spec.window else 1
    return {
        "global_attn_every_n_layers": every,
        **_write_local_layers(spec),
        **width,
    }


def _write_decoder_layers(spec: ModelSpec) -> Config:
    width = {"local_attention": 2 * (spec.window + 1)} if spec.window else {}
    return {**_write_local_layers(spec), **width}


def _write_local_layers(spec: ModelSpec) -> Config:
    return {
        "layer_types": list_kinds(spec),
        "rope_parameters": {
            FULL: write_rope(spec, spec.rotary_base),
            LOCAL: write_rope(spec, spec.local_rotary_base or spec.rotary_base),
        },
    }


def _list_modernbert_rows(layers: Row) -> tuple[Row, ...]:
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


_MODERNBERT_FORM = {
    "norm_bias": False,
    "embed_norm": True,
    "gated_mlp": True,
    "positions": "rotary",
    "use_bias": False,
    "head_transform": True,
    "head_bias": True,
}
# The class has a rope_theta for each kind of layer, and reads no partial factor.
_MODERNBERT_INERT = (
    "rope_theta partial_rotary_factor cls_token_id sep_token_id classifier_dropout "
    "initializer_cutoff_factor "
)
_LAYER_DEFAULTS = {"global_attn_every_n_layers": 3, "local_attention": 128}
MODERNBERT = Family(
    "modernbert",
    {"masked": "ModernBertForMaskedLM"},
    _list_modernbert_rows(
        Row(_read_modernbert_layers, _write_modernbert_layers, _LAYER_DEFAULTS)
    ),
    constants=_MODERNBERT_FORM,
    inert=_MODERNBERT_INERT + "classifier_pooling deterministic_flash_attn "
    "reference_compile sparse_prediction sparse_pred_ignore_index",
    freezes_pad=True,
)
# Ettin's decoders.
MODERNBERT_DECODER = Family(
    "modernbert-decoder",
    {"causal": "ModernBertDecoderForCausalLM"},
    (
        fixed(is_causal=True),
        *_list_modernbert_rows(
            Row(
                _read_decoder_layers,
                _write_decoder_layers,
                _LAYER_DEFAULTS,
                nullable=("local_attention",),
            )
        ),
    ),
    constants=_MODERNBERT_FORM,
    inert=_MODERNBERT_INERT,
    freezes_pad=True,
)

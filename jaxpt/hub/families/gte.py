"""GTE, also as the code in its repositories (`model_type` "new")."""

from typing import Any

from jaxpt.errors import DataError
from jaxpt.hub.entries import QKV, Table, map_head
from jaxpt.hub.families.bert_form import GELU
from jaxpt.hub.families.rotary_bert_form import ROTARY_BERT_FORM, list_body, list_rows
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, check_type, field, fixed, refusal
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    "attention.qkv_proj": QKV,
    "attention.o_proj": "attention/out",
    "attn_ln": "attention_norm",
    "mlp.up_gate_proj": "mlp/up mlp/gate",
    "mlp.down_proj": "mlp/down",
    "mlp_ln": "mlp_norm",
}
# The defaults of the repository's code, where they differ from those of the class.
_OLDER = {
    "vocab_size": 30528,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}
# Fields that it has in addition: those of `FAMILY` and those that change no number.
_KNOWN = set(
    """
    auto_map hidden_act is_encoder_decoder layer_norm_type logn_attention_clip1
    logn_attention_scale model_type pack_qkv position_embedding_type rope_scaling
    rope_theta tie_word_embeddings tokenizer_class unpad_inputs
    use_memory_efficient_attention
    """.split()
)


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, "gte", "embeddings.LayerNorm", "encoder.layer", _MODULES)
    yield from map_head(spec, "lm_head.dense", "lm_head.norm", "lm_head.decoder.bias")


def _complete(config: Config) -> Config:
    """The config with the defaults and frequencies of the repository's code."""
    if config.get("model_type") != "new":
        return config
    known = FAMILY.inert_names | FAMILY.defaults.keys() | _KNOWN
    for name in sorted(config.keys() - known):
        raise DataError(
            f"config.json: {name}={config[name]!r}: is not known with "
            "model_type='new', so it might change numbers"
        )
    config = _OLDER | config
    scaling = config.get("rope_scaling")
    if scaling is None:
        return config
    return config | {"rope_scaling": _read_ntk(scaling, config)}


def _read_ntk(scaling: Any, config: Config) -> Config:
    """NTK scaling as rotary parameters of transformers.

    The base is multiplied by the factor s, and then every frequency is divided by
    s^(2 / H). Llama's scaled frequencies with an original length of 1 divide every
    frequency, as none makes a turn in one token.
    """
    check_type("rope_scaling", scaling, dict, "an object or null")
    if scaling.get("type") != "ntk":
        raise refusal("rope_scaling.type", scaling.get("type"), "'ntk'")
    for name in sorted(scaling.keys() - {"type", "factor"}):
        raise DataError(f"config.json: rope_scaling.{name}: is not supported")
    factor, theta = scaling.get("factor"), config["rope_theta"]
    for name, value in {"rope_scaling.factor": factor, "rope_theta": theta}.items():
        check_type(name, value, (int, float), "a number")
    width, heads = (
        config.get("hidden_size", 768),
        config.get("num_attention_heads", 12),
    )
    for name, value in {"hidden_size": width, "num_attention_heads": heads}.items():
        check_type(name, value, int, "an integer")
    for name, value, least in (
        ("rope_scaling.factor", factor, 1),
        ("num_attention_heads", heads, 1),
        ("hidden_size", width, heads),
    ):
        if value < least:
            raise refusal(name, value, f"at least {least}")
    return {
        "rope_type": "llama3",
        "rope_theta": float(theta * factor),
        "factor": float(factor ** (2 / (width // heads))),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1,
    }


FAMILY = Family(
    "gte",
    {"masked": "GteForMaskedLM"},
    (
        # Of the repository's code.
        fixed(
            position_embedding_type="rope",
            layer_norm_type="layer_norm",
            pack_qkv=True,
            logn_attention_scale=False,
        ),
        GELU,
        *list_rows(
            250048,
            field("type_vocab_size", "num_types", 1),
            epsilon=1e-12,
            theta=160000.0,
            attention_dropout=0.0,
        ),
    ),
    list_tensors,
    body="gte.",
    constants=ROTARY_BERT_FORM
    | {"activation": "gelu", "gated_mlp": True, "up_bias": "no"},
    inert="classifier_dropout",
    complete=_complete,
    older_classes={"NewForMaskedLM": "masked"},
    renamed={"new.": "gte."},
    copies={"lm_head.decoder.weight": "gte.embeddings.word_embeddings.weight"},
    unused=r"pooler\..*",
    freezes_pad=True,
)

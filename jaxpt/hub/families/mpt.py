"""MPT: ALiBi, LayerNorms without biases, and no other bias.

The class ignores most fields for other networks, which the code of its first
repositories has: those are refused.
"""

from typing import Any

from jaxpt.errors import DataError
from jaxpt.hub.entries import QKV, Table, TensorEntry, map_layers, map_norm, map_untied
from jaxpt.hub.families.llama_form import RATE
from jaxpt.hub.family import Family
from jaxpt.hub.fields import (
    CAUSAL,
    NO_ROPE,
    Config,
    FieldRow,
    Values,
    check_type,
    field,
    fixed,
    refusal,
)
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    "norm_1": "attention_norm",
    "attn.Wqkv": QKV,
    "attn.out_proj": "attention/out",
    "norm_2": "mlp_norm",
    "ffn.up_proj": "mlp/up",
    "ffn.down_proj": "mlp/down",
}
# The fields of `attn_config` that have one supported value.
_ATTENTION: dict[str, Any] = {
    "alibi": True,
    "alibi_bias_max": 8,
    "attn_type": "multihead_attention",
    "attn_uses_sequence_id": False,
    "clip_qkv": None,
    "prefix_lm": False,
    "qk_ln": False,
    "softmax_scale": None,
}
# Those that change no number. Version 4 of transformers writes its options of
# generation here, too.
_IDLE = set(
    """
    attn_impl is_encoder_decoder model_type tie_word_embeddings
    diversity_penalty length_penalty max_length num_beam_groups num_beams
    num_return_sequences repetition_penalty temperature top_k top_p typical_p
    """.split()
)
_RATIO = 4  # of the width of an MLP to that of the model


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.wte.weight", ("embed/tokens",))
    layers, num = "transformer.blocks", spec.num_layers
    yield from map_layers(spec, num, layers, "encoder", _MODULES)
    yield from map_norm(spec, "transformer.norm_f", "encoder/norm")
    yield from map_untied(spec)


def _read_attention(config: Config) -> Values:
    """The dropout of attention's weights, if all else has its one value."""
    attention = config.get("attn_config") or {}
    check_type("attn_config", attention, dict, "an object or null")
    known = {*_ATTENTION, "attn_pdrop", *_IDLE, *FAMILY.inert_names}
    for name in sorted(attention.keys() - known):
        if not attention[name]:
            continue
        raise DataError(
            f"config.json: attn_config.{name}={attention[name]!r}: is not known in an "
            "mpt model, so it might change numbers"
        )
    for name, value in _ATTENTION.items():
        if attention.get(name, value) != value:
            raise refusal(f"attn_config.{name}", attention[name], repr(value))
    rate = attention.get("attn_pdrop", 0)
    check_type("attn_config.attn_pdrop", rate, (int, float), "a number")
    return {"attention_dropout": float(rate)}


def _write_attention(spec: ModelSpec) -> Config:
    # The class only accepts an integer as rate of dropout, which is left out.
    return {"attn_config": dict(_ATTENTION)}


FAMILY = Family(
    "mpt",
    {"causal": "MptForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        fixed(
            expansion_ratio=_RATIO,
            no_bias=True,
            logit_scale=None,
            embedding_fraction=1.0,
            norm_type="low_precision_layernorm",
            is_written=True,
        ),
        FieldRow(_read_attention, _write_attention),
        field("vocab_size", "vocab_size", 50368),
        field("n_layers", "num_layers", 24),
        field("d_model", "d_model", 2048),
        FieldRow(lambda config: {"d_ff": _RATIO * config["d_model"]}, lambda spec: {}),
        field("n_heads", "num_heads", 16),
        field("max_seq_len", "max_len", 2048),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("resid_pdrop", "dropout", 0.0),
        field("emb_pdrop", "embed_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={"positions": "alibi", "use_bias": False, "norm_bias": False},
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    # With ALiBi there are no other positions.
    inert=NO_ROPE + "init_device learned_pos_emb",
    older_classes={"MPTForCausalLM": "causal"},
    copies={"lm_head.weight": "transformer.wte.weight"},
    rate=RATE,
)

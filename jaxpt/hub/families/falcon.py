"""Falcon: attention and MLP in parallel, with few heads of keys and values.

The 7b has one such head and one norm for both parts; the new decoder (40b, 180b) has
groups of heads and two norms, or one (Falcon 2).

ALiBi (Falcon-RW) is refused: the class rounds slope times position to bfloat16, so that
its bias is not one of distances, and its eager attention adds it twice (5.23).
"""

from dataclasses import replace

from jaxpt.errors import DataError
from jaxpt.hub.entries import QKV, Table, TensorEntry, map_layers, map_norm, map_untied
from jaxpt.hub.families.llama_form import RATE
from jaxpt.hub.family import Family
from jaxpt.hub.fields import (
    CAUSAL,
    Config,
    FieldRow,
    Values,
    activation,
    field,
    fixed,
    name_width,
    refusal,
    size,
)
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

# By the number of norms that parallel parts have; 0: the parts are serial.
_NORMS = {
    0: {
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "mlp_norm",
    },
    1: {"input_layernorm": "attention_norm"},
    2: {"ln_attn": "attention_norm", "ln_mlp": "mlp_norm"},
}
_NEW, _MULTI, _NUM = "new_decoder_architecture", "multi_query", "num_kv_heads"
_PARALLEL, _NUM_NORMS = "parallel_attn", "num_ln_in_parallel_attn"


def _read_alibi(config: Config) -> Values:
    """Nothing, if positions are rotary."""
    if config["alibi"]:
        raise DataError(
            "config.json: alibi=True: must be false, as the class rounds this bias to "
            "bfloat16 at each position"
        )
    return {}


def _count_norms(spec: ModelSpec) -> int:
    return (1 if spec.shared_norm else 2) if spec.parallel_residual else 0


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.word_embeddings.weight", ("embed/tokens",))
    modules = {
        **_NORMS[_count_norms(spec)],
        "self_attention.query_key_value": QKV,
        "self_attention.dense": "attention/out",
        "mlp.dense_h_to_4h": "mlp/up",
        "mlp.dense_4h_to_h": "mlp/down",
    }
    layers = "transformer.h"
    for entry in map_layers(spec, spec.num_layers, layers, "encoder", modules):
        # The queries of each group are followed by its keys and values.
        is_qkv = len(entry.paths) > 1
        yield replace(entry, num_heads=spec.kv_heads) if is_qkv else entry
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    yield from map_untied(spec)


def _read_form(config: Config) -> Values:
    """The heads of keys and values, and the norms of parallel parts."""
    heads, num, norms = (
        config["num_attention_heads"],
        config[_NUM],
        config[_NUM_NORMS],
    )
    is_new, is_parallel = config[_NEW], config[_PARALLEL]
    norms = norms or (2 if is_new else 1)
    if norms not in ((1, 2) if is_new else (1,)):
        allowed = "null, 1 or 2" if is_new else f"null or 1 with {_NEW}=False"
        raise refusal(_NUM_NORMS, norms, allowed)
    if is_new and not is_parallel:
        raise refusal(_PARALLEL, False, f"true with {_NEW}=True")
    if is_new:
        kv_heads = heads if num is None else num
    else:  # the class then reads `num_kv_heads` only for keys of all heads
        kv_heads = 1 if config[_MULTI] else heads
        if not config[_MULTI] and num not in (None, heads):
            raise refusal(_NUM, num, f"null or {heads}, with {_MULTI}=False")
    if kv_heads < 1:
        raise refusal(_NUM, kv_heads, "at least 1")
    return {
        "num_kv_heads": kv_heads,
        "parallel_residual": is_parallel,
        "shared_norm": is_parallel and norms == 1,
    }


def _write_form(spec: ModelSpec) -> Config:
    num_norms, heads = _count_norms(spec), spec.num_heads
    is_new = num_norms == 2 or spec.kv_heads not in (1, heads)
    return {
        _NEW: is_new,
        _MULTI: not is_new and spec.kv_heads == 1,
        _NUM: spec.kv_heads,
        _PARALLEL: spec.parallel_residual,
        _NUM_NORMS: num_norms or None,
    }


FAMILY = Family(
    "falcon",
    {"causal": "FalconForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        FieldRow(_read_alibi, lambda spec: {"alibi": False}, {"alibi": False}),
        field("vocab_size", "vocab_size", 65024),
        field("num_hidden_layers", "num_layers", 32),
        field("hidden_size", "d_model", 4544),
        size("num_attention_heads", "num_heads", 71),
        FieldRow(
            _read_form,
            _write_form,
            {
                _NEW: False,
                _MULTI: True,
                _NUM: None,
                _PARALLEL: True,
                _NUM_NORMS: None,
            },
        ),
        size("ffn_hidden_size", "d_ff", None, lambda config: 4 * config["hidden_size"]),
        field("max_position_embeddings", "max_len", 2048),
        rope(),
        field("bias", "use_bias", False),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        activation("activation", "gelu"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("hidden_dropout", "dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={"positions": "rotary"},
    complete=name_width,
    copies={"lm_head.weight": "transformer.word_embeddings.weight"},
    buffers=r"transformer\.h\.\d+\.self_attention\.rotary_emb\.inv_freq",
    ids={"bos_token_id": 11, "eos_token_id": 11},
    rate=RATE,
)

"""BLOOM: normed embeddings, ALiBi, and queries, keys and values by head."""

from dataclasses import replace

from jaxpt.hub.entries import QKV, Table, TensorEntry, map_layers, map_norm, map_untied
from jaxpt.hub.families.llama_form import RATE
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, NO_ROPE, FieldRow, field, fixed, name_width, size
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    "input_layernorm": "attention_norm",
    "self_attention.query_key_value": QKV,
    "self_attention.dense": "attention/out",
    "post_attention_layernorm": "mlp_norm",
    "mlp.dense_h_to_4h": "mlp/up",
    "mlp.dense_4h_to_h": "mlp/down",
}
_EMBED = "transformer.word_embeddings"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry(f"{_EMBED}.weight", ("embed/tokens",))
    yield from map_norm(spec, f"{_EMBED}_layernorm", "embed/norm")
    layers, num = "transformer.h", spec.num_layers
    for entry in map_layers(spec, num, layers, "encoder", _MODULES):
        is_qkv = len(entry.paths) > 1
        yield replace(entry, num_heads=spec.num_heads) if is_qkv else entry
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    yield from map_untied(spec)


FAMILY = Family(
    "bloom",
    {"causal": "BloomForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        # With True and pretraining_tp, the class leaves out biases of outputs.
        fixed(slow_but_exact=False),
        fixed(apply_residual_connection_post_layernorm=False, is_written=True),
        field("vocab_size", "vocab_size", 250880),
        field("n_layer", "num_layers", 2),
        field("hidden_size", "d_model", 64),
        FieldRow(lambda config: {"d_ff": 4 * config["hidden_size"]}, lambda spec: {}),
        size("n_head", "num_heads", 8),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("hidden_dropout", "dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={
        "positions": "alibi",
        "embed_norm": True,
        "first_norm": True,
        "activation": "gelu_tanh",
        "max_len": 2048,  # of the pretraining; the class has no limit
    },
    aliases={"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    inert=NO_ROPE + "pretraining_tp",
    complete=name_width,
    copies={"lm_head.weight": f"{_EMBED}.weight"},
    ids={"bos_token_id": 1, "eos_token_id": 2},
    rate=RATE,
)

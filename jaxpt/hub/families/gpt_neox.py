"""GPT-NeoX and Pythia, and the same network reading a text in both directions.

With `is_causal=False` in config.json, the class's attention has no causal mask
(transformers 5.2 and newer), so it is also a masked language model.
"""

from dataclasses import replace

from jaxpt.hub.entries import QKV, Table, TensorEntry, map_layers, map_norm, map_untied
from jaxpt.hub.family import Family
from jaxpt.hub.fields import EITHER_WAY, activation, field, fixed
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("gpt_neox.embed_in.weight", ("embed/tokens",))
    modules = {
        "input_layernorm": "attention_norm",
        "attention.query_key_value": QKV,
        "attention.dense": "attention/out",
        "post_attention_layernorm": "mlp_norm",
        "mlp.dense_h_to_4h": "mlp/up",
        "mlp.dense_4h_to_h": "mlp/down",
    }
    layers = "gpt_neox.layers"
    for entry in map_layers(spec, spec.num_layers, layers, "encoder", modules):
        is_qkv = len(entry.paths) > 1
        yield replace(entry, num_heads=spec.num_heads) if is_qkv else entry
    yield from map_norm(spec, "gpt_neox.final_layer_norm", "encoder/norm")
    yield from map_untied(spec, "embed_out")


FAMILY = Family(
    "gpt_neox",
    {"causal": "GPTNeoXForCausalLM", "masked": "GPTNeoXForCausalLM"},
    (
        EITHER_WAY,
        fixed(sliding_window=None, attention_chunk_size=None, layer_types=None),
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
    list_tensors,
    body="gpt_neox.",
    constants={"positions": "rotary"},
    inert="is_decoder classifier_dropout rope_theta partial_rotary_factor",
    copies={"embed_out.weight": "gpt_neox.embed_in.weight"},
    buffers=r"gpt_neox\.layers\.\d+\.attention\."
    r"(bias|masked_bias|rotary_emb\.inv_freq)",
    ids={"bos_token_id": 0, "eos_token_id": 2},
    purpose_fields={"masked": {"is_causal": False}},
)

"""GPTBigCode (SantaCoder, StarCoder 1): GPT-2 with one head of keys and values."""

from dataclasses import replace

from jaxpt.hub.entries import QKV, Table, TensorEntry, map_layers, map_norm, map_untied
from jaxpt.hub.families import gpt2
from jaxpt.hub.family import Family
from jaxpt.hub.fields import (
    CAUSAL,
    NO_ROPE,
    Config,
    FieldRow,
    Values,
    activation,
    field,
    fixed,
    size,
)
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.wte.weight", ("embed/tokens",))
    yield TensorEntry("transformer.wpe.weight", ("embed/positions/table",))
    modules = {
        "ln_1": "attention_norm",
        "ln_2": "mlp_norm",
        "attn.c_attn": QKV,
        "attn.c_proj": "attention/out",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    for entry in map_layers(spec, spec.num_layers, "transformer.h", "encoder", modules):
        # Without multi_query, each head has its queries, keys and values together.
        is_split = len(entry.paths) > 1 and spec.kv_heads > 1
        yield replace(entry, num_heads=spec.num_heads) if is_split else entry
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    yield from map_untied(spec)


def _read_heads(config: Config) -> Values:
    return {"num_kv_heads": 1 if config["multi_query"] else config["n_head"]}


FAMILY = Family(
    "gpt_bigcode",
    {"causal": "GPTBigCodeForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False, add_cross_attention=False),
        field("vocab_size", "vocab_size", 50257),
        field("n_layer", "num_layers", 12),
        field("n_embd", "d_model", 768),
        size("n_head", "num_heads", 12),
        FieldRow(
            _read_heads,
            lambda spec: {"multi_query": spec.kv_heads == 1},
            {"multi_query": True},
        ),
        size("n_inner", "d_ff", None, lambda config: 4 * config["n_embd"]),
        field("n_positions", "max_len", 1024),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        activation("activation_function", "gelu_pytorch_tanh"),
        field("scale_attn_weights", "scale_attention", True),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("resid_pdrop", "dropout", 0.1),
        field("embd_pdrop", "embed_dropout", 0.1),
        field("attn_pdrop", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={"init": "gpt2"},
    aliases=gpt2.FAMILY.aliases,
    # The class computes the number of key heads from multi_query.
    inert=NO_ROPE + "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 "
    "num_key_value_heads",
    copies=gpt2.FAMILY.copies,
    buffers=gpt2.FAMILY.buffers,
    ids=gpt2.FAMILY.ids,
)

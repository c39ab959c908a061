"""GPT (Radford et al. 2018): norms after each addition; its gelu is the tanh form."""

from typing import Any

from jaxpt.hub.entries import QKV, Table, TensorEntry, map_layers, map_untied
from jaxpt.hub.families import gpt2
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, NO_ROPE, FieldRow, field, fixed, refusal
from jaxpt.nn.model_spec import ModelSpec

# The class's names, which are not those of other classes.
_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
_MODULES = {
    "attn.c_attn": QKV,
    "attn.c_proj": "attention/out",
    "ln_1": "attention_norm",
    "mlp.c_fc": "mlp/up",
    "mlp.c_proj": "mlp/down",
    "ln_2": "mlp_norm",
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.tokens_embed.weight", ("embed/tokens",))
    yield TensorEntry("transformer.positions_embed.weight", ("embed/positions/table",))
    layers, num = "transformer.h", spec.num_layers
    yield from map_layers(spec, num, layers, "encoder", _MODULES, is_transposed=False)
    yield from map_untied(spec)


def _read_activation(value: Any, config: Any) -> str:
    if value not in _ACTIVATIONS:
        raise refusal("afn", value, f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[value]


def _write_activation(spec: ModelSpec) -> str:
    """The class's name; of another activation, one that reads as its own."""
    names = {ours: name for name, ours in _ACTIVATIONS.items() if name != "swish"}
    return names.get(spec.activation, "gelu")


FAMILY = Family(
    "openai-gpt",
    {"causal": "OpenAIGPTLMHeadModel"},
    (
        fixed(is_encoder_decoder=False),
        CAUSAL,
        field("vocab_size", "vocab_size", 40478),
        field("n_layer", "num_layers", 12),
        field("n_embd", "d_model", 768),
        FieldRow(lambda config: {"d_ff": 4 * config["n_embd"]}, lambda spec: {}),
        field("n_head", "num_heads", 12),
        field("n_positions", "max_len", 512),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        field("afn", "activation", "gelu", _read_activation, _write_activation),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("resid_pdrop", "dropout", 0.1),
        field("embd_pdrop", "embed_dropout", 0.1),
        field("attn_pdrop", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={"norm_position": "post", "post_embed_norm": False},
    aliases=gpt2.FAMILY.aliases,
    inert=NO_ROPE + "n_ctx n_special summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout predict_special_tokens",
    copies={"lm_head.weight": "transformer.tokens_embed.weight"},
    buffers=r"transformer\.(position_ids|h\.\d+\.attn\.bias)",
)

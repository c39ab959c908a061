"""Phi 1, 1.5 and 2."""

from jaxpt.hub.entries import Table, TensorEntry, map_layers, map_linear, map_norm
from jaxpt.hub.families.llama_form import BUFFERS, COPIES, RATE, list_heads
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, activation, field, fixed
from jaxpt.hub.rotary import rope
from jaxpt.nn.model_spec import ModelSpec

_HEADS = {"num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("model.embed_tokens.weight", ("embed/tokens",))
    modules = {
        "input_layernorm": "attention_norm",
        **{
            f"self_attn.{letter}_proj": f"attention/{name}"
            for letter, name in (("q", "query"), ("k", "key"), ("v", "value"))
        },
        "self_attn.dense": "attention/out",
        "mlp.fc1": "mlp/up",
        "mlp.fc2": "mlp/down",
    }
    yield from map_layers(spec, spec.num_layers, "model.layers", "encoder", modules)
    yield from map_norm(spec, "model.final_layernorm", "encoder/norm")
    if spec.tie_embeddings:
        yield TensorEntry("lm_head.bias", ("head/bias",))
    else:
        yield from map_linear(spec, "lm_head", "head/out", bias=True)


FAMILY = Family(
    "phi",
    {"causal": "PhiForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        fixed(qk_layernorm=False, is_written=True),
        field("vocab_size", "vocab_size", 51200),
        field("num_hidden_layers", "num_layers", 24),
        field("hidden_size", "d_model", 2048),
        *list_heads(_HEADS),
        field("intermediate_size", "d_ff", 8192),
        field("max_position_embeddings", "max_len", 2048),
        rope(fraction_name="partial_rotary_factor", fraction=0.5),
        field("layer_norm_eps", "norm_epsilon", 1e-5),
        activation("hidden_act", "gelu_new"),
        field("tie_word_embeddings", "tie_embeddings", False),
        field("resid_pdrop", "dropout", 0.0),
        field("embd_pdrop", "embed_dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="model.",
    constants={
        "positions": "rotary",
        "parallel_residual": True,
        "shared_norm": True,
        "head_bias": True,
    },
    freezes_pad=True,
    copies=COPIES,
    buffers=BUFFERS,
    ids={"bos_token_id": 1, "eos_token_id": 2},
    rate=RATE,
)

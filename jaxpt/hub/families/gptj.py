"""GPT-J: parallel attention and MLP behind one norm, and neighbouring rotary pairs."""

from dataclasses import replace

from jaxpt.hub.entries import (
    Table,
    TensorEntry,
    map_layers,
    map_linear,
    map_norm,
    name_attention,
)
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
    refusal,
    size,
)
from jaxpt.nn.model_spec import ModelSpec

_MODULES = {
    "ln_1": "attention_norm",
    **name_attention("attn.{}_proj", out="out"),
    "mlp.fc_in": "mlp/up",
    "mlp.fc_out": "mlp/down",
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.wte.weight", ("embed/tokens",))
    num, heads = spec.num_layers, spec.num_heads
    for entry in map_layers(spec, num, "transformer.h", "encoder", _MODULES):
        if entry.paths[0].endswith(("query/kernel", "key/kernel")):
            width = spec.rotary_width
            entry = replace(
                entry, num_heads=heads, paired=entry.paths, num_paired=width
            )
        yield entry
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    if spec.tie_embeddings:
        yield TensorEntry("lm_head.bias", ("head/bias",))
    else:
        yield from map_linear(spec, "lm_head", "head/out", bias=True)


def _read_rotated(config: Config) -> Values:
    """The part of each head that is rotated."""
    width, num = config["n_embd"] // max(1, config["n_head"]), config["rotary_dim"]
    if num < 2 or num % 2 or num > width:
        raise refusal("rotary_dim", num, f"even, at least 2 and at most {width}")
    fraction = num / width
    # A quotient may be rounded down, to less than that number of a head.
    return {"rotary_fraction": fraction + (int(width * fraction) < num) * 1e-9}


FAMILY = Family(
    "gptj",
    {"causal": "GPTJForCausalLM"},
    (
        fixed(is_encoder_decoder=False),
        CAUSAL,
        field("vocab_size", "vocab_size", 50400),
        field("n_layer", "num_layers", 28),
        field("n_embd", "d_model", 4096),
        field("n_head", "num_heads", 16),
        size("n_inner", "d_ff", None, lambda config: 4 * config["n_embd"]),
        field("n_positions", "max_len", 2048),
        FieldRow(
            _read_rotated,
            lambda spec: {"rotary_dim": spec.rotary_width},
            {"rotary_dim": 64},
        ),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        activation("activation_function", "gelu_new"),
        field("tie_word_embeddings", "tie_embeddings", False),
        field("resid_pdrop", "dropout", 0.0),
        field("embd_pdrop", "embed_dropout", 0.0),
        field("attn_pdrop", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={
        "positions": "rotary",
        "parallel_residual": True,
        "shared_norm": True,
        "qkv_bias": "no",
        "out_bias": "no",
        "head_bias": True,
    },
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    inert=NO_ROPE,
    copies={"lm_head.weight": "transformer.wte.weight"},
    buffers=r"transformer\.h\.\d+\.attn\.(bias|masked_bias|embed_positions)",
    ids={"bos_token_id": 50256, "eos_token_id": 50256},
    rate=2e-5,
)

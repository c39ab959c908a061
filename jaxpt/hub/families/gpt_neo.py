"""GPT-Neo and TinyStories."""

from jaxpt.hub.entries import (
    Table,
    TensorEntry,
    map_layers,
    map_norm,
    map_untied,
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
from jaxpt.hub.windows import LOCAL, decode_window, find_global_every, list_kinds
from jaxpt.nn.model_spec import ModelSpec

_MOST_LAYERS = 1000  # as the config lists all layers


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.wte.weight", ("embed/tokens",))
    yield TensorEntry("transformer.wpe.weight", ("embed/positions/table",))
    modules = {
        "ln_1": "attention_norm",
        **name_attention("attn.attention.{}_proj", out="out"),
        "ln_2": "mlp_norm",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    yield from map_layers(spec, spec.num_layers, "transformer.h", "encoder", modules)
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    yield from map_untied(spec)


def _read_layers(config: Config) -> Values:
    """The window of the local layers, which by default alternate with global ones."""
    num_layers, kinds = config["num_layers"], config.get("attention_layers")
    if num_layers > _MOST_LAYERS:
        raise refusal("num_layers", num_layers, f"at most {_MOST_LAYERS}")
    if kinds is None:
        types = config.get("attention_types") or [[["global", "local"], 12]]
        most = _MOST_LAYERS + 1
        try:
            kinds = [kind for part, n in types for kind in part * min(n, most)]
        except (TypeError, ValueError) as error:
            allowed = "a list of [kinds of layers, times]"
            raise refusal("attention_types", types, allowed) from error
    names = "global", "local"
    every = find_global_every(kinds, num_layers, "attention_types", names)
    if every == 1:
        return {}
    window = decode_window("window_size", config["window_size"])
    return {"window": window, "global_every": every}


def _write_layers(spec: ModelSpec) -> Config:
    kinds = ["local" if kind == LOCAL else "global" for kind in list_kinds(spec)]
    return {
        "attention_types": [[kinds, 1]],
        "window_size": spec.window + 1 if "local" in kinds else 256,
    }


FAMILY = Family(
    "gpt_neo",
    {"causal": "GPTNeoForCausalLM"},
    (
        CAUSAL,
        fixed(is_encoder_decoder=False),
        field("vocab_size", "vocab_size", 50257),
        field("num_layers", "num_layers", 24),
        field("hidden_size", "d_model", 2048),
        field("num_heads", "num_heads", 16),
        size(
            "intermediate_size", "d_ff", None, lambda config: 4 * config["hidden_size"]
        ),
        field("max_position_embeddings", "max_len", 2048),
        FieldRow(_read_layers, _write_layers, {"window_size": 256}),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        activation("activation_function", "gelu_new"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("resid_dropout", "dropout", 0.0),
        field("embed_dropout", "embed_dropout", 0.0),
        field("attention_dropout", "attention_dropout", 0.0),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={"qkv_bias": "no", "scale_attention": False},
    aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    inert=NO_ROPE + "classifier_dropout",
    copies={"lm_head.weight": "transformer.wte.weight"},
    buffers=r"transformer\.h\.\d+\.attn\.attention\.(bias|masked_bias)",
    ids={"bos_token_id": 50256, "eos_token_id": 50256},
)

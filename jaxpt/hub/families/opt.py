"""OPT but for 350m.

OPT-350m, whose norms come after the residual and whose embeddings are narrower, has no
counterpart: its positions are added behind the projection.
"""

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
)
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    prefix = "model.decoder"
    yield TensorEntry(f"{prefix}.embed_tokens.weight", ("embed/tokens",))
    yield TensorEntry(f"{prefix}.embed_positions.weight", ("embed/positions/table",))
    modules = {
        **name_attention("self_attn.{}_proj", out="out"),
        "self_attn_layer_norm": "attention_norm",
        "fc1": "mlp/up",
        "fc2": "mlp/down",
        "final_layer_norm": "mlp_norm",
    }
    yield from map_layers(spec, spec.num_layers, f"{prefix}.layers", "encoder", modules)
    yield from map_norm(spec, f"{prefix}.final_layer_norm", "encoder/norm")
    yield from map_untied(spec)


def _read_table(config: Config) -> Values:
    width, allowed = config["word_embed_proj_dim"], config["hidden_size"]
    if width not in (None, allowed):
        raise refusal("word_embed_proj_dim", width, f"hidden_size={allowed}")
    return {}


FAMILY = Family(
    "opt",
    {"causal": "OPTForCausalLM"},
    (
        CAUSAL,
        fixed(
            is_encoder_decoder=False,
            do_layer_norm_before=True,
            layer_norm_elementwise_affine=True,
            _remove_final_layer_norm=False,
            is_written=True,
        ),
        field("vocab_size", "vocab_size", 50272),
        field("num_hidden_layers", "num_layers", 12),
        field("hidden_size", "d_model", 768),
        FieldRow(
            _read_table,
            lambda spec: {"word_embed_proj_dim": spec.d_model},
            {"word_embed_proj_dim": None},
        ),
        field("num_attention_heads", "num_heads", 12),
        field("ffn_dim", "d_ff", 3072),
        field("max_position_embeddings", "max_len", 2048),
        field("enable_bias", "use_bias", True),
        activation("activation_function", "relu"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("dropout", "dropout", 0.1),
        field("attention_dropout", "attention_dropout", 0.0),
        field("init_std", "init_std", 0.02),
    ),
    list_tensors,
    body="model.",
    constants={"position_offset": 2},
    inert=NO_ROPE + "layerdrop",
    copies={"lm_head.weight": "model.decoder.embed_tokens.weight"},
    freezes_pad=True,
    ids={"bos_token_id": 2, "eos_token_id": 2},
)

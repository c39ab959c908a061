"""GPT-2."""

from jaxpt.hub.entries import QKV, Table, TensorEntry, map_layers, map_norm, map_untied
from jaxpt.hub.family import Family
from jaxpt.hub.fields import CAUSAL, NO_ROPE, activation, field, fixed, size
from jaxpt.hub.task_names import ANSWERS, QUESTIONS, TAGS, TEXTS, TOKENS, HeadNames
from jaxpt.nn.model_spec import ModelSpec


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("transformer.wte.weight", ("embed/tokens",))
    yield TensorEntry("transformer.wpe.weight", ("embed/positions/table",))
    modules = {
        "ln_1": "attention_norm",
        "ln_2": "mlp_norm",
        # Convolutions of width 1, whose kernels are [in, out], as in jaxpt.
        "attn.c_attn": QKV,
        "attn.c_proj": "attention/out",
        "mlp.c_fc": "mlp/up",
        "mlp.c_proj": "mlp/down",
    }
    yield from map_layers(
        spec, spec.num_layers, "transformer.h", "encoder", modules, is_transposed=False
    )
    yield from map_norm(spec, "transformer.ln_f", "encoder/norm")
    yield from map_untied(spec)


FAMILY = Family(
    "gpt2",
    {"causal": "GPT2LMHeadModel"},
    (
        fixed(
            is_encoder_decoder=False,
            scale_attn_weights=True,
            scale_attn_by_inverse_layer_idx=False,
            reorder_and_upcast_attn=False,
            add_cross_attention=False,
        ),
        CAUSAL,
        field("vocab_size", "vocab_size", 50257),
        field("n_layer", "num_layers", 12),
        field("n_embd", "d_model", 768),
        field("n_head", "num_heads", 12),
        size("n_inner", "d_ff", None, lambda config: 4 * config["n_embd"]),
        field("n_positions", "max_len", 1024),
        field("layer_norm_epsilon", "norm_epsilon", 1e-5),
        activation("activation_function", "gelu_new"),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("resid_pdrop", "dropout", 0.1),
        field("embd_pdrop", "embed_dropout", 0.1),
        field("attn_pdrop", "attention_dropout", 0.1),
        field("initializer_range", "init_std", 0.02),
    ),
    list_tensors,
    body="transformer.",
    constants={"init": "gpt2"},
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    # The class reads n_positions, not n_ctx.
    inert=NO_ROPE + "n_ctx summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout",
    copies={"lm_head.weight": "transformer.wte.weight"},
    buffers=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
    ids={"bos_token_id": 50256, "eos_token_id": 50256},
    task_heads={
        TEXTS: (
            HeadNames("gpt2", {"score": "out"}, unbiased=("out",), finds_last="pad"),
        ),
        TOKENS: TAGS,
        QUESTIONS: ANSWERS,
    },
)

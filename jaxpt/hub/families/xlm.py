"""XLM (Lample and Conneau 2019) as a masked model, of one language or of several.

Its models of several languages with embeddings of languages are refused, and so are its
causal ones, which have them, too.
"""

from jaxpt.errors import DataError
from jaxpt.hub.entries import (
    Table,
    TensorEntry,
    map_layers,
    map_linear,
    map_norm,
)
from jaxpt.hub.family import Family
from jaxpt.hub.fields import NO_ROPE, Config, FieldRow, Values, field, fixed, refusal
from jaxpt.hub.task_names import TAGS, TEXTS, TOKENS, HeadNames
from jaxpt.nn.model_spec import ModelSpec

_BODY, _HEAD = "transformer", "pred_layer.proj"
_ATTENTION = {
    "q_lin": "attention/query",
    "k_lin": "attention/key",
    "v_lin": "attention/value",
    "out_lin": "attention/out",
}
_PARTS = {"attentions": _ATTENTION, "ffns": {"lin1": "mlp/up", "lin2": "mlp/down"}}
_LANGUAGES = {"n_langs": 1, "use_lang_emb": True}
_NORMS = {"layer_norm1": "attention_norm", "layer_norm2": "mlp_norm"}
_LINEAR = {"sequence_summary.summary": "out"}
# How transformers' XLMSequenceSummary pools the states.
_SUMMARY = (
    ("summary_type", "first"),
    ("summary_use_proj", True),
    ("summary_activation", None),
    ("summary_proj_to_labels", True),
)


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry(f"{_BODY}.embeddings.weight", ("embed/tokens",))
    positions = f"{_BODY}.position_embeddings.weight"
    yield TensorEntry(positions, ("embed/positions/table",))
    yield from map_norm(spec, f"{_BODY}.layer_norm_emb", "embed/norm")
    for name, modules in _PARTS.items():
        yield from map_layers(
            spec, spec.num_layers, f"{_BODY}.{name}", "encoder", modules
        )
    for name, path in _NORMS.items():
        for i in range(spec.num_layers):
            yield from map_norm(
                spec, f"{_BODY}.{name}.{i}", f"encoder/layer_{i}/{path}"
            )
    if spec.tie_embeddings:
        yield TensorEntry(f"{_HEAD}.bias", ("head/bias",))
    else:
        yield from map_linear(spec, _HEAD, "head/out", bias=True)


def _check_languages(config: Config) -> Values:
    num = config["n_langs"]
    if num < 1:
        raise refusal("n_langs", num, "at least 1")
    if num > 1 and config["use_lang_emb"]:
        raise DataError(
            f"config.json: use_lang_emb=True with n_langs={num}: embeddings of "
            "languages are not supported; must be false, or n_langs=1"
        )
    return {}


FAMILY = Family(
    "xlm",
    {"masked": "XLMWithLMHeadModel"},
    (
        fixed(
            causal=False,
            is_encoder=True,
            is_encoder_decoder=False,
            asm=False,
            sinusoidal_embeddings=False,
        ),
        FieldRow(_check_languages, lambda spec: {}, _LANGUAGES),
        field("vocab_size", "vocab_size", 30145),
        field("n_layers", "num_layers", 12),
        field("emb_dim", "d_model", 2048),
        FieldRow(lambda config: {"d_ff": 4 * config["emb_dim"]}, lambda spec: {}),
        field("n_heads", "num_heads", 16),
        field("max_position_embeddings", "max_len", 512),
        field(
            "gelu_activation",
            "activation",
            True,
            lambda value, _: "gelu" if value else "relu",
            lambda spec: spec.activation == "gelu",
        ),
        field("layer_norm_eps", "norm_epsilon", 1e-12),
        field("tie_word_embeddings", "tie_embeddings", True),
        field("dropout", ("dropout", "embed_dropout"), 0.1),
        field("attention_dropout", "attention_dropout", 0.1),
        field("init_std", "init_std", 0.02),
    ),
    list_tensors,
    body=f"{_BODY}.",
    constants={"norm_position": "post", "head_bias": True},
    aliases={
        "hidden_size": "emb_dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "n_words": "vocab_size",
        "bos_index": "bos_token_id",
        "eos_index": "eos_token_id",
        "pad_index": "pad_token_id",
    },
    inert=NO_ROPE + "embed_init_std unk_index mask_index mask_token_id lang_id "
    "summary_type summary_use_proj summary_activation summary_proj_to_labels "
    "summary_first_dropout start_n_top end_n_top bos_index eos_index pad_index",
    copies={f"{_HEAD}.weight": f"{_BODY}.embeddings.weight"},
    buffers=rf"{_BODY}\.position_ids",
    freezes_pad=True,
    task_heads={
        TEXTS: (HeadNames("electra", _LINEAR, settings=_SUMMARY),),
        TOKENS: TAGS,
    },
)

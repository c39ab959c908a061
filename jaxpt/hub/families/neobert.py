"""NeoBERT (Le Breton et al. 2025), which transformers loads with its own code only.

That code is not run here. Its config is read as data, and its tensors have the numbers
of a rotary pair next to each other.
"""

from dataclasses import replace

from jaxpt.hub.entries import (
    QKV,
    Table,
    TensorEntry,
    map_layers,
    map_linear,
    map_norm,
)
from jaxpt.hub.families.llama_form import LLAMA_FORM
from jaxpt.hub.family import Family
from jaxpt.hub.fields import Config, FieldRow, field, size
from jaxpt.nn.model_spec import ModelSpec

_MULTIPLE = 8  # to which that code rounds the width of an MLP
_MODULES = {
    "attention_norm": "attention_norm",
    "qkv": QKV,
    "wo": "attention/out",
    "ffn_norm": "mlp_norm",
    "ffn.w12": "mlp/gate mlp/up",
    "ffn.w3": "mlp/down",
}
# Fields that change no number with given weights: `dim_head` follows from others, and
# the class does not tie its head.
_IDLE = set(
    """
    classifier_dropout classifier_init_range decoder_init_range dim_head
    embedding_init_range kwargs tie_word_embeddings tokenizer_class
    """.split()
)
_CODE = "chandar-lab/NeoBERT--model"
_AUTO_MAP = {
    "AutoConfig": f"{_CODE}.NeoBERTConfig",
    "AutoModelForMaskedLM": f"{_CODE}.NeoBERTLMHead",
}


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry("model.encoder.weight", ("embed/tokens",))
    layers = "model.transformer_encoder"
    for entry in map_layers(spec, spec.num_layers, layers, "encoder", _MODULES):
        if len(entry.paths) == 3:
            entry = replace(entry, num_heads=spec.num_heads, paired=entry.paths[:2])
        yield entry
    yield from map_norm(spec, "model.layer_norm", "encoder/norm")
    yield from map_linear(spec, "decoder", "head/out", bias=True)


def _round_width(width: int, config: Config) -> int:
    """The width of the MLPs: two thirds, rounded up."""
    return -(-int(2 * width / 3) // _MULTIPLE) * _MULTIPLE


def _complete(config: Config) -> Config:
    """The config, if all its fields are known."""
    return FAMILY.check_known(config, _IDLE)


FAMILY = Family(
    "neobert",
    {"masked": "NeoBERTLMHead"},
    (
        FieldRow(lambda config: {}, lambda spec: {"auto_map": _AUTO_MAP}),
        field("vocab_size", "vocab_size", 30522),
        field("num_hidden_layers", "num_layers", 28),
        field("hidden_size", "d_model", 768),
        size("num_attention_heads", "num_heads", 12),
        field(
            "intermediate_size",
            "d_ff",
            3072,
            _round_width,
            lambda spec: -(-3 * spec.d_ff // 2),
        ),
        field("max_length", "max_len", 1024),
        field("norm_eps", "norm_epsilon", 1e-6),
    ),
    list_tensors,
    body="model.",
    constants=LLAMA_FORM
    | {"activation": "silu", "tie_embeddings": False, "head_bias": True},
    complete=_complete,
    freezes_pad=True,
)

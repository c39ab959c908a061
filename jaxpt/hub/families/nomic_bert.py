"""NomicBERT, with transformers' config or that of the repository's code.

In the latter's config, fields have GPT-2's names.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxpt.errors import DataError
from jaxpt.hub.entries import (
    QKV,
    Computed,
    Table,
    TensorEntry,
    map_linear,
    map_norm,
    zeros,
)
from jaxpt.hub.families.bert_form import name_copies
from jaxpt.hub.families.rotary_bert_form import ROTARY_BERT_FORM, list_body, list_rows
from jaxpt.hub.family import Family
from jaxpt.hub.fields import (
    Config,
    activation,
    agrees,
    check_type,
    field,
    refusal,
)
from jaxpt.nn.model_spec import ModelSpec

_HEAD = "cls.predictions"
_DENSE = f"{_HEAD}.transform.dense"
_MODULES = {
    "attn.Wqkv": QKV,
    "attn.out_proj": "attention/out",
    "norm1": "attention_norm",
    "mlp.fc11": "mlp/up",
    "mlp.fc12": "mlp/gate",
    "mlp.fc2": "mlp/down",
    "norm2": "mlp_norm",
}
# The names of the repository's code -> the class's, with the defaults of that code.
_NAMES = {
    "n_embd": ("hidden_size", 768),
    "n_layer": ("num_hidden_layers", 12),
    "n_head": ("num_attention_heads", 12),
    "n_inner": ("intermediate_size", None),
    "n_positions": ("max_position_embeddings", 1024),
    "layer_norm_epsilon": ("layer_norm_eps", 1e-5),
    "resid_pdrop": ("hidden_dropout_prob", 0.1),
    "attn_pdrop": ("attention_probs_dropout_prob", 0.1),
    "rotary_emb_base": ("rope_theta", 10000.0),
}
_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu"}
# Fields with one supported value, and the defaults of that code.
_FIXED: dict[str, tuple[Any, Any]] = {
    "qkv_proj_bias": (False, True),
    "mlp_fc1_bias": (False, True),
    "mlp_fc2_bias": (False, True),
    "rotary_emb_fraction": (1.0, 0.0),
    "rotary_emb_interleaved": (False, False),
    "rotary_emb_scale_base": (None, None),
    "rotary_scaling_factor": (None, None),
    "rotary_head_dim": (False, False),
    "num_heads_kv": (None, None),
    "prenorm": (False, False),
    "causal": (False, False),
    "parallel_block": (False, False),
    "parallel_block_tied_norm": (False, False),
    "use_rms_norm": (False, False),
    "scale_attn_weights": (True, True),
    "scale_attn_by_inverse_layer_idx": (False, False),
    "tie_word_embeddings": (True, True),
}
# Fields of that code that are read as they are, and those that change no number.
_KEPT = {"vocab_size", "type_vocab_size", "initializer_range", "model_type"}
_IDLE = set(
    """
    add_pooling_layer auto_map dense_seq_output embd_pdrop fused_bias_fc
    fused_dropout_add_ln last_layer_subset max_trained_positions
    pad_vocab_size_multiple reorder_and_upcast_attn summary_activation
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    use_flash_attn use_xentropy classifier_dropout tokenizer_class
    """.split()
)
_MULTIPLE = 256  # to which that code rounds the width of an MLP


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a checkpoint, for a purpose (`Family.tensors`)."""
    yield from list_body(spec, "nomic_bert", "emb_ln", "encoder.layers", _MODULES)
    yield from map_linear(spec, _DENSE, "head/transform", bias=spec.has_transform_bias)
    yield from map_norm(spec, f"{_HEAD}.transform.layer_norm", "head/norm")
    if spec.head_bias:
        yield TensorEntry(f"{_HEAD}.bias", ("head/bias",))


def _complete(config: Config) -> Config:
    """The config with the class's names, from that of the repository's code."""
    if "n_embd" not in config:
        return config
    known = {*_NAMES, *_FIXED, *_KEPT, *_IDLE, "activation_function"}
    for name in sorted(config.keys() - known - FAMILY.inert_names):
        raise DataError(
            f"config.json: {name}={config[name]!r}: is not known next to n_embd, so it "
            "might change numbers"
        )
    for name, (allowed, default) in _FIXED.items():
        if not agrees(config.get(name, default), allowed):
            raise refusal(name, config.get(name, default), repr(allowed))
    act = config.get("activation_function", "gelu_new")
    if act not in _ACTIVATIONS:
        raise refusal("activation_function", act, " or ".join(_ACTIVATIONS))
    values = {
        name: config.get(older, default) for older, (name, default) in _NAMES.items()
    }
    width = values["intermediate_size"]
    if type(width) is not int or width % _MULTIPLE:
        raise refusal("n_inner", width, f"a multiple of {_MULTIPLE}")
    size, multiple = config.get("vocab_size", 50257), "pad_vocab_size_multiple"
    for name, number in {"vocab_size": size, multiple: config.get(multiple, 1)}.items():
        check_type(name, number, int, "an integer")
    multiple_of = max(1, config.get(multiple, 1))
    values["vocab_size"] = -(-size // multiple_of) * multiple_of
    rest = {name: config[name] for name in _KEPT - {"vocab_size"} if name in config}
    return values | rest | {"hidden_act": _ACTIVATIONS[act]}


def _has_head_bias(tensors: Mapping[str, Any]) -> bool | None:
    """Whether the head has a bias that is not all zero; None without a head."""
    return _has_bias(tensors, f"{_HEAD}.bias", f"{_HEAD}.decoder.bias")


def _read_transform_bias(tensors: Mapping[str, Any]) -> str | None:
    """The same for the dense layer in the head, as `ModelSpec.transform_bias`."""
    has_bias = _has_bias(tensors, f"{_DENSE}.bias")
    return None if has_bias is None else "yes" if has_bias else "no"


def _has_bias(tensors: Mapping[str, Any], *names: str) -> bool | None:
    if f"{_DENSE}.weight" not in tensors:
        return None
    return any(bool(np.any(tensors[name])) for name in names if name in tensors)


def _list_computed(spec: ModelSpec) -> dict[str, Computed]:
    """The biases of a head that has none (`Family.computed`)."""
    biases: dict[str, Computed] = {}
    if not spec.has_transform_bias:
        biases[f"{_DENSE}.bias"] = zeros(spec.d_model)
    if not spec.head_bias:
        biases[f"{_HEAD}.bias"] = zeros(spec.vocab_size)
    return biases


FAMILY = Family(
    "nomic_bert",
    {"masked": "NomicBertForMaskedLM"},
    (
        activation("hidden_act", "silu"),
        *list_rows(
            30528,
            field(
                "type_vocab_size",
                "num_types",
                2,
                encode=lambda spec: max(1, spec.num_types),
            ),
            epsilon=1e-12,
            theta=1000.0,
            dropout=0.0,
            attention_dropout=0.0,
            length=2048,
        ),
    ),
    list_tensors,
    body="nomic_bert.",
    constants=ROTARY_BERT_FORM
    | {"gated_mlp": True, "use_bias": False, "transform_bias": "yes"},
    inert="classifier_dropout",
    complete=_complete,
    older_classes={"NomicBertForPreTraining": "masked"},
    renamed={"bert.": "nomic_bert."},
    unwritten={"head_bias": _has_head_bias, "transform_bias": _read_transform_bias},
    computed=_list_computed,
    copies=name_copies("nomic_bert", _HEAD),
    unused=r"pooler\..*",
    freezes_pad=True,
)

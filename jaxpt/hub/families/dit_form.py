"""What MDLM and BD3-LM have in common: a DiT whose modulation is constant.

Their layers are pre-norm, with factors and shifts that depend on the noise level sigma
(adaLN, Peebles and Xie 2023), m of each being a sixth of A c + b:

    x + m_gate * f(norm(x) * (1 + m_scale) + m_shift),   f = attention, then the MLP
    c = silu(W_2 silu(W_1 e(sigma) + b_1) + b_2),        e = cosines, then sines

Published models have `time_conditioning=False`: sigma is 0 in every text, and m is
constant. An import multiplies norms and output layers by it (`fold`), which gives a
plain Transformer. In an export (`unfold`) the class computes the same: A, W and b_1
are 0, and b has the shifts, scales of 0 and gates of 1.

Departures: A and W are lost, and further training trains the products. No token attends
to padding, which their code reads as text. MDLM's code computes in bfloat16 on GPUs,
also rotations; here these are in float32.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxpt.errors import DataError
from jaxpt.hub.entries import (
    QKV,
    Table,
    TensorEntry,
    map_layers,
    map_linear,
    map_norm,
)
from jaxpt.hub.fields import Config, FieldRow, field, refusal, size
from jaxpt.hub.files import LazyTensors
from jaxpt.nn.model_spec import ModelSpec

DIT_FORM = {
    "positions": "rotary",
    "activation": "gelu_tanh",
    "qkv_bias": "no",
    "out_bias": "no",
    "tie_embeddings": False,
    "head_bias": True,
}
_MODULES = {
    "norm1": "attention_norm",
    "attn_qkv": QKV,
    "attn_out": "attention/out",
    "norm2": "mlp_norm",
    "mlp.0": "mlp/up",
    "mlp.2": "mlp/down",
}
_BODY, _NOISE, _LAST = "backbone", "backbone.sigma_map.mlp", "output_layer"
_MODULATION = "adaLN_modulation"
_NORM = re.compile(r".+\.norm(?:1|2|_final)\.weight")
_SHIFT = re.compile(r"(.+)\.norm(?:1|2|_final)\.bias")
_PART = re.compile(r"(.+\.(?:blocks\.\d+|output_layer))\.(.+)")
# The parts of a modulation, in the order of their tensors: of a norm or output layer.
_SHIFTS = {"norm1.bias": 0, "norm2.bias": 3, "norm_final.bias": 0}
_SCALES = {"norm1.weight": 1, "norm2.weight": 4, "norm_final.weight": 1}
_GATES = {"attn_out.weight": 2, "mlp.2.weight": 5, "mlp.2.bias": 5}
_FREQUENCIES = 256  # of e
_MLP_RATIO = 4
BUFFERS = r"backbone\.rotary_emb\.inv_freq"


def list_tensors(spec: ModelSpec, head: str) -> Table:
    """The tensors of a folded checkpoint, for a purpose (`Family.tensors`)."""
    yield TensorEntry(f"{_BODY}.vocab_embed.embedding", ("embed/tokens",))
    layers, num = f"{_BODY}.blocks", spec.num_layers
    yield from map_layers(spec, num, layers, "encoder", _MODULES)
    yield from map_norm(spec, f"{_BODY}.{_LAST}.norm_final", "encoder/norm")
    yield from map_linear(spec, f"{_BODY}.{_LAST}.linear", "head/out", bias=True)


def fold(config: Config, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tensors with the modulation at sigma = 0 in norms and output layers."""
    if not config.get("adaln", True):
        return tensors
    names = {
        name: name
        for name in tensors
        if not name.startswith(_NOISE) and f".{_MODULATION}." not in name
    }
    for name in filter(_NORM.fullmatch, tensors):
        bias = f"{name.removesuffix('weight')}bias"
        if bias in tensors:
            raise DataError(f"tensor {bias}: has no place in a model with adaln=True")
        names[bias] = bias
    made: dict[str, np.ndarray] = {}

    def read(name: str) -> np.ndarray:
        prefix, part = match.groups() if (match := _PART.fullmatch(name)) else ("", "")
        place = {**_SHIFTS, **_SCALES, **_GATES}.get(part)
        if place is None:
            return tensors[name]
        if prefix not in made:
            made[prefix] = _find_modulation(prefix, config, tensors)
        row = made[prefix][place]
        if part in _SHIFTS:
            return row.astype(np.float32)
        value = tensors[name]
        if value.shape[:1] != row.shape:  # which `from_hf` refuses
            return value
        return (value.T * (row + (part in _SCALES))).T.astype(np.float32)

    return LazyTensors(names, read)


def _find_modulation(
    prefix: str, config: Config, tensors: Mapping[str, Any]
) -> np.ndarray:
    """[6 or 2, D]: the modulation of a layer, or of the last norm, in float64."""
    width, noise_width = config.get("hidden_dim", 768), config.get("cond_dim", 129)
    num = 2 if prefix.endswith(_LAST) else 6

    def dense(x: np.ndarray, name: str, num_out: int) -> np.ndarray:
        weight = _find(f"{name}.weight", tensors, num_out, len(x))
        return weight @ x + _find(f"{name}.bias", tensors, num_out)

    x = np.repeat([1.0, 0.0], _FREQUENCIES // 2)
    for layer in (0, 2):
        x = _silu(dense(x, f"{_NOISE}.{layer}", noise_width))
    return dense(x, f"{prefix}.{_MODULATION}", num * width).reshape(num, width)


def _silu(x: np.ndarray) -> np.ndarray:
    """x / (1 + exp(-x)), without an overflow.

    >>> _silu(np.array([-1e9, 0.0, 1e9])).tolist()
    [-0.0, 0.0, 1000000000.0]
    """
    return x * (0.5 + 0.5 * np.tanh(x / 2))


def _find(name: str, tensors: Mapping[str, Any], *shape: int) -> np.ndarray:
    """A tensor of this shape, in float64."""
    if name not in tensors:
        raise DataError(f"tensor {name}: is missing")
    value = tensors[name]
    if value.shape != shape:
        raise DataError(
            f"tensor {name}: has shape {list(value.shape)}, by the config it must be "
            f"{list(shape)}"
        )
    return np.asarray(value, np.float64)


def unfold(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The reverse of `fold`, with a noise of width 1 that changes nothing."""
    prefixes = dict.fromkeys(m[1] for m in map(_SHIFT.fullmatch, tensors) if m)
    if not prefixes:
        return tensors
    made = {name: x for name, x in tensors.items() if not _SHIFT.fullmatch(name)}
    for prefix in prefixes:
        is_last = prefix.endswith(_LAST)
        norms = ("norm_final",) if is_last else ("norm1", "norm2")
        shifts = [tensors[f"{prefix}.{norm}.bias"] for norm in norms]
        rows = [row for x in shifts for row in (x, 0 * x, 0 * x + 1)]
        bias = np.concatenate(rows[:2] if is_last else rows)
        made[f"{prefix}.{_MODULATION}.bias"] = bias
        made[f"{prefix}.{_MODULATION}.weight"] = np.zeros((len(bias), 1), np.float32)
    for layer, num_in in ((0, _FREQUENCIES), (2, 1)):
        made[f"{_NOISE}.{layer}.weight"] = np.zeros((1, num_in), np.float32)
        made[f"{_NOISE}.{layer}.bias"] = np.zeros(1, np.float32)
    return made


def _read_conditioning(config: Config) -> dict[str, Any]:
    """Nothing, if sigma is 0."""
    if config["time_conditioning"]:
        raise refusal(
            "time_conditioning",
            True,
            "False: with it, norms depend on the noise level of each text",
        )
    return {}


def list_classes(repository: str, name: str) -> Config:
    """The `auto_map` of an export, by which transformers loads that code."""
    code = f"kuleshov-group/{repository}" + 2 * "-"  # then a module
    return {
        "AutoConfig": f"{code}configuration_{name.lower()}.{name}Config",
        "AutoModelForMaskedLM": f"{code}modeling_{name.lower()}.{name}",
    }


def list_rows(auto_map: Config) -> tuple[FieldRow, ...]:
    """The rows that both have, with the defaults of their classes."""
    return (
        FieldRow(
            _read_conditioning,
            lambda spec: {
                "auto_map": auto_map,
                "cond_dim": 1,
                "time_conditioning": False,
            },
            {"cond_dim": 129, "time_conditioning": False},
        ),
        field("vocab_size", "vocab_size", 50258),
        field("model_length", "max_len", 1024),
        field("hidden_dim", "d_model", 768),
        FieldRow(
            lambda config: {"d_ff": _MLP_RATIO * config["hidden_dim"]},
            lambda spec: {},
        ),
        field("n_blocks", "num_layers", 12),
        size("n_heads", "num_heads", 12),
        field("dropout", "dropout", 0.1),
    )

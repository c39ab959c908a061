"""Entries of the tables that map transformers' tensors to jaxpt's parameters."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxpt.nn.model_spec import ModelSpec


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of transformers.

    Attributes:
      hf_name: its name.
      paths: paths in jaxpt's parameters; several are concatenated along the last axis.
      is_transposed: whether the tensor is [out, in], as in PyTorch's Linear.
      is_row: whether the tensor is [1, n] and the parameter [n].
      num_heads: the parameters are concatenated for each of this number of heads; 0 is
        as a whole.
      paired: those of the paths whose heads have the two numbers of a rotary pair next
        to each other in the tensor, as in Su et al. 2021; needs `num_heads`.
      is_swapped: whether the halves of each head change places in the tensor, as for a
        rotation by minus the angles; needs `num_heads`.
      num_paired: how many numbers of a head are pairs, from its first on; 0 is all.
      num_groups: the parameters are concatenated for each of this number of groups of
        heads; 0 is `num_heads`.
    """

    hf_name: str
    paths: tuple[str, ...]
    is_transposed: bool = False
    is_row: bool = False
    num_heads: int = 0
    paired: tuple[str, ...] = ()
    num_paired: int = 0
    is_swapped: bool = False
    num_groups: int = 0


class Computed(NamedTuple):
    """A tensor of a class of transformers that has no parameter here.

    Attributes:
      shape: its shape.
      make: makes it, in float32.
    """

    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]


def zeros(*shape: int) -> Computed:
    """A tensor that is all zero.

    >>> zeros(1, 2).make().tolist()
    [[0.0, 0.0]]
    """
    return Computed(shape, lambda: np.zeros(shape, np.float32))


Table = Iterator[TensorEntry]
# A module's name in transformers -> the path in jaxpt, or several, separated by spaces.
Modules = dict[str, str]


def map_linear(
    spec: ModelSpec,
    hf_name: str,
    *paths: str,
    bias: bool | None = None,
    is_transposed: bool = True,
) -> Table:
    """The entries of a Linear, whose output is that of one or more parameters."""
    kernels = tuple(f"{path}/kernel" for path in paths)
    yield TensorEntry(f"{hf_name}.weight", kernels, is_transposed)
    if spec.use_bias if bias is None else bias:
        yield TensorEntry(f"{hf_name}.bias", tuple(f"{path}/bias" for path in paths))


def map_norm(
    spec: ModelSpec, hf_name: str, path: str, has_scale: bool | None = None
) -> Table:
    """The entries of a norm: its scale, and a LayerNorm's bias if it has one.

    Args:
      has_scale: whether it has parameters; None for a norm as the spec's others.
    """
    if not (spec.norm_scale if has_scale is None else has_scale):
        return
    yield TensorEntry(f"{hf_name}.weight", (f"{path}/scale",))
    if spec.norm == "layernorm" and spec.norm_bias:
        yield TensorEntry(f"{hf_name}.bias", (f"{path}/bias",))


def map_layers(
    spec: ModelSpec,
    num: int,
    hf_prefix: str,
    stack: str,
    modules: Modules,
    is_transposed: bool = True,
) -> Table:
    """The entries of all layers of a stack; paths that end with "norm" are norms."""
    for i in range(num):
        for name, paths in modules.items():
            name = f"{hf_prefix}.{i}.{name}"
            full_paths = [f"{stack}/layer_{i}/{path}" for path in paths.split()]
            if paths.endswith("norm"):
                is_after = spec.attention_out_norm == "after"
                is_scaled = is_after and paths.endswith("out_norm")
                yield from map_norm(
                    spec, name, full_paths[0], spec.norm_scale or is_scaled
                )
            else:
                bias = spec.use_bias
                if paths.endswith(("/query", "/key", "/value")):
                    bias = spec.has_qkv_bias
                elif paths.endswith("attention/out"):
                    bias = spec.has_out_bias
                elif paths.endswith(("/up", "/gate")):
                    bias = spec.has_up_bias
                elif paths.endswith("/down"):
                    bias = spec.has_down_bias
                yield from map_linear(
                    spec, name, *full_paths, bias=bias, is_transposed=is_transposed
                )


def name_attention(pattern: str, module: str = "attention", out: str = "o") -> Modules:
    """Modules of attention, by the letters q, k, v and `out`."""
    letters = {"q": "query", "k": "key", "v": "value", out: "out"}
    return {pattern.format(key): f"{module}/{name}" for key, name in letters.items()}


QKV = "attention/query attention/key attention/value"
ATTENTION = name_attention("self_attn.{}_proj")
GATED = {f"mlp.{name}_proj": f"mlp/{name}" for name in ("gate", "up", "down")}
HEAD_NORMS = {
    f"self_attn.{letter}_norm": f"attention/{name}_norm"
    for letter, name in (("q", "query"), ("k", "key"))
}


def map_head(spec: ModelSpec, dense: str, norm: str, bias: str) -> Table:
    """The entries of a masked language model's head."""
    yield from map_linear(spec, dense, "head/transform", bias=spec.has_transform_bias)
    yield from map_norm(spec, norm, "head/norm")
    yield TensorEntry(bias, ("head/bias",))


def map_untied(spec: ModelSpec, hf_name: str = "lm_head") -> Table:
    """The entry of a head without a bias; none for one that is the token table."""
    if not spec.tie_embeddings:
        yield from map_linear(spec, hf_name, "head/out", bias=False)

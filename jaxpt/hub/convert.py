"""Converts parameters to tensors of transformers and back, by `hub.names`' tables."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import flax.traverse_util
import jax
import numpy as np

from jaxpt.errors import UserError
from jaxpt.hub.families import Family
from jaxpt.hub.names import (
    BODIES,
    COPIES,
    LEGACY_NAMES,
    PREFIXES,
    TABLES,
    TASK_HEADS,
    UNREAD,
    UNREAD_WEIGHTS,
)
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import stack_layers, unstack_layers

# Parameters that a checkpoint without a language model's head lacks.
HEAD = re.compile(r"head/|pair_score/|score/")
LEGACY = re.compile("|".join(map(re.escape, LEGACY_NAMES)))


class _Renamed(Mapping):
    """Tensors under other names, each read from its file when it is accessed."""

    def __init__(self, tensors: Mapping[str, np.ndarray], names: dict[str, str]):
        self._tensors, self._names = tensors, names

    def __getitem__(self, name: str) -> np.ndarray:
        return self._tensors[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # the parent's would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def modernise(tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The tensors by their present names, where a checkpoint has TensorFlow's.

    The published `bert-base-uncased` has LayerNorm.gamma and LayerNorm.beta, which
    transformers reads as LayerNorm.weight and LayerNorm.bias, too.

    Raises:
      UserError: a tensor is there under both names.

    >>> list(modernise({"bert.embeddings.LayerNorm.gamma": np.zeros(1)}))
    ['bert.embeddings.LayerNorm.weight']
    """
    names: dict[str, str] = {}
    for old in tensors:
        name = LEGACY.sub(lambda found: LEGACY_NAMES[found[0]], old)
        if name in names:
            raise UserError(
                f"tensor {name}: is there twice, as {names[name]} and {old}"
            )
        names[name] = old
    return _Renamed(tensors, names)


def list_unread(
    tensors: Mapping[str, np.ndarray], family: Family, spec: ModelSpec, head: str
) -> list[str]:
    """The weights of a checkpoint that have no use in such a model, such as NSP's."""
    used = {entry.theirs for entry in TABLES[family.name](spec, head)}
    unread = re.compile(UNREAD_WEIGHTS)
    return sorted(name for name in set(tensors) - used if unread.fullmatch(name))


def to_hf(params, family: Family, spec: ModelSpec, head: str) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint; tied tensors are listed once.

    Args:
      params: of a `Transformer` (the discriminator's with "score" beside it).

    Raises:
      UserError: a tensor has a value that is not finite.
      ValueError: the parameters are not those of the spec.
    """
    flat = flatten(unstack_layers(params))
    out: dict[str, np.ndarray] = {}
    used: set[str] = set()
    for entry in TABLES[family.name](spec, head):
        value = np.concatenate([np.asarray(flat[path]) for path in entry.ours], -1)
        _check_finite(entry.theirs, value)
        value = value.T if entry.is_transposed else value
        out[entry.theirs] = np.ascontiguousarray(value[None] if entry.is_row else value)
        used.update(entry.ours)
    if left := sorted(set(flat) - used):
        raise ValueError(f"{family.name} has no place for {', '.join(left)}")
    if family.name == "bart" and not spec.head_bias:
        out["final_logits_bias"] = np.zeros((1, spec.vocab_size), np.float32)
    return out


def from_hf(
    tensors: Mapping[str, np.ndarray],
    family: Family,
    spec: ModelSpec,
    head: str,
    like,
    *,
    is_body: bool = False,
):
    """The parameters of a checkpoint's tensors.

    Args:
      like: a pytree of the shapes of all parameters, as `jax.eval_shape` gives it;
        layers come stacked where it has them so.
      is_body: the checkpoint has no language model's head, and maybe a task's, which is
        not read: the parameters of the head are left out.

    Raises:
      UserError: a tensor is missing, unexpected or of another shape, or has a value
        that is not finite, or a copy of a tied tensor differs from it.
    """
    plain = jax.eval_shape(unstack_layers, like)
    shapes = {path: tuple(x.shape) for path, x in flatten(plain).items()}
    prefix, names = PREFIXES.get(family.name, ""), set(tensors)
    if is_body:
        prefix = BODIES.get(family.name, "")
    if prefix and not any(name.startswith(prefix) for name in names):
        names = {prefix + name for name in names}
    else:
        prefix = ""
    flat, read = {}, set()
    for entry in TABLES[family.name](spec, head):
        if entry.theirs not in names:
            if is_body and all(HEAD.match(path) for path in entry.ours):
                continue
            raise UserError(f"tensor {entry.theirs}: is missing")
        read.add(entry.theirs)
        value = tensors[entry.theirs.removeprefix(prefix)]
        ours = [shapes[path] for path in entry.ours]
        wanted = (*ours[0][:-1], sum(shape[-1] for shape in ours))
        wanted = wanted[::-1] if entry.is_transposed else wanted
        wanted = (1, *wanted) if entry.is_row else wanted
        if tuple(value.shape) != wanted:
            raise UserError(
                f"tensor {entry.theirs}: has shape {list(value.shape)}, by the config "
                f"it must be {list(wanted)}"
            )
        _check_finite(entry.theirs, value)
        value = value[0] if entry.is_row else value
        value = value.T if entry.is_transposed else value
        places = np.cumsum([shape[-1] for shape in ours])[:-1]
        for path, part in zip(entry.ours, np.split(value, places, -1), strict=True):
            flat[path] = np.ascontiguousarray(part, np.float32)
    copies, unread = COPIES[family.name], re.compile(UNREAD.get(family.name, "(?!)"))
    for name in sorted(names - read):
        if name in copies and copies[name] in names:
            mine, theirs = (
                tensors[each.removeprefix(prefix)] for each in (copies[name], name)
            )
            if not np.array_equal(mine, theirs):
                raise UserError(
                    f"tensor {name}: differs from {copies[name]}, which the config "
                    "says it is tied to"
                )
        elif name == "final_logits_bias" and not spec.head_bias:
            continue  # all zero, see `refine_spec`
        elif is_body and re.fullmatch(TASK_HEADS, name.removeprefix(prefix)):
            continue
        elif not unread.fullmatch(name):
            raise UserError(f"tensor {name}: has no place in a {family.name} model")
    wanted_paths = {path for path in shapes if not (is_body and HEAD.match(path))}
    if left := sorted(wanted_paths - set(flat)):
        raise ValueError(f"the table of {family.name} lacks {', '.join(left)}")
    nested = {tuple(path.split("/")): value for path, value in flat.items()}
    params = flax.traverse_util.unflatten_dict(nested)
    trees: list[Any] = [jax.tree.structure(tree) for tree in (like, plain)]
    is_stacked = trees[0] != trees[1]
    return stack_layers(params) if is_stacked else params


def refine_spec(
    spec: ModelSpec, family: Family, tensors: Mapping[str, np.ndarray]
) -> ModelSpec:
    """The spec with what only the tensors determine: BART's bias, if not all zero."""
    if family.name != "bart" or "final_logits_bias" not in tensors:
        return spec
    has_bias = bool(np.any(tensors["final_logits_bias"]))
    return dataclasses.replace(spec, head_bias=has_bias)


def move_places(params, spec: ModelSpec, laid: ModelSpec):
    """The parameters with another spec's number of rows before position 0.

    No token reads those rows of the table; they are zero if their number changes.
    """
    if laid.position_offset == spec.position_offset:
        return params
    embed = params["embed"]
    table = np.asarray(embed["positions"]["table"])[spec.position_offset :]
    table = np.pad(table, ((laid.position_offset, 0), (0, 0)))
    return {**params, "embed": {**embed, "positions": {"table": table}}}


def _check_finite(name: str, value: np.ndarray) -> None:
    """Raises UserError for a tensor with a NaN or an infinity."""
    if bad := int(value.size - np.isfinite(value).sum()):
        raise UserError(
            f"tensor {name}: {bad:,} of its {value.size:,} numbers are NaN or infinite"
        )


def flatten(params) -> dict[str, Any]:
    """The leaves by path, such as "encoder/layer_0/mlp/up/kernel"."""
    return flax.traverse_util.flatten_dict(params, sep="/")

"""Converts parameters to tensors of transformers and back, by its family's table."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import flax.traverse_util
import jax
import numpy as np
from jaxtyping import Float

from jaxpt.errors import DataError
from jaxpt.hub.entries import Computed, TensorEntry
from jaxpt.hub.family import Family
from jaxpt.hub.files import LazyTensors
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import stack_layers, unstack_layers

# Parameters that a checkpoint without a language model's head lacks.
HEAD = re.compile(r"head/|pair_score/|score/")
# Those of a downstream task's head, and of a pooler that a head may read.
TASK_HEADS = r"(\w+\.)?pooler\..*|(pre_)?classifier\..*|score\..*|qa_outputs\..*"
TASK_HEADS += r"|classification_head\..*|head\..*|sequence_summary\..*"
# Names that checkpoints converted from TensorFlow have, and what transformers reads
# them as (its `conversion_mapping`, "legacy"), anywhere in a tensor's name.
LEGACY_NAMES = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}

# The logit of a token that is never predicted. float16 has it, too.
HIDDEN = -1e4


def modernise(
    tensors: Mapping[str, np.ndarray],
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[str, np.ndarray]:
    """Renames the tensors of checkpoints that were converted from TensorFlow.

    The published `bert-base-uncased` has LayerNorm.gamma and LayerNorm.beta, which
    transformers, too, reads as LayerNorm.weight and LayerNorm.bias.

    Args:
      renamed: of the family (`Family.renamed`).

    >>> list(modernise({"bert.embeddings.LayerNorm.gamma": np.zeros(1)}))
    ['bert.embeddings.LayerNorm.weight']
    """
    names: dict[str, str] = {}
    replaced = LEGACY_NAMES | dict(renamed)
    parts = [*map(re.escape, LEGACY_NAMES), *(f"^{re.escape(n)}" for n in renamed)]
    pattern = re.compile("|".join(parts))
    for old in tensors:
        name = pattern.sub(lambda match: replaced[match[0]], old)
        if name in names:
            raise DataError(f"tensor {name}: appears twice, as {names[name]} and {old}")
        names[name] = old
    return LazyTensors(names, tensors.__getitem__)


def list_unread(
    tensors: Mapping[str, np.ndarray], family: Family, spec: ModelSpec, head: str
) -> list[str]:
    """The weights of a checkpoint that have no use in such a model, such as NSP's."""
    used = {entry.hf_name for entry in family.tensors(spec, head)}
    used |= {name.removeprefix(family.body) for name in used}
    unused = re.compile(family.unused)
    names = {name: name.removeprefix(family.body) for name in set(tensors) - used}
    return sorted(name for name, inner in names.items() if unused.fullmatch(inner))


def join(entry: TensorEntry, flat: Mapping[str, Any]) -> np.ndarray:
    """The tensor of an entry from parameters by path."""
    parts = [np.asarray(flat[path]) for path in entry.paths]
    if entry.num_heads:
        parts = [each.reshape(*each.shape[:-1], entry.num_heads, -1) for each in parts]
        parts = [
            _turn(pair_neighbours, part, entry) if path in entry.paired else part
            for path, part in zip(entry.paths, parts, strict=True)
        ]
        parts = [_swap(part) if entry.is_swapped else part for part in parts]
        num = entry.num_groups or entry.num_heads
        parts = [part.reshape(*part.shape[:-2], num, -1) for part in parts]
    value = np.concatenate(parts, -1)
    if entry.num_heads:
        value = value.reshape(*value.shape[:-2], -1)
    _check_finite(entry.hf_name, value)
    value = value.T if entry.is_transposed else value
    return np.ascontiguousarray(value[None] if entry.is_row else value)


def pair_neighbours(x: Float[np.ndarray, "*B H"]) -> Float[np.ndarray, "*B H"]:
    """Heads whose rotary pairs are (i, i + H/2), with (2i, 2i + 1) as pairs.

    >>> pair_neighbours(np.arange(6.0)).tolist()
    [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    """
    return x.reshape(*x.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(x.shape)


def pair_halves(x: Float[np.ndarray, "*B H"]) -> Float[np.ndarray, "*B H"]:
    """The reverse of `pair_neighbours`.

    >>> pair_halves(pair_neighbours(np.arange(6.0))).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    return x.reshape(*x.shape[:-1], -1, 2).swapaxes(-1, -2).reshape(x.shape)


def _swap(heads: np.ndarray) -> np.ndarray:
    """Heads [..., H] with their halves in the other order."""
    return np.roll(heads, heads.shape[-1] // 2, -1)


def _turn(
    pair: Callable[[np.ndarray], np.ndarray], heads: np.ndarray, entry: TensorEntry
) -> np.ndarray:
    """Heads [..., H] with other pairs among those numbers that are rotated."""
    num = entry.num_paired or heads.shape[-1]
    return np.concatenate([pair(heads[..., :num]), heads[..., num:]], -1)


def check_names(
    tensors: Mapping[str, np.ndarray],
    family: Family,
    spec: ModelSpec,
    head: str,
    *,
    is_body: bool = False,
) -> None:
    """Raises UserError at the first tensor of a model that a checkpoint lacks.

    Nothing is computed for it, so a config with a billion layers is refused at once.
    """
    tensors, _ = _add_prefix(tensors, family, spec, head)
    for entry in family.tensors(spec, head):
        _find(entry, tensors, is_body)


def _find(entry: TensorEntry, tensors: Mapping[str, np.ndarray], is_body: bool) -> bool:
    """Whether the tensor is there; a body may lack those of the head."""
    if entry.hf_name in tensors:
        return True
    if is_body and all(HEAD.match(path) for path in entry.paths):
        return False
    raise DataError(f"tensor {entry.hf_name}: is missing")


def to_hf(
    params: Any, family: Family, spec: ModelSpec, head: str
) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint; tied tensors are listed once.

    Args:
      params: of a `Transformer`; a discriminator's also have "score".

    Raises:
      UserError: a tensor has a value that is not finite.
      ValueError: the parameters are not those of the spec.
    """
    flat = flatten(unstack_layers(params))
    entries = list(family.tensors(spec, head))
    if unused := sorted(set(flat) - {path for each in entries for path in each.paths}):
        raise ValueError(f"{family.name} has no place for {', '.join(unused)}")
    out = family.unfold({entry.hf_name: join(entry, flat) for entry in entries})
    return out | {name: each.make() for name, each in family.computed(spec).items()}


def from_hf(
    tensors: Mapping[str, np.ndarray],
    family: Family,
    spec: ModelSpec,
    head: str,
    like: Any,
    *,
    is_body: bool = False,
) -> dict[str, Any]:
    """The parameters of a checkpoint's tensors.

    Args:
      like: a pytree of the shapes of all parameters, as `jax.eval_shape` gives it;
        layers are returned stacked if it has them stacked.
      is_body: the checkpoint has no language model's head, and maybe a task's, which is
        not read: the parameters of the head are left out.
    """
    plain = jax.eval_shape(unstack_layers, like)
    shapes = {path: tuple(x.shape) for path, x in flatten(plain).items()}
    tensors, prefix = _add_prefix(tensors, family, spec, head)
    flat: dict[str, np.ndarray] = {}
    read = set()
    for entry in family.tensors(spec, head):
        if _find(entry, tensors, is_body):
            read.add(entry.hf_name)
            flat |= _split(entry, tensors[entry.hf_name], shapes)
    computed = family.computed(spec)
    for name in sorted(set(tensors) & computed.keys()):
        _check_computed(name, tensors[name], computed[name])
    for name in sorted(set(tensors) - read - computed.keys()):
        if is_body and re.fullmatch(TASK_HEADS, name.removeprefix(prefix)):
            continue
        _check_left_over(name, tensors, family)
    expected_paths = {path for path in shapes if not (is_body and HEAD.match(path))}
    if missing := sorted(expected_paths - set(flat)):
        raise ValueError(f"the table of {family.name} lacks {', '.join(missing)}")
    params = flax.traverse_util.unflatten_dict(flat, sep="/")
    trees: list[Any] = [jax.tree.structure(tree) for tree in (like, plain)]
    is_stacked = trees[0] != trees[1]
    return stack_layers(params) if is_stacked else params


def _add_prefix(
    tensors: Mapping[str, np.ndarray], family: Family, spec: ModelSpec, head: str
) -> tuple[Mapping[str, np.ndarray], str]:
    """The tensors under the names of a model with a head, and the added prefix."""
    prefix = family.body
    if not prefix or any(name.startswith(prefix) for name in tensors):
        return tensors, ""
    small = dataclasses.replace(
        spec,
        num_layers=1,
        num_decoder_layers=min(1, spec.num_decoder_layers),
    )
    all_names = {entry.hf_name for entry in family.tensors(small, head)}
    all_names |= family.copies.keys() | family.computed(small).keys()
    heads = {name.split(".")[0] for name in all_names if not name.startswith(prefix)}
    names = {
        name if name.split(".")[0] in heads else prefix + name: name for name in tensors
    }
    return LazyTensors(names, tensors.__getitem__), prefix


def _split(
    entry: TensorEntry, value: np.ndarray, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The parameters of a tensor, by path; the reverse of `join`."""
    target_shapes = [shapes[path] for path in entry.paths]
    expected = (*target_shapes[0][:-1], sum(shape[-1] for shape in target_shapes))
    expected = expected[::-1] if entry.is_transposed else expected
    expected = (1, *expected) if entry.is_row else expected
    if tuple(value.shape) != expected:
        raise DataError(
            f"tensor {entry.hf_name}: has shape {list(value.shape)}, by the config "
            f"it must be {list(expected)}"
        )
    _check_finite(entry.hf_name, value)
    value = value[0] if entry.is_row else value
    value = value.T if entry.is_transposed else value
    sizes = np.array([shape[-1] for shape in target_shapes])
    if entry.num_heads:
        num = entry.num_groups or entry.num_heads
        value = value.reshape(*value.shape[:-1], num, -1)
        sizes //= num
    parts = np.split(value, np.cumsum(sizes)[:-1], -1)
    if entry.num_heads:
        heads = entry.num_heads, -1
        parts = [part.reshape(*part.shape[:-2], *heads) for part in parts]
    parts = [_swap(part) if entry.is_swapped else part for part in parts]
    parts = [
        _turn(pair_halves, part, entry) if path in entry.paired else part
        for path, part in zip(entry.paths, parts, strict=True)
    ]
    return {
        path: np.ascontiguousarray(part.reshape(shape), np.float32)
        for path, part, shape in zip(entry.paths, parts, target_shapes, strict=True)
    }


def _check_left_over(
    name: str, tensors: Mapping[str, np.ndarray], family: Family
) -> None:
    """Raises UserError for a tensor that is neither a copy of another nor known."""
    copy = family.copies.get(name)
    if copy is not None and copy in tensors:
        if not np.array_equal(tensors[copy], tensors[name]):
            raise DataError(
                f"tensor {name}: differs from {copy}, to which the config ties it"
            )
    elif not (
        re.fullmatch(family.buffers, name)
        or re.fullmatch(family.unused, name.removeprefix(family.body))
    ):
        raise DataError(f"tensor {name}: has no place in a {family.name} model")


def _check_computed(name: str, value: np.ndarray, expected: Computed) -> None:
    """Raises UserError for a tensor with other values than the config determines.

    The tolerance is the rounding of numbers up to 1 to bfloat16.
    """
    is_same = tuple(value.shape) == expected.shape
    if not is_same or not np.abs(value - expected.make()).max() <= 2**-8:
        raise DataError(
            f"tensor {name}: must be {list(expected.shape)}, zeros or sinusoidal "
            "positions by the config: other values would not be used"
        )


def refine_spec(
    spec: ModelSpec, family: Family, tensors: Mapping[str, np.ndarray]
) -> ModelSpec:
    """The spec with what only the tensors determine (`Family.unwritten`)."""
    found = {name: read(tensors) for name, read in family.unwritten.items()}
    known = {name: value for name, value in found.items() if value is not None}
    return dataclasses.replace(spec, **known)


def move_places(params: Any, spec: ModelSpec, export_spec: ModelSpec) -> Any:
    """The parameters with another spec's number of rows before position 0.

    No token reads those rows of the table; they are zero if their number changes.
    """
    if export_spec.position_offset == spec.position_offset:
        return params
    embed = params["embed"]
    table = np.asarray(embed["positions"]["table"])[spec.position_offset :]
    table = np.pad(table, ((export_spec.position_offset, 0), (0, 0)))
    return {**params, "embed": {**embed, "positions": {"table": table}}}


def hide_token(params: Any, id_: int) -> Any:
    """The parameters whose head, which has a bias, gives a token the probability 0."""
    flat = flatten(params)
    path = "head/out/bias" if "head/out/bias" in flat else "head/bias"
    bias = np.array(flat[path])
    bias[id_] = HIDDEN
    return flax.traverse_util.unflatten_dict(flat | {path: bias}, sep="/")


def _check_finite(name: str, value: np.ndarray) -> None:
    """Raises UserError for a tensor with a NaN or an infinity."""
    if bad := int(value.size - np.isfinite(value).sum()):
        raise DataError(
            f"tensor {name}: {bad:,} of its {value.size:,} numbers are NaN or infinite"
        )


def flatten(params: Any) -> dict[str, Any]:
    """The leaves by path, such as "encoder/layer_0/mlp/up/kernel"."""
    return flax.traverse_util.flatten_dict(params, sep="/")

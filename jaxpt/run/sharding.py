"""Where every array of a run lies: a mesh of devices, and one table for parameters.

data     devices that hold the same parameters and read other rows
fsdp     the same, but that each holds a part of every matrix and gathers the rest
         when it is used (Rajbhandari et al. 2019, stage 3; Zhao et al. 2023)
tensor   devices that read the same rows, each with a part of the heads, of the
         MLP's hidden width and of the vocabulary (Shoeybi et al. 2019)
"""

import math
import re
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path

from jaxpt.config.sections import TrainSpec
from jaxpt.errors import UserError
from jaxpt.ops.layout import ROW_AXES
from jaxpt.run.task import Task

AXES = (*ROW_AXES, "tensor")

# How a parameter's path ends -> the mesh axis that each of its axes is split over.
# The first rule that fits holds; one that none fits is an error, never a copy.
RULES = (
    # Tables [rows, width]: of the vocabulary, of segment types, of places.
    (r"embed/tokens", ("tensor", "fsdp")),
    (r"embed/types", (None, "fsdp")),
    (r"positions/table", (None, "fsdp")),
    (r"relative/table", (None, "tensor")),  # [buckets, heads]
    # Into the heads or the hidden width, and out of them again.
    (r"(query|key|value|up|gate)/kernel", ("fsdp", "tensor")),
    (r"(query|key|value|up|gate)/bias", ("tensor",)),
    (r"(attention|cross)/out/kernel|mlp/down/kernel", ("tensor", "fsdp")),
    (r"(attention|cross)/out/bias|mlp/down/bias", (None,)),
    # Scores of the vocabulary, and what stands before them.
    (r"head/out/kernel", ("fsdp", "tensor")),
    (r"head/(out/)?bias", ("tensor",)),
    (r"(project|head/transform)/kernel", ("fsdp", None)),
    (r"(project|head/transform)/bias", (None,)),
    # ELECTRA's discriminator, BERT's sentence head.
    (r"(pair_)?score/(Dense_0|pool|out)/kernel", ("fsdp", None)),
    (r"(pair_)?score/(Dense_0|pool|out)/bias", (None,)),
    # SpanBERT's head.
    (r"boundary/positions", (None, "fsdp")),
    (r"boundary/transform_\d/kernel", ("fsdp", None)),
    (r"boundary/transform_\d/bias", (None,)),
    (r"boundary/bias", ("tensor",)),
    # ELMo: characters, filters and highway layers; gates of the cells, projections.
    (r"words/table", (None, "fsdp")),
    (r"words/(filter|carry|transform)_\d+/kernel", ("fsdp", "tensor")),
    (r"words/(filter|carry|transform)_\d+/bias", ("tensor",)),
    (r"lstm_\d+/(input/kernel|state)", ("fsdp", "tensor")),
    (r"lstm_\d+/input/bias", ("tensor",)),
    (r"lstm_\d+/project", ("tensor", "fsdp")),
    # word2vec's two tables.
    (r"words|contexts", ("tensor", "fsdp")),
    (r"(\w+_)?norm/(scale|bias)", (None,)),
)
STACKED = "layers"  # a key of paths whose arrays have a first axis of layers


def partition(path: str, shape: tuple[int, ...], sizes: dict[str, int]):
    """The PartitionSpec of one parameter.

    An axis that its devices do not divide (a vocabulary of 50257 over 2) is not split.

    Args:
      path: its keys, joined by "/".
      sizes: devices along each axis of the mesh.

    Raises:
      ValueError: no rule fits the path, or the rule another number of axes.

    >>> sizes = {"fsdp": 2, "tensor": 4}
    >>> tuple(partition("encoder/layer_0/mlp/up/kernel", (8, 32), sizes))
    ('fsdp', 'tensor')
    >>> tuple(partition("encoder/layers/mlp/up/bias", (6, 32), sizes))
    (None, 'tensor')
    """
    for rule, axes in RULES:
        if re.search(rf"(^|/)({rule})$", path):
            break
    else:
        raise ValueError(f"parameter {path}: no rule says where it lies (RULES)")
    if STACKED in path.split("/"):
        axes = (None, *axes)
    if len(axes) != len(shape):
        raise ValueError(f"parameter {path}: of shape {shape}, its rule is of {axes}")
    pairs = zip(axes, shape, strict=True)
    return PartitionSpec(*(a if a and not n % sizes[a] else None for a, n in pairs))


def shard_params(shapes: Any, mesh: Mesh) -> Any:
    """The sharding of each parameter of a tree of shapes."""

    def place(path, leaf):
        name = keystr(path, simple=True, separator="/")
        return NamedSharding(mesh, partition(name, leaf.shape, dict(mesh.shape)))

    return tree_map_with_path(place, shapes)


def shard_state(shapes: Any, mesh: Mesh) -> Any:
    """The sharding of a TrainState of shapes.

    What an optimizer keeps for each parameter has the parameter's path at the end of
    its own, and lies as the parameter does where it is of its shape (moments, averages,
    gradients). The rest is on every device: counts, Adafactor's rows and columns.
    """
    placed, known = shard_params(shapes.params, mesh), {}
    pairs, _ = tree_flatten_with_path(shapes.params)
    for (path, leaf), sharding in zip(pairs, jax.tree.leaves(placed), strict=True):
        known[_keys(path)] = leaf.shape, sharding
    whole = NamedSharding(mesh, PartitionSpec())

    def place(path, leaf):
        keys = _keys(path)
        for start in range(len(keys)):
            shape, sharding = known.get(keys[start:], (None, whole))
            if shape == leaf.shape:
                return sharding
        return whole

    return tree_map_with_path(place, shapes)


def _keys(path) -> tuple[str, ...]:
    return tuple(keystr((key,), simple=True) for key in path)


def shape_mesh(spec: TrainSpec, num_devices: int) -> tuple[int, int, int]:
    """Devices along (data, fsdp, tensor); data takes what the others leave.

    Raises:
      UserError: they do not divide the devices.
    """
    tensor = spec.tensor
    if num_devices % tensor:
        raise UserError(
            f"train.tensor={tensor}: must divide the {num_devices} devices there are"
        )
    fsdp = spec.fsdp or num_devices // tensor
    if num_devices % (fsdp * tensor):
        raise UserError(
            f"train.fsdp={fsdp}: must, times train.tensor={tensor}, divide the "
            f"{num_devices} devices there are"
        )
    return num_devices // (fsdp * tensor), fsdp, tensor


def make_mesh(shape: tuple[int, int, int], devices) -> Mesh:
    """The mesh; on a TPU its neighbours are neighbours in the machine."""
    if devices[0].platform == "tpu":
        arranged = mesh_utils.create_device_mesh(
            shape, devices, allow_split_physical_axes=True
        )
    else:  # by process, so that tensor's devices, which talk most, share a machine
        arranged = np.array(devices).reshape(shape)
    return Mesh(arranged, AXES)


def check_task(task: Task, shapes: Any, shape: tuple[int, int, int]) -> None:
    """Refuses a batch or a network that such a mesh does not divide.

    Args:
      shapes: of the parameters.

    Raises:
      UserError: naming the setting.
    """
    train, (data, fsdp, tensor) = task.plan.train, shape
    if train.batch_size % (data * fsdp * train.num_microbatches):
        kinds = "devices" if tensor == 1 else f"groups of {tensor} devices"
        raise UserError(
            f"train.batch_size={train.batch_size}: must be a multiple of {data * fsdp} "
            f"{kinds} times train.num_microbatches={train.num_microbatches}"
        )
    networks = task.module.networks(shapes, task.model_spec, task.spec)
    for name, (spec, _) in networks.items():
        whose = "model." if spec == task.model_spec else f"the {name}'s "
        # Keys and values are not copied for heads that share them.
        for field, number in (
            ("num_heads", spec.num_heads),
            ("num_kv_heads", spec.kv_heads),
            ("d_ff", spec.d_ff),
        ):
            if number % tensor:
                raise UserError(
                    f"train.tensor={tensor}: must divide {whose}{field}={number}"
                )


def count_bytes(shapes: Any) -> tuple[int, int]:
    """Bytes of ShapeDtypeStructs with shardings: what a device holds, and all."""
    leaves = jax.tree.leaves(shapes)
    held = [leaf.sharding.shard_shape(leaf.shape) for leaf in leaves]
    pairs = [(math.prod(h), leaf.size) for h, leaf in zip(held, leaves, strict=True)]
    sizes = [leaf.dtype.itemsize for leaf in leaves]
    return tuple(int(np.dot(numbers, sizes)) for numbers in zip(*pairs, strict=True))

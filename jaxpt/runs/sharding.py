"""Sharding of arrays over a mesh of devices, by one table of rules for parameters.

data     devices with the same parameters and different rows
fsdp     devices with different rows, each with a shard of every matrix; the other
         shards are gathered when they are used (Rajbhandari et al. 2019, stage 3;
         Zhao et al. 2023)
context  devices with the same rows, each with a span of their positions
         (`jaxpt.ops.context`)
tensor   devices with the same rows, each with a shard of the heads, of the MLP's
         hidden width and of the vocabulary (Shoeybi et al. 2019)
"""

import dataclasses
import math
import operator
import re
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path

from jaxpt.config.sections import TrainSpec
from jaxpt.errors import DeviceError
from jaxpt.nn.networks.network import Rules
from jaxpt.objectives.spec import ObjectiveSpec
from jaxpt.ops.layout import LENGTH_AXIS, ROW_AXES
from jaxpt.runs.task import Task

AXES = (*ROW_AXES, LENGTH_AXIS, "tensor")
Shape = tuple[int, int, int, int]  # of a mesh

STACKED = "layers"  # arrays below this key have a first axis of layers


def partition(path: str, shape: tuple[int, ...], sizes: dict[str, int], rules: Rules):
    """The PartitionSpec of one parameter.

    An axis is not split if its size is not a multiple of the number of devices (a
    vocabulary of 50257 over 2).

    Args:
      path: its keys, joined by "/".
      sizes: number of devices along each axis of the mesh.
      rules: of the network; the first rule that matches the path applies.

    Raises:
      ValueError: no rule matches the path, or its rule has another number of axes.

    >>> from jaxpt.nn.networks.network import TRANSFORMER_RULES
    >>> sizes, rules = {"fsdp": 2, "tensor": 4}, TRANSFORMER_RULES
    >>> tuple(partition("encoder/layer_0/mlp/up/kernel", (8, 32), sizes, rules))
    ('fsdp', 'tensor')
    >>> tuple(partition("encoder/layers/mlp/up/bias", (6, 32), sizes, rules))
    (None, 'tensor')
    """
    for rule, axes in rules:
        if re.search(rf"(^|/)({rule})$", path):
            break
    else:
        raise ValueError(
            f"parameter {path}: no sharding rule of its network matches it"
        )
    if STACKED in path.split("/"):
        axes = (None, *axes)
    if len(axes) != len(shape):
        raise ValueError(
            f"parameter {path}: has shape {shape}, its sharding rule {axes}"
        )
    pairs = zip(axes, shape, strict=True)
    return PartitionSpec(*(a if a and not n % sizes[a] else None for a, n in pairs))


def shard_params(shapes: Any, mesh: Mesh, rules: Rules) -> Any:
    """The sharding of each parameter of a tree of shapes."""

    def place(path, leaf):
        name = keystr(path, simple=True, separator="/")
        return NamedSharding(mesh, partition(name, leaf.shape, dict(mesh.shape), rules))

    return tree_map_with_path(place, shapes)


def shard_state(shapes: Any, mesh: Mesh, rules: Rules) -> Any:
    """The sharding of a TrainState of shapes.

    The paths of optimizer state end with the path of a parameter. State of the shape of
    its parameter (moments, averages, gradients) is sharded like it. Other state
    (counts, Adafactor's rows and columns) is replicated.
    """
    placed, known = shard_params(shapes.params, mesh, rules), {}
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


def note_vocabulary(size: int, tensor: int) -> list[str]:
    """A line if the vocabulary is not a multiple of `tensor`, else none.

    >>> note_vocabulary(50257, 2)
    ['model.vocab_size=50,257 is not a multiple of train.tensor=2: each device \
computes all logits; 50,304 ids would be sharded']
    >>> note_vocabulary(50304, 2)
    []
    """
    if not size % tensor:
        return []
    more = size + -size % math.lcm(128, tensor)
    return [
        f"model.vocab_size={size:,} is not a multiple of train.tensor={tensor}: each "
        f"device computes all logits; {more:,} ids would be sharded"
    ]


def shape_mesh(spec: TrainSpec, num_devices: int) -> Shape:
    """The mesh's shape, by `AXES`; data gets the remaining devices."""
    tensor, context = spec.tensor, spec.context
    if num_devices % tensor:
        raise DeviceError(
            f"train.tensor={tensor}: must divide the number of devices, {num_devices}"
        )
    if num_devices % (context * tensor):
        raise DeviceError(
            f"train.context={context}: must, times train.tensor={tensor}, divide the "
            f"number of devices, {num_devices}"
        )
    fsdp = spec.fsdp or num_devices // (context * tensor)
    if num_devices % (fsdp * context * tensor):
        more = f" and train.context={context}" if context > 1 else ""
        raise DeviceError(
            f"train.fsdp={fsdp}: must, times train.tensor={tensor}{more}, divide the "
            f"{num_devices} devices there are"
        )
    return num_devices // (fsdp * context * tensor), fsdp, context, tensor


def make_mesh(shape: Shape, devices) -> Mesh:
    """The mesh; on a TPU it follows the topology of the machine."""
    if devices[0].platform == "tpu":
        arranged = mesh_utils.create_device_mesh(
            shape, devices, allow_split_physical_axes=True
        )
    else:  # by process: the tensor axis, which communicates most, stays in a machine
        arranged = np.array(devices).reshape(shape)
    # XLA chooses the sharding of what a step computes, whatever JAX's default is.
    return Mesh(arranged, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def check_task(task: Task, shapes: Any, shape: Shape) -> None:
    """Refuses a batch, rows or a network that cannot be split over the mesh.

    Args:
      shapes: of the parameters.
    """
    data, fsdp, context, tensor = shape
    if context > 1:
        _check_lengths(task, context)
    for phase in task.phases:
        size, num = phase.plan.train.batch_size, phase.plan.train.num_microbatches
        if size % (data * fsdp * num):
            group = context * tensor
            kinds = "devices" if group == 1 else f"groups of {group} devices"
            batch = "" if phase is task else f"the {size} rows of a phase "
            raise DeviceError(
                f"train.batch_size={task.plan.train.batch_size}: {batch}must be a "
                f"multiple of {data * fsdp} {kinds} times train.num_microbatches={num}"
            )
    networks = task.model.export_parts(shapes)
    for name, (spec, _) in networks.items():
        prefix = "model." if spec == task.model_spec else f"the {name}'s "
        # Grouped heads share keys and values, which are not copied.
        for field, number in (
            ("num_heads", spec.num_heads),
            ("num_kv_heads", spec.kv_heads),
            ("d_ff", spec.d_ff),
        ):
            if number % tensor:
                raise DeviceError(
                    f"train.tensor={tensor}: must divide {prefix}{field}={number}"
                )


def _check_lengths(task: Task, context: int) -> None:
    """Refuses rows whose positions cannot be divided over `context` devices."""
    if not task.model.SPLITS_LENGTH:
        raise DeviceError(
            f"train.context={context}: must be 1 with "
            f"objective={task.plan.objective_name}, whose network has no attention"
        )
    for phase in task.phases:
        where = "" if phase is task else " of a phase"
        for name, length in phase.spec.lengths.items():
            if length % context:
                raise DeviceError(
                    f"train.context={context}: must divide the length of the {name}"
                    f"{where}, {length} tokens (data.seq_len, data.row_length)"
                    f"{_suggest_length(phase.spec, context) if phase is task else ''}"
                )


REACH = 24  # tokens by which a suggested row is shorter or longer


def _suggest_length(spec: ObjectiveSpec, context: int) -> str:
    """Words about the rows, near those of `spec`, that `context` devices divide."""
    own, least = spec.row_length, max(spec.row_length - REACH, spec.MIN_LENGTH)
    for row_length in sorted(range(least, own + REACH + 1), key=lambda n: abs(n - own)):
        lengths = dataclasses.replace(spec, row_length=row_length).lengths.values()
        if not any(length % context for length in lengths):
            return f"; it does with data.row_length={row_length}"
    return f"; no data.row_length from {least} to {own + REACH} gives such lengths"


# An array in a compiled program's text, "f32[64,192]", and a collective operation; of a
# pair of start and done, the done, whose result was exchanged.
_ARRAY = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\]")
_COLLECTIVE = re.compile(
    r"= (.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-done)?\("
)


def count_collectives(compiled: str) -> dict[str, tuple[int, int]]:
    """The number of collectives of each kind in a compiled program, and their bytes.

    Bytes are those of the results on one device. The body of a loop counts once.

    Args:
      compiled: the program's HLO text.

    >>> count_collectives(
    ...     "%a = f32[8,4]{1,0} all-gather(%x), dimensions={0}\\n"
    ...     "%b = (f32[], bf16[3]{0}) all-reduce(%y, %z), to_apply=%add"
    ... )
    {'all-gather': (1, 128), 'all-reduce': (1, 10)}
    """
    collectives: dict[str, tuple[int, int]] = {}
    for result, kind in _COLLECTIVE.findall(compiled):
        count, total = collectives.get(kind, (0, 0))
        for _, bits, shape in _ARRAY.findall(result):
            size = math.prod(map(int, filter(None, shape.split(","))))
            total += size * int(bits or 8) // 8  # of pred, a byte
        collectives[kind] = count + 1, total
    return collectives


def count_bytes(shapes: Any) -> tuple[int, int]:
    """Bytes of ShapeDtypeStructs with shardings: on one device, and in total."""
    leaves = jax.tree.leaves(shapes)
    shard_shapes = [leaf.sharding.shard_shape(leaf.shape) for leaf in leaves]
    pairs = [
        (math.prod(h), leaf.size) for h, leaf in zip(shard_shapes, leaves, strict=True)
    ]
    sizes = [leaf.dtype.itemsize for leaf in leaves]
    per_device, whole = (
        sum(map(operator.mul, numbers, sizes)) for numbers in zip(*pairs, strict=True)
    )
    return per_device, whole

"""Sharding of rows, of their positions and of matrices over the devices of a mesh.

Without a constraint XLA shards hidden states along the axis of a split matrix (each
device has all rows and sums after every product) instead of gathering the matrix. In a
loop over rows it gathers the matrix and sums its gradient over the devices in every
iteration.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Shaped

# The mesh axes that rows are sharded over (`jaxpt.runs.sharding` makes the mesh), and
# the one for the positions of a row.
ROW_AXES = ("data", "fsdp")
LENGTH_AXIS = "context"


def keep_rows(
    x: Shaped[Array, "B ..."], is_length_whole: bool = False
) -> Shaped[Array, "B ..."]:
    """x, constrained to be sharded by rows and positions [B, T]; x without a mesh.

    Args:
      is_length_whole: each device has all positions of its rows.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not set(ROW_AXES) <= set(mesh.axis_names) or mesh.size == 1:
        return x  # no mesh, or pmap's, under which each device has its own rows
    free: Any = PartitionSpec.UNCONSTRAINED
    rows = free if x.shape[0] % count_shares() else ROW_AXES
    length = free
    if count_spans(*x.shape[1:2]) > 1:
        length = None if is_length_whole else LENGTH_AXIS
    if rows is free and length is free:
        return x
    spec = (rows, length, *(free,) * x.ndim)[: x.ndim]
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))


def count_shares() -> int:
    """The number of parts in which the mesh in context shards the rows of an array.

    It is 1 without a mesh that has both axes, and under pmap and shard_map.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not set(ROW_AXES) <= set(mesh.axis_names) - set(mesh.manual_axes):
        return 1
    return math.prod(mesh.shape[axis] for axis in ROW_AXES)


def count_spans(*lengths: int) -> int:
    """The number of spans of positions that the mesh in context divides a row into.

    It is 1 without the mesh axis "context", under pmap and shard_map, and if it does
    not divide all these lengths (or there are none).
    """
    mesh = jax.sharding.get_abstract_mesh()
    if LENGTH_AXIS not in set(mesh.axis_names) - set(mesh.manual_axes):
        return 1
    num = mesh.shape[LENGTH_AXIS]
    is_even = lengths and not any(length % num for length in lengths)
    return num if is_even else 1


def count_parts(shape: tuple[int, ...]) -> int:
    """The number of parts that `map_rows` divides arrays [B, *T, ...] into."""
    shares = count_shares()
    return 1 if shape[0] % shares else shares * count_spans(*shape[1:2])


def map_rows(
    function: Callable[[Any, Any], tuple[Any, Any]], whole: Any, rows: Any
) -> tuple[Any, Any]:
    """function(whole, rows) -> (by row, sums), computed by each device for its rows.

    Rows that are all arrays [B, T, ...] are also divided by their positions.

    The arrays of `whole` are gathered once. The sums are added over the devices once,
    at the end; on the axis `fsdp` each device keeps its part of the first axis of a
    matrix. With one part, or if the rows do not divide evenly, the function is simply
    called.
    """
    leaves = jax.tree.leaves(rows)
    leading = {x.shape[:2] for x in leaves}
    shape = leaves[0].shape[: 2 if len(leading) == 1 else 1]
    parts, shares = count_parts(shape), count_shares()
    if parts == 1:
        return function(whole, rows)
    fsdp = jax.sharding.get_abstract_mesh().shape["fsdp"]
    axes = ROW_AXES if parts == shares else (*ROW_AXES, LENGTH_AXIS)
    divided = PartitionSpec(ROW_AXES, *axes[len(ROW_AXES) :])

    def is_split(x: Array) -> bool:
        return x.ndim > 1 and fsdp > 1 and x.shape[0] % fsdp == 0

    def add_up(x: Array) -> Array:
        if not is_split(x):
            return jax.lax.psum(x, axes)
        part = jax.lax.psum_scatter(x, "fsdp", scatter_dimension=0, tiled=True)
        return jax.lax.psum(part, tuple(axis for axis in axes if axis != "fsdp"))

    def run(whole: Any, rows: Any) -> tuple[Any, Any]:
        by_row, sums = function(whole, rows)
        return by_row, jax.tree.map(add_up, sums)

    def cut(x: Array) -> jax.ShapeDtypeStruct:
        sizes = shape[0] // shares, *(n * shares // parts for n in shape[1:])
        return jax.ShapeDtypeStruct((*sizes, *x.shape[len(sizes) :]), x.dtype)

    by_row, sums = jax.eval_shape(function, whole, jax.tree.map(cut, rows))
    return jax.shard_map(
        run,
        in_specs=(
            jax.tree.map(lambda _: PartitionSpec(), whole),
            jax.tree.map(lambda _: divided, rows),
        ),
        out_specs=(
            jax.tree.map(lambda _: divided, by_row),
            jax.tree.map(
                lambda x: PartitionSpec("fsdp") if is_split(x) else PartitionSpec(),
                sums,
            ),
        ),
        axis_names=set(axes),
        check_vma=False,
    )(whole, rows)


def map_matrices(
    function: Callable[[Array], Array], x: Shaped[Array, "L I O"]
) -> Shaped[Array, "L I O"]:
    """function of each matrix; with an axis `fsdp`, each by one of its devices.

    A function of a sharded matrix with several products would exchange it in each.
    """
    mesh = jax.sharding.get_abstract_mesh()
    names = set(mesh.axis_names) - set(mesh.manual_axes)
    if "fsdp" not in names or mesh.shape["fsdp"] == 1:
        return jax.vmap(function)(x)
    spec = PartitionSpec("fsdp")
    whole = jnp.pad(x, ((0, -len(x) % mesh.shape["fsdp"]), (0, 0), (0, 0)))
    whole = jax.lax.with_sharding_constraint(whole, spec)
    result = jax.lax.with_sharding_constraint(jax.vmap(function)(whole), spec)
    return result[: len(x)]

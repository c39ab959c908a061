"""Sharding of rows and of matrices over the devices of a mesh.

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

# The mesh axes that rows are sharded over (`jaxpt.runs.sharding` makes the mesh).
ROW_AXES = ("data", "fsdp")


def keep_rows(x: Shaped[Array, "B ..."]) -> Shaped[Array, "B ..."]:
    """x, constrained to be sharded by rows; x without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    if not set(ROW_AXES) <= set(mesh.axis_names) or mesh.size == 1:
        return x  # no mesh, or pmap's, under which each device has its own rows
    if x.shape[0] % (mesh.shape["data"] * mesh.shape["fsdp"]):
        return x
    rest = (PartitionSpec.UNCONSTRAINED,) * (x.ndim - 1)
    return jax.lax.with_sharding_constraint(x, PartitionSpec(ROW_AXES, *rest))


def count_shares() -> int:
    """The number of parts in which the mesh in context shards the rows of an array.

    It is 1 without a mesh that has both axes, and under pmap and shard_map.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not set(ROW_AXES) <= set(mesh.axis_names) - set(mesh.manual_axes):
        return 1
    return math.prod(mesh.shape[axis] for axis in ROW_AXES)


def map_rows(
    function: Callable[[Any, Any], tuple[Any, Any]], whole: Any, rows: Any
) -> tuple[Any, Any]:
    """function(whole, rows) -> (by row, sums), computed by each device for its rows.

    The arrays of `whole` are gathered once. The sums are added over the devices once,
    at the end; on the axis `fsdp` each device keeps its part of the first axis of a
    matrix. With one part, or if the rows do not divide evenly, the function is simply
    called.
    """
    num_rows, shares = len(jax.tree.leaves(rows)[0]), count_shares()
    if shares == 1 or num_rows % shares:
        return function(whole, rows)
    fsdp = jax.sharding.get_abstract_mesh().shape["fsdp"]

    def is_split(x: Array) -> bool:
        return x.ndim > 1 and fsdp > 1 and x.shape[0] % fsdp == 0

    def add_up(x: Array) -> Array:
        if not is_split(x):
            return jax.lax.psum(x, ROW_AXES)
        part = jax.lax.psum_scatter(x, "fsdp", scatter_dimension=0, tiled=True)
        return jax.lax.psum(part, "data")

    def run(whole: Any, rows: Any) -> tuple[Any, Any]:
        by_row, sums = function(whole, rows)
        return by_row, jax.tree.map(add_up, sums)

    shard_rows = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((num_rows // shares, *x.shape[1:]), x.dtype),
        rows,
    )
    by_row, sums = jax.eval_shape(function, whole, shard_rows)
    return jax.shard_map(
        run,
        in_specs=(
            jax.tree.map(lambda _: PartitionSpec(), whole),
            jax.tree.map(lambda _: PartitionSpec(ROW_AXES), rows),
        ),
        out_specs=(
            jax.tree.map(lambda _: PartitionSpec(ROW_AXES), by_row),
            jax.tree.map(
                lambda x: PartitionSpec("fsdp") if is_split(x) else PartitionSpec(),
                sums,
            ),
        ),
        axis_names=set(ROW_AXES),
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

"""A sharding constraint that keeps rows on their devices, on a mesh of several.

Without it XLA shards hidden states along the axis that a matrix is split along (each
device has all rows, and sums after every product) instead of gathering the matrix.
"""

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Shaped

# The mesh axes that rows are sharded over (`jaxpt.run.sharding` makes the mesh).
ROW_AXES = ("data", "fsdp")


def keep_rows(x: Shaped[Array, "B ..."]) -> Shaped[Array, "B ..."]:
    """x, constrained to be sharded by rows; x itself without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    if not set(ROW_AXES) <= set(mesh.axis_names) or mesh.size == 1:
        return x  # no mesh, or pmap's, under which each device has its own rows
    if x.shape[0] % (mesh.shape["data"] * mesh.shape["fsdp"]):
        return x
    rest = (PartitionSpec.UNCONSTRAINED,) * (x.ndim - 1)
    return jax.lax.with_sharding_constraint(x, PartitionSpec(ROW_AXES, *rest))

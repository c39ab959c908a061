"""Predictions of some rows side by side, so that the others meet no vocabulary.

How many positions of a row are predicted may be drawn: half of them in mean, of a
prefix language model. A batch of them needs little more than the mean, and the head is
computed for as many as it needs but for one batch in some 30,000:

    row   0 0 1 1 1     slots = n * mean + 4 * sqrt(n) * standard deviation, of n rows
    row   0 0 0 0 1     states and targets of the 1s, one after the other, then filler

What does not fit is left out of the loss, and counted.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.ops.layout import ROW_AXES, keep_rows

NUM_STDS = 4
MULTIPLE = 8  # of slots, which matrix products like


class Expected(NamedTuple):
    """How many positions of a row are predicted: in mean, its deviation, at most."""

    mean: float
    std: float
    most: int


def exactly(count: int) -> Expected:
    """The same number in every row."""
    return Expected(count, 0.0, count)


def uniform(low: int, high: int) -> Expected:
    """Every number from low to high is as likely.

    >>> uniform(1, 3)
    Expected(mean=2.0, std=0.816496580927726, most=3)
    """
    return Expected((low + high) / 2, math.sqrt(((high - low + 1) ** 2 - 1) / 12), high)


def mix(parts: Iterable[tuple[float, Expected]]) -> Expected:
    """A row is as one of the parts, each drawn by its weight.

    >>> mix([(1.0, exactly(10)), (3.0, exactly(2))])
    Expected(mean=4.0, std=3.4641016151377544, most=10)
    """
    weights, found = zip(*parts, strict=True)
    total = sum(weights)
    pairs = list(zip(weights, found, strict=True))
    mean = sum(weight * part.mean for weight, part in pairs) / total
    square = sum(weight * (part.mean**2 + part.std**2) for weight, part in pairs)
    std = math.sqrt(max(square / total - mean**2, 0.0))
    return Expected(mean, std, max(part.most for part in found))


class Packed(NamedTuple):
    """The predicted positions of G groups of rows.

    Attributes:
      states, targets, weights: of each slot; a slot that is not filled weighs 0.
      overflow: how many predictions have no slot, and how many there are.
    """

    states: Float[Array, "G S D"]
    targets: Int[Array, "G S"]
    weights: Float[Array, "G S"]
    overflow: tuple[Float[Array, ""], Float[Array, ""]]


def count_slots(num_rows: int, expected: Expected) -> int:
    """The slots of so many rows.

    >>> [count_slots(rows, Expected(50.0, 29.0, 100)) for rows in (64, 1)]
    [4128, 100]
    """
    wanted = num_rows * expected.mean + NUM_STDS * expected.std * math.sqrt(num_rows)
    rounded = MULTIPLE * max(1, math.ceil(wanted / MULTIPLE))
    return min(rounded, num_rows * expected.most)


def pack(
    states: Float[Array, "B T D"],
    targets: Int[Array, "B T"],
    weights: Float[Array, "B T"],
    expected: Expected,
) -> Packed:
    """The positions that have a weight, of each device's rows by themselves."""
    num_rows, _, width = states.shape
    groups = _count_shares()
    groups = 1 if num_rows % groups else groups
    slots = count_slots(num_rows // groups, expected)
    flat = weights.reshape(groups, -1)

    def find(weights):
        (positions,) = jnp.nonzero(weights, size=slots, fill_value=0)
        return positions, jnp.arange(slots) < jnp.count_nonzero(weights)

    positions, is_filled = jax.vmap(find)(flat)

    def take(x):
        # The index of filler is any position's.
        return keep_rows(jnp.take_along_axis(x, positions, axis=1))

    chosen = jnp.where(is_filled, take(flat), 0)
    rows = states.reshape(groups, -1, width)
    gathered = jax.vmap(lambda x, index: x[index])(rows, positions)
    total = jnp.count_nonzero(weights).astype(jnp.float32)
    left_out = total - is_filled.sum().astype(jnp.float32)
    return Packed(
        keep_rows(gathered),
        take(targets.reshape(groups, -1)),
        chosen,
        (left_out, total),
    )


def _count_shares() -> int:
    """How many devices share out the rows."""
    mesh = jax.sharding.get_abstract_mesh()
    if not set(ROW_AXES) <= set(mesh.axis_names):
        return 1
    return math.prod(mesh.shape[axis] for axis in ROW_AXES)

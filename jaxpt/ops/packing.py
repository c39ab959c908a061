"""Packing of predicted positions, so that the vocabulary head skips all others.

The number of predicted positions of a row may be random: a prefix language model
predicts half of them on average. The head is computed for a fixed number of slots:

    row   0 0 1 1 1     states and targets of the 1s, in order, followed by padding
    row   0 0 0 0 1

An objective declares the distribution of this number for one row, `PredictionCounts`.
The number of slots of n rows is the smallest multiple of 8 that the sum of n
independent draws from it exceeds with a probability of at most 1 / 30,000. The
distribution of the sum is computed by convolution, so it is exact for laws that are
far from normal, too.
Predictions without a slot are dropped from the loss and counted.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxpt.ops.layout import count_shares, keep_rows

MAX_TAIL = 1 / 30_000  # the probability that a batch has more predictions than slots
MULTIPLE = 8  # of slots, for efficient matrix products
MAX_SUMS = 2**20  # distinct values of a sum; for more, counts are rounded up


@dataclasses.dataclass(frozen=True)
class PredictionCounts:
    """The distribution of the number of predicted positions in a row.

    Attributes:
      probabilities: of 0, 1, 2, ... positions.
    """

    probabilities: tuple[float, ...] = dataclasses.field(repr=False)

    @property
    def most(self) -> int:
        """The largest number that the law allows."""
        return len(self.probabilities) - 1


def exactly(count: int) -> PredictionCounts:
    """A constant number in every row."""
    return uniform(count, count)


def uniform(low: int, high: int) -> PredictionCounts:
    """A uniformly distributed number from low to high.

    >>> uniform(1, 2).probabilities
    (0.0, 0.5, 0.5)
    """
    num = high - low + 1
    return PredictionCounts((0.0,) * low + (1 / num,) * num)


def uniform_rate(num: int, low: float) -> PredictionCounts:
    """Each of num positions is predicted at the row's rate, uniform from low to 1.

    The probability of k is the binomial one, integrated over the rate: an incomplete
    beta function, P(at most k of num + 1 at rate low) / (num + 1) / (1 - low).

    >>> [round(p, 6) for p in uniform_rate(2, 0.5).probabilities]
    [0.083333, 0.333333, 0.583333]
    """
    k = np.arange(num + 2)
    log_choices = np.append(0.0, np.cumsum(np.log((num + 2 - k[1:]) / k[1:])))
    logs = log_choices + k * math.log(low) + k[::-1] * math.log1p(-low)
    at_most = np.cumsum(np.exp(logs))[:-1]
    return PredictionCounts(tuple((at_most / at_most.sum()).tolist()))


def at_rates(num: int, rates: np.ndarray) -> PredictionCounts:
    """Each of num positions is predicted at the row's rate, one of `rates`.

    >>> [round(p, 4) for p in at_rates(2, np.array([0.5, 0.1])).probabilities]
    [0.53, 0.34, 0.13]
    """
    k = np.arange(num + 1)
    log_choices = np.append(0.0, np.cumsum(np.log((num + 1 - k[1:]) / k[1:])))
    low = np.clip(rates, 1e-12, 1 - 1e-12)[:, None]
    logs = log_choices + k * np.log(low) + (num - k) * np.log1p(-low)
    total = np.exp(logs).mean(0)
    return PredictionCounts(tuple((total / total.sum()).tolist()))


def add(laws: Iterable[PredictionCounts]) -> PredictionCounts:
    """The sum of independent numbers.

    >>> add([uniform(0, 1), uniform(0, 1)]).probabilities
    (0.25, 0.5, 0.25)
    """
    total = np.ones(1)
    for law in laws:
        total = np.convolve(total, law.probabilities)
    return PredictionCounts(tuple(total.tolist()))


def mix(parts: Iterable[tuple[float, PredictionCounts]]) -> PredictionCounts:
    """A mixture: a row follows one of the laws, drawn with these weights.

    >>> mix([(1.0, exactly(0)), (3.0, exactly(2))]).probabilities
    (0.25, 0.0, 0.75)
    """
    parts = list(parts)
    mixture = np.zeros(1 + max(law.most for _, law in parts))
    for weight, law in parts:
        mixture[: law.most + 1] += weight * np.array(law.probabilities)
    return PredictionCounts(
        tuple((mixture / sum(weight for weight, _ in parts)).tolist())
    )


class Packed(NamedTuple):
    """The predicted positions of G groups of rows.

    Attributes:
      states, targets, weights: of each slot; an unused slot has weight 0.
      overflow: the number of predictions without a slot, and of all predictions.
    """

    states: Float[Array, "G S D"]
    targets: Int[Array, "G S"]
    weights: Float[Array, "G S"]
    overflow: tuple[Float[Array, ""], Float[Array, ""]]


@functools.lru_cache
def count_slots(num_rows: int, law: PredictionCounts) -> int:
    """The number of slots for the rows of a batch.

    >>> [count_slots(rows, uniform(0, 100)) for rows in (64, 1)]
    [4128, 100]
    """
    unit = max(1, math.ceil(num_rows * law.most / MAX_SUMS))
    units = -(-np.arange(law.most + 1) // unit)  # rounded up, so that the bound holds
    row = np.bincount(units, law.probabilities)
    most = num_rows * (len(row) - 1)
    size = 1 << most.bit_length()
    total = np.fft.irfft(np.fft.rfft(row, size) ** num_rows, size)[: most + 1]
    num_slots = unit * int(np.argmax(1 - np.cumsum(total) <= MAX_TAIL))
    rounded = MULTIPLE * max(1, math.ceil(num_slots / MULTIPLE))
    return min(rounded, num_rows * law.most)


def pack(
    states: Float[Array, "B T D"],
    targets: Int[Array, "B T"],
    weights: Float[Array, "B T"],
    law: PredictionCounts,
) -> Packed:
    """Packs the positions with nonzero weight, by the rows of each device."""
    num_rows, _, width = states.shape
    groups = count_shares()
    groups = 1 if num_rows % groups else groups
    slots = count_slots(num_rows // groups, law)
    flat = weights.reshape(groups, -1)

    def find(weights: Array) -> tuple[Array, Array]:
        (positions,) = jnp.nonzero(weights, size=slots, fill_value=0)
        return positions, jnp.arange(slots) < jnp.count_nonzero(weights)

    positions, is_filled = jax.vmap(find)(flat)

    def take(x: Array) -> Array:
        # Unused slots have the index of an arbitrary position.
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

"""Shares of the rows of a batch, by phases of a run, and the kind of each row.

Phases are pairs (until, shares): until this fraction of the run, these shares apply.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# The distance of two successive rows, as a fraction of the batch. It is independent of
# the golden ratio, by which the mask rates of diffusion are spread over the same rows.
SILVER = math.sqrt(2) - 1
# Progress is a rounded float32. This is below one step in two million.
ROUNDING = 5e-7
Phases = tuple[tuple[float, tuple[float, ...]], ...]
MAX_SIZE = 2**15  # rows of a batch whose numbers are exact


def find_step(size: int) -> int:
    """A number without a common factor with `size`, near sqrt(2) - 1 of it.

    >>> [find_step(size) for size in (1, 4, 8, 64)]
    [0, 1, 3, 27]
    """
    best = round(size * SILVER)
    near = sorted(range(size), key=lambda step: abs(step - best))
    return next((step for step in near if math.gcd(step, size) == 1), 0)


def assign(
    rng: Array, index: Int[Array, "B"], shares: Float[Array, "K #B"], size: int
) -> Int[Array, "B"]:
    """The kind of each row, whose probabilities are the shares.

    Of `size` rows with successive indices, a kind with share s has size * s, rounded
    down or up; the rows of a microbatch (every n-th one) are as evenly divided. Those
    of a device (adjacent ones) nearly are.

    Args:
      index: each row's index in the global batch.
      size: the number of rows in it; 0 if that is not known, or above `MAX_SIZE`.

    >>> shares = jnp.array([[0.5], [0.5]])
    >>> sorted(assign(jax.random.key(3), jnp.arange(4), shares, 4).tolist())
    [0, 0, 1, 1]
    """
    rng_turn, rng_offset = jax.random.split(rng)
    edges = jnp.cumsum(shares, 0)[:-1]
    if not 0 < size <= MAX_SIZE:
        places = (jax.random.uniform(rng_turn) + index * SILVER) % 1
        return (places >= edges).sum(0)
    turn = jax.random.randint(rng_turn, (), 0, size)
    # Of few bits, so that sums of float32 are exact.
    offset = (jax.random.randint(rng_offset, (), 0, 256) + 0.5) / 256
    places = (index.astype(jnp.uint32) * find_step(size) + turn) % size + offset
    return (places >= edges * size).sum(0)


def add_last(phases: Phases, last: tuple[float, ...]) -> Phases:
    """The phases of a whole run, whose last shares are `last` unless they end it."""
    return phases if phases and phases[-1][0] == 1 else (*phases, (1.0, last))


def find_means(phases: Phases) -> tuple[float, ...]:
    """The shares in the whole run.

    >>> find_means(((0.25, (1.0, 0.0)), (1.0, (0.5, 0.5))))
    (0.625, 0.375)
    """
    starts = (0.0, *(until for until, _ in phases))
    parts = [
        [(until - start) * share for share in shares]
        for start, (until, shares) in zip(starts, phases, strict=False)
    ]
    return tuple(map(sum, zip(*parts, strict=True)))


def find_shares(phases: Phases, progress: Any) -> list[Any]:
    """The shares after a fraction of the run, numbers or arrays as it is.

    >>> phases = (0.25, (1.0, 0.0)), (1.0, (0.0, 1.0))
    >>> [find_shares(phases, p) for p in (0, 0.2, 0.25, 1)]
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    result: list[Any] = [0.0] * len(phases[0][1])
    ends = [until - ROUNDING for until, _ in phases[:-1]]
    bounds = zip([-math.inf, *ends], [*ends, math.inf], strict=True)
    for (start, end), (_, shares) in zip(bounds, phases, strict=True):
        is_now = (progress >= start) & (progress < end)
        result = [x + s * is_now for x, s in zip(result, shares, strict=True)]
    return result

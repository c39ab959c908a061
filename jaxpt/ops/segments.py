"""Starts, lengths and ends of the documents packed into a row, by token.

`segment_ids` number the documents of a row 1, 2, ...; padding has id 0.
"""

from typing import overload

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


def _starts(segment_ids: Array) -> Bool[Array, "*B T"]:
    changes = segment_ids[..., 1:] != segment_ids[..., :-1]
    return jnp.concatenate([jnp.ones_like(segment_ids[..., :1], bool), changes], -1)


@overload
def segment_positions(segment_ids: Int[Array, "*B T"]) -> Int[Array, "*B T"]: ...
@overload
def segment_positions(segment_ids: None) -> None: ...
def segment_positions(
    segment_ids: Int[Array, "*B T"] | None,
) -> Int[Array, "*B T"] | None:
    """The position of each token in its document, from 0; None for None.

    >>> segment_positions(jnp.array([1, 1, 1, 2, 2, 0])).tolist()
    [0, 1, 2, 0, 1, 0]
    """
    if segment_ids is None:
        return None
    axis = segment_ids.ndim - 1
    positions = jnp.arange(segment_ids.shape[axis])
    starts = jnp.where(_starts(segment_ids), positions, 0)
    return (positions - jax.lax.cummax(starts, axis)).astype(jnp.int32)


def segment_lengths(segment_ids: Int[Array, "*B T"]) -> Int[Array, "*B T"]:
    """The length of each token's document; 0 at padding.

    >>> segment_lengths(jnp.array([1, 1, 1, 2, 2, 0])).tolist()
    [3, 3, 3, 2, 2, 0]
    """
    behind = segment_positions(jnp.flip(segment_ids, -1))
    lengths = segment_positions(segment_ids) + jnp.flip(behind, -1) + 1
    return jnp.where(segment_ids > 0, lengths, 0)


def segment_starts(segment_ids: Int[Array, "*B T"]) -> Int[Array, "*B T"]:
    """The position in the row at which each token's document begins.

    >>> segment_starts(jnp.array([1, 1, 1, 2, 2])).tolist()
    [0, 0, 0, 3, 3]
    """
    return jnp.arange(segment_ids.shape[-1]) - segment_positions(segment_ids)


def is_last(segment_ids: Int[Array, "*B T"]) -> Bool[Array, "*B T"]:
    """Whether each token is the last one of its document.

    >>> is_last(jnp.array([1, 1, 1, 2, 2, 0])).astype(int).tolist()
    [0, 0, 1, 0, 1, 0]
    """
    follow = jnp.flip(_starts(jnp.flip(segment_ids, -1)), -1)
    return follow & (segment_ids > 0)

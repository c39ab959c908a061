"""Losses and hits as (sum, weight): dividing happens once, last, over the whole batch.

All in float32, whatever the logits are.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

SumWeight = tuple[Float[Array, ""], Float[Array, ""]]


def token_losses(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"]
) -> Float[Array, "*B"]:
    """-log p(target) in nats, one for each position."""
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - picked


def cross_entropy(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"], weights: Float[Array, "*B"]
) -> SumWeight:
    """Weighted sum of -log p(target) in nats, and the sum of weights.

    >>> total, weight = cross_entropy(jnp.zeros((1, 4)), jnp.array([2]), jnp.ones(1))
    >>> round(float(total / weight), 4)  # ln 4
    1.3863
    """
    losses = token_losses(logits, targets)
    return jnp.sum(losses * weights), jnp.sum(weights)


def binary_cross_entropy(
    logits: Float[Array, "*B"], labels: Float[Array, "*B"], weights: Float[Array, "*B"]
) -> SumWeight:
    """Weighted sum of -log p(label) under sigmoid(logits), and the sum of weights.

    >>> total, _ = binary_cross_entropy(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
    >>> round(float(total), 4)  # ln 2
    0.6931
    """
    logits = logits.astype(jnp.float32)
    losses = jax.nn.softplus(logits) - labels * logits
    return jnp.sum(losses * weights), jnp.sum(weights)


def top_k_hits(
    logits: Float[Array, "*B V"],
    targets: Int[Array, "*B"],
    weights: Float[Array, "*B"],
    k: int = 1,
) -> SumWeight:
    """How often the target is among the k highest logits; a tie counts as a miss.

    Counting ties as misses keeps constant logits from scoring (BLiMP's known flaw).

    >>> logits = jnp.array([[0.0, 2.0, 1.0]])
    >>> [float(top_k_hits(logits, jnp.array([2]), jnp.ones(1), k)[0]) for k in (1, 2)]
    [0.0, 1.0]
    """
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)
    rank = jnp.sum(logits >= picked, axis=-1)  # the target counts itself
    is_hit = (rank >= 1) & (rank <= k)  # a NaN is above nothing, not even itself
    return jnp.sum(is_hit * weights), jnp.sum(weights)

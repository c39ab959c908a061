"""What the metrics read of a network: pooled states, states at a gap, masked tokens."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

POOLINGS = ("mean", "first", "last")  # of the states of a text's tokens
GAP_OFFSETS = (-1, 0, 1, 2)  # offsets from the gap of the states that are read


def pool_states(states: Float[Array, "L B T D"]) -> Float[Array, "B L P D"]:
    """The states of each layer as one vector per text and pooling, in float32.

    >>> states = jnp.array([1.0, 3.0, 8.0]).reshape(1, 1, 3, 1)
    >>> pool_states(states)[..., 0].tolist()
    [[[4.0, 1.0, 8.0]]]
    """
    states = states.astype(jnp.float32)
    pooled = [states.mean(axis=2), states[:, :, 0], states[:, :, -1]]
    return jnp.stack(pooled, axis=2).swapaxes(0, 1)


def score_masked(
    logits: Float[Array, "B R V"],
    positions: Int[Array, "B P"],
    targets: Int[Array, "B P"],
    allowed: Bool[Array, "V"],
) -> tuple[Float[Array, "B P"], Float[Array, "B P"]]:
    """-log p of the masked tokens in nats, and their top-1 credit.

    The credit is 1 if only the target is the likeliest token, and 1 / k if it is one of
    k that are equally likely.
    """
    logits = jnp.take_along_axis(logits, positions[:, :, None], axis=1)
    logits = jnp.where(allowed, logits.astype(jnp.float32), -jnp.inf)
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, :, None], 2)
    is_best = logits == logits.max(-1, keepdims=True)
    is_hit = jnp.take_along_axis(is_best, targets[:, :, None], 2)
    return nll[..., 0], (is_hit / is_best.sum(-1, keepdims=True))[..., 0]

"""Dynamic loss scaling: gradients in float16 that neither vanish nor overflow.

Float16 has numbers from 6e-8 to 65,504, and many gradients are smaller. So the loss is
multiplied by a scale before the backward pass, and the gradients, float32 sums by then,
are divided by it (Micikevicius et al. 2018, section 3.2):

    gradient = grad(scale * loss) / scale

The scale starts at 2^15. A loss or gradient that is not finite skips the update
(`jaxpt.learn.skips`) and halves the scale, down to 1; 2,000 finite steps double it, up
to 2^24 (apex's limits, and PyTorch's interval). Powers of two change only the exponent,
so a scale that is neither too large nor too small changes no bit of the gradients.

flax.training.dynamic_scale has the same rule around `jax.grad`, which fits neither sums
over microbatches and devices nor a skip that also depends on the norm.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

START, LEAST, MOST = 2.0**15, 1.0, 2.0**24
INTERVAL = 2000  # finite steps until the scale is doubled
# Skips in a row after which the smallest scale was tried, too.
MIN_SKIPS = 25


class LossScale(NamedTuple):
    """The scale, replicated over all devices.

    Attributes:
      value: a power of two.
      num_finite: the number of finite steps since it was last changed.
    """

    value: Float[Array, ""]
    num_finite: Int[Array, ""]


def init_scale() -> LossScale:
    """The scale before the first step."""
    return LossScale(jnp.float32(START), jnp.int32(0))


def adjust(scale: LossScale, is_finite: Bool[Array, ""]) -> LossScale:
    """The scale after a step.

    >>> scale = adjust(init_scale(), jnp.array(False))
    >>> float(scale.value), int(adjust(scale, jnp.array(True)).num_finite)
    (16384.0, 1)
    """
    num = jnp.where(is_finite, scale.num_finite + 1, 0)
    is_due = num == INTERVAL
    value = jnp.where(is_finite, scale.value, jnp.maximum(scale.value / 2, LEAST))
    value = jnp.where(is_due, jnp.minimum(value * 2, MOST), value)
    return LossScale(value, jnp.where(is_due, 0, num))


def scale_up(loss: Array, scale: LossScale | None) -> Array:
    """The loss times the scale, if there is one."""
    return loss if scale is None else loss * scale.value


def scale_down(grads: PyTree, scale: LossScale | None) -> PyTree:
    """The gradients of the loss by those of the loss times the scale."""
    if scale is None:
        return grads
    return jax.tree.map(lambda x: x / scale.value, grads)

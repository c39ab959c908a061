"""How far vectors are spread: variances, covariances, effective rank.

For losses that keep predicted vectors apart (VICReg), and for a metric of collapse.
Statistics are those of the counted positions of each row, so that sums over rows do not
depend on microbatches and devices.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from jaxpt.ops import kernels


def centre(
    x: Float[Array, "B T D"], weights: Float[Array, "B T"]
) -> tuple[Float[Array, "B T D"], Float[Array, "B"]]:
    """x minus its mean over the counted positions of its row, 0 at others.

    Args:
      weights: above 0 at the counted positions.

    Returns:
      that, and the number of counted positions of each row.
    """
    is_counted = (weights > 0)[..., None]
    count = is_counted.sum((1, 2)).astype(jnp.float32)
    size = jnp.maximum(count, 1)[:, None, None]
    mean = jnp.where(is_counted, x, 0).sum(1, keepdims=True) / size
    return jnp.where(is_counted, x - mean, 0), count


def variances(
    centred: Float[Array, "B T D"], count: Float[Array, "B"]
) -> Float[Array, "B D"]:
    """Unbiased, of each row; 0 if it has one position."""
    return jnp.square(centred).sum(1) / jnp.maximum(count - 1, 1)[:, None]


def variance_penalties(
    centred: Float[Array, "B T D"], count: Float[Array, "B"]
) -> Float[Array, "B"]:
    """The mean over the width of max(0, 1 - sqrt(Var + 1e-4)).

    >>> x = jnp.array([[[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    >>> round(float(variance_penalties(*centre(x, jnp.ones((1, 4))))[0]), 6)
    0.091721
    """
    deviations = jnp.sqrt(variances(centred, count) + 1e-4)
    return jax.nn.relu(1 - deviations).mean(-1)


def covariance_penalties(
    centred: Float[Array, "B T D"],
    count: Float[Array, "B"],
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "B"]:
    """The sum of squared covariances of two different dimensions, over the width.

    The sum of the squares of X^T X is that of X X^T; the smaller one is computed.

    Args:
      dtype: of the factors of the products.

    >>> x = jnp.array([[[1.0, 1.0], [-1.0, -1.0], [2.0, 2.0], [-2.0, -2.0]]])
    >>> round(float(covariance_penalties(*centre(x, jnp.ones((1, 4))))[0]), 4)
    11.1111
    """
    _, length, width = centred.shape
    equation = "td,sd->ts" if length < width else "td,te->de"
    low = centred.astype(dtype)
    products = jax.vmap(lambda x: kernels.product(equation, x, x))(low)
    squares = jnp.square(products).sum((1, 2)) / jnp.maximum(count - 1, 1) ** 2
    # Of the same rounded numbers, so that the difference is exact.
    diagonal = jnp.square(variances(low.astype(jnp.float32), count)).sum(-1)
    return (squares - diagonal) / width


def effective_rank(scatter: Float[Array, "D D"]) -> Float[Array, ""]:
    """exp of the entropy of s / sum(s), where s are the singular values of X.

    Args:
      scatter: X^T X, of centred rows X.

    >>> x = jnp.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(float(effective_rank(x.T @ x)), 6)
    1.889882
    """
    squares = jnp.linalg.eigvalsh(scatter)  # in ascending order
    limits = jnp.finfo(squares.dtype)
    # The root of what rounding leaves of a 0 would count.
    sizes = jnp.sqrt(jnp.where(squares > 10 * limits.eps * squares[-1], squares, 0))
    shares = sizes / jnp.maximum(sizes.sum(), limits.tiny)
    return jnp.exp(jax.scipy.special.entr(shares).sum())

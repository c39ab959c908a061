"""The operations that a training step spends its time in, on any device.

On CPU in float32 those of `ops/cpu.py` are used: the same numbers, with gradients
written by hand, because XLA's CPU back end is slow at those of autodiff.

In bfloat16 the factors of products are bfloat16, and all sums are float32: products,
norms, and the gradients of parameters, which are never rounded to bfloat16.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxpt.ops import cpu


def is_cpu(x: Array) -> bool:
    """Whether the operations of `ops/cpu.py` apply to this array."""
    return x.dtype == jnp.float32 and jax.default_backend() == "cpu"


def count_devices() -> int:
    """How many devices the arrays of the program being traced are divided among.

    It is 1 where each device runs a program of its own (pmap, shard_map); under jit it
    may be all of them.
    """
    mesh = jax.sharding.get_abstract_mesh()
    is_manual = set(mesh.axis_names) == set(mesh.manual_axes) != set()
    return 1 if is_manual else jax.device_count()


def product(equation: str, a: Array, b: Array, out_dtype=jnp.float32) -> Array:
    """einsum of two arrays: factors in the dtype of `a`, sums in float32.

    So are its gradients, in the dtypes of a and b: b may be a float32 parameter.
    Autodiff alone would multiply the float32 gradient of a float32 result, which on GPU
    and TPU takes many times as long.

    Args:
      equation: as in einsum; each letter must be in exactly two of its three terms.
    """
    if a.dtype == jnp.float32:
        return jnp.einsum(equation, a, b)
    return _low_product(equation, a, b, jnp.dtype(out_dtype).name)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def _low_product(equation, a, b, out_dtype):
    low = b.astype(a.dtype)
    return jnp.einsum(equation, a, low, preferred_element_type=out_dtype)


def _low_forward(equation, a, b, out_dtype):
    # Saves b, not its bfloat16 copy, as a parameter is in memory anyway.
    return _low_product(equation, a, b, out_dtype), (a, b)


def _low_backward(equation, out_dtype, saved, grad):
    a, b = saved
    terms, out = equation.split("->")
    left, right = terms.split(",")
    grad, low = grad.astype(a.dtype), b.astype(a.dtype)

    def pull(equation, x, y, like):
        return jnp.einsum(equation, x, y, preferred_element_type=like.dtype)

    grad_a = pull(f"{out},{right}->{left}", grad, low, like=a)
    return grad_a, pull(f"{left},{out}->{right}", a, grad, like=b)


_low_product.defvjp(_low_forward, _low_backward)


@jax.custom_vjp
def _add_bias(y: Float[Array, "M O"], bias: Float[Array, "O"]) -> Float[Array, "M O"]:
    return y + bias.astype(y.dtype)


def _add_bias_backward(bias, grad):
    return grad, grad.astype(jnp.float32).sum(0).astype(bias.dtype)


_add_bias.defvjp(lambda y, bias: (_add_bias(y, bias), bias), _add_bias_backward)


def dense(
    x: Float[Array, "*B I"],
    kernel: Float[Array, "I O"],
    bias: Float[Array, "O"] | None = None,
    out_dtype=None,
) -> Float[Array, "*B O"]:
    """x W + b, as one product of two matrices.

    Args:
      kernel, bias: parameters; they are cast to the dtype of x.
      out_dtype: the dtype of the result; None means that of x.
    """
    flat = x.reshape(-1, x.shape[-1])
    if is_cpu(x):
        y = cpu.matmul(flat, kernel)
    else:
        y = product("MI,IO->MO", flat, kernel, out_dtype or x.dtype)
    if bias is not None:
        y = y + bias if y.dtype == jnp.float32 else _add_bias(y, bias)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


def layer_norm(
    x: Float[Array, "*B D"],
    scale: Float[Array, "D"],
    bias: Float[Array, "D"],
    epsilon: float,
) -> Float[Array, "*B D"]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, in float32 (Ba 2016)."""
    if is_cpu(x):
        return cpu.layer_norm(x, scale, bias, epsilon)
    return layer_norm_plain(x, scale, bias, epsilon)


def layer_norm_plain(x, scale, bias, epsilon):
    """`layer_norm` with the gradient of autodiff."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt(variance + epsilon) * scale + bias
    return y.astype(x.dtype)


def rms_norm(
    x: Float[Array, "*B D"], scale: Float[Array, "D"], epsilon: float
) -> Float[Array, "*B D"]:
    """x / sqrt(mean square + epsilon) * scale, in float32 (Zhang & Sennrich 2019)."""
    wide = x.astype(jnp.float32)
    square = jnp.square(wide).mean(-1, keepdims=True)
    return (wide * jax.lax.rsqrt(square + epsilon) * scale).astype(x.dtype)


def dropout(rng: Array, x: Array, rate: float) -> Array:
    """Zeroes x with probability `rate` in (0, 1), scales the rest by 1 / (1 - rate)."""
    random_bits = cpu.random_bits if is_cpu(x) else jax.random.bits
    keep = random_bits(rng, x.shape) >= jnp.uint32(round(rate * 2**32))
    return jnp.where(keep, x * (1 / (1 - rate)), 0).astype(x.dtype)

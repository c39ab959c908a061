"""Matrix products, norms and activations with memory-saving gradients, on any device.

On CPU in float32 the functions of `ops/cpu.py` are used: the same numbers with
hand-written gradients, because XLA's CPU back end is slow at those of autodiff.

In bfloat16 the factors of products are bfloat16. All sums are float32: products, norms,
and the gradients of parameters, which are never rounded to bfloat16. The same holds in
float16, in which activations are computed in float32, too.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from jaxpt.ops import cpu
from jaxpt.ops.layout import count_spans


def is_cpu(x: Array) -> bool:
    """Whether the operations of `ops/cpu.py` apply to this array."""
    return x.dtype == jnp.float32 and jax.default_backend() == "cpu"


def count_devices() -> int:
    """The number of devices among which the traced program divides its arrays.

    It is 1 under pmap and shard_map, else the number of devices of the mesh in context.
    Without a mesh it is that of all devices, which jit may use.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return jax.device_count()
    shared = set(mesh.axis_names) - set(mesh.manual_axes)
    return math.prod(mesh.shape[axis] for axis in shared)


def argmax(x: Float[Array, "*batch V"]) -> Int[Array, "*batch"]:
    """The first index of the greatest number along the last axis, or of a NaN."""
    return cpu.argmax(x) if is_cpu(x) else jnp.argmax(x, axis=-1).astype(jnp.int32)


def product(
    equation: str, a: Array, b: Array, out_dtype: DTypeLike = jnp.float32
) -> Array:
    """einsum of two arrays: factors in the dtype of `a`, sums in float32.

    The gradients are computed in the same way, in the dtypes of a and b; b may be a
    float32 parameter. Autodiff would multiply in float32, which is many times slower on
    GPU and TPU.

    Args:
      equation: as in einsum; each letter must be in exactly two of its three terms.
    """
    if a.dtype == jnp.float32:
        return jnp.einsum(equation, a, b)
    return _low_product(equation, a, b, jnp.dtype(out_dtype).name)


def kernel_gradient(
    x: Float[Array, "M I"], grad: Float[Array, "M O"]
) -> Float[Array, "I O"]:
    """x^T grad, the gradient of the kernel of x W, in float32."""
    if is_cpu(grad):
        return cpu.kernel_gradient(x, grad)
    return jnp.einsum("MI,MO->IO", x, grad, preferred_element_type=jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def _low_product(equation: str, a: Array, b: Array, out_dtype: str) -> Array:
    return _multiply_low(equation, a, b, out_dtype)


def _multiply_low(equation: str, a: Array, b: Array, out_dtype: str) -> Array:
    low = b.astype(a.dtype)
    return jnp.einsum(equation, a, low, preferred_element_type=out_dtype)


def _low_forward(
    equation: str, a: Array, b: Array, out_dtype: str
) -> tuple[Array, tuple]:
    # Not `_low_product`: a policy of `jax.checkpoint` cannot look into a function with
    # a custom derivative, and would recompute the product. Saves b and not its bfloat16
    # copy, because a parameter is in memory anyway.
    return _multiply_low(equation, a, b, out_dtype), (a, b)


def _low_backward(
    equation: str, out_dtype: str, saved: tuple, grad: Array
) -> tuple[Array, Array]:
    a, b = saved
    terms, out = equation.split("->")
    left, right = terms.split(",")
    grad, low = grad.astype(a.dtype), b.astype(a.dtype)

    def pull(equation: str, x: Array, y: Array, like: Array) -> Array:
        return jnp.einsum(equation, x, y, preferred_element_type=like.dtype)

    grad_a = pull(f"{out},{right}->{left}", grad, low, like=a)
    return grad_a, pull(f"{left},{out}->{right}", a, grad, like=b)


_low_product.defvjp(_low_forward, _low_backward)


@jax.custom_vjp
def _add_bias(y: Float[Array, "*M O"], bias: Float[Array, "O"]) -> Float[Array, "*M O"]:
    return _add_low(y, bias)


def _add_low(y: Array, bias: Array) -> Array:
    return y + bias.astype(y.dtype)


def _add_bias_backward(bias: Array, grad: Array) -> tuple[Array, Array]:
    rows = tuple(range(grad.ndim - 1))
    return grad, grad.astype(jnp.float32).sum(rows).astype(bias.dtype)


_add_bias.defvjp(lambda y, bias: (_add_low(y, bias), bias), _add_bias_backward)


def dense(
    x: Float[Array, "*B I"],
    kernel: Float[Array, "I O"],
    bias: Float[Array, "O"] | None = None,
    out_dtype: DTypeLike | None = None,
) -> Float[Array, "*B O"]:
    """x W + b, as one product of two matrices.

    Args:
      kernel, bias: parameters; they are cast to the dtype of x.
      out_dtype: the dtype of the result; None means that of x.
    """
    if x.ndim == 3 and count_spans(x.shape[1]) > 1:
        # Rows and positions in one axis could not be sharded by both.
        y = product("BTI,IO->BTO", x, kernel, out_dtype or x.dtype)
        return y if bias is None else _add_any(y, bias)
    flat = x.reshape(-1, x.shape[-1])
    if is_cpu(x):
        y = cpu.matmul(flat, kernel)
    else:
        y = product("MI,IO->MO", flat, kernel, out_dtype or x.dtype)
    if bias is not None:
        y = _add_any(y, bias)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


def _add_any(y: Array, bias: Float[Array, "O"]) -> Array:
    return y + bias if y.dtype == jnp.float32 else _add_bias(y, bias)


def layer_norm(
    x: Float[Array, "*B D"],
    scale: Float[Array, "D"],
    bias: Float[Array, "D"],
    epsilon: float,
) -> Float[Array, "*B D"]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, in float32 (Ba 2016).

    The gradient saves x and two numbers per row; autodiff would save three float32
    arrays of the size of x.
    """
    if is_cpu(x):
        return cpu.layer_norm(x, scale, bias, epsilon)
    rows = _join_rows(x)
    return _layer_norm(rows, scale, bias, epsilon).reshape(x.shape)


def _join_rows(x: Float[Array, "*B D"]) -> Float[Array, "*N D"]:
    """Tokens [B, T, D] as one axis of rows; other arrays, and those of `is_cpu`, as is.

    The gradients of scale and bias are sums over all rows. Of two axes, XLA's GPU back
    end sums one first, and stores float32 arrays of the size of x in a layout for that.
    """
    return x if x.ndim != 3 or is_cpu(x) else x.reshape(-1, x.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _layer_norm(x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    return _norm_forward(x, scale, bias, epsilon)[0]


def _norm_forward(
    x: Array, scale: Array, bias: Array, epsilon: float
) -> tuple[Array, tuple]:
    wide = x.astype(jnp.float32)
    mean, variance = _moments(wide)
    centred = wide - mean
    rate = jax.lax.rsqrt(variance + epsilon)
    y = centred * rate * scale + bias
    return y.astype(x.dtype), (x, mean, rate, scale)


def _moments(x: Float[Array, "*B D"]) -> tuple[Float[Array, "*B 1"], ...]:
    """Mean and variance of the last axis.

    A GPU reads x once: parts of a row are joined by their numbers of elements, means
    and sums of squares around these (Chan et al. 1979).
    """
    if jax.default_backend() != "gpu":
        mean = x.mean(-1, keepdims=True)
        return mean, jnp.square(x - mean).mean(-1, keepdims=True)

    def join(a: tuple, b: tuple) -> tuple[Array, Array, Array]:
        total = a[0] + b[0]
        share = b[0] / jnp.maximum(total, 1)
        apart = b[1] - a[1]
        squares = a[2] + b[2] + jnp.square(apart) * a[0] * share
        return total, a[1] + apart * share, squares

    start = (jnp.float32(0),) * 3
    each = jnp.ones_like(x), x, jnp.zeros_like(x)
    total, mean, squares = jax.lax.reduce(each, start, join, (x.ndim - 1,))
    return mean[..., None], (squares / total)[..., None]


def _norm_backward(
    epsilon: float, saved: tuple, grad: Array
) -> tuple[Array, Array, Array]:
    x, mean, rate, scale = saved
    normed = (_again(x).astype(jnp.float32) - mean) * rate
    grad = grad.astype(jnp.float32)
    scaled = grad * scale
    drift = scaled.mean(-1, keepdims=True)
    slope = (scaled * normed).mean(-1, keepdims=True)
    rows = tuple(range(x.ndim - 1))
    grad_x = rate * (scaled - drift - normed * slope)
    return grad_x.astype(x.dtype), (grad * normed).sum(rows), grad.sum(rows)


_layer_norm.defvjp(_norm_forward, _norm_backward)


def rms_norm(
    x: Float[Array, "*B D"], scale: Float[Array, "D"], epsilon: float
) -> Float[Array, "*B D"]:
    """x / sqrt(mean square + epsilon) * scale, in float32 (Zhang & Sennrich 2019).

    The gradient saves x and one number per row.
    """
    return _rms_norm(_join_rows(x), scale, epsilon).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rms_norm(x: Array, scale: Array, epsilon: float) -> Array:
    return _rms_forward(x, scale, epsilon)[0]


def _rms_forward(x: Array, scale: Array, epsilon: float) -> tuple[Array, tuple]:
    wide = x.astype(jnp.float32)
    rate = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + epsilon)
    return (wide * rate * scale).astype(x.dtype), (x, rate, scale)


def _rms_backward(epsilon: float, saved: tuple, grad: Array) -> tuple[Array, Array]:
    x, rate, scale = saved
    normed = _again(x).astype(jnp.float32) * rate
    grad = grad.astype(jnp.float32)
    scaled = grad * scale
    slope = (scaled * normed).mean(-1, keepdims=True)
    grad_x = rate * (scaled - normed * slope)
    return grad_x.astype(x.dtype), (grad * normed).sum(tuple(range(x.ndim - 1)))


_rms_norm.defvjp(_rms_forward, _rms_backward)


def _again(x: Array) -> Array:
    """x behind a barrier, so that XLA recomputes values that were computed from x.

    Otherwise XLA would keep the results of the forward pass for the backward pass.
    """
    return jax.lax.optimization_barrier(x)


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": jax.nn.gelu,
}


def activate_plain(name: str, x: Array, gated: Array | None = None) -> Array:
    """`activate` with autodiff's gradient.

    In float16 the powers within it would overflow: of "gelu_tanh" the gradient is NaN
    from 148 on.
    """
    if x.dtype == jnp.float16:
        wide = None if gated is None else gated.astype(jnp.float32)
        return activate_plain(name, x.astype(jnp.float32), wide).astype(x.dtype)
    y = _ACTIVATIONS[name](x)
    return y if gated is None else y * gated


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def activate(
    name: str, x: Float[Array, "*B F"], gated: Float[Array, "*B F"] | None = None
) -> Float[Array, "*B F"]:
    """The activation of x, times `gated` if given.

    The gradient saves the arguments only and recomputes the rest; autodiff would save
    up to five arrays of the size of x.

    Args:
      name: "relu", "relu2" (its square), "silu", "gelu" (exact) or "gelu_tanh"
        (GPT-2's).
    """
    return activate_plain(name, x, gated)


def _activate_forward(name: str, x: Array, gated: Array | None) -> tuple[Array, tuple]:
    return activate_plain(name, x, gated), (x, gated)


def _activate_backward(name: str, saved: tuple, grad: Array) -> tuple:
    x, gated = saved
    again = (_again(x), None if gated is None else _again(gated))
    _, pull = jax.vjp(functools.partial(activate_plain, name), *again)
    return pull(grad)


activate.defvjp(_activate_forward, _activate_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def activate_biased(
    name: str, y: Float[Array, "*B F"], bias: Float[Array, "F"]
) -> Float[Array, "*B F"]:
    """`activate` of y + bias in the dtype of y.

    The gradient saves y, which is the result of a product, and adds the bias again: one
    array less is written than with the sum saved. The same numbers.
    """
    return activate_plain(name, _add_low(y, bias))


def _biased_forward(name: str, y: Array, bias: Array) -> tuple[Array, tuple]:
    return activate_plain(name, _add_low(y, bias)), (y, bias)


def _biased_backward(name: str, saved: tuple, grad: Array) -> tuple[Array, Array]:
    # With grad behind the barrier, too, XLA cannot add the bias in the forward pass.
    y, bias, grad = jax.lax.optimization_barrier((*saved, grad))
    _, pull = jax.vjp(lambda y: activate_plain(name, _add_low(y, bias)), y)
    return _add_bias_backward(bias, pull(grad)[0])


activate_biased.defvjp(_biased_forward, _biased_backward)

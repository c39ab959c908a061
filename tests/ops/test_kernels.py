"""Kernels against the plainest jnp: values, and the gradient of every input."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from ops.alike import assert_alike, normal
from tiny import slow

from jaxpt.ops import kernels


@pytest.mark.parametrize("shape", [slow((5, 3)), slow((2, 2, 5, 3)), (3,)])
def test_dense(shape):
    for num_out in (7, 2):  # wide and tall kernels
        x, kernel, bias = normal(0, *shape), normal(1, 3, num_out), normal(2, num_out)
        assert_alike([kernels.dense], lambda x, k, b: x @ k + b, x, kernel, bias)
    assert_alike([kernels.dense], lambda x, k: x @ k, x, kernel)


@pytest.mark.parametrize("num_in, num_out", [(3, 5), (5, 3), (256, 260)])
def test_kernel_gradient(num_in, num_out):
    x, grad = normal(0, 7, num_in), normal(1, 7, num_out)
    expected = np.asarray(x).T @ np.asarray(grad)
    for dtype, rtol in ((jnp.float32, 1e-5), (jnp.bfloat16, 0.02)):
        result = kernels.kernel_gradient(x.astype(dtype), grad.astype(dtype))
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=3 * rtol)


@pytest.mark.parametrize("shape", [slow((5, 8)), (2, 3, 8)])
def test_layer_norm(shape):
    def naive(x, scale, bias):
        mean, var = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-3) * scale + bias

    inputs = normal(0, *shape) * 2 + 3, normal(1, 8), normal(2, 8)
    assert_alike([lambda *a: kernels.layer_norm(*a, 1e-3)], naive, *inputs)


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
def test_rms_norm(shape):
    def naive(x, scale):
        return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-3) * scale

    inputs = normal(0, *shape) * 2 + 3, normal(1, 8)
    assert_alike([lambda *a: kernels.rms_norm(*a, 1e-3)], naive, *inputs)


def count_kept(function, *inputs) -> int:
    """The numbers that the gradient saves, except one per row or column."""
    _, pull = jax.vjp(function, *inputs)
    return sum(x.size for x in jax.tree.leaves(pull) if x.size >= inputs[0].size)


def assert_gradients_alike(function, plain, *inputs, rtol=1e-6):
    """Of the mean size of an entry, on the wide types that accelerators use."""
    cotangent = normal(9, *jax.eval_shape(plain, *inputs).shape)

    def pull(function):
        return jax.grad(lambda x: (function(*x) * cotangent).sum())(inputs)

    for one, two in zip(pull(function), pull(plain), strict=True):
        scale = float(jnp.abs(two).astype(jnp.float32).max())
        np.testing.assert_allclose(
            one.astype(jnp.float32), two.astype(jnp.float32), atol=rtol * scale, rtol=0
        )


ACTIVATIONS = ("relu", "relu2", "silu", "gelu", "gelu_tanh")


@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_keep_their_arguments_alone(name, is_gated):
    inputs = (normal(0, 40, 8) * 3, normal(1, 40, 8))[: 1 + is_gated]
    run = functools.partial(kernels.activate, name)
    plain = functools.partial(kernels.activate_plain, name)
    assert_gradients_alike(run, plain, *inputs)
    low = [x.astype(jnp.bfloat16) for x in inputs]
    assert_gradients_alike(run, plain, *low, rtol=1e-2)
    assert count_kept(run, *inputs) == sum(x.size for x in inputs)
    np.testing.assert_array_equal(run(*inputs), plain(*inputs))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activations_gradient_is_its_slope(name):
    """By differences, as both of the others come from the same formula."""
    x, step = jnp.linspace(-4, 4, 40), 1e-2  # none where relu bends
    slope = jax.vmap(jax.grad(functools.partial(kernels.activate, name)))(x)
    up, down = (kernels.activate(name, x + d) for d in (step, -step))
    np.testing.assert_allclose(slope, (up - down) / (2 * step), atol=3e-4)


def plain_layer_norm(x, scale, bias, epsilon):
    """`kernels.layer_norm` with autodiff's gradient."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt(variance + epsilon) * scale + bias
    return y.astype(x.dtype)


def plain_rms_norm(x, scale, epsilon):
    """`kernels.rms_norm` with autodiff's gradient."""
    wide = x.astype(jnp.float32)
    square = jnp.square(wide).mean(-1, keepdims=True)
    return (wide * jax.lax.rsqrt(square + epsilon) * scale).astype(x.dtype)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_norms_keep_their_input_alone(dtype, monkeypatch):
    monkeypatch.setattr(kernels, "is_cpu", lambda x: False)
    x, scale, bias = normal(0, 4, 5, 16) * 2 + 3, normal(1, 16), normal(2, 16)
    x = x.astype(dtype)
    rtol = 1e-6 if dtype == jnp.float32 else 1e-2
    run = functools.partial(kernels.layer_norm, epsilon=1e-5)
    plain = functools.partial(plain_layer_norm, epsilon=1e-5)
    assert_gradients_alike(run, plain, x, scale, bias, rtol=rtol)
    assert count_kept(run, x, scale, bias) == x.size
    run = lambda x, scale: kernels.rms_norm(x, scale, 1e-5)  # noqa: E731
    plain = functools.partial(plain_rms_norm, epsilon=1e-5)
    assert_gradients_alike(run, plain, x, scale, rtol=rtol)
    assert count_kept(run, x, scale) == x.size


def test_norms_of_a_constant_are_finite():
    x, one = jnp.full((2, 8), 5.0), jnp.ones(8)

    def total(x):
        return kernels.layer_norm(x, one, one, 1e-5).sum()

    assert total(x) == 16  # the bias alone
    assert np.isfinite(jax.grad(total)(x)).all()
    zeros = jax.grad(lambda x: kernels.rms_norm(x, one, 1e-5).sum())(0 * x)
    assert np.isfinite(zeros).all()


def test_norms_of_large_values_keep_their_precision():
    # E[x^2] - E[x]^2 would cancel here.
    x, one = normal(0, 4, 64) + 1000, jnp.ones(64)
    wide = np.asarray(x, np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    result = kernels.layer_norm(x, one, 0 * one, 1e-6)
    np.testing.assert_allclose(result, expected, atol=2e-3)


def test_norms_compute_in_float32():
    x, one = normal(0, 4, 64, dtype=jnp.bfloat16) + 8, jnp.ones(64)
    for result, wide in (
        (kernels.layer_norm(x, one, one, 1e-5), kernels.layer_norm),
        (kernels.rms_norm(x, one, 1e-5), kernels.rms_norm),
    ):
        assert result.dtype == jnp.bfloat16
        args = (one, one, 1e-5) if wide is kernels.layer_norm else (one, 1e-5)
        expected = wide(x.astype(jnp.float32), *args).astype(jnp.bfloat16)
        np.testing.assert_array_equal(result, expected)


def test_a_gpu_computes_mean_and_variance_in_one_reduction(monkeypatch):
    x, one = normal(0, 4, 64) + 100, jnp.ones(64)
    wide = np.asarray(x, np.float64)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    mean, variance = kernels._moments(x)
    np.testing.assert_allclose(mean, wide.mean(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(variance, wide.var(-1, keepdims=True), rtol=1e-5)
    program = str(jax.make_jaxpr(lambda x: kernels.layer_norm(x, one, one, 1e-5))(x))
    assert len(re.findall(r"= reduce\w*\[", program)) == 1


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu"])
def test_an_activation_with_a_bias_has_the_numbers_of_two_steps(name):
    y, bias = normal(0, 2, 5, 6, dtype=jnp.bfloat16), normal(1, 6)

    def in_two(y, bias):
        return kernels.activate(name, kernels._add_bias(y, bias))

    one = functools.partial(kernels.activate_biased, name)
    result, pull = jax.vjp(one, y, bias)
    expected, pull_two = jax.vjp(in_two, y, bias)
    np.testing.assert_array_equal(result, expected)
    for grad, other in zip(pull(result), pull_two(result), strict=True):
        assert grad.dtype == other.dtype
        np.testing.assert_allclose(*(x.astype(np.float32) for x in (grad, other)))
    # It saves y, not the sum.
    saved = [x for x in jax.tree.leaves(pull) if x.shape == y.shape]
    assert len(saved) == 1
    np.testing.assert_array_equal(saved[0], y)


def test_devices_that_share_arrays_are_counted(monkeypatch):
    assert kernels.count_devices() == 1
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    results = []
    jax.jit(lambda x: results.append(kernels.count_devices()) or x)(1.0)
    ones = jnp.ones((1, 2))
    jax.pmap(lambda x: results.append(kernels.count_devices()) or x, "devices")(ones)
    assert results == [8, 1]
    automatic = (AxisType.Auto,) * 2
    mesh = AbstractMesh(
        (2, 2), ("data", "tensor"), axis_types=automatic
    )  # four of them
    with jax.sharding.use_abstract_mesh(mesh):
        assert kernels.count_devices() == 4


PRODUCTS = {
    "MI,IO->MO": ((5, 3), (3, 4)),
    "BTNH,BSNH->BNTS": ((2, 5, 3, 4), (2, 6, 3, 4)),
}


@pytest.mark.slow_cases("MI,IO->MO")
@pytest.mark.parametrize("equation", PRODUCTS)
def test_products_in_bfloat16_sum_in_float32(equation):
    shapes = PRODUCTS[equation]
    a, b = normal(0, *shapes[0], dtype=jnp.bfloat16), normal(1, *shapes[1])
    cotangent = jax.eval_shape(lambda a, b: jnp.einsum(equation, a, b), a, b)
    cotangent = normal(2, *cotangent.shape).astype(jnp.bfloat16).astype(jnp.float32)

    @jax.jit
    def run(a, b, wide_a, wide_b):
        low = jax.vjp(lambda a, b: kernels.product(equation, a, b), a, b)
        wide = jax.vjp(lambda a, b: jnp.einsum(equation, a, b), wide_a, wide_b)
        return [(out, pull(cotangent)) for out, pull in (low, wide)]

    # With factors that bfloat16 holds, the float32 results are exact but for order.
    wide_a, wide_b = (x.astype(jnp.bfloat16).astype(jnp.float32) for x in (a, b))
    (out, grads), (expected, wanted_grads) = run(a, wide_b, wide_a, wide_b)
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    # A parameter's gradient is float32 and was never less, the other as its operand.
    assert grads[0].dtype == jnp.bfloat16 and grads[1].dtype == jnp.float32
    np.testing.assert_allclose(grads[1], wanted_grads[1], rtol=1e-5, atol=1e-5)
    low = np.asarray(grads[0], np.float32)
    np.testing.assert_allclose(low, wanted_grads[0], rtol=0.01, atol=0.01)


def test_a_bias_in_bfloat16_gets_a_float32_sum():
    x, kernel = jnp.zeros((4096, 2), jnp.bfloat16), jnp.ones((2, 3))

    def total(bias):
        y = kernels.dense(x, kernel, bias)
        assert y.dtype == jnp.bfloat16
        return (y.astype(jnp.float32) * 1.0).sum()

    # A sum of ones in bfloat16 would stop at 256.
    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(3)), 4096)
    wide = kernels.dense(x, kernel, jnp.ones(3), jnp.float32)
    assert wide.dtype == jnp.float32 and (wide == 1).all()


def test_argmax():
    nan, inf = np.nan, np.inf
    rows = [[1, 3, 2, 3], [2] * 4, [-inf] * 4, [0, inf, nan, inf], [-3, -2, -4, -5]]
    result = kernels.argmax(jnp.array(rows, jnp.float32))
    assert result.dtype == jnp.int32
    assert result.tolist() == [1, 0, 0, 2, 1] == np.argmax(rows, -1).tolist()
    assert kernels.argmax(jnp.array(rows, jnp.bfloat16)).tolist() == result.tolist()
    many = jnp.round(normal(0, 3, 7, 1000) * 3)  # with many ties
    np.testing.assert_array_equal(kernels.argmax(many), np.argmax(many, -1))


@pytest.mark.parametrize("norm", [kernels.layer_norm, kernels.rms_norm])
def test_gradients_of_norms_sum_over_one_axis_of_tokens(norm):
    """On GPUs, sums over two axes store float32 arrays of the size of x."""
    ones = jnp.ones(4)
    rest = (0 * ones, 1e-5) if norm is kernels.layer_norm else (1e-5,)

    def trace(*shape, dtype=jnp.bfloat16):
        x = jnp.ones(shape, dtype)
        gradient = jax.grad(lambda scale: norm(x, scale, *rest).sum())
        return str(jax.make_jaxpr(gradient)(ones))

    assert list_sums(trace(2, 3, 4)) == {"(0,)"}
    assert list_sums(trace(2, 3, 2, 4)) == {"(0, 1, 2)"}  # of heads
    if norm is kernels.rms_norm:  # on a CPU the bits of earlier versions
        assert list_sums(trace(2, 3, 4, dtype=jnp.float32)) == {"(0, 1)"}


def list_sums(jaxpr: str) -> set[str]:
    """The axes of sums to an array of width 4, the scale's gradient, in a jaxpr."""
    pattern = r"f32\[4\] = reduce_sum\[\s*axes=(\([^)]*\))"
    return set(re.findall(pattern, jaxpr))

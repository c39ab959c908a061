"""Two ways to the same values and gradients, for the tests of kernels and attention."""

import jax
import jax.numpy as jnp
import numpy as np


def normal(seed, *shape, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def assert_alike(functions, naive, *inputs, rtol=2e-5, atol=2e-5):
    """Values and gradients of all inputs agree, under one random cotangent."""
    shape = jax.eval_shape(naive, *inputs)
    cotangent = normal(99, *shape.shape, dtype=shape.dtype)

    def run(function, inputs):
        out, pull = jax.vjp(function, *inputs)
        return out, pull(cotangent)

    # One program for all, since most of a test's time is compiling.
    run_all = jax.jit(lambda *inputs: [run(f, inputs) for f in (naive, *functions)])
    (expected, naive_grads), *others = run_all(*inputs)
    for out, grads in others:
        assert out.shape == expected.shape and out.dtype == expected.dtype
        np.testing.assert_allclose(out, expected, rtol=rtol, atol=atol)
        for grad, naive_grad, x in zip(grads, naive_grads, inputs, strict=True):
            assert grad.shape == x.shape and grad.dtype == x.dtype
            np.testing.assert_allclose(grad, naive_grad, rtol=rtol, atol=atol)


def naive_attend(q, k, v, visible, bias=0.0):
    logits = jnp.einsum("BTNH,BSNH->BNTS", q, k) / np.sqrt(q.shape[-1]) + bias
    logits = jnp.where(visible, logits, -1e30)
    return jnp.einsum("BNTS,BSNH->BTNH", jax.nn.softmax(logits, -1), v)

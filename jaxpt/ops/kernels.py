"""The arithmetic a training step spends its time in."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxpt.ops.masks import AttnMask, Mask, materialise


def dense(x, kernel, bias=None):
    y = x.reshape(-1, x.shape[-1]) @ kernel
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], -1)


def layer_norm(x, scale, bias, epsilon):
    x32 = x.astype(jnp.float32)
    mean = x32.mean(-1, keepdims=True)
    var = jnp.square(x32 - mean).mean(-1, keepdims=True)
    y = (x32 - mean) * jax.lax.rsqrt(var + epsilon) * scale + bias
    return y.astype(x.dtype)


def rms_norm(x, scale, epsilon):
    x32 = x.astype(jnp.float32)
    var = jnp.square(x32).mean(-1, keepdims=True)
    return (x32 * jax.lax.rsqrt(var + epsilon) * scale).astype(x.dtype)


def dropout(rng, x, rate):
    keep = jax.random.bernoulli(rng, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0).astype(x.dtype)


def attend(q, k, v, mask, bias=None, dropout_rate=0.0, rng=None):
    logits = jnp.einsum("BTNH,BSNH->BNTS", q, k).astype(jnp.float32)
    logits *= q.shape[-1] ** -0.5
    if bias is not None:
        logits += bias
    if not (isinstance(mask, AttnMask) and mask.is_full()):
        visible = materialise(mask, q.shape[1], k.shape[1])
        logits = jnp.where(visible, logits, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(logits, axis=-1).astype(v.dtype)
    if dropout_rate:
        weights = dropout(rng, weights, dropout_rate)
    return jnp.einsum("BNTS,BSNH->BTNH", weights, v)

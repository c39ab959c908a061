"""Attention for rows whose positions are divided over devices (context parallelism).

Each of c devices has the queries, keys and values of T / c consecutive positions:

    ring      keys and values go round in c steps, one span at a time, and the softmax
              is updated with each (Liu et al. 2023). A device never has more than two
              spans of keys, nor logits of more than T / c x S / c.
    gathered  each device gets all keys and values, and a fused kernel attends to them.

Both compute exact attention, for masks and biases by global positions. The logits,
maxima and sums of the ring are float32 (online softmax, Milakov & Gimelshein 2018). Its
gradient is written by hand: it computes the weights again, and the gradients of keys
and values go round with them (as in FlashAttention, Dao et al. 2022).

Departure: spans are consecutive and not interleaved ("zigzag", Zhu 2024), and no step
is left out, so causal attention costs as much as full attention. Every device has the
same work, and no token changes its place, on which targets and segments depend.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from jaxpt.ops.kernel_choice import RING, is_attention
from jaxpt.ops.layout import LENGTH_AXIS, ROW_AXES, count_shares
from jaxpt.ops.losses import soft_cap
from jaxpt.ops.masks import MASK_VALUE, AttnMask, Mask, materialise

# q, k, v, mask and bias of one device -> its output.
Attend = Callable[..., Float[Array, "B T N H"]]


def _on_spans(
    run: Attend,
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    mask: Mask,
    bias: Float[Array, "#B #N T S"] | None,
) -> Float[Array, "B T N H"]:
    """`run` by each device on its rows, its span and its heads.

    A mask or bias as an array is divided by queries and has all keys.
    """
    mesh = jax.sharding.get_abstract_mesh()
    rows = None if len(q) % count_shares() else ROW_AXES
    heads = None if k.shape[2] % mesh.shape.get("tensor", 1) else "tensor"

    def place(x: Array) -> PartitionSpec:
        by_row = rows if len(x) == len(q) else None
        if x.ndim == 4:  # [#B, #N, T, S]
            by_head = heads if x.shape[1] > 1 else None
            return PartitionSpec(by_row, by_head, LENGTH_AXIS)
        return PartitionSpec(*(by_row, LENGTH_AXIS)[: x.ndim])

    by_head = PartitionSpec(rows, LENGTH_AXIS, heads)
    in_specs = (*(3 * (by_head,)), *jax.tree.map(place, (mask, bias)))
    spread = jax.shard_map(run, in_specs=in_specs, out_specs=by_head, check_vma=False)
    return spread(q, k, v, mask, bias)


def attend_gathered(
    attend: Attend,
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    mask: Mask,
    bias: Float[Array, "#B #N T S"] | None = None,
) -> Float[Array, "B T N H"]:
    """attend(q, k, v, mask, bias) by each device for its queries and all keys.

    A mask that depends on the positions of queries becomes an array. The backward pass
    gathers the keys and makes the array again: saved for every layer, they would be
    most of a step's memory.
    """

    def gather(tree: Any) -> Any:
        return jax.tree.map(
            lambda x: jax.lax.all_gather(x, LENGTH_AXIS, axis=1, tiled=True), tree
        )

    def run(q: Array, k: Array, v: Array, mask: Mask, bias: Array | None) -> Array:
        k, v = gather((k, v))
        if isinstance(mask, AttnMask):
            mask = dataclasses.replace(
                mask,
                key_segments=gather(mask.key_segments),
                prefix_keys=gather(mask.prefix_keys),
            )
            if mask.depends_on_queries:
                first = jax.lax.axis_index(LENGTH_AXIS) * q.shape[1]
                mask = materialise(mask, q.shape[1], k.shape[1], first)
        return attend(q, k, v, mask, bias)

    return _on_spans(jax.checkpoint(run, policy=is_attention), q, k, v, mask, bias)


def attend_ring(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    mask: Mask,
    bias: Float[Array, "#B #N T S"] | None = None,
    softcap: float = 0.0,
) -> Float[Array, "B T N H"]:
    """`attention.attend_plain` without dropout, by spans that go round.

    Needs a mesh in context whose axis "context" divides T and S.
    """

    def run(q: Array, k: Array, v: Array, mask: Mask, bias: Array | None) -> Array:
        heads = k.shape[2], q.shape[2] // k.shape[2]
        if bias is not None:
            several = heads if bias.shape[1] > 1 else (1, 1)
            bias = bias.reshape(len(bias), *several, *bias.shape[2:])
        queries = q.reshape(*q.shape[:2], *heads, q.shape[3])
        return _ring(queries, k, v, bias, mask, softcap).reshape(q.shape)

    return _on_spans(run, q, k, v, mask, bias)


class _Held(NamedTuple):
    """The span of keys that is on a device at a step, and its part of the mask."""

    keys: Float[Array, "B S K H"]
    values: Float[Array, "B S K H"]
    segments: Int[Array, "B S"] | None
    is_prefix: Bool[Array, "B S"] | None


class _Sums(NamedTuple):
    """An unfinished softmax: out / total is the mean of the values so far."""

    out: Float[Array, "B T K G H"]
    peak: Float[Array, "B K G T"]  # the greatest logit
    total: Float[Array, "B K G T"]  # of exp(logit - peak)


class _Block(NamedTuple):
    """Logits of a span of queries and of keys: before the bias, and masked."""

    capped: Float[Array, "B K G T S"]
    logits: Float[Array, "B K G T S"]
    visible: Bool[Array, "#B 1 1 T S"] | None


def _hold(k: Array, v: Array, mask: Mask) -> _Held:
    if isinstance(mask, AttnMask):
        return _Held(k, v, mask.key_segments, mask.prefix_keys)
    return _Held(k, v, None, None)


def _pass_on(tree: Any) -> Any:
    """The arrays of the previous device; the first device gets those of the last."""
    num = jax.lax.axis_size(LENGTH_AXIS)
    pairs = [(i, (i + 1) % num) for i in range(num)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, LENGTH_AXIS, pairs), tree)


def _find_source(step: Array) -> Array:
    """The device whose keys are here at a step."""
    num = jax.lax.axis_size(LENGTH_AXIS)
    return (jax.lax.axis_index(LENGTH_AXIS) - step) % num


def _see(
    mask: Mask, held: _Held, source: Array, num_queries: int
) -> Bool[Array, "#B 1 1 T S"] | None:
    """Which keys of the span of `source` the queries see; None: all."""
    num_keys = held.keys.shape[1]
    if not isinstance(mask, AttnMask):
        visible = jax.lax.dynamic_slice_in_dim(mask, source * num_keys, num_keys, 3)
        return visible[:, :, None]
    if mask.is_full():
        return None
    first_query = jax.lax.axis_index(LENGTH_AXIS) * num_queries
    own = dataclasses.replace(
        mask, key_segments=held.segments, prefix_keys=held.is_prefix
    )
    firsts = first_query, source * num_keys
    return materialise(own, num_queries, num_keys, *firsts)[:, :, None]


def _multiply(equation: str, a: Array, b: Array) -> Array:
    return jnp.einsum(equation, a, b, preferred_element_type=jnp.float32)


def _find_block(
    q: Array, held: _Held, bias: Array | None, mask: Mask, softcap: float, source: Array
) -> _Block:
    num_keys = held.keys.shape[1]
    scale = q.shape[-1] ** -0.5
    capped = soft_cap(_multiply("BTKGH,BSKH->BKGTS", q, held.keys) * scale, softcap)
    logits = capped
    if bias is not None:
        first = source * num_keys
        logits += jax.lax.dynamic_slice_in_dim(bias, first, num_keys, 4)
    visible = _see(mask, held, source, q.shape[1])
    if visible is not None:
        logits = jnp.where(visible, logits, MASK_VALUE)
    return _Block(capped, logits, visible)


def _by_query(x: Float[Array, "B K G T"]) -> Float[Array, "B T K G 1"]:
    return jnp.moveaxis(x, 3, 1)[..., None]


def _add(sums: _Sums, logits: Float[Array, "B K G T S"], values: Array) -> _Sums:
    """The softmax with a further span of keys; the sums before shrink to its peak."""
    peak = jnp.maximum(sums.peak, logits.max(-1))
    shrink = jnp.exp(sums.peak - peak)
    weights = jnp.exp(logits - peak[..., None])
    more = _multiply("BKGTS,BSKH->BTKGH", weights.astype(values.dtype), values)
    total = sums.total * shrink + weights.sum(-1)
    return _Sums(sums.out * _by_query(shrink) + more, peak, total)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _ring(
    q: Float[Array, "B T K G H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    bias: Float[Array, "#B #K #G T S"] | None,
    mask: Mask,
    softcap: float,
) -> Float[Array, "B T K G H"]:
    return _ring_forward(q, k, v, bias, mask, softcap)[0]


def _ring_forward(
    q: Array, k: Array, v: Array, bias: Array | None, mask: Mask, softcap: float
) -> tuple[Array, tuple]:
    batch, length, *heads, _ = q.shape
    shape = batch, *heads, length
    start = _Sums(
        jnp.zeros(q.shape, jnp.float32), jnp.full(shape, -jnp.inf), jnp.zeros(shape)
    )

    def step(carry: tuple[_Held, _Sums], index: Array) -> tuple[tuple, None]:
        held, sums = carry
        following = _pass_on(held)  # first, so that it overlaps with the products
        block = _find_block(q, held, bias, mask, softcap, _find_source(index))
        return (following, _add(sums, block.logits, held.values)), None

    num = jax.lax.axis_size(LENGTH_AXIS)
    (_, sums), _ = jax.lax.scan(step, (_hold(k, v, mask), start), jnp.arange(num))
    out = (sums.out / _by_query(sums.total)).astype(q.dtype)
    out, peak, total = checkpoint_name((out, sums.peak, sums.total), RING)
    return out, (q, k, v, bias, mask, out, peak, total)


def _ring_backward(softcap: float, saved: tuple, grad: Array) -> tuple:
    q, k, v, bias, mask, out, peak, total = saved
    scale = q.shape[-1] ** -0.5
    drift = (grad.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1)
    drift = jnp.moveaxis(drift, 1, 3)[..., None]  # [B, K, G, T, 1]

    def step(carry: tuple, index: Array) -> tuple[tuple, None]:
        held, grad_k, grad_v, grad_q, grad_bias = carry
        source = _find_source(index)
        block = _find_block(q, held, bias, mask, softcap, source)
        weights = jnp.exp(block.logits - peak[..., None]) / total[..., None]
        grad_weights = _multiply("BTKGH,BSKH->BKGTS", grad, held.values)
        slopes = weights * (grad_weights - drift)
        if block.visible is not None:
            slopes = jnp.where(block.visible, slopes, 0)
        grad_bias = _add_bias_gradient(grad_bias, slopes, source)
        if softcap:  # the slope of tanh
            slopes *= 1 - jnp.square(block.capped / softcap)
        low = (slopes * scale).astype(q.dtype)
        grad_q += _multiply("BKGTS,BSKH->BTKGH", low, held.keys)
        grad_k += _multiply("BKGTS,BTKGH->BSKH", low, q)
        grad_v += _multiply("BKGTS,BTKGH->BSKH", weights.astype(v.dtype), grad)
        # With the last step the gradients are back at the device of their keys.
        return (*_pass_on((held, grad_k, grad_v)), grad_q, grad_bias), None

    zeros = [jnp.zeros(x.shape, jnp.float32) for x in (k, v, q)]
    grad_bias = None if bias is None else jnp.zeros_like(bias)
    start = (_hold(k, v, mask), *zeros, grad_bias)
    num = jax.lax.axis_size(LENGTH_AXIS)
    carry: Any = jax.lax.scan(step, start, jnp.arange(num))[0]
    _, grad_k, grad_v, grad_q, grad_bias = carry
    grad_k, grad_v = grad_k.astype(k.dtype), grad_v.astype(v.dtype)
    grad_q = grad_q.astype(q.dtype)
    return grad_q, grad_k, grad_v, grad_bias, None


def _add_bias_gradient(
    total: Array | None, slopes: Float[Array, "B K G T S"], source: Array
) -> Array | None:
    """The gradient of the bias with that of a span of keys."""
    if total is None:
        return None
    shared = tuple(i for i in range(3) if total.shape[i] == 1)
    own = slopes.sum(shared, keepdims=True).astype(total.dtype)
    first = source * slopes.shape[4]
    return jax.lax.dynamic_update_slice_in_dim(total, own, first, 4)


_ring.defvjp(_ring_forward, _ring_backward)

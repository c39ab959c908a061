"""Attention, softmax(q k / sqrt(H) + bias) v, by a fused kernel or by XLA.

`jaxpt.ops.kernel_choice` selects the kernel and documents the conditions of each.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float

from jaxpt.ops import cpu, kernel_choice, kernels
from jaxpt.ops.dropout import dropout
from jaxpt.ops.layout import LENGTH_AXIS, count_spans, keep_rows
from jaxpt.ops.losses import soft_cap
from jaxpt.ops.masks import (
    MASK_VALUE,
    AttnMask,
    Mask,
    cut_blocks,
    materialise,
    materialise_blocks,
)

# Block sizes of splash attention; the largest that divides the length is used.
SPLASH_BLOCKS = (1024, 512, 256, 128)


def partition_specs(batch: int, num_heads: int) -> tuple[PartitionSpec, ...] | None:
    """The shardings of arrays [B, N, ...] and [B, ...] on the mesh in context.

    Returns:
      () if the traced program runs on one device; None if the mesh is unknown, or rows
      or heads do not divide evenly among the devices.
    """
    if kernels.count_devices() == 1:
        return ()
    mesh = jax.sharding.get_abstract_mesh()
    rows = tuple(x for x in mesh.axis_names if x not in ("tensor", LENGTH_AXIS))
    heads = "tensor" if "tensor" in mesh.axis_names else None
    is_even = batch % math.prod(mesh.shape[name] for name in rows) == 0
    is_even &= num_heads % mesh.shape.get("tensor", 1) == 0
    if mesh.empty or mesh.manual_axes or not is_even:
        return None
    return PartitionSpec(rows, heads), PartitionSpec(rows)


def attend(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    mask: Mask,
    bias: Float[Array, "#B #N T S"] | None = None,
    dropout_rate: float = 0.0,
    rng: Array | None = None,
    kernel: str = "auto",
    strict: bool = True,
    softcap: float = 0.0,
) -> Float[Array, "B T N H"]:
    """softmax(q k / sqrt(H) + bias) v over the visible keys (Vaswani et al. 2017).

    Args:
      k, v: keys and values of K heads; each head serves N / K consecutive query heads.
      mask: which keys are visible; a query without visible keys must have no loss.
      dropout_rate: dropout of the attention weights, with the key `rng`.
      kernel, strict: as in `kernel_choice.select_kernel`.
      softcap: c: logits, before the bias, are c tanh(logits / c); 0: they are not.
    """
    structure = mask if isinstance(mask, AttnMask) else None
    is_wide = bias is not None and bias.shape[:2] != (1, q.shape[2])
    spans = count_spans(q.shape[1], k.shape[1])
    is_offset = spans > 1 and structure is not None and structure.depends_on_queries
    need = kernel_choice.AttentionRequest(
        platform=kernel_choice.find_platform(),
        dtype=q.dtype.name,
        num_queries=q.shape[1] // spans,
        num_keys=k.shape[1],
        head_width=q.shape[3],
        num_spans=spans,
        is_shared=partition_specs(q.shape[0], k.shape[2]) is not None,
        has_segments=structure is not None and structure.query_segments is not None,
        is_array=structure is None
        or structure.shows_later_keys
        or is_wide
        or is_offset,
        has_bias=bias is not None,
        has_dropout=dropout_rate > 0,
        has_softcap=softcap > 0,
        looks_ahead_in_window=structure is not None
        and structure.window is not None
        and not structure.causal,
    )
    chosen = kernel_choice.select_kernel(kernel, need, strict)
    if chosen == "cudnn":
        if spans > 1:
            from jaxpt.ops.context import attend_gathered  # few runs need it

            return attend_gathered(attend_cudnn, q, k, v, mask, bias)
        return attend_cudnn(q, k, v, mask, bias)
    if chosen == "splash":
        assert structure is not None  # splash takes no mask as an array
        return attend_splash(q, k, v, structure)
    if structure is not None and _fits_blocks(structure, bias, q.shape[1], k.shape[1]):
        return attend_blocks(q, k, v, structure, dropout_rate, rng, chosen, softcap)
    if spans > 1 and not dropout_rate:
        from jaxpt.ops.context import attend_ring  # as above

        return attend_ring(q, k, v, mask, bias, softcap)
    if count_spans(k.shape[1]) > 1:  # every query needs them
        k, v = keep_rows(k, is_length_whole=True), keep_rows(v, is_length_whole=True)
    is_full = structure is not None and structure.is_full()
    visible = None if is_full else materialise(mask, q.shape[1], k.shape[1])
    return _attend_visible(q, k, v, visible, bias, dropout_rate, rng, chosen, softcap)


def _attend_visible(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    visible: Bool[Array, "#B 1 T S"] | None,
    bias: Float[Array, "#B #N T S"] | None,
    dropout_rate: float,
    rng: Array | None,
    chosen: str,
    softcap: float,
) -> Float[Array, "B T N H"]:
    """`attend` with a mask as bool array, by "cpu" or "xla"."""
    if chosen == "xla":
        return attend_plain(q, k, v, visible, bias, dropout_rate, rng, softcap)
    times = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, times, 2) if times > 1 else x for x in (k, v))
    return cpu.attend(q, k, v, visible, bias, MASK_VALUE)


def _fits_blocks(
    structure: AttnMask, bias: Array | None, length: int, num_keys: int
) -> bool:
    """Whether attention in blocks is possible and cheaper than over all keys."""
    if structure.window is None:
        return False
    is_known = isinstance(length, int)  # it is symbolic in an export for any length
    is_plain = bias is None and not structure.shows_later_keys and length == num_keys
    return is_plain and is_known and 4 * max(structure.window) <= length


def attend_blocks(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B T K H"],
    v: Float[Array, "B T K H"],
    mask: AttnMask,
    dropout_rate: float = 0.0,
    rng: Array | None = None,
    chosen: str = "xla",
    softcap: float = 0.0,
) -> Float[Array, "B T N H"]:
    """`attend` within a window: blocks of queries attend to the neighbouring blocks.

    Memory and compute are B * T * (2 or 3 windows) instead of B * T * T. A query
    without visible keys gets the mean over its blocks.
    """
    batch, length = q.shape[:2]
    size = max(*(mask.window or ()), 1)
    behind = 1 if mask.causal else 2
    visible = materialise_blocks(mask, length, size)
    num = visible.shape[1]
    visible = jnp.broadcast_to(visible, (batch, *visible.shape[1:]))
    visible, q, k, v = (
        x.reshape(batch * num, *x.shape[2:])
        for x in (
            visible,
            cut_blocks(q, size, 0, 1),
            cut_blocks(k, size, 1, behind),
            cut_blocks(v, size, 1, behind),
        )
    )
    rest = dropout_rate, rng, chosen, softcap
    out = _attend_visible(q, k, v, visible, None, *rest)
    return out.reshape(batch, num * size, *out.shape[2:])[:, :length]


def attend_plain(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    visible: Bool[Array, "#B 1 T S"] | None,
    bias: Float[Array, "#B #N T S"] | None = None,
    dropout_rate: float = 0.0,
    rng: Array | None = None,
    softcap: float = 0.0,
) -> Float[Array, "B T N H"]:
    """`attend` in plain jnp; logits and softmax in float32."""
    groups = q.shape[2] // k.shape[2]
    if groups > 1:
        return _attend_grouped(q, k, v, visible, bias, dropout_rate, rng, softcap)
    weights = _softmax(_find_logits(q, k, visible, bias, softcap), v.dtype.name)
    if dropout_rate:
        assert rng is not None, "dropout needs a key"
        weights = dropout(rng, weights, dropout_rate)
    return jnp.einsum("BNTS,BSNH->BTNH", weights, v)


def _find_logits(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S N H"],
    visible: Bool[Array, "#B 1 T S"] | None,
    bias: Float[Array, "#B #N T S"] | None,
    softcap: float,
) -> Float[Array, "B N T S"]:
    logits = kernels.product("BTNH,BSNH->BNTS", q, k) * q.shape[-1] ** -0.5
    logits = soft_cap(logits, softcap)
    if bias is not None:
        add = cpu.add_bias if kernels.is_cpu(logits) else jnp.add
        logits = add(logits, bias)
    if visible is not None:
        logits = jnp.where(visible, logits, MASK_VALUE)
    return logits


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _softmax(logits: Float[Array, "*B S"], dtype: str) -> Float[Array, "*B S"]:
    """Softmax in float32; only the result in `dtype` is saved for the gradient.

    Autodiff would save it in float32, too, for a slightly more precise gradient.
    """
    return jax.nn.softmax(logits, axis=-1).astype(dtype)


def _softmax_forward(logits: Array, dtype: str) -> tuple[Array, Array]:
    weights = jax.nn.softmax(logits, axis=-1).astype(dtype)
    return weights, weights


def _softmax_backward(dtype: str, weights: Array, grad: Array) -> tuple[Array]:
    weights, grad = weights.astype(jnp.float32), grad.astype(jnp.float32)
    mean = (weights * grad).sum(-1, keepdims=True)
    return (weights * (grad - mean),)


_softmax.defvjp(_softmax_forward, _softmax_backward)


def weigh(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    mask: Mask,
    bias: Float[Array, "#B #N T S"] | None = None,
    softcap: float = 0.0,
) -> Float[Array, "B N T S"]:
    """The attention weights softmax(q k / sqrt(H) + bias) in float32, for inspection.

    Fused kernels do not return them, so they are recomputed.
    """
    k = jnp.repeat(k, q.shape[2] // k.shape[2], axis=2)
    visible = materialise(mask, q.shape[1], k.shape[1])
    logits = _find_logits(q, k, visible, bias, softcap)
    return jax.nn.softmax(logits, axis=-1)


def _attend_grouped(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    visible: Bool[Array, "#B 1 T S"] | None,
    bias: Float[Array, "#B #N T S"] | None,
    dropout_rate: float,
    rng: Array | None,
    softcap: float,
) -> Float[Array, "B T N H"]:
    """`attend_plain` of grouped queries, without copies of k and v."""
    groups = q.shape[2] // k.shape[2]
    q = q.reshape(*q.shape[:2], -1, groups, q.shape[3])
    is_by_head = bias is not None and bias.shape[1] > 1
    if bias is not None and is_by_head:
        bias = bias.reshape(len(bias), -1, groups, *bias.shape[2:])
    rngs = None if rng is None else jax.random.split(rng, groups)

    def attend_one(q: Array, bias: Array | None, rng: Array | None) -> Array:
        return attend_plain(q, k, v, visible, bias, dropout_rate, rng, softcap)

    axes = 3, 2 if is_by_head else None, None if rng is None else 0
    out = jax.vmap(attend_one, axes, out_axes=3)(q, bias, rngs)
    return out.reshape(*out.shape[:2], -1, out.shape[-1])


def attend_cudnn(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    mask: Mask,
    bias: Float[Array, "1 N T S"] | None = None,
    implementation: str = "cudnn",
) -> Float[Array, "B T N H"]:
    """`attend` by cuDNN's flash attention, which supports causality and lengths."""
    is_causal, lengths, window = False, None, None
    visible: Any = mask
    if isinstance(mask, AttnMask):
        is_causal = mask.causal and not mask.shows_later_keys
        if mask.key_lengths is not None:
            # A softmax over no keys is undefined; the output of such a row is not used.
            lengths = jnp.maximum(mask.key_lengths, 1).astype(jnp.int32)
        if mask.window is not None and is_causal:
            window = mask.window[0], 0
        rest = dataclasses.replace(
            mask,
            causal=mask.causal and not is_causal,
            key_lengths=None,
            window=None if window else mask.window,
        )
        visible = None
        if not rest.is_full():
            visible = materialise(rest, q.shape[1], k.shape[1])
    if visible is not None:
        # The gradient of a query without visible keys is NaN (cuDNN 9), which reaches
        # the weights even if the query has no loss: such a query sees every key.
        visible = visible | ~visible.any(-1, keepdims=True)
        visible = jnp.broadcast_to(visible, (len(q), *visible.shape[1:]))
    return jax.nn.dot_product_attention(
        q,
        k,
        v,
        bias=None if bias is None else bias.astype(q.dtype),
        mask=visible,
        is_causal=is_causal,
        key_value_seq_lengths=lengths,
        local_window_size=window,
        implementation=implementation,  # type: ignore[call-overload]
    )


def attend_splash(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    mask: AttnMask,
    interpret: bool = False,
) -> Float[Array, "B T N H"]:
    """`attend` by the TPU's splash attention, per device; lengths become segments.

    Args:
      interpret: emulate the kernel without a TPU, which is slow.
    """
    # Imported here because only TPUs need it.
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    shape = q.shape[1], k.shape[1]
    one: Any = splash.CausalMask(shape) if mask.causal else splash.FullMask(shape)
    if mask.window is not None:
        before, behind = mask.window
        one = splash.LocalMask(shape, (before, 0 if mask.causal else behind), 0)
    blocks = [next(n for n in SPLASH_BLOCKS if length % n == 0) for length in shape]
    names = "block_q block_kv block_q_dkv block_kv_dkv"
    by_name: dict[str, Any] = dict(zip(names.split(), 2 * blocks, strict=True))
    # The fused backward kernel reads q, k and v once for all three gradients; it stores
    # a part of dq for each block of keys.
    sizes = splash.BlockSizes(**by_name, use_fused_bwd_kernel=True)

    def run(q: Array, k: Array, v: Array, *segments: Array) -> Array:
        kernel = splash.make_splash_mha(
            splash.MultiHeadMask([one] * q.shape[1]),
            block_sizes=sizes,
            head_shards=1,
            q_seq_shards=1,
            interpret=interpret,
        )
        ids = (splash.SegmentIds(*segments),) if segments else ()
        return jax.vmap(kernel)(q, k, v, *ids)

    # The kernel takes [B, heads, length, H] and does not scale the logits.
    heads_first = [x.swapaxes(1, 2) for x in (q * q.shape[3] ** -0.5, k, v)]
    segments = _segments(mask, len(q), *shape)
    specs = partition_specs(len(q), k.shape[2])
    if specs:
        in_specs = 3 * specs[:1] + len(segments) * specs[1:]
        run = jax.shard_map(run, in_specs=in_specs, out_specs=specs[0], check_vma=False)
    return run(*heads_first, *segments).swapaxes(1, 2)


def _segments(
    mask: AttnMask, batch: int, num_queries: int, num_keys: int
) -> tuple[Array, ...]:
    """Segment ids of queries and keys that express lengths and segments, or ()."""
    if mask.key_lengths is None and mask.query_segments is None:
        return ()
    queries, keys = mask.query_segments, mask.key_segments
    if queries is None or keys is None:
        queries = jnp.ones((batch, num_queries), jnp.int32)
        keys = jnp.ones((batch, num_keys), jnp.int32)
    if mask.key_lengths is not None:
        is_real = jnp.arange(num_keys) < mask.key_lengths[:, None]
        keys = jnp.where(is_real, keys, -1)
    return queries, keys


def attend_cached(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B K S H"],
    v: Float[Array, "B K S H"],
    mask: Mask,
    bias: Float[Array, "#B N T S"] | None = None,
    softcap: float = 0.0,
) -> Float[Array, "B T N H"]:
    """`attend` for decoding, on the keys and values of a cache, heads first.

    With heads first, a step reads the keys of each head contiguously. Each of the K
    heads serves N / K query heads without a copy.
    """
    batch, length, num_heads, width = q.shape
    num_keys, groups = k.shape[2], (k.shape[1], num_heads // k.shape[1])
    q = q.reshape(batch, length, *groups, width).transpose(0, 2, 3, 1, 4)
    logits = kernels.product("BKGTH,BKSH->BKGTS", q, k) * width**-0.5
    logits = soft_cap(logits, softcap)
    if bias is not None:
        logits += bias.reshape(bias.shape[0], *groups, *bias.shape[2:])
    visible = materialise(mask, length, num_keys)
    logits = jnp.where(visible[:, :, None], logits, MASK_VALUE)
    weights = jax.nn.softmax(logits, axis=-1).astype(v.dtype)
    out = jnp.einsum("BKGTS,BKSH->BKGTH", weights, v)
    return out.transpose(0, 3, 1, 2, 4).reshape(batch, length, num_heads, width)

"""Multi-head attention with a required mask, and its key-value cache."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn.layers import Dense, Dropout, HeadNorm, Norm, ValueEmbedding
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.positions import Distances, rotary_rates, rotate
from jaxpt.ops import attention, kernel_choice, kernels, masks
from jaxpt.ops.masks import Mask

# The collection of attention weights for `jaxpt.nn.inspection`; `init` and training do
# not fill it.
WEIGHTS = "attention_weights"


def check_kernel(
    spec: ModelSpec,
    lengths: Iterable[int],
    is_packed: bool,
    reads_ahead: bool = True,
    num_spans: int = 1,
) -> None:
    """Checks that the kernel `model.attention` can train this model on this machine.

    Args:
      lengths: those of the stacks.
      is_packed: rows have several documents, which do not attend to each other.
      reads_ahead: a token may attend to later tokens.
      num_spans: devices that the positions of a row are divided over.
    """
    for need in list_requests(spec, lengths, is_packed, reads_ahead, num_spans):
        kernel_choice.select_kernel(spec.attention, need)


def list_requests(
    spec: ModelSpec,
    lengths: Iterable[int],
    is_packed: bool,
    reads_ahead: bool = True,
    num_spans: int = 1,
) -> list[kernel_choice.AttentionRequest]:
    """The attention requests of a model in training; `Args` as in `check_kernel`."""
    return [
        kernel_choice.AttentionRequest(
            platform=kernel_choice.find_platform(),
            dtype=spec.compute_dtype,
            num_queries=length // num_spans,
            num_keys=length,
            head_width=spec.head_width,
            num_spans=num_spans,
            has_segments=is_packed,
            has_bias=spec.has_distance_bias or spec.is_disentangled,
            # A bias that depends on the queries, or a causal mask of a span of them.
            is_array=spec.is_disentangled or (num_spans > 1 and not reads_ahead),
            has_dropout=spec.attention_dropout > 0,
            has_softcap=spec.attention_softcap > 0,
            looks_ahead_in_window=is_local and reads_ahead,
        )
        for length in lengths
        for is_local in dict.fromkeys(map(spec.is_local, range(spec.num_layers)))
    ]


class KVCache(NamedTuple):
    """Cached keys (after rotation) and values of one attention module.

    They have `kv_heads` heads (K) and S slots, of which the first are filled.
    """

    keys: Float[Array, "B K S H"]
    values: Float[Array, "B K S H"]

    def write(
        self,
        keys: Float[Array, "B T K H"],
        values: Float[Array, "B T K H"],
        cache_index: Int[Array, ""] | int,
    ) -> "KVCache":
        """The cache with T more keys and values from slot `cache_index` on."""
        updated = [
            jax.lax.dynamic_update_slice_in_dim(
                old, new.swapaxes(1, 2), cache_index, axis=2
            )
            for old, new in zip(self, (keys, values), strict=True)
        ]
        return KVCache(*updated)


def make_heads(
    spec: ModelSpec, name: str, num: int
) -> Callable[[Float[Array, "B L D"]], Float[Array, "B L K H"]]:
    """A layer to `num` heads, in the module that calls this; it can be applied twice.

    Args:
      name: of its parameters: "query", "key" or "value", after "position_" for the
        embeddings of distances.
    """
    # Mesh TensorFlow scales the initial query kernel, as T5's attention does not scale.
    scale = spec.head_width**-0.5 if name.endswith("query") else 1.0
    width = num * spec.head_width
    dense = Dense(width, spec, spec.has_qkv_bias, t5_scale=scale, name=name)
    has_norm = spec.qk_norm != "none" and name != "value"
    norm = HeadNorm(spec, name=f"{name}_norm") if has_norm else None

    def apply(x: Float[Array, "B L D"]) -> Float[Array, "B L K H"]:
        flat = dense(x)
        shape = *flat.shape[:2], num, spec.head_width
        if norm is None:
            return flat.reshape(shape)
        if spec.qk_norm == "width":
            return norm(flat).reshape(shape)
        return norm(flat.reshape(shape))

    return apply


def scale_query(q: Float[Array, "*B H"], spec: ModelSpec) -> Float[Array, "*B H"]:
    """Queries times what makes kernels, which divide by sqrt(H), divide by the spec's.

    >>> spec = ModelSpec(d_model=8, num_heads=2, disentangled="both")
    >>> round(float(scale_query(jnp.ones(1), spec)[0]), 4)
    0.5774
    """
    if not spec.scale_attention:
        return q * spec.head_width**0.5
    if spec.attention_divisor == spec.head_width:
        return q
    return q * (spec.head_width / spec.attention_divisor) ** 0.5


def disentangle(
    spec: ModelSpec,
    distances: Distances,
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    to_query: Callable,
    to_key: Callable,
) -> Float[Array, "B N T S"]:
    """The bias of disentangled attention (He et al. 2021, equation 4).

    Departure from it: the distance of both products is the query's position minus the
    key's, as in Microsoft's code and transformers; the paper reverses it for keys.

    Args:
      q: queries after `scale_query`.
      to_query, to_key: the layers of the tokens' queries and keys (`make_heads`).
    """

    def project(part: str, name: str, shared: Callable, num: int) -> Array | None:
        if spec.disentangled not in (part, "both"):
            return None
        has_own = spec.disentangled_projections
        layer = make_heads(spec, name, num) if has_own else shared
        return jnp.repeat(layer(distances.table[None])[0], q.shape[2] // num, axis=1)

    keys = project("c2p", "position_key", to_key, spec.kv_heads)
    queries = project("p2c", "position_query", to_query, spec.num_heads)
    if queries is not None:
        queries = scale_query(queries, spec)
    k = jnp.repeat(k, q.shape[2] // k.shape[2], axis=2)
    return distances.find_bias(q, k, keys, queries)


class Attention(nn.Module):
    """Queries from x, keys and values from `source` (x itself for self-attention).

    `position_ids` [B or 1, T] rotate queries and keys if positions are rotary. With a
    `kv_cache`, keys and values of the source are written into it from `cache_index` on,
    and queries attend to the whole cache; without a source, to the cache as it is.
    Local attention is limited to the spec's `window`. With `ids`, the source's tokens,
    value embeddings are added. A `bias` of `Distances` is that of disentangled
    attention. Returns the output [B, T, D] and the cache.
    """

    spec: ModelSpec
    is_local: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        source: Float[Array, "B S D"] | None,
        attn_mask: Mask,
        bias: Float[Array, "1 N T S"] | Distances | None = None,
        position_ids: Int[Array, "#B T"] | None = None,
        kv_cache: KVCache | None = None,
        cache_index: Int[Array, ""] | int = 0,
        ids: Int[Array, "B S"] | None = None,
        *,
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D"], KVCache | None]:
        spec, base = self.spec, self.spec.rotary_base
        if self.is_local:
            num_keys = x.shape[1] if kv_cache is None else kv_cache.keys.shape[2]
            attn_mask = masks.local(attn_mask, spec.window, num_keys, cache_index)
            base = spec.local_rotary_base or base
        scaling = spec.layer_scaling(self.is_local)
        magnitude = scaling[4] if len(scaling) == 5 else 1.0
        _, magnitude, *divisors = spec.rotary_factors or (0, magnitude)
        divisors = divisors[: len(divisors) // 2]  # `ModelSpec.choose_factors`
        rates = rotary_rates(spec.rotary_width, base, scaling, tuple(divisors))

        to_query = make_heads(spec, "query", spec.num_heads)
        q_BTNH = to_query(x)
        if position_ids is not None:
            q_BTNH = rotate(q_BTNH, position_ids, rates, magnitude)
        q_BTNH = scale_query(q_BTNH, spec)
        softcap = spec.attention_softcap
        if source is not None:
            to_key = make_heads(spec, "key", spec.kv_heads)
            k_BSKH = to_key(source)
            v_BSKH = make_heads(spec, "value", spec.kv_heads)(source)
            if ids is not None:
                v_BSKH += ValueEmbedding(spec, name="value_embed")(source, ids)
            if position_ids is not None:
                k_BSKH = rotate(k_BSKH, position_ids, rates, magnitude)
        if kv_cache is not None and source is not None:
            kv_cache = kv_cache.write(k_BSKH, v_BSKH, cache_index)
        if isinstance(bias, Distances):
            keys = k_BSKH if kv_cache is None else kv_cache.keys.swapaxes(1, 2)
            table = Dropout(spec.dropout)(bias.table, deterministic=deterministic)
            bias = bias._replace(table=table)
            bias = disentangle(spec, bias, q_BTNH, keys, to_query, to_key)
        if kv_cache is not None:
            out_BTNH = attention.attend_cached(
                q_BTNH, *kv_cache, attn_mask, bias, softcap
            )
            return self._finish(x, out_BTNH), kv_cache
        if self.is_mutable_collection(WEIGHTS) and not self.is_initializing():
            weights = attention.weigh(q_BTNH, k_BSKH, attn_mask, bias, softcap)
            self.sow(WEIGHTS, "weights", weights)
        rate = 0.0 if deterministic else spec.attention_dropout
        out_BTNH = attention.attend(
            q_BTNH,
            k_BSKH,
            v_BSKH,
            attn_mask,
            bias,
            dropout_rate=rate,
            rng=self.make_rng("dropout") if rate else None,
            kernel=spec.attention,
            # Evaluation and generation have other lengths than training.
            strict=not deterministic,
            softcap=softcap,
        )
        return self._finish(x, out_BTNH), None

    def _finish(
        self, x: Float[Array, "B T D"], out_BTNH: Float[Array, "B T N H"]
    ) -> Float[Array, "B T D"]:
        """The output layer, with the gate and the norm that the spec has."""
        spec, flat = self.spec, out_BTNH.reshape(*x.shape[:2], -1)
        if spec.attention_gate:
            gate = Dense(flat.shape[-1], spec, name="out_gate")(x)
            flat = flat * kernels.activate("gelu", gate)
        if spec.attention_out_norm == "before":
            flat = Norm(spec, name="out_norm")(flat)
        has_bias = spec.has_out_bias
        y = Dense(spec.d_model, spec, has_bias, is_residual=True, name="out")(flat)
        if spec.attention_out_norm == "after":
            y = Norm(spec, has_scale=True, name="out_norm")(y)
        return y

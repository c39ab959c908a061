"""A stack of layers: self-attention, cross-attention where there is a source, MLP."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn.attention import Attention, KVCache
from jaxpt.nn.layers import Dropout, Mlp, Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.positions import RelativeBias
from jaxpt.nn.scan import KEYS
from jaxpt.ops.layout import keep_rows
from jaxpt.ops.masks import Mask

# The forward kernels of fused attention: cuDNN's, and Pallas's on a TPU.
FUSED = ("dot_product_attention_fwd", "pallas_call")


def _is_costly(primitive, *args, **params) -> bool:
    """Whether `remat=dots` keeps what an operation gives."""
    keeps_dots = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return primitive.name.startswith(FUSED) or keeps_dots(primitive, *args, **params)


# What a layer keeps for its gradient, by `ModelSpec.remat`.
POLICIES = {
    "dots": _is_costly,
    "full": jax.checkpoint_policies.nothing_saveable,
}


# What is kept of a stack where `Network.layer_features` asks: Flax's own collection,
# which no `init` and no training step fills.
KEPT = "intermediates"


class LayerCache(NamedTuple):
    """What a layer's attentions have computed: of its own tokens, and of the source."""

    own: KVCache
    cross: KVCache | None = None


class Layer(nn.Module):
    """One layer: x + f(norm(x)) before each part, or norm(x + f(x)) after it.

    Returns x and, where it was given one, the kv_cache.
    """

    spec: ModelSpec
    is_normed: bool = False  # its input is, so that its first norm is left out
    is_local: bool = False  # it sees no further than the spec's window

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        attn_mask: Mask,
        bias: Float[Array, "1 N T S"] | None,
        source: Float[Array, "B S D"] | None,
        cross_mask: Mask | None,
        position_ids: Int[Array, "#B T"] | None,
        kv_cache: LayerCache | None = None,
        cache_index: Int[Array, ""] | int = 0,
        *,
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D"], LayerCache | None]:
        spec = self.spec

        def residual(name: str, x: Array, part) -> tuple[Array, KVCache | None]:
            is_normed = self.is_normed and name == "attention"
            norm = (lambda y: y) if is_normed else Norm(spec, name=f"{name}_norm")
            y, kv_cache = part(norm(x) if spec.norm_position == "pre" else x)
            y = x + Dropout(spec.dropout)(y, deterministic=deterministic)
            y = keep_rows(y)
            return (y if spec.norm_position == "pre" else norm(y)), kv_cache

        own, across = kv_cache or (None, None)
        attention = Attention(spec, self.is_local, name="attention")
        x, own = residual(
            "attention",
            x,
            lambda y: attention(
                y,
                y,
                attn_mask,
                bias,
                position_ids,
                own,
                cache_index,
                deterministic=deterministic,
            ),
        )
        if source is not None or across is not None:
            cross = Attention(spec, name="cross")
            x, across = residual(
                "cross",
                x,
                lambda y: cross(
                    y, source, cross_mask, kv_cache=across, deterministic=deterministic
                ),
            )
        mlp = Mlp(spec, name="mlp")
        x, _ = residual("mlp", x, lambda y: (mlp(y), None))
        self.sow(KEPT, "states", x)
        return x, kv_cache and LayerCache(own, across)


class Stack(nn.Module):
    """`num_layers` layers; with a `source` it is a decoder that reads it.

    `is_bidirectional` only says how T5's relative bias spends its buckets; who may see
    whom is `attn_mask` alone. With a `kv_cache`, x are the tokens at its slots
    from `cache_index` on, of which relative bias knows the distances; a source is read
    once, with the first of them. Returns the hidden states and the cache, which
    `scan_layers` lacks.
    """

    spec: ModelSpec
    num_layers: int
    is_bidirectional: bool = True

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        attn_mask: Mask,
        source: Float[Array, "B S D"] | None = None,
        cross_mask: Mask | None = None,
        position_ids: Int[Array, "B T"] | None = None,
        kv_cache: tuple[LayerCache, ...] | None = None,
        cache_index: Int[Array, ""] | int = 0,
        *,
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D"], tuple[LayerCache, ...] | None]:
        spec, bias = self.spec, None
        if spec.positions == "relative":
            relative = RelativeBias(spec, self.is_bidirectional, name="relative")
            num_keys = kv_cache[0].own.keys.shape[2] if kv_cache else x.shape[1]
            bias = relative(x.shape[1], num_keys, cache_index)
        if spec.positions != "rotary":
            position_ids = None
        elif position_ids is None:
            position_ids = jnp.arange(x.shape[1])[None]
        self.sow(KEPT, "states", x)

        def run(layer: Layer, x: Array, kv_cache: LayerCache | None = None):
            rest = (
                attn_mask,
                bias,
                source,
                cross_mask,
                position_ids,
                kv_cache,
                cache_index,
            )
            return layer(x, *rest, deterministic=deterministic)

        num_apart, now = self.num_layers, []
        if spec.scan_layers:  # a first layer that lacks a norm stands before the loop
            num_apart = int(spec.embed_norm and self.num_layers > 1)
        for i in range(num_apart):
            is_normed = spec.embed_norm and i == 0
            layer = Layer(spec, is_normed, spec.is_local(i), name=f"layer_{i}")
            x, layer_cache = _remat(run, spec)(layer, x, kv_cache and kv_cache[i])
            now.append(layer_cache)
        if num_apart < self.num_layers:
            if kv_cache:
                raise ValueError(
                    "a kv_cache needs the model unrolled (`jaxpt.nn.scan`)"
                )
            is_normed = spec.embed_norm and not num_apart
            layers = Layer(spec, is_normed, spec.window > 0, name="layers")
            x = _loop(run, spec, self.num_layers - num_apart)(layers, x)
        if spec.norm_position == "pre":
            x = Norm(spec, name="norm")(x)
        return x, kv_cache and tuple(now)


def _remat(run, spec: ModelSpec, prevent_cse: bool = True):
    """`run` with what the spec's `remat` says computed again for the gradient."""
    if spec.remat == "none":
        return run
    return nn.remat(run, policy=POLICIES[spec.remat], prevent_cse=prevent_cse)


def _loop(run, spec: ModelSpec, length: int):
    """(layers, x) -> x: `run` that many times, each on its slice of the parameters."""
    loop = nn.scan(
        _remat(run, spec, prevent_cse=False),  # between two steps there is none
        variable_axes={"params": 0, KEYS: 0, KEPT: 0},
        split_rngs={"params": True, "dropout": True},
        length=length,
        check_constancy_invariants=False,
    )
    return lambda layers, x: loop(layers, x)[0]


def list_states(kept: dict, last: Float[Array, "B T D"]) -> Float[Array, "L B T D"]:
    """What a stack read, and its states after every layer, from what was kept of it.

    Args:
      kept: of the stack's one call; its layers unrolled, scanned, or both.
      last: what the stack gave, which takes the place of its last layer's states: with
        pre-norm it has been normed.
    """
    (read,) = kept["states"]
    found, i = [read], 0
    while f"layer_{i}" in kept:
        found.append(kept[f"layer_{i}"]["states"][0])
        i += 1
    if "layers" in kept:
        found += list(kept["layers"]["states"][0])
    return jnp.stack([*found[:-1], last])

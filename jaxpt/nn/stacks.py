"""A stack of Transformer layers: self-attention, optional cross-attention, MLP."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn.attention import Attention, KVCache
from jaxpt.nn.layers import Dropout, Mlp, Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.positions import Disentangled, Distances, RelativeBias, alibi_bias
from jaxpt.nn.scan import KEYS
from jaxpt.ops.kernel_choice import is_attention
from jaxpt.ops.layout import keep_rows
from jaxpt.ops.masks import Mask


def _is_costly(primitive: Any, *args: Any, **params: Any) -> bool:
    """Whether `remat=dots` saves the result of an operation."""
    keeps_dots = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return is_attention(primitive, **params) or keeps_dots(primitive, *args, **params)


# What a layer saves for its gradient, by `ModelSpec.remat`.
POLICIES = {
    "dots": _is_costly,
    "full": jax.checkpoint_policies.nothing_saveable,
}


# Flax's collection for the states of all layers (`Network.layer_features`); `init` and
# training do not fill it.
INTERMEDIATES = "intermediates"


class LayerCache(NamedTuple):
    """The caches of a layer's self-attention and cross-attention."""

    self_attn: KVCache
    cross: KVCache | None = None


# A stack's input and what `ModelSpec.depth_sums` adds up, the results of its branches,
# or `layer_sums`, the outputs of its layers.
Results = tuple[Float[Array, "B T D"], ...]


class DepthSum(nn.Module):
    """sum_i w_i x_i of results, where w is (0, ..., 0, 1) at first.

    Pagliardini et al. 2024 (DenseFormer), here after each attention and MLP, as in
    GPT-BERT; or before each layer, as a mean weighted by a softmax of w (ELC-BERT,
    Charpentier and Samuel 2023). Departure: w is float32, and so is the sum.

    >>> params = {"weights": jnp.array([2.0, 1.0])}
    >>> x = jnp.array([1.0]), jnp.array([5.0])
    >>> DepthSum().apply({"params": params}, x).tolist()
    [7.0]
    """

    is_mean: bool = False

    @nn.compact
    def __call__(self, results: Results) -> Float[Array, "B T D"]:
        one = nn.initializers.constant(jnp.eye(len(results))[-1])
        weights = self.param("weights", one, (len(results),))
        weights = jax.nn.softmax(weights) if self.is_mean else weights
        pairs = zip(weights, results, strict=True)
        total = sum(weight * x.astype(jnp.float32) for weight, x in pairs)
        return jnp.asarray(total, results[-1].dtype)


class Layer(nn.Module):
    """One layer: x + f(norm(x)), or as `ModelSpec.norm_position` says.

    With `ids` it has value embeddings. With `relative_every_layer` it makes
    its own bias. With `parallel_residual` the MLP reads the layer's input, as attention
    does. Returns x; if given, the kv_cache; and `results`
    with those of this layer, if the spec has `depth_sums` or `layer_sums`.
    """

    spec: ModelSpec
    is_normed: bool = False  # the input is normed, so the first norm is omitted
    is_local: bool = False  # attention is limited to the spec's window
    residual_scale: float = 1.0  # of f (`ModelSpec.branch_scale`)
    is_bidirectional: bool = True  # as of `Stack`
    num_copies: int = 1  # as of `Stack`

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        attn_mask: Mask,
        bias: Float[Array, "1 N T S"] | Distances | None,
        source: Float[Array, "B S D"] | None,
        cross_mask: Mask | None,
        position_ids: Int[Array, "#B T"] | None,
        kv_cache: LayerCache | None = None,
        cache_index: Int[Array, ""] | int = 0,
        ids: Int[Array, "B T"] | None = None,
        results: Results = (),
        *,
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D"], LayerCache | None, Results]:
        spec = self.spec

        if spec.relative_every_layer:
            num_keys = kv_cache.self_attn.keys.shape[2] if kv_cache else 0
            bias = self._make_bias(x.shape[1], num_keys, cache_index)

        if spec.layer_sums:
            results = results or (x,)
            x = DepthSum(is_mean=True, name="input_sum")(results)

        # It can be applied twice, with the same parameters.
        shared = Norm(spec, name="attention_norm") if spec.shared_norm else None

        def residual(
            name: str,
            x: Array,
            part: Callable[[Array], tuple[Array, KVCache | None]],
            read: Array | None = None,  # what the part reads, if not x
        ) -> tuple[Array, KVCache | None]:
            read = x if read is None else read
            is_normed = self.is_normed and name == "attention"
            own = shared or Norm(spec, name=f"{name}_norm")
            norm = (lambda y: y) if is_normed else own
            is_pre = spec.norm_position in ("pre", "both")
            y, kv_cache = part(norm(read) if is_pre else read)
            if spec.norm_position == "both":
                y = Norm(spec, name=f"{name}_out_norm")(y)
            y = norm(y) if spec.norm_position == "output" else y
            y = Dropout(spec.dropout)(y, deterministic=deterministic)
            scale = self.residual_scale
            y = y if scale == 1 else scale * y
            is_alone = spec.layer_sums and name == "attention"
            y = keep_rows(y if is_alone else x + y)
            return (norm(y) if spec.norm_position == "post" else y), kv_cache

        before = x if spec.parallel_residual else None
        self_cache, cross_cache = kv_cache or (None, None)
        attention = Attention(spec, self.is_local, name="attention")
        x, self_cache = residual(
            "attention",
            x,
            lambda y: attention(
                y,
                y,
                attn_mask,
                bias,
                position_ids,
                self_cache,
                cache_index,
                ids,
                deterministic=deterministic,
            ),
        )
        if source is not None or cross_cache is not None:
            cross = Attention(spec, name="cross")
            x, cross_cache = residual(
                "cross",
                x,
                lambda y: cross(
                    y,
                    source,
                    cross_mask,
                    kv_cache=cross_cache,
                    deterministic=deterministic,
                ),
            )
        x, results = self._add_up("attention", x, results)
        mlp = Mlp(spec, name="mlp")
        x, _ = residual("mlp", x, lambda y: (mlp(y), None), before)
        x, results = self._add_up("mlp", x, results)
        results = (*results, x) if spec.layer_sums else results
        self.sow(INTERMEDIATES, "states", x)
        if kv_cache is None or self_cache is None:
            return x, None, results
        return x, LayerCache(self_cache, cross_cache), results

    def _make_bias(
        self, length: int, num_keys: int, first: Int[Array, ""] | int
    ) -> Float[Array, "1 N T S"]:
        """T5's bias of this layer; without a cache, `num_keys` is 0."""
        length //= self.num_copies
        relative = RelativeBias(self.spec, self.is_bidirectional, name="relative")
        bias = relative(length, num_keys or length, first)
        return jnp.tile(bias, (1, 1, self.num_copies, self.num_copies))

    def _add_up(self, name: str, x: Array, results: Results) -> tuple[Array, Results]:
        """x after a branch, and the results with it, by `ModelSpec.depth_sums`."""
        if not self.spec.depth_sums:
            return x, results
        results = (*results, x)
        return DepthSum(name=f"{name}_sum")(results), results


class Stack(nn.Module):
    """`num_layers` layers over tokens `ids`; a decoder attends to a `source`.

    `is_bidirectional` determines only the buckets of T5's relative bias; visibility is
    determined by `attn_mask`. With a `kv_cache`, x are the tokens at its slots from
    `cache_index` on; a source is passed once, with the first of them. Returns the
    hidden states and the cache, which scanned layers do not support; `with_trunk`, the
    input of the last layer instead of the cache. With `num_copies`, x is several
    copies of a row, one behind the other, with the same positions.
    """

    spec: ModelSpec
    num_layers: int
    is_bidirectional: bool = True

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        ids: Int[Array, "B T"],
        attn_mask: Mask,
        source: Float[Array, "B S D"] | None = None,
        cross_mask: Mask | None = None,
        position_ids: Int[Array, "B T"] | None = None,
        kv_cache: tuple[LayerCache, ...] | None = None,
        cache_index: Int[Array, ""] | int = 0,
        *,
        deterministic: bool,
        with_trunk: bool = False,
        num_copies: int = 1,
    ) -> tuple[Float[Array, "B T D"], Any]:
        spec = self.spec
        length = x.shape[1] // num_copies
        num_keys = kv_cache[0].self_attn.keys.shape[2] if kv_cache else length
        spec = spec.choose_factors(num_keys)
        bias = make_bias(
            spec, self.is_bidirectional, length, num_keys, cache_index, num_copies
        )
        if spec.positions != "rotary":
            position_ids = None
        elif position_ids is None:
            position_ids = jnp.arange(x.shape[1])[None]
        self.sow(INTERMEDIATES, "states", x)

        def run(
            layer: Layer,
            x: Array,
            kv_cache: LayerCache | None = None,
            value_ids: Array | None = None,
            results: Results = (),
            is_rotated: bool = True,
        ) -> tuple[Array, LayerCache | None, Results]:
            rest = (
                attn_mask,
                bias,
                source,
                cross_mask,
                position_ids if is_rotated else None,
                kv_cache,
                cache_index,
                value_ids,
                results,
            )
            return layer(x, *rest, deterministic=deterministic)

        num_apart, now = self.num_layers, []
        scale = spec.branch_scale(self.num_layers)
        ways = self.is_bidirectional, num_copies
        states: tuple[Array, ...] = (x,)
        results: Results = (x,) if spec.keeps_results else ()
        if spec.scan_layers:  # a first layer without a norm precedes the loop
            num_apart = int(spec.omits_first_norm and self.num_layers > 1)
        for i in range(num_apart):
            is_normed = spec.omits_first_norm and i == 0
            fields = is_normed, spec.is_local(i), scale, *ways
            layer = Layer(spec, *fields, name=f"layer_{i}")
            value_ids = ids if spec.has_values(i, self.num_layers) else None
            apply = remat(partial(run, is_rotated=spec.is_rotated(i)), spec)
            old_cache = kv_cache and kv_cache[i]
            x, layer_cache, results = apply(layer, x, old_cache, value_ids, results)
            now.append(layer_cache)
            states = (states[-1], x)
        if num_apart < self.num_layers:
            if kv_cache:
                raise ValueError(
                    "a kv_cache needs the model unrolled (`jaxpt.nn.scan`)"
                )
            is_normed = spec.omits_first_norm and not num_apart
            fields = is_normed, spec.window > 0, scale, *ways
            layers = Layer(spec, *fields, name="layers")
            length, num_kept = self.num_layers - num_apart, 1 + with_trunk
            states = _loop(run, spec, length, num_kept)(layers, x)
            x = states[-1]
        if spec.has_last_norm:
            x = Norm(spec, name="norm")(x)
        return x, states[0] if with_trunk else kv_cache and tuple(now)


def make_bias(
    spec: ModelSpec,
    is_bidirectional: bool,
    num_queries: int,
    num_keys: int,
    first: Int[Array, ""] | int = 0,
    num_copies: int = 1,
) -> Float[Array, "1 N T S"] | Distances | None:
    """What the spec's relative positions add to the logits of all layers of a stack.

    None if they add nothing, or in each layer something else (`relative_every_layer`).

    T5's bias, ALiBi's, or what attention makes a bias of (`Attention`). To be called in
    the stack's module; arguments as of `Disentangled`.
    """
    if spec.is_disentangled:
        distances = Disentangled(spec, name="disentangled")
        return distances(num_queries, num_keys, first, num_copies)
    if not spec.has_distance_bias or spec.relative_every_layer:
        return None
    if spec.positions == "alibi":
        bias = alibi_bias(spec.num_heads, num_queries, num_keys, first)
    else:
        relative = RelativeBias(spec, is_bidirectional, name="relative")
        bias = relative(num_queries, num_keys, first)
    return jnp.tile(bias, (1, 1, num_copies, num_copies))


def remat(run: Callable, spec: ModelSpec, prevent_cse: bool = True) -> Callable:
    """`run` with rematerialisation by the spec's `remat`."""
    if spec.remat == "none":
        return run
    return nn.remat(run, policy=POLICIES[spec.remat], prevent_cse=prevent_cse)


def _loop(
    run: Callable, spec: ModelSpec, length: int, num_kept: int
) -> Callable[[nn.Module, Array], tuple[Array, ...]]:
    """A loop of `run` over the layers' slices of the parameters.

    (layers, x) -> the last `num_kept` states, at most two.
    """
    step = remat(run, spec, prevent_cse=False)  # not needed between steps of a loop

    def keep(layers: nn.Module, states: tuple) -> tuple[tuple, LayerCache | None]:
        x, kv_cache, _ = step(layers, states[-1])
        return (*states[1:], x), kv_cache

    loop = nn.scan(
        keep,
        variable_axes={"params": 0, KEYS: 0, INTERMEDIATES: 0},
        split_rngs={"params": True, "dropout": True},
        length=length,
        check_constancy_invariants=False,
    )
    return lambda layers, x: loop(layers, (x,) * num_kept)[0]


def list_states(captured: dict, last: Float[Array, "B T D"]) -> Float[Array, "L B T D"]:
    """The input of a stack and the states after every layer, from `INTERMEDIATES`.

    Args:
      captured: that of one call of the stack; layers unrolled, scanned, or both.
      last: the stack's output, which replaces the states of its last layer, as pre-norm
        stacks end with a norm.
    """
    (inputs,) = captured["states"]
    states, i = [inputs], 0
    while f"layer_{i}" in captured:
        states.append(captured[f"layer_{i}"]["states"][0])
        i += 1
    if "layers" in captured:
        states += list(captured["layers"]["states"][0])
    return jnp.stack([*states[:-1], last])

"""Autoregressive decoding with a key-value cache, so that a step costs one token.

Prompts of different lengths are padded on the left: all rows then write the same slot
of the cache, and distances between slots equal those that a bias by distance counts.

    slot     0 1 2 3 | 4 5 ...
    row 0    a b c d | e f          first slot 0, position ids 0 1 2 3 | 4 5
    row 1    . . x y | z w          first slot 2, position ids - - 0 1 | 2 3
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxpt.nn.attention import KVCache
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import unroll, unstack_layers
from jaxpt.nn.stacks import LayerCache
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """The state of decoding.

    Attributes:
      kv_cache: keys and values of every layer.
      cache_index: the next free slot.
      prompt_start: the first slot of each row that has a token.
      last_ids: the last token of each row; 0 if the cache is empty.
      source_segments: 1 at tokens of the encoder's input, 0 at its padding.
    """

    kv_cache: tuple[LayerCache, ...]
    cache_index: Int[Array, ""]
    prompt_start: Int[Array, "B"]
    last_ids: Int[Array, "B"]
    source_segments: Int[Array, "B S"] | None = None

    def pick(self, rows: Int[Array, "C"]) -> "Cache":
        """The cache of these rows, which may repeat."""
        return jax.tree.map(lambda x: x[rows] if x.ndim else x, self)

    def reorder(self, rows: Int[Array, "B"]) -> "Cache":
        """`pick` of rows with the same prompts, so that the sources do not change."""
        kv_cache = tuple(
            LayerCache(jax.tree.map(lambda x: x[rows], layer.self_attn), layer.cross)
            for layer in self.kv_cache
        )
        last_ids = self.last_ids[rows]
        return dataclasses.replace(self, kv_cache=kv_cache, last_ids=last_ids)


@dataclasses.dataclass(frozen=True)
class Decoder:
    """The interface of a model for generation.

    Attributes:
      prefill: (params, prompts [B, T], lengths [B], room) -> logits [B, V], cache;
        prompts are padded on the left, `room` is the number of tokens to generate.
      step: (params, ids [B], cache) -> logits [B, V], cache with one more token.
      max_len: the maximum number of positions.
      start_id: the decoder's first id in an encoder-decoder; None for models that
        continue the prompt.
      convert_params: (a model's params) -> params for `prefill` and `step`; called
        once, before the loop.
    """

    prefill: Callable
    step: Callable
    max_len: int
    start_id: int | None = None
    convert_params: Callable = lambda params: params

    def within(self, name: str) -> "Decoder":
        """The decoder of a network whose parameters are a subtree of the given ones."""
        return dataclasses.replace(
            self, convert_params=lambda params: self.convert_params(params[name])
        )


def make_decoder(model: Transformer, start_id: int | None = None) -> Decoder:
    """The decoder of a causal model; an encoder-decoder needs a `start_id`.

    A scanned model is unrolled, with the same numbers, to have a cache for each layer.
    """
    model = unroll(model)

    def prefill(
        params: PyTree, prompts: Array, lengths: Array, room: int
    ) -> tuple[Array, Cache]:
        if start_id is None:
            length = prompts.shape[1]
            cache = make_cache(model.spec, length - lengths, length + room)
            return _extend(model, params, prompts, cache)
        return _read_sources(model, params, prompts, lengths, room, start_id)

    def step(params: PyTree, ids: Array, cache: Cache) -> tuple[Array, Cache]:
        return _extend(model, params, ids[:, None], cache)

    max_len = model.spec.generation_len
    return Decoder(prefill, step, max_len, start_id, unstack_layers)


def make_prefix_decoder(model: Transformer) -> Decoder:
    """The decoder of a prefix LM with one stack, bidirectional in the prompt.

    The prompt, with its start token, is thus processed like the prefix in training. The
    generated tokens are causal, with the steps of `make_decoder`.
    """
    causal, model = make_decoder(model), unroll(model)

    def prefill(
        params: PyTree, prompts: Array, lengths: Array, room: int
    ) -> tuple[Array, Cache]:
        prompt_start = prompts.shape[1] - lengths
        num_slots = prompts.shape[1] + room
        cache = make_cache(model.spec, prompt_start, num_slots)
        attn_mask = masks.cached_prompt(prompt_start, prompts.shape[1], num_slots)
        return _extend(model, params, prompts, cache, own_mask=attn_mask)

    return dataclasses.replace(causal, prefill=prefill)


def make_cache(
    spec: ModelSpec,
    prompt_start: Int[Array, "B"],
    num_slots: int,
    source_segments: Int[Array, "B S"] | None = None,
) -> Cache:
    """An empty cache, for the decoder or the only stack."""

    def make_kv_cache(slots: int) -> KVCache:
        shape = (len(prompt_start), spec.kv_heads, slots, spec.head_width)
        dtype = spec.compute_dtype
        return KVCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    num_keys = None if source_segments is None else source_segments.shape[1]
    kv_cache = tuple(
        LayerCache(
            make_kv_cache(num_slots),
            None if num_keys is None else make_kv_cache(num_keys),
        )
        for _ in range(spec.num_decoder_layers or spec.num_layers)
    )
    last_ids = jnp.zeros_like(prompt_start)
    return Cache(kv_cache, jnp.int32(0), prompt_start, last_ids, source_segments)


def _read_sources(
    model: Transformer,
    params: PyTree,
    sources: Int[Array, "B S"],
    lengths: Int[Array, "B"],
    room: int,
    start_id: int,
) -> tuple[Float[Array, "B V"], Cache]:
    slots = jnp.arange(sources.shape[1])
    prompt_start = sources.shape[1] - lengths[:, None]
    segments = (slots >= prompt_start).astype(jnp.int32)
    hidden = model.apply(
        {"params": params},
        sources,
        masks.segments(segments),
        jnp.maximum(slots - prompt_start, 0),
        deterministic=True,
        method="encode",
    )
    cache = make_cache(model.spec, jnp.zeros_like(lengths), 1 + room, segments)
    start = jnp.full((len(sources), 1), start_id, sources.dtype)
    return _extend(model, params, start, cache, hidden)


def _extend(
    model: Transformer,
    params: PyTree,
    ids: Int[Array, "B T"],
    cache: Cache,
    source: Float[Array, "B S D"] | None = None,
    own_mask: Bool[Array, "B 1 T S"] | None = None,
) -> tuple[Float[Array, "B V"], Cache]:
    """Logits of the token after the last of `ids`, and the extended cache.

    Args:
      own_mask: the slots that each of `ids` sees; by default those up to its own slot.
    """
    batch, length = ids.shape
    num_slots = cache.kv_cache[0].self_attn.keys.shape[2]
    slots = cache.cache_index + jnp.arange(length)
    if own_mask is None:
        own_mask = masks.cached(
            cache.prompt_start, cache.cache_index, length, num_slots
        )
    cross_mask = None
    if cache.source_segments is not None:
        queries = jnp.ones((batch, length), jnp.int32)
        cross_mask = masks.segments(queries, cache.source_segments)
    hidden, kv_cache = model.apply(
        {"params": params},
        ids,
        cache.kv_cache,
        cache.cache_index,
        own_mask,
        # Padding has no position; every table has position 0.
        jnp.maximum(slots - cache.prompt_start[:, None], 0),
        cache.last_ids,
        source,
        cross_mask,
        method="extend",
    )
    last = hidden[:, -1]
    logits = model.apply({"params": params}, last, method="logits")
    return logits, dataclasses.replace(
        cache,
        kv_cache=kv_cache,
        cache_index=cache.cache_index + length,
        last_ids=ids[:, -1].astype(cache.last_ids.dtype),
    )

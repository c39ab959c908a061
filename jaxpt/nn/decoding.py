"""Writing on, token by token: what was read is kept, so a step costs one token.

Prompts of different lengths are padded on the left: all rows then write the same slot
of the cache, and slots are as far apart as the places that T5's relative bias counts.

    slot     0 1 2 3 | 4 5 ...
    row 0    a b c d | e f          first slot 0, position ids 0 1 2 3 | 4 5
    row 1    . . x y | z w          first slot 2, position ids - - 0 1 | 2 3
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.nn.attention import KVCache
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import unroll, unstack_layers
from jaxpt.nn.stacks import LayerCache
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """What has been read so far.

    Attributes:
      kv_cache: keys and values of every layer.
      cache_index: the next free slot.
      prompt_start: each row's first slot that holds a token.
      source_segments: 1 where a row's source has a token, 0 on its padding.
    """

    kv_cache: tuple[LayerCache, ...]
    cache_index: Int[Array, ""]
    prompt_start: Int[Array, "B"]
    source_segments: Int[Array, "B S"] | None = None

    def pick(self, rows: Int[Array, "C"]) -> "Cache":
        """The cache of these rows, which may repeat."""
        picked = jax.tree.map(
            lambda x: x[rows], (self.kv_cache, self.prompt_start, self.source_segments)
        )
        return Cache(picked[0], self.cache_index, *picked[1:])

    def reorder(self, rows: Int[Array, "B"]) -> "Cache":
        """`pick` where each row follows one of the same prompt: sources stay."""
        kv_cache = tuple(
            LayerCache(jax.tree.map(lambda x: x[rows], layer.own), layer.cross)
            for layer in self.kv_cache
        )
        return dataclasses.replace(self, kv_cache=kv_cache)


@dataclasses.dataclass(frozen=True)
class Decoder:
    """What generation asks of a model.

    Attributes:
      prefill: (params, prompts [B, T], lengths [B], room) -> logits [B, V], cache;
        prompts are padded on the left, `room` is how many tokens will follow.
      step: (params, ids [B], cache) -> logits [B, V], cache, having read one more.
      max_len: places the model has.
      start_id: what the decoder of an encoder-decoder begins with; None where a text
        goes on from its prompt.
      prepare: (a model's params) -> params as the other two take them; once, for they
        are called in a loop.
    """

    prefill: Callable
    step: Callable
    max_len: int
    start_id: int | None = None
    prepare: Callable = lambda params: params

    def within(self, name: str) -> "Decoder":
        """The decoder of a network whose parameters are a part of others."""
        return dataclasses.replace(
            self, prepare=lambda params: self.prepare(params[name])
        )


def make_decoder(model: Transformer, start_id: int | None = None) -> Decoder:
    """The decoder of a causal model; one with two stacks needs a `start_id`.

    A scanned model is run unrolled: the same numbers, and a cache for each layer.
    """
    model = unroll(model)

    def prefill(params, prompts, lengths, room):
        if start_id is None:
            return _read_prompts(model, params, prompts, lengths, room)
        return _read_sources(model, params, prompts, lengths, room, start_id)

    def step(params, ids, cache):
        return _extend(model, params, ids[:, None], cache)

    max_len = model.spec.max_len
    return Decoder(prefill, step, max_len, start_id, unstack_layers)


def make_prefix_decoder(model: Transformer) -> Decoder:
    """The decoder of a prefix LM with one stack: all of the prompt sees all of it.

    What is kept of the prompt is so what the prefix was in training, the start token
    that stood before it included; only what follows is causal, and the steps are those
    of `make_decoder`.
    """
    causal, model = make_decoder(model), unroll(model)

    def prefill(params, prompts, lengths, room):
        prompt_start = prompts.shape[1] - lengths
        num_slots = prompts.shape[1] + room
        cache = make_cache(model.spec, prompt_start, num_slots)
        seen = masks.cached_prompt(prompt_start, prompts.shape[1], num_slots)
        return _extend(model, params, prompts, cache, own_mask=seen)

    return dataclasses.replace(causal, prefill=prefill)


def make_cache(
    spec: ModelSpec,
    prompt_start: Int[Array, "B"],
    num_slots: int,
    source_segments: Int[Array, "B S"] | None = None,
) -> Cache:
    """An empty one, for the decoder or the only stack."""

    def make_kv_cache(slots: int) -> KVCache:
        shape = (len(prompt_start), spec.kv_heads, slots, spec.head_width)
        dtype = spec.compute_dtype
        return KVCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    has_source = source_segments is not None
    kv_cache = tuple(
        LayerCache(
            make_kv_cache(num_slots),
            make_kv_cache(source_segments.shape[1]) if has_source else None,
        )
        for _ in range(spec.num_decoder_layers or spec.num_layers)
    )
    return Cache(kv_cache, jnp.int32(0), prompt_start, source_segments)


def _read_prompts(model, params, prompts, lengths, room: int):
    length = prompts.shape[1]
    cache = make_cache(model.spec, length - lengths, length + room)
    return _extend(model, params, prompts, cache)


def _read_sources(model, params, sources, lengths, room: int, start_id: int):
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
    params,
    ids: Int[Array, "B T"],
    cache: Cache,
    source: Float[Array, "B S D"] | None = None,
    own_mask: Bool[Array, "B 1 T S"] | None = None,
) -> tuple[Float[Array, "B V"], Cache]:
    """Scores of what follows the last of `ids`, and the cache with all of them.

    Args:
      own_mask: which slots each of `ids` sees; without one, those up to its own.
    """
    batch, length = ids.shape
    num_slots = cache.kv_cache[0].own.keys.shape[2]
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
        # Padding stands nowhere; place 0 is one that every table has.
        jnp.maximum(slots - cache.prompt_start[:, None], 0),
        source,
        cross_mask,
        method="extend",
    )
    last = hidden[:, -1]
    logits = model.apply({"params": params}, last, method="logits")
    return logits, dataclasses.replace(
        cache, kv_cache=kv_cache, cache_index=cache.cache_index + length
    )

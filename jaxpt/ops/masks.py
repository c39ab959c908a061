"""Attention masks, described by their structure or as a plain bool array.

True means "may attend". A structured mask is equivalent to its materialised array and
lets attention select a kernel that never builds the array. A query without visible keys
attends equally to all keys (its output is the mean value) and must have no loss.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

# The logit of a key that is not visible. Large and finite, so that a query without
# visible keys gets equal weights and not NaN.
MASK_VALUE = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttnMask:
    """A mask by structure: a key is visible if all conditions that are set allow it.

    Attributes:
      causal: key s is visible to query t when s <= t (aligned at 0; needs T == S).
      block: with `causal`, when the block of s, of this many positions, is not after
        that of t; 1 is causal in the usual sense.
      prefix_lengths: int32 [B]; under `causal`, keys before it are visible to all.
      prefix_keys: bool [B, S]; under `causal`, these keys are visible to all queries,
        so that each of several packed documents can have a prefix.
      key_lengths: int32 [B]; keys at or after it are padding.
      query_segments, key_segments: int32 [B, T] and [B, S]; a key is visible only to
        queries with the same nonzero id (0 is padding).
      window: the maximum distance of a visible key before its query, and after it;
        aligned at 0 as `causal` is. It applies to prefixes, too.
    """

    causal: bool = dataclasses.field(default=False, metadata={"static": True})
    block: int = dataclasses.field(default=1, metadata={"static": True})
    prefix_lengths: Int[Array, "B"] | None = None
    prefix_keys: Bool[Array, "B S"] | None = None
    key_lengths: Int[Array, "B"] | None = None
    query_segments: Int[Array, "B T"] | None = None
    key_segments: Int[Array, "B S"] | None = None
    window: tuple[int, int] | None = dataclasses.field(
        default=None, metadata={"static": True}
    )

    @property
    def shows_later_keys(self) -> bool:
        """Whether some later keys are visible to a query despite `causal`."""
        has_prefix = self.prefix_lengths is not None or self.prefix_keys is not None
        return has_prefix or self.block > 1

    @property
    def depends_on_queries(self) -> bool:
        """Whether the positions of queries determine which keys are visible."""
        return self.causal or self.window is not None

    def is_full(self) -> bool:
        """Whether the structure alone shows that all keys are visible."""
        leaves = jax.tree_util.tree_leaves(self)
        return not self.causal and not leaves and self.window is None


Mask = AttnMask | Bool[Array, "#B 1 T S"]


def full() -> AttnMask:
    """Every query sees every key."""
    return AttnMask()


def causal(segment_ids: Int[Array, "B T"] | None = None) -> AttnMask:
    """Each position sees itself and those before it, within its own segment.

    >>> materialise(causal(), 3, 3)[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return AttnMask(causal=True, query_segments=segment_ids, key_segments=segment_ids)


def causal_blocks(size: int, segment_ids: Int[Array, "B T"] | None = None) -> AttnMask:
    """Each position sees its block of `size` positions and all blocks before it.

    >>> materialise(causal_blocks(2), 4, 4)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    """
    return dataclasses.replace(causal(segment_ids), block=size)


def anticausal(
    length: int, segment_ids: Int[Array, "B T"] | None = None
) -> Bool[Array, "#B 1 T T"]:
    """Each position sees itself and those after it, within its own segment.

    >>> anticausal(3)[0, 0].astype(int).tolist()
    [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    """
    positions = jnp.arange(length)
    visible = (positions >= positions[:, None])[None, None]
    return visible & materialise(segments(segment_ids), length, length)


def sees_neighbour(
    mask: Mask, shape: tuple[int, ...], offset: int
) -> Bool[Array, "B T"]:
    """Whether each position sees its neighbour; False at the end of a row.

    Args:
      shape: [B, T].
      offset: -1 for the position before, 1 for the one after.

    >>> ids = jnp.array([[1, 1, 2, 2]])
    >>> sees_neighbour(causal(ids), (1, 4), -1).astype(int).tolist()
    [[0, 1, 0, 1]]
    """
    size = shape[1]
    visible = jnp.diagonal(materialise(mask, size, size)[:, 0], offset, 1, 2)
    padding = ((0, 0), (1, 0) if offset < 0 else (0, 1))
    return jnp.broadcast_to(jnp.pad(visible, padding), shape)


def sees_previous(
    mask: Mask, shape: tuple[int, ...], first: Array | int = 0
) -> Bool[Array, "B T"]:
    """Whether each position sees the one before it; False at the start of a row.

    A mask by structure is not materialised; a window must show a neighbour.

    Args:
      shape: [B, T].
      first: the position of the first query, for a mask as an array.

    >>> ids = jnp.array([[1, 1, 2, 2, 0, 0]])
    >>> sees_previous(causal(ids), (1, 6)).astype(int).tolist()
    [[0, 1, 0, 1, 0, 0]]
    """
    places = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    if not isinstance(mask, AttnMask):
        keys = jax.lax.broadcasted_iota(jnp.int32, mask.shape[2:], 1)
        is_previous = keys == places[0, :, None] + first - 1
        return jnp.broadcast_to((mask[:, 0] & is_previous).any(-1), shape)
    visible = places > 0
    if mask.key_lengths is not None:
        visible &= places <= mask.key_lengths[:, None]
    if mask.query_segments is not None and mask.key_segments is not None:
        previous = jnp.roll(mask.key_segments, 1, axis=1)
        visible &= (mask.query_segments == previous) & (previous != 0)
    return visible


def seen_share(mask: Mask, is_chosen: Bool[Array, "B S"]) -> Float[Array, "B S"]:
    """The share of chosen tokens among those that each query sees; 0 if it sees none.

    Of a text in both directions it is the same for all its tokens. XLA does not store
    the mask for it.

    >>> ids, is_chosen = jnp.array([[1, 1, 2, 0]]), jnp.array([[0, 1, 0, 1]]) > 0
    >>> seen_share(segments(ids), is_chosen).tolist()
    [[0.5, 0.5, 0.0, 0.0]]
    """
    size = is_chosen.shape[1]
    visible = materialise(mask, size, size)[:, 0]
    num_chosen = jnp.sum(visible & is_chosen[:, None], axis=-1, dtype=jnp.float32)
    return num_chosen / jnp.maximum(visible.sum(-1), 1)


def segments(
    query: Int[Array, "B T"] | None, key: Int[Array, "B S"] | None = None
) -> AttnMask:
    """Positions see their own segment only; with None, every position sees all.

    >>> ids = jnp.array([[1, 1, 2, 0]])
    >>> materialise(segments(ids), 4, 4)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    """
    return AttnMask(query_segments=query, key_segments=query if key is None else key)


def local(mask: Mask, size: int, num_keys: int, first: Array | int = 0) -> Mask:
    """The mask within a sliding window of `size` keys before and after each query.

    Mistral's causal windows (whose width counts the query itself) and those of
    ModernBERT's local layers (whose width counts both sides).

    Args:
      first: the position of the first query, for a mask as an array.

    >>> materialise(local(causal(), 1, 4), 4, 4)[0, 0].astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    if isinstance(mask, AttnMask):
        return dataclasses.replace(mask, window=(size, size))
    # By iota because ONNX has no `arange` of a symbolic length.
    shape = mask.shape[2], num_keys
    queries, keys = (jax.lax.broadcasted_iota(jnp.int32, shape, i) for i in (0, 1))
    return mask & (jnp.abs(keys - queries - first) <= size)


def _is_near(
    queries: Int[Array, "*B T"], keys: Int[Array, "*B S"], window: tuple[int, int]
) -> Bool[Array, "*B T S"]:
    distance = keys[..., None, :] - queries[..., :, None]
    return (distance >= -window[0]) & (distance <= window[1])


def prefix(lengths: Int[Array, "B"]) -> AttnMask:
    """Causal, but the first `lengths` keys are visible to every query (prefix LM).

    >>> materialise(prefix(jnp.array([2])), 3, 3)[0, 0].astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    return AttnMask(causal=True, prefix_lengths=lengths)


def prefix_keys(
    is_prefix: Bool[Array, "B T"], segment_ids: Int[Array, "B T"] | None = None
) -> AttnMask:
    """Causal, but the keys of a prefix are visible to every query of their segment.

    >>> is_prefix, ids = jnp.array([[1, 1, 0, 1, 0]]) > 0, jnp.array([[1, 1, 1, 2, 2]])
    >>> materialise(prefix_keys(is_prefix, ids), 5, 5)[0, 0].astype(int).tolist()[:3]
    [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    """
    return AttnMask(
        causal=True,
        prefix_keys=is_prefix,
        query_segments=segment_ids,
        key_segments=segment_ids,
    )


def key_padding(lengths: Int[Array, "B"]) -> AttnMask:
    """Keys at or after each row's length are masked."""
    return AttnMask(key_lengths=lengths)


def cached(
    prompt_start: Int[Array, "B"],
    cache_index: Int[Array, ""] | int,
    num_queries: int,
    num_keys: int,
) -> Bool[Array, "B 1 T S"]:
    """Causal, for queries at `cache_index` and after, on a cache of `num_keys` keys.

    Query t sees the keys from the row's `prompt_start` to `cache_index` + t.

    >>> cached(jnp.array([0, 2]), 2, 1, 4)[:, 0, 0].astype(int).tolist()
    [[1, 1, 1, 0], [0, 0, 1, 0]]
    """
    key = jnp.arange(num_keys)
    is_past = key <= cache_index + jnp.arange(num_queries)[:, None]
    return (is_past & (key >= prompt_start[:, None, None]))[:, None]


def cached_prompt(
    prompt_start: Int[Array, "B"], num_queries: int, num_keys: int
) -> Bool[Array, "B 1 T S"]:
    """`cached` at index 0, but every query sees the whole prompt (prefix LM).

    >>> cached_prompt(jnp.array([0, 1]), 2, 4)[:, 0].astype(int).tolist()
    [[[1, 1, 0, 0], [1, 1, 0, 0]], [[0, 1, 0, 0], [0, 1, 0, 0]]]
    """
    key = jnp.arange(num_keys)
    visible = (key < num_queries) & (key >= prompt_start[:, None])
    shape = len(prompt_start), 1, num_queries, num_keys
    return jnp.broadcast_to(visible[:, None, None], shape)


def materialise(
    mask: Mask,
    num_queries: int,
    num_keys: int,
    first_query: Array | int = 0,
    first_key: Array | int = 0,
) -> Bool[Array, "#B 1 T S"]:
    """The mask as a bool array [B or 1, 1, T, S]; an array passes through.

    Args:
      first_query, first_key: positions in the row of the first query and of the first
        key, for a mask by structure, whose arrays are of these T queries and S keys.

    Keys 2 and 3, which queries 1 and 2 see causally:

    >>> materialise(causal(), 2, 2, 1, 2)[0, 0].astype(int).tolist()
    [[0, 0], [1, 0]]

    Raises:
      ValueError: an array that is not bool or does not broadcast to [B, 1, T, S].
    """
    if not isinstance(mask, AttnMask):
        if mask.dtype != jnp.bool_ or mask.shape[1:] != (1, num_queries, num_keys):
            raise ValueError(
                f"attn_mask must be bool [B or 1, 1, {num_queries}, {num_keys}], "
                f"is {mask.dtype} {mask.shape}"
            )
        return mask
    places = first_query + jnp.arange(num_queries), first_key + jnp.arange(num_keys)
    query, key = places[0][:, None], places[1][None, :]
    visible = jnp.ones((1, 1, num_queries, num_keys), bool)
    if mask.causal:
        visible = (key // mask.block <= query // mask.block)[None, None]
        if mask.prefix_lengths is not None:
            visible |= (key < mask.prefix_lengths[:, None, None])[:, None]
        if mask.prefix_keys is not None:
            visible |= mask.prefix_keys[:, None, None]
    if mask.key_lengths is not None:
        visible &= (key < mask.key_lengths[:, None, None])[:, None]
    if mask.query_segments is not None and mask.key_segments is not None:
        queries, keys = mask.query_segments[:, :, None], mask.key_segments[:, None, :]
        visible &= ((queries == keys) & (queries != 0))[:, None]
    if mask.window is not None:
        visible &= _is_near(*places, mask.window)
    return visible


def materialise_blocks(
    mask: AttnMask, length: int, size: int
) -> Bool[Array, "#B blocks 1 size width"]:
    """A mask with a window, for blocks of queries and the keys that they may see.

    Block i has the queries from i * size on. Its keys are those from (i - 1) * size on,
    up to the end of block i + 1, or of block i if the mask is causal, which covers a
    window of at most `size`. Keys beyond the row are not visible.

    Args:
      length: T and S.
    """
    num = -(-length // size)
    width = size * (2 if mask.causal else 3)
    queries = jnp.arange(num * size).reshape(num, size)
    keys = (jnp.arange(num)[:, None] - 1) * size + jnp.arange(width)
    visible = _is_near(queries, keys, mask.window or (size, size))
    visible &= ((keys >= 0) & (keys < length))[:, None]
    if mask.causal:
        visible &= keys[:, None] <= queries[:, :, None]
    visible = visible[None]
    if mask.key_lengths is not None:
        visible &= (keys < mask.key_lengths[:, None, None])[:, :, None]
    if mask.query_segments is not None and mask.key_segments is not None:
        of_queries = cut_blocks(mask.query_segments, size, 0, 1)
        before = 1 if mask.causal else 2
        of_keys = cut_blocks(mask.key_segments, size, 1, before)
        same = of_queries[..., :, None] == of_keys[..., None, :]
        visible &= same & (of_queries != 0)[..., None]
    return visible[:, :, None]


def cut_blocks(
    x: Shaped[Array, "B T ..."], size: int, before: int, behind: int
) -> Shaped[Array, "B blocks width ..."]:
    """Blocks of `size` positions, each with its neighbours in one axis.

    These are `before` blocks before it, and `behind` blocks from it on.

    Positions beyond the row are zeros.

    >>> cut_blocks(jnp.array([[1, 2, 3]]), 2, 1, 1).tolist()
    [[[0, 0, 1, 2], [1, 2, 3, 0]]]
    """
    num = -(-x.shape[1] // size)
    more = num * size - x.shape[1] + (behind - 1) * size
    pads = ((0, 0), (before * size, more), *((0, 0),) * (x.ndim - 2))
    padded = jnp.pad(x, pads)
    blocks = padded.reshape(x.shape[0], -1, size, *x.shape[2:])
    parts = [blocks[:, i : i + num] for i in range(before + behind)]
    return jnp.concatenate(parts, axis=2)

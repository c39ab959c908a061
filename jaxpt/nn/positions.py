"""Positions: tables, rotary embeddings, biases by distance, disentangled attention."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxpt.nn.layers import Norm, add_table, table_init
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import draw
from jaxpt.ops import kernels


def sinusoidal(length: int, width: int, kind: str = "pairs") -> np.ndarray:
    """[length, width]: sin(t / 10000^(2i/width)) at 2i and the cosine at 2i + 1.

    Vaswani et al. 2017, section 3.5.

    Args:
      kind: `ModelSpec.sinusoids`: "halves" has the sine at i and the cosine at
        i + width/2. "fairseq", too, with exponents of 2i/(width - 2), as in
        tensor2tensor and fairseq, whose last rate is 1/10000.

    >>> sinusoidal(2, 2).astype(float).round(4).tolist()
    [[0.0, 1.0], [0.8415, 0.5403]]
    >>> sinusoidal(2, 4, "halves")[1].astype(float).round(4).tolist()
    [0.8415, 0.01, 0.5403, 0.9999]
    >>> sinusoidal(2, 4, "fairseq")[1].astype(float).round(4).tolist()
    [0.8415, 0.0001, 0.5403, 1.0]
    """
    span = width - 2 if kind == "fairseq" else width
    rate = np.exp(np.arange(0, width, 2) * (-np.log(1e4) / span))
    angle = np.arange(length)[:, None] * rate
    parts = np.sin(angle), np.cos(angle)
    if kind != "pairs":
        return np.concatenate(parts, axis=-1).astype(np.float32)
    return np.stack(parts, axis=-1).reshape(length, width).astype(np.float32)


def relative_bucket(
    distance: Int[Array, "T S"],
    is_bidirectional: bool,
    num_buckets: int,
    max_distance: int,
) -> Int[Array, "T S"]:
    """T5's bucket of the key's position minus the query's (mesh_tensorflow, T5X).

    Half of the buckets are exact small distances, the others grow logarithmically up to
    `max_distance`. A bidirectional bias has half of the buckets for each side, a causal
    bias only the past.

    >>> relative_bucket(jnp.array([[0, -1, 1, -200]]), True, 32, 128).tolist()
    [[0, 1, 17, 15]]
    >>> relative_bucket(jnp.array([[0, -1, 1, -200]]), False, 32, 128).tolist()
    [[0, 1, 0, 31]]
    """
    offset = jnp.zeros_like(distance)
    if is_bidirectional:
        num_buckets //= 2
        offset = jnp.where(distance > 0, num_buckets, 0)
        past = jnp.abs(distance)
    else:
        past = jnp.maximum(-distance, 0)
    exact = num_buckets // 2
    ratio = jnp.log(jnp.maximum(past, 1) / exact) / np.log(max_distance / exact)
    far_bucket = exact + (ratio * (num_buckets - exact)).astype(jnp.int32)
    far_bucket = jnp.minimum(far_bucket, num_buckets - 1)
    return offset + jnp.where(past < exact, past, far_bucket)


def rotary_rates(
    width: int,
    base: float,
    scaling: tuple[float, ...] = (),
    divisors: tuple[float, ...] = (),
) -> Float[np.ndarray, "R/2"]:
    """Angles by which one position rotates each pair of a head: base^(-2i/R), float32.

    Args:
      width: R, the numbers of a head that are rotated (`ModelSpec.rotary_width`).
      scaling: `ModelSpec.rotary_scaling`. A rate makes length * rate / 2 pi turns in
        `length` tokens (Dubey et al. 2024, Llama 3.1; Peng et al. 2023, YaRN).
      divisors: of each rate (`ModelSpec.rotary_factors`).

    >>> rotary_rates(4, 1e4).astype(float).round(6).tolist()
    [1.0, 0.01]
    >>> rotary_rates(4, 1e4, (8, 1, 4, 100)).astype(float).round(6).tolist()
    [1.0, 0.00125]
    >>> rotary_rates(4, 1e4, (8,)).astype(float).round(6).tolist()
    [0.125, 0.00125]
    """
    half = width // 2
    rates = base ** (-np.arange(half, dtype=np.float32) / half)
    if divisors:
        return rates / np.array(divisors, np.float32)
    if not scaling:
        return rates
    if len(scaling) == 1:
        return rates / np.float32(scaling[0])
    factor, low, high, length = scaling[:4]
    if len(scaling) == 4:
        turns = length * rates / (2 * np.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)
    else:  # linear in the pair's number i, between whole ones
        one_turn = half * np.log(length / (2 * np.pi)) / np.log(base)
        last, first = (one_turn - half * np.log([low, high]) / np.log(base)).tolist()
        first = max(np.floor(first), 0)
        last = min(np.ceil(last), 2 * half - 1)
        past = (np.arange(half, dtype=np.float32) - first) / ((last - first) or 0.001)
        kept = 1 - np.clip(past, 0, 1)
    return rates * (kept + (1 - kept) / factor)


def rotate(
    x: Float[Array, "B T N H"],
    position_ids: Int[Array, "#B T"],
    rates: Float[np.ndarray, "R/2"],
    magnitude: float = 1.0,
) -> Float[Array, "B T N H"]:
    """Rotary embedding: rotates pairs (i, i + R/2) of a head by position * rates[i].

    Numbers of a head from R on, if there are any, are left as they are. Computed in
    float32. Su et al. 2021 pair neighbours; halves are the order of Llama and
    transformers.

    Args:
      magnitude: what the rotated numbers are multiplied by (YaRN's `attention_factor`).

    >>> x = jnp.array([[[[1.0, 0.0]], [[1.0, 0.0]]]])
    >>> rotated = rotate(x, jnp.array([[0, 1]]), rotary_rates(2, 1e4))[0, :, 0]
    >>> np.asarray(rotated, float).round(4).tolist()
    [[1.0, 0.0], [0.5403, 0.8415]]
    >>> x, rates = jnp.ones((1, 1, 1, 3)), rotary_rates(2, 1e4)
    >>> float(rotate(x, jnp.array([[1]]), rates)[0, 0, 0, 2])
    1.0
    """
    angle = position_ids[:, :, None, None].astype(jnp.float32) * rates
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    if magnitude != 1:
        cos, sin = magnitude * cos, magnitude * sin
    half = len(rates)
    left, right, rest = jnp.split(x.astype(jnp.float32), [half, 2 * half], axis=-1)
    rotated = [left * cos - right * sin, right * cos + left * sin, rest]
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


class LearnedPositions(nn.Module):
    """One trained vector per position: the first `length`, or those of `position_ids`.

    The table has `max_len` rows after `position_offset` unused ones. With `base` it is
    the sum of that one's table, without gradient, and of a parameter, 0 at first.
    """

    spec: ModelSpec
    base: "LearnedPositions | None" = None

    def setup(self) -> None:
        shape = (self.spec.position_offset + self.spec.max_len, self.spec.embedding_dim)
        base = None if self.base is None else self.base.table
        self.table: Array = add_table(self, "table", self.spec, shape, base)

    def __call__(
        self, length: int, position_ids: Int[Array, "B T"] | None = None
    ) -> Float[Array, "#B T E"]:
        first = self.spec.position_offset
        if position_ids is None:
            return self.table[first : first + length]
        return self.table[first + position_ids]


class RelativeBias(nn.Module):
    """T5's bias on the attention logits, one scalar per head and bucket."""

    spec: ModelSpec
    is_bidirectional: bool

    @nn.compact
    def __call__(
        self, num_queries: int, num_keys: int, first: Int[Array, ""] | int = 0
    ) -> Float[Array, "1 N T S"]:
        """The bias of queries at `first`, first + 1, ... and keys at 0, 1, ..."""
        spec = self.spec
        # Mesh TensorFlow initializes the bias like a kernel with D inputs.
        is_t5, std = spec.init == "t5", spec.d_model**-0.5
        bias_init = nn.initializers.normal(std) if is_t5 else table_init(spec)
        table = draw(self, "table", bias_init, (spec.relative_buckets, spec.num_heads))
        query = first + jax.lax.iota(jnp.int32, num_queries)
        distance = jax.lax.iota(jnp.int32, num_keys)[None, :] - query[:, None]
        bucket = relative_bucket(
            distance,
            self.is_bidirectional,
            spec.relative_buckets,
            spec.relative_max_distance,
        )
        return jnp.transpose(table[bucket], (2, 0, 1))[None]


def alibi_slopes(num_heads: int) -> Float[np.ndarray, "N"]:
    """The slope of each head: 2^(-8 i / N) for i = 1, ..., N, if N is a power of two.

    Press et al. 2022. For another N, as in their code: the slopes of the largest power
    of two n below N, then every other slope of 2 n heads, from the first on.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [8 * i / power for i in range(1, power + 1)]
    exponents += [4 * i / power for i in range(1, 2 * power + 1, 2)]
    return np.exp2(-np.array(exponents[:num_heads])).astype(np.float32)


def alibi_bias(
    num_heads: int, num_queries: int, num_keys: int, first: Int[Array, ""] | int = 0
) -> Float[Array, "1 N T S"]:
    """Minus a slope times the distance, of queries at `first` and later ones.

    It is symmetric: a causal mask leaves the side of the paper. Decoders of
    transformers add the slope times the key's position instead, which is the same but
    for a constant of each query.

    >>> alibi_bias(2, 2, 3)[0, 0].tolist()
    [[-0.0, -0.0625, -0.125], [-0.0625, -0.0, -0.0625]]
    """
    query = first + jax.lax.iota(jnp.int32, num_queries)
    distance = jnp.abs(jax.lax.iota(jnp.int32, num_keys)[None, :] - query[:, None])
    slopes = jnp.asarray(-alibi_slopes(num_heads))
    return (slopes[:, None, None] * distance)[None]


def disentangled_rows(num_buckets: int, max_distance: int) -> Int[np.ndarray, "L"]:
    """The bucket of the query's position minus the key's, from -n to n.

    DeBERTa: with k of the 2 k buckets for each side, distances up to k / 2 have a
    bucket each, and larger ones grow logarithmically up to n = `max_distance`; with
    k = n, all of them have one. Distances beyond n have the bucket of n. He et al.
    2021; as transformers computes it, in float32.

    LTG-BERT: an odd number of buckets, 2 k - 1, has k - 1 for each side, and distances
    grow up to n - 1. Samuel et al. 2023; as ltgoslo/ltg-bert computes it, in float32.

    >>> rows = disentangled_rows(512, 512)
    >>> [int(rows[512 + x]) - 256 for x in (0, 1, 128, 129, 130, 200, 300, 511, -511)]
    [0, 1, 128, 129, 130, 169, 207, 255, -255]
    >>> int(rows[0]), int(rows[-1]), disentangled_rows(4, 2).tolist()
    (0, 511, [0, 1, 2, 3, 3])
    >>> disentangled_rows(7, 5).tolist()
    [0, 0, 0, 1, 2, 3, 4, 5, 6, 6, 6]
    """
    is_odd = num_buckets % 2
    side = num_buckets // 2
    distance = np.minimum(np.arange(max_distance + 1), max_distance - is_odd)
    bucket = distance
    if is_odd or max_distance > side:
        middle = (side + is_odd) // 2
        share = np.log(np.maximum(distance, middle).astype(np.float32) / middle)
        ratio = (max_distance - 1) / middle
        share /= np.float32(np.log(ratio)) if is_odd else np.log(np.float32(ratio))
        far = np.ceil(share * np.float32(middle - 1)).astype(int) + middle
        bucket = np.where(distance <= middle, distance, far)
    both = np.concatenate([-bucket[:0:-1], bucket])
    return np.clip(side + both, 0, num_buckets - 1)


class Distances(NamedTuple):
    """Embeddings of the distances between T queries and S keys.

    Attributes:
      table: of each bucket, normed with `ModelSpec.disentangled_norm`.
      rows: the buckets of the W = T + S - 1 distances, in increasing order.
      num_copies: queries and keys are this number of copies of T and S positions.
    """

    table: Float[Array, "R D"]
    rows: Int[Array, "W"]
    num_copies: int = 1

    def find_bias(
        self,
        q: Float[Array, "B T N H"],
        k: Float[Array, "B S N H"],
        keys: Float[Array, "R N H"] | None,
        queries: Float[Array, "R N H"] | None,
    ) -> Float[Array, "B N T S"]:
        """(q keys[distance] + k queries[distance]) / sqrt(H), of projected embeddings.

        Args:
          keys: the table as keys, None without "c2p".
          queries: the table as queries, None without "p2c".
        """
        bias = jnp.zeros((), jnp.float32)
        if keys is not None:
            bias += self._read(q, keys[self.rows[::-1]])
        if queries is not None:
            bias += self._read(k, queries[self.rows]).swapaxes(2, 3)
        return bias * q.shape[-1] ** -0.5

    def _read(
        self, x: Float[Array, "B T N H"], table: Float[Array, "W N H"]
    ) -> Float[Array, "B N T S"]:
        """x_t table[s - t + T - 1], within each copy."""
        batch, total, num_heads, _ = x.shape
        products = kernels.product("BTNH,WNH->BNTW", x, table)
        shape = batch, num_heads, self.num_copies, total // self.num_copies, -1
        diagonals = skew(products.reshape(shape))
        return jnp.tile(
            diagonals.reshape(batch, num_heads, total, -1), (1, 1, 1, self.num_copies)
        )


def skew(x: Float[Array, "*B T W"]) -> Float[Array, "*B T S"]:
    """y[t, s] = x[t, s - t + T - 1], with W = T + S - 1; no gather, no scatter.

    >>> skew(jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])).tolist()
    [[2, 3, 4], [5, 6, 7]]
    """
    *batch, length, width = x.shape
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
    flat = padded.reshape(*batch, length * (width + 1))
    flat = flat[..., length - 1 : length - 1 + length * width]
    return flat.reshape(*batch, length, width)[..., : width - length + 1]


class Disentangled(nn.Module):
    """DeBERTa's embeddings of distances, one table for all layers of a stack."""

    spec: ModelSpec

    @nn.compact
    def __call__(
        self,
        num_queries: int,
        num_keys: int,
        first: Int[Array, ""] | int = 0,
        num_copies: int = 1,
    ) -> Distances:
        """Those of queries at `first`, first + 1, ... and keys at 0, 1, ..."""
        spec, most = self.spec, self.spec.relative_max_distance
        shape = spec.relative_buckets, spec.d_model
        table = add_table(self, "table", spec, shape)
        if spec.disentangled_norm:
            table = Norm(spec, has_scale=True, name="norm")(table)
        steps = jax.lax.iota(jnp.int32, num_queries + num_keys - 1)
        distance = jnp.clip(first + steps - (num_keys - 1), -most, most)
        buckets = jnp.asarray(disentangled_rows(spec.relative_buckets, most))
        return Distances(table, buckets[distance + most], num_copies)

"""Noise masks: random subsets of an exact size, and T5's random spans.

Every function works on one row of static length; objectives `vmap` them over rows with
one key per row. A noise mask is True at the tokens to mask.
"""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxpt.ops.segments import segment_lengths, segment_positions, segment_starts


def count_table(length: int, rate: float) -> np.ndarray:
    """The number of tokens to predict of n = 0..length: max(1, round(n * rate)).

    A table, so that compiled code has Python's rounding (BERT's
    `create_pretraining_data.py`); 0 for n = 0.

    >>> count_table(10, 0.15).tolist()
    [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    """
    counts = [max(1, round(n * rate)) for n in range(length + 1)]
    return np.array([0] + counts[1:], np.int32)


def ceil_table(length: int, rate: float) -> np.ndarray:
    """The number of tokens to mask of n = 0..length: n * rate, rounded up.

    Computed exactly, from the rate in decimal (SpanBERT's and BART's budgets): in
    float32, as in fairseq, 100 * 0.3 is slightly above 30 and rounds up to 31.

    >>> ceil_table(100, 0.3)[[0, 1, 10, 11, 100]].tolist()
    [0, 1, 3, 4, 30]
    """
    exact = Fraction(str(float(rate)))
    return np.array([math.ceil(n * exact) for n in range(length + 1)], np.int32)


def floor_table(length: int, rate: float) -> np.ndarray:
    """The number of tokens to mask of n = 0..length: max(1, n * rate rounded down).

    Computed exactly, as in `ceil_table`; 0 for n = 0.

    >>> floor_table(128, 0.15)[[0, 1, 8, 20, 128]].tolist()
    [0, 1, 1, 3, 19]
    """
    exact = Fraction(str(float(rate)))
    counts = [max(1, math.floor(n * exact)) for n in range(length + 1)]
    return np.array([0] + counts[1:], np.int32)


def sample_positions(
    rng: Array,
    eligible: Bool[Array, "R"],
    count: Int[Array, ""],
    num_slots: int,
) -> tuple[Int[Array, "P"], Float[Array, "P"]]:
    """A uniformly random subset of the eligible positions, without replacement.

    Args:
      eligible: which positions may be sampled.
      count: the number to sample; if fewer are eligible, all of them are sampled.
      num_slots: P, the static length of the result.

    Returns:
      positions [P], all distinct, and weights [P]: 1 for a sampled position, 0 for an
      unused slot.
    """
    scores = jax.random.uniform(rng, eligible.shape)
    _, positions = jax.lax.top_k(jnp.where(eligible, scores, -1.0), num_slots)
    num = jnp.minimum(jnp.minimum(count, eligible.sum()), num_slots)
    return positions, (jnp.arange(num_slots) < num).astype(jnp.float32)


def inclusion_probabilities(
    weights: Float[Array, "R"], count: Int[Array, ""]
) -> Float[Array, "R"]:
    """min(1, c * weights), with the c for which their sum is `count`.

    Where c * weights is above 1, c is larger for the others, so that the sum holds.

    Args:
      weights: at least 0; at least `count` of them above 0.

    >>> inclusion_probabilities(jnp.array([6.0, 1.0, 3.0, 0.0]), 2).tolist()
    [1.0, 0.25, 0.75, 0.0]
    """
    ordered = jnp.sort(weights, descending=True)
    rest = jnp.cumsum(ordered[::-1])[::-1]  # of each one and those after it
    left = count - jnp.arange(len(weights))
    # As many of the largest are 1 as it takes for the next one to be at most 1.
    num_ones = jnp.argmax(ordered * left <= rest * (1 + 1e-6))
    factor = left[num_ones] / jnp.maximum(rest[num_ones], 1e-30)
    return jnp.minimum(factor * weights, 1.0)


def sample_weighted_positions(
    rng: Array, weights: Float[Array, "R"], count: Int[Array, ""], num_slots: int
) -> tuple[Int[Array, "P"], Float[Array, "P"]]:
    """A random subset of exact size, in which positions are as likely as their weights.

    Pareto sampling (Rosen 1997, "On sampling with probability proportional to size"):
    the subset has the largest odds(u) * odds(p), with u uniform, p of
    `inclusion_probabilities` and odds(p) = p / (1 - p). A position is in the subset
    with a probability close to its p: within .003 for 51 of 128 positions, and .03 for
    3 of 6. With equal weights the order is that of u: the result is then identical to
    that of `sample_positions`.

    Args:
      weights: 0 at positions that are never sampled.
      count, num_slots: as of `sample_positions`, as is the result.

    >>> weights = jnp.array([1.0, 1.0, 1.0, 1.0, 0.0])
    >>> result = sample_weighted_positions(jax.random.key(0), weights, 2, 3)
    >>> expected = sample_positions(jax.random.key(0), weights > 0, 2, 3)
    >>> [bool((a == b).all()) for a, b in zip(result, expected)]
    [True, True]
    """
    eligible = weights > 0
    num = jnp.minimum(jnp.minimum(count, eligible.sum()), num_slots)
    # Products, because in float32 two u may have the same logarithm of the odds.
    probabilities = jnp.minimum(inclusion_probabilities(weights, num), 1 - 1e-6)
    uniform = jax.random.uniform(rng, weights.shape)
    scores = uniform / (1 - uniform) * (probabilities / (1 - probabilities))
    _, positions = jax.lax.top_k(jnp.where(eligible, scores, -1.0), num_slots)
    return positions, (jnp.arange(num_slots) < num).astype(jnp.float32)


def count_spans(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """T5's numbers of noise tokens and noise spans in a text of `length` tokens.

    >>> count_spans(568, 0.15, 3.0)
    (85, 28)
    """
    num_noise = min(max(round(length * density), 1), length - 1)
    return num_noise, max(1, round(num_noise / mean_span))


def corrupted_lengths(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """Lengths of input and target made from `length` raw tokens, [EOS] included.

    >>> corrupted_lengths(568, 0.15, 3.0)
    (512, 114)
    """
    num_noise, num_spans = count_spans(length, density, mean_span)
    return length - num_noise + num_spans + 1, num_noise + num_spans + 1


def raw_length(inputs_length: int, density: float, mean_span: float) -> int:
    """The largest number of raw tokens whose corrupted input fits `inputs_length`.

    T5's `random_spans_helper` (t5/data/preprocessors.py), which at density 0.5 uses one
    token less if the target would be longer than the input.

    >>> raw_length(512, 0.15, 3.0), raw_length(64, 0.20, 2.0)
    (568, 70)
    """
    length = max(inputs_length - 1, 2)
    while corrupted_lengths(length + 1, density, mean_span)[0] <= inputs_length:
        length += 1
    inputs, targets = corrupted_lengths(length, density, mean_span)
    return length - 1 if density == 0.5 and targets > inputs else length


def span_tables(
    length: int, density: float, mean_span: float
) -> tuple[np.ndarray, np.ndarray]:
    """`count_spans` of texts of 0..length tokens: noise tokens and noise spans, int32.

    Departures from T5, for short texts: a text of one token is not corrupted (T5 makes
    a target of one sentinel that is not in the input), and there are never more spans
    than noise tokens or clean tokens (in which case T5's computation fails).

    >>> [table.tolist() for table in span_tables(8, 0.5, 1.5)]
    [[0, 0, 1, 2, 2, 2, 3, 4, 4], [0, 0, 1, 1, 1, 1, 2, 3, 3]]
    """
    tables = np.zeros((2, length + 1), np.int32)
    for n in range(2, length + 1):
        num_noise, num_spans = count_spans(n, density, mean_span)
        tables[:, n] = num_noise, min(num_spans, num_noise, n - num_noise)
    return tables[0], tables[1]


@functools.lru_cache
def packed_lengths(
    length: int, density: float, mean_span: float, max_documents: int
) -> tuple[np.ndarray, np.ndarray]:
    """The largest input and target lengths of documents of r tokens in total.

    For r = 0..length and at most `max_documents` documents, each corrupted separately
    and followed by [EOS], with or without one in its raw tokens. The maxima are exact.

    >>> [lengths.tolist() for lengths in packed_lengths(6, 0.15, 3.0, 2)]
    [[0, 2, 4, 5, 6, 7, 8], [0, 0, 3, 3, 6, 6, 6]]
    """
    num_noise, num_spans = (
        t.astype(int) for t in span_tables(length, density, mean_span)
    )
    size = np.arange(length + 1)
    inputs = (size - num_noise + num_spans + 1) * (size > 0)
    targets = (num_noise + num_spans + 1) * (size > 1)
    # A raw [EOS] shortens the text to corrupt, which never makes the result longer.
    return max_total(inputs, max_documents), max_total(targets, max_documents)


def max_total(of_one: np.ndarray, num_parts: int) -> np.ndarray:
    """The largest sum over at most `num_parts` parts, by the parts' total length.

    Args:
      of_one: the value of one part of length r; 0 at r = 0, and monotone.
    """

    def join(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.array([(a[: r + 1] + b[r::-1]).max() for r in range(len(a))])

    most, power = np.zeros_like(of_one), of_one
    while num_parts:  # exponentiation by squaring
        if num_parts % 2:
            most = join(most, power)
        num_parts //= 2
        if num_parts:
            power = join(power, power)
    return most


def random_segmentation(
    rng: Array, num_items: int, num_segments: int
) -> Int[Array, "K"]:
    """Lengths of `num_segments` nonempty segments of `num_items`, uniformly random."""
    is_cut = jnp.arange(num_items - 1) < num_segments - 1
    is_cut = jax.random.permutation(rng, is_cut)
    segment = jnp.concatenate([jnp.zeros(1, int), jnp.cumsum(is_cut)])
    return jnp.zeros(num_segments, jnp.int32).at[segment].add(1)


def random_spans(
    rng: Array, length: int, density: float, mean_span: float
) -> Bool[Array, "R"]:
    """T5's `random_spans_noise_mask`: alternating clean and noise spans, clean first.

    The numbers of noise tokens and of spans are exact. Token 0 is never noise and the
    last token always is.

    >>> mask = random_spans(jax.random.key(0), 32, 0.25, 2.0)
    >>> int(mask.sum()), bool(mask[0]), bool(mask[-1])
    (8, False, True)
    """
    num_noise, num_spans = count_spans(length, density, mean_span)
    rng_noise, rng_clean = jax.random.split(rng)
    clean = random_segmentation(rng_clean, length - num_noise, num_spans)
    noise = random_segmentation(rng_noise, num_noise, num_spans)
    starts = jnp.cumsum(jnp.stack([clean, noise], axis=1).reshape(-1))[:-1]
    span = jnp.cumsum(jnp.zeros(length, jnp.int32).at[starts].add(1))
    return span % 2 == 1


def random_spans_packed(
    rng: Array, segment_ids: Int[Array, "R"], density: float, mean_span: float
) -> Bool[Array, "R"]:
    """`random_spans` of each document of a packed row.

    Counts are those of `span_tables` at the document's length; tokens of segment id 0
    are never noise. Two documents of 4 tokens, each with one noise token:

    >>> ids = jnp.array([1, 1, 1, 1, 2, 2, 2, 2, 0])
    >>> random_spans_packed(jax.random.key(0), ids, 0.3, 2.0).astype(int).tolist()
    [0, 0, 0, 1, 0, 0, 0, 1, 0]
    """
    tables = span_tables(len(segment_ids), density, mean_span)
    size = segment_lengths(segment_ids)
    num_noise, num_spans = (jnp.asarray(table)[size] for table in tables)
    most = int(tables[1].max())
    return spans_by_counts(rng, segment_ids, num_noise, num_spans, most)


def spans_by_counts(
    rng: Array,
    segment_ids: Int[Array, "R"],
    num_noise: Int[Array, "R"],
    num_spans: Int[Array, "R"],
    max_spans: int,
) -> Bool[Array, "R"]:
    """`random_spans` of each document, with counts that may differ among documents.

    Args:
      num_noise, num_spans: at each token, the counts of its document.
      max_spans: the largest number of spans of any document.
    """
    # Arrange each document as a block of noise tokens and a block of clean tokens ...
    position = segment_positions(segment_ids)
    is_noise = position < num_noise
    rank = jnp.where(is_noise, position, position - num_noise)
    is_first = rank == 0
    # ... cut each block into spans: shuffle its cuts, none before its first token ...
    is_cut = (rank > 0) & (rank < num_spans)
    order = jnp.where(is_first, 0, jax.random.bits(rng, is_cut.shape))
    block = jnp.cumsum(is_first)
    _, _, is_cut = jax.lax.sort((block, order, is_cut), num_keys=2)
    cuts = jnp.cumsum(is_cut)
    span = cuts - jax.lax.cummax(jnp.where(is_first, cuts, 0))
    # ... and interleave the spans, a clean one before each noise span.
    document = jnp.cumsum(position == 0)
    order = 2 * (document * (max_spans + 1) + span) + is_noise
    return jnp.sort(order) % 2 == 1


def roll_documents(
    rng: Array, noise_mask: Bool[Array, "R"], segment_ids: Int[Array, "R"]
) -> Bool[Array, "R"]:
    """Each document's noise mask, rotated by a random number of positions.

    T5's `random_roll`: every token may be noise. A span may wrap around the end.
    """
    size, first = segment_lengths(segment_ids), segment_starts(segment_ids)
    size = jnp.maximum(size, 1)
    shift = jax.random.randint(rng, size.shape, 0, size)[first]
    return noise_mask[first + (segment_positions(segment_ids) - shift) % size]

"""Which tokens to hide: exact-count random subsets, and T5's random spans.

Every function works on one row and a static length; objectives `vmap` them over rows
with a key each.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


def count_table(length: int, rate: float) -> np.ndarray:
    """How many of n tokens to predict, for n = 0..length: max(1, round(n * rate)).

    As a table, so that compiled code has Python's own rounding (BERT's
    `create_pretraining_data.py`); 0 for n = 0.

    >>> count_table(10, 0.15).tolist()
    [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    """
    counts = [max(1, round(n * rate)) for n in range(length + 1)]
    return np.array([0] + counts[1:], np.int32)


def choose_positions(
    rng: Array,
    eligible: Bool[Array, "R"],
    count: Int[Array, ""],
    num_slots: int,
) -> tuple[Int[Array, "P"], Float[Array, "P"]]:
    """A uniformly random subset of the eligible positions, without replacement.

    Args:
      eligible: which positions may be drawn.
      count: how many to draw; at most as many as are eligible will be.
      num_slots: P, the static number of slots.

    Returns:
      positions [P], all distinct, and weights [P]: 1 for a drawn position, 0 for a slot
      that is left over.
    """
    scores = jax.random.uniform(rng, eligible.shape)
    _, positions = jax.lax.top_k(jnp.where(eligible, scores, -1.0), num_slots)
    drawn = jnp.minimum(jnp.minimum(count, eligible.sum()), num_slots)
    return positions, (jnp.arange(num_slots) < drawn).astype(jnp.float32)


def count_spans(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """T5's number of noise tokens and of noise spans in `length` tokens.

    >>> count_spans(568, 0.15, 3.0)
    (85, 28)
    """
    num_noise = min(max(round(length * density), 1), length - 1)
    return num_noise, max(1, round(num_noise / mean_span))


def corrupted_lengths(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """Lengths of the input and the target that `length` raw tokens give, EOS included.

    >>> corrupted_lengths(568, 0.15, 3.0)
    (512, 114)
    """
    num_noise, num_spans = count_spans(length, density, mean_span)
    return length - num_noise + num_spans + 1, num_noise + num_spans + 1


def raw_length(inputs_length: int, density: float, mean_span: float) -> int:
    """The most raw tokens whose corrupted input still fits `inputs_length`.

    T5's `random_spans_helper` (t5/data/preprocessors.py), which at density 0.5 takes
    one token less when the target would be the longer of the two.

    >>> raw_length(512, 0.15, 3.0), raw_length(64, 0.20, 2.0)
    (568, 70)
    """
    length = max(inputs_length - 1, 2)
    while corrupted_lengths(length + 1, density, mean_span)[0] <= inputs_length:
        length += 1
    inputs, targets = corrupted_lengths(length, density, mean_span)
    return length - 1 if density == 0.5 and targets > inputs else length


def random_segmentation(
    rng: Array, num_items: int, num_segments: int
) -> Int[Array, "K"]:
    """`num_items` cut into `num_segments` nonempty lengths, all cuts equally likely."""
    is_cut = jnp.arange(num_items - 1) < num_segments - 1
    is_cut = jax.random.permutation(rng, is_cut)
    segment = jnp.concatenate([jnp.zeros(1, int), jnp.cumsum(is_cut)])
    return jnp.zeros(num_segments, jnp.int32).at[segment].add(1)


def random_spans(
    rng: Array, length: int, density: float, mean_span: float
) -> Bool[Array, "R"]:
    """T5's `random_spans_noise_mask`: clean and noise spans in turn, a clean one first.

    The count of noise tokens and of spans is exact, so token 0 is never noise and the
    last always is.

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

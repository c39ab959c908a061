"""Filling masks: the likeliest tokens of a [MASK], and generation by unmasking.

Generation starts from [MASK]s only; each step keeps the most confident tokens (Chang et
al. 2022, MaskGIT; Nie et al. 2025, LLaDA, `generate.py`: low-confidence remasking), in
the whole text or in one block after the other.
"""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxpt.errors import ConfigError, argument
from jaxpt.evaluation.scores import SampleSpec, scale_logits


def fill_masks(
    fill_logits: Callable,
    params: PyTree,
    ids: Int[np.ndarray, "T"],
    mask_id: int,
    banned: Iterable[int],
    k: int,
) -> list[list[tuple[int, float]]]:
    """The k likeliest ids of each [MASK], in order, with their probabilities.

    Args:
      fill_logits: (params, tokens [1, T]) -> logits [1, T, V].
      banned: ids that are never predicted (special tokens); they are excluded from the
        softmax.
    """
    positions = np.flatnonzero(ids == mask_id)
    if not len(positions):
        raise ConfigError(f"{argument('text')}: must hold at least one [MASK]")
    logits = np.array(fill_logits(params, ids[None])[0, positions], np.float32)
    logits[:, list(banned)] = -np.inf
    probabilities = np.asarray(jax.nn.softmax(logits, axis=-1))
    order = np.argsort(-probabilities, axis=-1, kind="stable")[:, :k]
    return [
        [(int(i), float(row[i])) for i in best if row[i] > 0]
        for row, best in zip(probabilities, order, strict=True)
    ]


def unmask(
    fill_logits: Callable,
    params: PyTree,
    prompts: Int[Array, "B T"],
    num_tokens: int,
    rng: Array,
    spec: SampleSpec,
    mask_id: int,
    banned: tuple[int, ...] = (),
    num_steps: int = 0,
    block_size: int = 0,
) -> Int[Array, "B L"]:
    """Generates `num_tokens` after each prompt, in an order that the model chooses.

    At every step each [MASK] gets a token. Those with the highest probability are kept,
    equally many per step, and the others become [MASK] again.

    Args:
      fill_logits: (params, tokens [B, T + L]) -> logits [B, T + L, V].
      prompts: prompts of equal length, without padding.
      spec: temperature, top_k and top_p of the sampled tokens.
      banned: ids that are never sampled, in addition to [MASK].
      num_steps: passes of the model; 0 means one per token.
      block_size: tokens that are filled before the next ones are; 0 means all.
    """
    count, start = len(prompts), prompts.shape[1]
    first = jnp.full((count, num_tokens), mask_id, jnp.int32)
    tokens = jnp.concatenate([jnp.asarray(prompts, jnp.int32), first], axis=1)
    never = jnp.array(sorted({*banned, mask_id}))

    def step(tokens: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, None]:
        num_kept, end, rng = inputs
        logits = fill_logits(params, tokens)[:, start:].astype(jnp.float32)
        logits = logits.at[..., never].set(-jnp.inf)
        proposals = jnp.argmax(logits, axis=-1)
        if not spec.is_greedy:
            proposals = jax.random.categorical(rng, scale_logits(logits, spec))
        confidence = _probability(logits, proposals)
        answer = tokens[:, start:]
        is_open = (answer == mask_id) & (jnp.arange(num_tokens) < end)
        confidence = jnp.where(is_open, confidence, -jnp.inf)
        # Stable, so that the number of kept tokens is exact with ties.
        order = jnp.argsort(-confidence, axis=1, stable=True)
        rank = jnp.argsort(order, axis=1, stable=True)
        is_kept = (rank < num_kept) & is_open
        answer = jnp.where(is_kept, proposals.astype(jnp.int32), answer)
        return tokens.at[:, start:].set(answer), None

    num_steps = num_steps or num_tokens
    plan = plan_steps(num_tokens, num_steps, cut_blocks(start, num_tokens, block_size))
    numbers, ends = jnp.array(plan).T
    keys = jax.random.split(rng, num_steps)
    tokens, _ = jax.lax.scan(step, tokens, (numbers, ends, keys))
    return tokens[:, start:]


def cut_blocks(start: int, num_tokens: int, size: int) -> list[int]:
    """The sizes of the blocks of new tokens, the first of which a prompt may begin.

    >>> cut_blocks(5, 6, 4), cut_blocks(5, 6, 0)
    ([3, 3], [6])
    """
    if not size:
        return [num_tokens]
    ends = [*range(start + size - start % size, start + num_tokens, size)]
    edges = [start, *ends, start + num_tokens]
    return [end - begin for begin, end in zip(edges, edges[1:], strict=False)]


def plan_steps(
    num_tokens: int, num_steps: int, blocks: list[int]
) -> list[tuple[int, int]]:
    """Of each step the number of tokens kept, and the end of the block they are in.

    >>> plan_steps(6, 4, [3, 3])
    [(2, 3), (1, 3), (2, 6), (1, 6)]
    """
    count_steps(num_tokens, num_steps)
    if num_steps < len(blocks):
        raise ConfigError(
            f"{argument('num_steps')}={num_steps}: must be at least {len(blocks)}, the "
            f"blocks that {num_tokens} new tokens are in, or 0 for one step per token"
        )
    shares = [1] * len(blocks)
    for _ in range(num_steps - len(blocks)):  # to the block with the fewest steps yet
        index = max(range(len(blocks)), key=lambda i: blocks[i] / shares[i])
        shares[index] += 1
    plan, end = [], 0
    for size, share in zip(blocks, shares, strict=True):
        end += size
        plan += [(number, end) for number in count_steps(size, share)]
    return plan


def count_steps(num_tokens: int, num_steps: int) -> list[int]:
    """The number of tokens kept at each step, as even as possible, in descending order.

    >>> count_steps(7, 3)
    [3, 2, 2]
    """
    if not 1 <= num_steps <= num_tokens:
        raise ConfigError(
            f"{argument('num_steps')}={num_steps}: must be from 1 to the {num_tokens} "
            "tokens to generate, or 0 for one step per token"
        )
    least, more = divmod(num_tokens, num_steps)
    return [least + (i < more) for i in range(num_steps)]


def _probability(
    logits: Float[Array, "B L V"], ids: Int[Array, "B L"]
) -> Float[Array, "B L"]:
    chosen = jnp.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    return jnp.exp(chosen - jax.nn.logsumexp(logits, axis=-1))


def cut_rows(tokens: Int[np.ndarray, "B L"], stop: tuple[int, ...]) -> list[np.ndarray]:
    """The rows up to their first stop id, which is removed."""
    cut = []
    for row in np.asarray(tokens):
        ends = np.flatnonzero(np.isin(row, stop))
        cut.append(row[: ends[0]] if len(ends) else row)
    return cut

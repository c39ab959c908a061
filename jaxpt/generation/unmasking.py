"""Writing text by unmasking: all of it is [MASK] at first, and the surest tokens stay.

Chang et al. 2022 (MaskGIT); Nie et al. 2025 (LLaDA), `generate.py`, low-confidence
remasking in one block. What a model must be able to do for it is to fill [MASK]s.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxpt.errors import UserError
from jaxpt.generation.sampling import SampleSpec, scale_logits


def unmask(
    fill_logits: Callable,
    params,
    prompts: Int[Array, "B T"],
    num_tokens: int,
    rng: Array,
    spec: SampleSpec,
    mask_id: int,
    banned: tuple[int, ...] = (),
    num_steps: int = 0,
) -> Int[Array, "B L"]:
    """`num_tokens` behind each prompt, in an order that the model chooses.

    At every step each [MASK] is given a token; those with the highest probability
    stay, in even numbers over the steps, and the others become [MASK] again.

    Args:
      fill_logits: (params, tokens [B, T + L]) -> logits [B, T + L, V].
      prompts: all of one length, without padding.
      spec: temperature, top_k and top_p of the tokens that are tried.
      banned: ids that are never chosen; [MASK] never is.
      num_steps: passes of the model; 0 is one for each token.
    """
    count, start = len(prompts), prompts.shape[1]
    first = jnp.full((count, num_tokens), mask_id, jnp.int32)
    tokens = jnp.concatenate([jnp.asarray(prompts, jnp.int32), first], axis=1)
    never = jnp.array(sorted({*banned, mask_id}))

    def step(tokens, given):
        num_kept, rng = given
        logits = fill_logits(params, tokens)[:, start:].astype(jnp.float32)
        logits = logits.at[..., never].set(-jnp.inf)
        tried = jnp.argmax(logits, axis=-1)
        if not spec.is_greedy:
            tried = jax.random.categorical(rng, scale_logits(logits, spec))
        confidence = _probability(logits, tried)
        own = tokens[:, start:]
        confidence = jnp.where(own == mask_id, confidence, -jnp.inf)
        # Of equals the first stays, so that the number is exact.
        order = jnp.argsort(-confidence, axis=1, stable=True)
        rank = jnp.argsort(order, axis=1, stable=True)
        is_kept = (rank < num_kept) & (own == mask_id)
        own = jnp.where(is_kept, tried.astype(jnp.int32), own)
        return tokens.at[:, start:].set(own), None

    num_steps = num_steps or num_tokens
    numbers = jnp.array(count_steps(num_tokens, num_steps))
    keys = jax.random.split(rng, num_steps)
    tokens, _ = jax.lax.scan(step, tokens, (numbers, keys))
    return tokens[:, start:]


def count_steps(num_tokens: int, num_steps: int) -> list[int]:
    """How many tokens stay at each step, as even as can be, the larger first.

    Raises:
      UserError: there are more steps than tokens.

    >>> count_steps(7, 3)
    [3, 2, 2]
    """
    if not 1 <= num_steps <= num_tokens:
        raise UserError(
            f"--num_steps={num_steps}: must be from 1 to the {num_tokens} tokens that "
            f"are written, or 0 for as many"
        )
    least, more = divmod(num_tokens, num_steps)
    return [least + (i < more) for i in range(num_steps)]


def _probability(
    logits: Float[Array, "B L V"], ids: Int[Array, "B L"]
) -> Float[Array, "B L"]:
    chosen = jnp.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    return jnp.exp(chosen - jax.nn.logsumexp(logits, axis=-1))


def cut_rows(tokens: Int[np.ndarray, "B L"], stop: tuple[int, ...]) -> list[np.ndarray]:
    """Rows up to their first stop id, which is left out."""
    cut = []
    for row in np.asarray(tokens):
        ends = np.flatnonzero(np.isin(row, stop))
        cut.append(row[: ends[0]] if len(ends) else row)
    return cut

"""Sampling text from a causal model: temperature, top-k, top-p."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.errors import UserError


@dataclasses.dataclass(frozen=True)
class SampleSpec:
    """How the next token is drawn.

    Attributes:
      temperature: divides the logits; 0 takes the likeliest token.
      top_k: keep the k likeliest tokens; 0 keeps all.
      top_p: then keep the fewest tokens that hold this much probability (Holtzman et
        al. 2020); 1 keeps all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        for name, is_good, allowed in (
            ("temperature", 0 <= self.temperature < math.inf, "at least 0, finite"),
            ("top_k", self.top_k >= 0, "at least 0 (0 keeps all)"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
        ):
            if not is_good:
                raise UserError(f"--{name}={getattr(self, name)}: must be {allowed}")


def filter_logits(
    logits: Float[Array, "*B V"], top_k: int = 0, top_p: float = 1.0
) -> Float[Array, "*B V"]:
    """Logits with all but the kept tokens at -inf; the likeliest is always kept.

    >>> filter_logits(jnp.log(jnp.array([0.5, 0.3, 0.2])), top_p=0.6).tolist()[2]
    -inf
    """
    vocab = logits.shape[-1]
    order = jnp.argsort(-logits, axis=-1)  # stable: ties keep the lower id
    ranked = jnp.take_along_axis(logits, order, axis=-1)
    is_kept = jnp.arange(vocab) < (top_k or vocab)
    is_kept = jnp.broadcast_to(is_kept, ranked.shape)
    if top_p < 1:
        shares = jax.nn.softmax(jnp.where(is_kept, ranked, -jnp.inf), axis=-1)
        before = jnp.cumsum(shares, axis=-1) - shares
        is_kept &= before < top_p
    ranked = jnp.where(is_kept, ranked, -jnp.inf)
    back = jnp.argsort(order, axis=-1)
    return jnp.take_along_axis(ranked, back, axis=-1)


def next_distribution(
    logits: Float[Array, "*B V"], spec: SampleSpec
) -> Float[Array, "*B V"]:
    """The probabilities the next token is drawn from."""
    if (
        spec.temperature < jnp.finfo(jnp.float32).tiny
    ):  # 0, or what float32 takes for it
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1])
    # At most 0 before dividing, so that no temperature overflows to infinity.
    cooled = (logits - logits.max(axis=-1, keepdims=True)) / spec.temperature
    kept = filter_logits(cooled, spec.top_k, spec.top_p)
    return jax.nn.softmax(kept, axis=-1)


def generate(
    next_logits: Callable,
    params,
    prompt: Int[Array, "B T"],
    num_tokens: int,
    max_len: int,
    rng: Array,
    spec: SampleSpec,
    banned: tuple[int, ...] = (),
) -> Int[Array, "B L"]:
    """The prompt and `num_tokens` more, in one compiled loop.

    Args:
      next_logits: (params, tokens [B, T]) -> logits [B, T, V], causal.
      max_len: positions the model has.
      banned: ids that are never drawn ([PAD], [MASK] ...).

    Raises:
      UserError: an empty prompt, or more tokens than the model has positions.
    """
    length, total = prompt.shape[1], prompt.shape[1] + num_tokens
    if length == 0:
        raise UserError("--prompt='': must hold at least one character")
    if num_tokens < 1 or total > max_len:
        raise UserError(
            f"--num_tokens={num_tokens}: must be at least 1 and, with the prompt's "
            f"{length} tokens, at most the model's {max_len} positions"
        )
    tokens = jnp.pad(prompt, ((0, 0), (0, num_tokens)))

    def write(tokens, place):
        # Places at or after `place` still hold padding, unseen by a causal model.
        logits = next_logits(params, tokens)[:, place - 1]
        if banned:
            logits = logits.at[:, jnp.array(banned)].set(-jnp.inf)
        chances = next_distribution(logits, spec)
        key = jax.random.fold_in(rng, place)
        drawn = jax.random.categorical(key, jnp.log(chances))
        return tokens.at[:, place].set(drawn.astype(tokens.dtype)), None

    tokens, _ = jax.lax.scan(write, tokens, jnp.arange(length, total))
    return tokens

"""The settings of generation, and the changes that they make to scores of tokens."""

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.errors import ConfigError, argument
from jaxpt.setting_types import (
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    Settings,
)

NumBeams = Annotated[int, Limits(least=1, most=1000)]


@dataclasses.dataclass(frozen=True)
class SampleSpec(Settings):
    """The settings of generation.

    Attributes:
      temperature: divides the logits; 0 takes the likeliest token.
      top_k: keep the k likeliest tokens; 0 keeps all.
      top_p: then keep the fewest tokens that hold this much probability (Holtzman et
        al. 2020); 1 keeps all.
      repetition_penalty: makes tokens that the text already contains less likely
        (`penalise`); 1 is off.
      num_beams: the beams of a beam search, which does not sample; 1 is off.
      length_penalty: finished beams are ranked by log probability / length to this
        power; above 0 favours long texts.
      no_repeat_ngram_size: no sequence of this many tokens occurs twice
        (`ban_repeats`); 0 is off.
      min_new_tokens: a text does not end before it has this many new tokens.
      suppress_tokens: ids that are never generated.
    """

    temperature: NonNegativeFloat = 1.0
    top_k: NonNegativeInt = 0
    top_p: PositiveFraction = 1.0
    repetition_penalty: PositiveFloat = 1.0
    num_beams: NumBeams = 1
    length_penalty: float = 1.0
    no_repeat_ngram_size: NonNegativeInt = 0
    min_new_tokens: NonNegativeInt = 0
    suppress_tokens: tuple[NonNegativeInt, ...] = ()

    @classmethod
    def full_name(cls, name: str) -> str:
        return argument(name)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_sampled = self.temperature not in (0, 1) or self.top_k or self.top_p < 1
        if self.num_beams > 1 and is_sampled:
            raise ConfigError(
                f"{argument('num_beams')}={self.num_beams}: must be 1 with "
                f"{argument('temperature')}, {argument('top_k')} or "
                f"{argument('top_p')}, as a beam search does not sample"
            )

    @property
    def is_greedy(self) -> bool:
        """Whether the temperature is 0 or subnormal in float32."""
        return self.temperature < float(jnp.finfo(jnp.float32).tiny)


def filter_logits(
    logits: Float[Array, "*B V"], top_k: int = 0, top_p: float = 1.0
) -> Float[Array, "*B V"]:
    """Logits with all but the kept tokens at -inf; the likeliest is always kept.

    >>> filter_logits(jnp.log(jnp.array([0.5, 0.3, 0.2])), top_p=0.6).tolist()[2]
    -inf
    """
    vocab = logits.shape[-1]
    num = min(top_k or vocab, vocab)
    if num == vocab and top_p == 1:
        return logits
    ranked, order = jax.lax.top_k(logits, num)  # ties are sorted by id
    if top_p < 1:
        probabilities = jax.nn.softmax(ranked, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        ranked = jnp.where(before < top_p, ranked, -jnp.inf)
    nothing = jnp.full_like(logits, -jnp.inf)
    return jnp.put_along_axis(nothing, order, ranked, axis=-1, inplace=False)


def scale_logits(
    logits: Float[Array, "*B V"], spec: SampleSpec
) -> Float[Array, "*B V"]:
    """Logits divided by the temperature, which must not be 0, and filtered."""
    # At most 0 before the division, so that it does not overflow.
    scaled = (logits - logits.max(axis=-1, keepdims=True)) / spec.temperature
    return filter_logits(scaled, spec.top_k, spec.top_p)


def next_distribution(
    logits: Float[Array, "*B V"], spec: SampleSpec
) -> Float[Array, "*B V"]:
    """The probabilities that the next token is sampled from."""
    if spec.is_greedy:
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1])
    return jax.nn.softmax(scale_logits(logits, spec), axis=-1)


def penalise(
    scores: Float[Array, "*B V"], seen: Bool[Array, "*B V"], penalty: float
) -> Float[Array, "*B V"]:
    """Lowers the scores of seen tokens: divided by the penalty, or times it below 0.

    Keskar et al. 2019 (CTRL), as in transformers.

    >>> seen = jnp.array([True, True, False])
    >>> penalise(jnp.array([2.0, -2.0, 3.0]), seen, 2.0).tolist()
    [1.0, -4.0, 3.0]
    """
    worse = jnp.where(scores < 0, scores * penalty, scores / penalty)
    return jnp.where(seen, worse, scores)


def adjust_scores(
    scores: Float[Array, "B V"],
    texts: Int[Array, "B T"],
    starts: Int[Array, "B"],
    end: int | Int[Array, ""],
    num_new: int | Int[Array, ""],
    spec: SampleSpec,
    stop: tuple[int, ...] = (),
    banned: tuple[int, ...] = (),
) -> Float[Array, "B V"]:
    """The scores of the next token with all that the settings rule out at -inf.

    Args:
      texts: what is written so far, from `starts` to `end` of each row; in an
        encoder-decoder, by the decoder.
      num_new: the number of generated tokens.
      stop: ids that end a text.
      banned: ids that are never generated, in addition to `suppress_tokens`.
    """
    if spec.repetition_penalty != 1:
        seen = _mark_seen(texts, starts, end, scores.shape[-1])
        scores = penalise(scores, seen, spec.repetition_penalty)
    if spec.no_repeat_ngram_size:
        scores = ban_repeats(scores, texts, starts, end, spec.no_repeat_ngram_size)
    if ids := (*banned, *spec.suppress_tokens):
        scores = scores.at[..., jnp.array(ids)].set(-jnp.inf)
    if spec.min_new_tokens and stop:
        endless = scores.at[..., jnp.array(stop)].set(-jnp.inf)
        scores = jnp.where(num_new < spec.min_new_tokens, endless, scores)
    return scores


def _mark_seen(
    texts: Int[Array, "B T"],
    starts: Int[Array, "B"],
    end: int | Int[Array, ""],
    vocab: int,
) -> Bool[Array, "B V"]:
    """Which tokens each text contains."""
    places = jnp.arange(texts.shape[1])
    is_text = (places >= starts[:, None]) & (places < end)
    rows = jnp.arange(len(texts))[:, None]
    # Padding gets an id outside the vocabulary, which the scatter drops.
    ids = jnp.where(is_text, texts, vocab)
    return jnp.zeros((len(texts), vocab), bool).at[rows, ids].set(True, mode="drop")


def ban_repeats(
    scores: Float[Array, "B V"],
    texts: Int[Array, "B T"],
    starts: Int[Array, "B"],
    end: int | Int[Array, ""],
    size: int,
) -> Float[Array, "B V"]:
    """Scores without the tokens that would repeat a sequence of `size` tokens.

    Paulus et al. 2017 (https://arxiv.org/abs/1705.04304), as in transformers. The text
    of a row is from `starts` to `end`.

    >>> text = jnp.array([[1, 2, 0, 1]])  # a token after 1 may not be 2 again
    >>> ban_repeats(jnp.zeros((1, 3)), text, jnp.array([0]), 4, 2).tolist()
    [[0.0, 0.0, -inf]]
    """
    num = texts.shape[1] - size + 1
    if num < 1:
        return scores
    places = jnp.arange(num)
    last = end - (size - 1) + jnp.arange(size - 1)
    prefix = texts[:, jnp.clip(last, 0, texts.shape[1] - 1)]
    is_same = (places >= starts[:, None]) & (places + size <= end)
    is_same &= (end - (size - 1) >= starts)[:, None]
    for i in range(size - 1):
        is_same &= texts[:, i : i + num] == prefix[:, i : i + 1]
    rows = jnp.arange(len(scores))[:, None]
    # Other places get an id outside the vocabulary, which the scatter drops.
    ids = jnp.where(is_same, texts[:, size - 1 :], scores.shape[-1])
    return scores.at[rows, ids].set(-jnp.inf, mode="drop")

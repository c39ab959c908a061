"""Text generation: greedy, sampled (temperature, top-k, top-p) or by beam search.

The interface to a model is its `decoder` (`jaxpt.nn.decoding.Decoder`).
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxpt.errors import ConfigError
from jaxpt.generation.beams import search_beams
from jaxpt.nn.decoding import Cache, Decoder
from jaxpt.rng import row_keys


@dataclasses.dataclass(frozen=True)
class SampleSpec:
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
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    num_beams: int = 1
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, is_good, allowed in (
            ("temperature", 0 <= self.temperature < math.inf, "at least 0, finite"),
            ("top_k", self.top_k >= 0, "at least 0 (0 keeps all)"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            (
                "repetition_penalty",
                0 < self.repetition_penalty < math.inf,
                "above 0, finite (1 is off)",
            ),
            ("num_beams", self.num_beams >= 1, "at least 1"),
            ("length_penalty", math.isfinite(self.length_penalty), "finite"),
        ):
            if not is_good:
                raise ConfigError(f"--{name}={getattr(self, name)}: must be {allowed}")
        is_sampled = self.temperature not in (0, 1) or self.top_k or self.top_p < 1
        if self.num_beams > 1 and is_sampled:
            raise ConfigError(
                f"--num_beams={self.num_beams}: must be 1 with --temperature, --top_k "
                f"or --top_p, as a beam search does not sample"
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


def pad_left(prompts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of any lengths as one int32 array [B, T], and their lengths [B].

    Raises:
      UserError: a prompt is empty.

    >>> pad_left([np.array([5, 6, 7]), np.array([8])])[0].tolist()
    [[5, 6, 7], [0, 0, 8]]
    """
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    if not lengths.all():
        raise ConfigError("--prompt='': must hold at least one character")
    padded = np.zeros((len(prompts), lengths.max()), np.int32)
    for row, prompt in zip(padded, prompts, strict=True):
        row[len(row) - len(prompt) :] = prompt
    return padded, lengths


def check_lengths(decoder: Decoder, length: int, num_tokens: int) -> None:
    """Raises UserError unless prompts of `length` and the new tokens have positions.

    `slide` has no limit.
    """
    limit = decoder.max_len
    if decoder.start_id is not None:
        if length > limit:
            raise ConfigError(
                f"--prompt: has {length} tokens; must have at most the model's {limit}"
            )
        if not 1 <= num_tokens <= limit:
            raise ConfigError(
                f"--num_tokens={num_tokens}: must be at least 1 and at most the "
                f"model's {limit} positions"
            )
    elif num_tokens < 1 or length + num_tokens > limit:
        raise ConfigError(
            f"--num_tokens={num_tokens}: must be at least 1 and, with the prompt's "
            f"{length} tokens, at most the model's {limit} positions"
        )


def generate(
    decoder: Decoder,
    params: PyTree,
    prompts: Int[Array, "B T"],
    lengths: Int[Array, "B"],
    num_tokens: int,
    rng: Array,
    spec: SampleSpec,
    stop: tuple[int, ...] = (),
    banned: tuple[int, ...] = (),
    pad: int = 0,
    first: int | None = None,
    last: int | None = None,
) -> tuple[Int[Array, "B L"], Int[Array, "B"]]:
    """Generates up to `num_tokens` tokens after each prompt.

    All prompts are processed at once; a loop then generates token by token until all
    rows have ended. The samples of a row depend only on the key, the row's index and
    the token's position, not on the other rows.

    Args:
      decoder: a `jaxpt.nn.decoding.Decoder`.
      prompts: padded on the left (`pad_left`); the input of the encoder if the decoder
        has a `start_id`.
      stop: ids that end a row.
      banned: ids that are never generated ([PAD], [MASK] ...).
      first, last: forced ids of the first new token, and of the `num_tokens`-th.

    Returns:
      The new tokens, with the stop id and then `pad`, and their number.

    Raises:
      UserError: there are more tokens than positions.
    """
    check_lengths(decoder, prompts.shape[1], num_tokens)
    params = jax.tree.map(jnp.asarray, params)  # traced ids cannot index NumPy arrays
    params = decoder.prepare(params)
    logits, cache = decoder.prefill(params, prompts, lengths, num_tokens)
    seen = None
    if spec.repetition_penalty != 1:
        seen = _mark_seen(decoder, prompts, lengths, logits.shape[-1])

    def adjust(scores: Array, seen: Array | None, i: Array) -> Array:
        if seen is not None:
            scores = penalise(scores, seen, spec.repetition_penalty)
        if banned:
            scores = scores.at[..., jnp.array(banned)].set(-jnp.inf)
        for when, forced in ((0, first), (num_tokens - 1, last)):
            if forced is not None:
                only = jnp.full_like(scores, -jnp.inf).at[..., forced].set(0.0)
                scores = jnp.where(i == when, only, scores)
        return scores

    def step(ids: Array, cache: Cache) -> tuple[Array, Cache]:
        return decoder.step(params, ids, cache)

    if spec.num_beams > 1:
        search = (spec.num_beams, spec.length_penalty)
        return search_beams(
            step, adjust, logits, cache, seen, num_tokens, *search, stop, pad
        )

    def choose(logits: Array, seen: Array | None, i: Array) -> Array:
        scores = adjust(logits, seen, i)
        return sample(scores, rng, jnp.arange(len(prompts)), lengths + i, spec)

    return _generate_rows(step, choose, logits, cache, seen, num_tokens, stop, pad)


def _generate_rows(
    step: Callable,
    choose: Callable,
    logits: Float[Array, "B V"],
    cache: Cache,
    seen: Bool[Array, "B V"] | None,
    num_tokens: int,
    stop: tuple[int, ...],
    pad: int,
) -> tuple[Int[Array, "B L"], Int[Array, "B"]]:
    """The generation loop without beams."""
    rows, stops = jnp.arange(len(logits)), jnp.array(stop, jnp.int32)

    def append(state: dict, logits: Array) -> dict:
        i, is_done = state["i"], state["is_done"]
        ids = jnp.where(is_done, pad, choose(logits, state["seen"], i))
        has_seen = state["seen"]
        return {
            "i": i + 1,
            "ids": ids,
            "tokens": state["tokens"].at[:, i].set(ids),
            "counts": state["counts"] + ~is_done,
            "is_done": is_done | jnp.isin(ids, stops),
            "seen": None if has_seen is None else has_seen.at[rows, ids].set(True),
        }

    def body(carry: tuple[dict, Cache]) -> tuple[dict, Cache]:
        state, cache = carry
        logits, cache = step(state["ids"], cache)
        return append(state, logits), cache

    start = {
        "i": jnp.int32(0),
        "tokens": jnp.full((len(rows), num_tokens), pad, jnp.int32),
        "counts": jnp.zeros(len(rows), jnp.int32),
        "is_done": jnp.zeros(len(rows), bool),
        "seen": seen,
    }
    state, _ = jax.lax.while_loop(
        lambda carry: (carry[0]["i"] < num_tokens) & ~carry[0]["is_done"].all(),
        body,
        (append(start, logits), cache),
    )
    return state["tokens"], state["counts"]


def slide(
    decoder: Decoder,
    params: PyTree,
    texts: Int[Array, "B T"],
    lengths: Int[Array, "B"],
    num_tokens: int,
    rng: Array,
    spec: SampleSpec,
    stop: tuple[int, ...] = (),
    banned: tuple[int, ...] = (),
    pad: int = 0,
) -> tuple[Int[Array, "B L"], Int[Array, "B"]]:
    """`generate` beyond the model's positions: each token follows from the last ones.

    Once a text has `decoder.max_len` tokens, the next one is predicted from its last
    `decoder.max_len` tokens, at the positions from 0, as in nanoGPT; the repetition
    penalty counts those. The whole window is read again for each token. A decoder with a `start_id`
    and beams cannot slide.

    Args:
      texts: of any length, padded on the left.
    """
    limit, rows = decoder.max_len, jnp.arange(len(texts))
    stops, room = jnp.array(stop, jnp.int32), max(0, limit - texts.shape[1])
    tokens = jnp.full((len(texts), num_tokens), pad, jnp.int32)
    counts, is_done = jnp.zeros(len(texts), jnp.int32), jnp.zeros(len(texts), bool)
    window = jnp.asarray(texts)[:, -limit:]
    if room:
        options = (room, rng, spec, stop, banned, pad)
        first, counts = generate(decoder, params, texts, lengths, *options)
        tokens = tokens.at[:, :room].set(first)
        is_done = (counts < room) | jnp.isin(first[:, -1], stops)
        window = jnp.concatenate([window, first], axis=1)
    params = decoder.prepare(jax.tree.map(jnp.asarray, params))

    def body(state: dict) -> dict:
        i, window = state["i"], state["window"]
        sizes = jnp.minimum(lengths + i, limit)
        scores, _ = decoder.prefill(params, window, sizes, 1)
        if spec.repetition_penalty != 1:
            seen = _mark_seen(decoder, window, sizes, scores.shape[-1])
            scores = penalise(scores, seen, spec.repetition_penalty)
        if banned:
            scores = scores.at[..., jnp.array(banned)].set(-jnp.inf)
        ids = sample(scores, rng, rows, lengths + i, spec)
        ids = jnp.where(state["is_done"], pad, ids)
        return {
            "i": i + 1,
            "window": jnp.concatenate([window[:, 1:], ids[:, None]], axis=1),
            "tokens": state["tokens"].at[:, i].set(ids),
            "counts": state["counts"] + ~state["is_done"],
            "is_done": state["is_done"] | jnp.isin(ids, stops),
        }

    start = {
        "i": jnp.int32(room),
        "window": window,
        "tokens": tokens,
        "counts": counts,
        "is_done": is_done,
    }
    state = jax.lax.while_loop(
        lambda state: (state["i"] < num_tokens) & ~state["is_done"].all(), body, start
    )
    return state["tokens"], state["counts"]


def sample(
    scores: Float[Array, "B V"],
    rng: Array,
    rows: Int[Array, "B"],
    positions: Int[Array, "B"],
    spec: SampleSpec,
) -> Int[Array, "B"]:
    """The next tokens, by keys of their rows and positions in the texts."""
    if spec.is_greedy:
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)
    keys = jax.vmap(jax.random.fold_in)(row_keys(rng, rows), positions)
    sampled = jax.vmap(jax.random.categorical)(keys, scale_logits(scores, spec))
    return sampled.astype(jnp.int32)


def _mark_seen(
    decoder: Decoder, prompts: Int[Array, "B T"], lengths: Int[Array, "B"], vocab: int
) -> Bool[Array, "B V"]:
    """Which tokens a row contains before generation, for the repetition penalty."""
    if decoder.start_id is not None:
        is_start = jnp.arange(vocab) == decoder.start_id
        return jnp.broadcast_to(is_start, (len(prompts), vocab))
    is_text = jnp.arange(prompts.shape[1]) >= prompts.shape[1] - lengths[:, None]
    rows = jnp.arange(len(prompts))[:, None]
    # Padding gets an id outside the vocabulary, which the scatter drops.
    ids = jnp.where(is_text, prompts, vocab)
    return jnp.zeros((len(prompts), vocab), bool).at[rows, ids].set(True, mode="drop")

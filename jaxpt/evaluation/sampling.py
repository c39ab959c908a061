"""Text generation: greedy, sampled (temperature, top-k, top-p) or by beam search.

The interface to a model is its `decoder` (`jaxpt.nn.decoding.Decoder`).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxpt.errors import ConfigError, argument
from jaxpt.evaluation.beams import search_beams
from jaxpt.evaluation.scores import SampleSpec, adjust_scores, scale_logits
from jaxpt.nn.decoding import Cache, Decoder
from jaxpt.rng import row_keys


def pad_left(prompts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of any lengths as one int32 array [B, T], and their lengths [B].

    >>> pad_left([np.array([5, 6, 7]), np.array([8])])[0].tolist()
    [[5, 6, 7], [0, 0, 8]]
    """
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    if not lengths.all():
        raise ConfigError(f"{argument('prompt')}='': must hold at least one character")
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
                f"{argument('prompt')}: has {length} tokens; must have at most the "
                f"model's {limit}"
            )
        if not 1 <= num_tokens <= limit:
            raise ConfigError(
                f"{argument('num_tokens')}={num_tokens}: must be at least 1 and at "
                f"most the model's {limit} positions"
            )
    elif num_tokens < 1 or length + num_tokens > limit:
        raise ConfigError(
            f"{argument('num_tokens')}={num_tokens}: must be at least 1 and, with the "
            f"prompt's {length} tokens, at most the model's {limit} positions"
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
    """
    check_lengths(decoder, prompts.shape[1], num_tokens)
    params = jax.tree.map(jnp.asarray, params)  # traced ids cannot index NumPy arrays
    params = decoder.prepare(params)
    logits, cache = decoder.prefill(params, prompts, lengths, num_tokens)
    before, starts = jnp.asarray(prompts), prompts.shape[1] - lengths
    if decoder.start_id is not None:
        before, starts = jnp.full((len(prompts), 1), decoder.start_id), 0 * lengths

    def adjust(scores: Array, tokens: Array, i: Array) -> Array:
        beams = len(scores) // len(prompts)
        texts = jnp.concatenate([jnp.repeat(before, beams, axis=0), tokens], axis=1)
        place = jnp.repeat(starts, beams), before.shape[1] + i, i
        scores = adjust_scores(scores, texts, *place, spec, stop, banned)
        for when, forced in ((0, first), (num_tokens - 1, last)):
            if forced is not None:
                only = jnp.full_like(scores, -jnp.inf).at[..., forced].set(0.0)
                scores = jnp.where(i == when, only, scores)
        return scores

    def step(ids: Array, cache: Cache) -> tuple[Array, Cache]:
        return decoder.step(params, ids, cache)

    if spec.num_beams > 1:
        search = (spec.num_beams, spec.length_penalty)
        return search_beams(step, adjust, logits, cache, num_tokens, *search, stop, pad)

    def choose(logits: Array, tokens: Array, i: Array) -> Array:
        scores = adjust(logits, tokens, i)
        return sample(scores, rng, jnp.arange(len(prompts)), lengths + i, spec)

    return _generate_rows(step, choose, logits, cache, num_tokens, stop, pad)


def _generate_rows(
    step: Callable,
    choose: Callable,
    logits: Float[Array, "B V"],
    cache: Cache,
    num_tokens: int,
    stop: tuple[int, ...],
    pad: int,
) -> tuple[Int[Array, "B L"], Int[Array, "B"]]:
    """The generation loop without beams."""
    rows, stops = jnp.arange(len(logits)), jnp.array(stop, jnp.int32)

    def append(state: dict, logits: Array) -> dict:
        i, is_done = state["i"], state["is_done"]
        ids = jnp.where(is_done, pad, choose(logits, state["tokens"], i))
        return {
            "i": i + 1,
            "ids": ids,
            "tokens": state["tokens"].at[:, i].set(ids),
            "counts": state["counts"] + ~is_done,
            "is_done": is_done | jnp.isin(ids, stops),
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
    `decoder.max_len` tokens, at the positions from 0, as in nanoGPT; repetitions are
    counted among those. The whole window is read again for each token. A decoder
    with a `start_id` and beams cannot slide.

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
        scores = adjust_scores(
            scores, window, limit - sizes, limit, i, spec, stop, banned
        )
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

"""Text generation: greedy, sampled (temperature, top-k, top-p) or by beam search.

The interface to a model is its `decoder` (`jaxpt.nn.decoding.Decoder`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

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
    """Raises UserError unless prompts of `length` and the new tokens have positions."""
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
    the token's position, not on the other rows. Without beams, a prompt and its
    continuation may exceed the model's positions (`_slide`).

    Args:
      decoder: a `jaxpt.nn.decoding.Decoder`.
      prompts: padded on the left (`pad_left`); the input of the encoder if the decoder
        has a `start_id`.
      stop: ids that end a row.
      banned: ids that are never generated ([PAD], [MASK] ...).
      first, last: forced ids of the first new token, and of the `num_tokens`-th if the
        model has a position for it.

    Returns:
      The new tokens, with the stop id and then `pad`, and their number.
    """
    can_slide = decoder.start_id is None and spec.num_beams == 1
    if not can_slide or num_tokens < 1:
        check_lengths(decoder, prompts.shape[1], num_tokens)
    room = max(0, decoder.max_len - prompts.shape[1]) if can_slide else num_tokens
    num_cached = min(num_tokens, room)
    params = jax.tree.map(jnp.asarray, params)  # traced ids cannot index NumPy arrays
    params = decoder.convert_params(params)
    rows = _Rows(lengths, num_tokens, rng, spec, stop, banned, pad)
    if not num_cached:
        return _slide(decoder, params, rows, jnp.asarray(prompts), rows.start())
    logits, cache = decoder.prefill(params, prompts, lengths, num_cached)
    adjust = rows.make_adjust(prompts, decoder.start_id, first, last)

    def step(ids: Array, cache: Cache) -> tuple[Array, Cache]:
        return decoder.step(params, ids, cache)

    if spec.num_beams > 1:
        search = (spec.num_beams, spec.length_penalty)
        return search_beams(step, adjust, logits, cache, num_tokens, *search, stop, pad)
    state = rows.write(rows.start(), num_cached, logits, cache, step, adjust)
    if num_cached == num_tokens:
        return state["tokens"], state["counts"]
    texts = jnp.concatenate([prompts, state["tokens"][:, :num_cached]], axis=1)
    return _slide(decoder, params, rows, texts, state)


def _slide(
    decoder: Decoder,
    params: PyTree,
    rows: "_Rows",
    texts: Int[Array, "B T"],
    state: dict[str, Array],
) -> tuple[Int[Array, "B L"], Int[Array, "B"]]:
    """Generates the rest of texts that have all of the model's positions.

    The next token is predicted from the last `decoder.max_len` tokens, at the positions
    from 0, as in nanoGPT; repetitions are counted among those. The whole window is read
    again for each token.

    Args:
      texts: of any length, padded on the left.
      state: of `_Rows.write`, with the new tokens of `texts`.
    """
    limit = decoder.max_len

    def read(window: Array, i: Array) -> tuple[Array, tuple[Array, Array]]:
        sizes = jnp.minimum(rows.lengths + i, limit)
        logits, _ = decoder.prefill(params, window, sizes, 1)
        scores = rows.adjust(logits, window, limit - sizes, limit, i)
        return scores, (window, i)

    def step(ids: Array, memory: tuple[Array, Array]) -> tuple[Array, tuple]:
        window, i = memory
        return read(jnp.concatenate([window[:, 1:], ids[:, None]], axis=1), i + 1)

    scores, memory = read(texts[:, -limit:], state["i"])
    state = rows.write(
        state, rows.num_tokens, scores, memory, step, lambda scores, *_: scores
    )
    return state["tokens"], state["counts"]


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows that `generate` writes, with its arguments of the same names."""

    lengths: Int[Array, "B"]
    num_tokens: int
    rng: Array
    spec: SampleSpec
    stop: tuple[int, ...]
    banned: tuple[int, ...]
    pad: int

    def adjust(
        self,
        scores: Float[Array, "B V"],
        texts: Int[Array, "B T"],
        starts: Int[Array, "B"],
        end: int | Array,
        i: Array,
    ) -> Float[Array, "B V"]:
        """`adjust_scores` by the rows' settings."""
        rules = self.spec, self.stop, self.banned
        return adjust_scores(scores, texts, starts, end, i, *rules)

    def make_adjust(
        self,
        prompts: Int[Array, "B T"],
        start_id: int | None,
        first: int | None,
        last: int | None,
    ) -> Callable:
        """(scores, tokens [B K, L], i) -> scores of the i-th new token of each beam."""
        before, starts = jnp.asarray(prompts), prompts.shape[1] - self.lengths
        if start_id is not None:
            before, starts = jnp.full((len(prompts), 1), start_id), 0 * self.lengths

        def adjust(scores: Array, tokens: Array, i: Array) -> Array:
            beams = len(scores) // len(prompts)
            texts = jnp.concatenate([jnp.repeat(before, beams, axis=0), tokens], axis=1)
            end = before.shape[1] + i
            scores = self.adjust(scores, texts, jnp.repeat(starts, beams), end, i)
            for when, forced in ((0, first), (self.num_tokens - 1, last)):
                if forced is not None:
                    only = jnp.full_like(scores, -jnp.inf).at[..., forced].set(0.0)
                    scores = jnp.where(i == when, only, scores)
            return scores

        return adjust

    def start(self) -> dict[str, Array]:
        """The state before the first token."""
        count = len(self.lengths)
        return {
            "i": jnp.int32(0),
            "ids": jnp.zeros(count, jnp.int32),
            "tokens": jnp.full((count, self.num_tokens), self.pad, jnp.int32),
            "counts": jnp.zeros(count, jnp.int32),
            "is_done": jnp.zeros(count, bool),
        }

    def write(
        self,
        state: dict[str, Array],
        end: int,
        scores: Float[Array, "B V"],
        memory: Any,
        step: Callable,
        adjust: Callable,
    ) -> dict[str, Array]:
        """The state after the token before the `end`-th, or after all rows have ended.

        Args:
          scores, memory: of the first of these tokens, as `step` returns them.
          step: (ids [B], memory) -> scores [B, V], memory.
          adjust: as `make_adjust`'s.
        """
        stops, rows = jnp.array(self.stop, jnp.int32), jnp.arange(len(self.lengths))

        def append(state: dict, scores: Array) -> dict:
            i, is_done = state["i"], state["is_done"]
            scores = adjust(scores, state["tokens"], i)
            ids = sample(scores, self.rng, rows, self.lengths + i, self.spec)
            ids = jnp.where(is_done, self.pad, ids)
            return {
                "i": i + 1,
                "ids": ids,
                "tokens": state["tokens"].at[:, i].set(ids),
                "counts": state["counts"] + ~is_done,
                "is_done": is_done | jnp.isin(ids, stops),
            }

        def body(carry: tuple[dict, Any]) -> tuple[dict, Any]:
            state, memory = carry
            scores, memory = step(state["ids"], memory)
            return append(state, scores), memory

        state, _ = jax.lax.while_loop(
            lambda carry: (carry[0]["i"] < end) & ~carry[0]["is_done"].all(),
            body,
            (append(state, scores), memory),
        )
        return state


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

"""Beam search, with the results of transformers' `generate(num_beams=...)`.

A row has K unfinished texts ("beams"). A step scores every next token of each beam and
ranks these candidates. Of the K best candidates, those that end are stored as finished;
the best K candidates that do not end are the next beams. Finished texts are ranked by
log probability / length ** penalty.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.nn.decoding import Cache

# Added to the scores of excluded candidates; finite, as in transformers.
MIN_SCORE = -1e9


def search_beams(
    step: Callable,
    adjust: Callable,
    logits: Float[Array, "B V"],
    cache: Cache,
    num_tokens: int,
    num_beams: int,
    length_penalty: float,
    stop: tuple[int, ...],
    pad: int,
) -> tuple[Int[Array, "B L"], Int[Array, "B"]]:
    """The best text of each row and its length, from a cache of the prompts.

    A text ends at a stop id or after `num_tokens`. The search of a row ends when the
    score of its best beam, at its current length, does not exceed that of the worst of
    K finished texts (transformers' `early_stopping=False`).

    Args:
      step: (ids [B K], cache) -> logits [B K, V], cache.
      adjust: (log probabilities, tokens [B K, L], i) -> scores of the i-th new token:
        applies the repetition penalty, banned and forced tokens.
      logits: those of the first new token.

    Returns:
      The new tokens, padded with `pad` after a stop id, and their number.
    """
    # Each beam has at most `len(stop)` candidates that end, so at least K do not.
    num_candidates = max(2, 1 + len(stop)) * num_beams

    def advance(state: dict, logits: Array, cache: Cache) -> tuple[dict, Cache]:
        best, parents, ids = _rank(state, adjust, logits, num_candidates)
        rows = jnp.arange(len(best))[:, None]
        texts = state["texts"][rows, parents].at[:, :, state["i"]].set(ids)
        is_end = jnp.isin(ids, jnp.array(stop, jnp.int32))
        is_end |= state["i"] + 1 >= num_tokens
        beams, flat = _select_beams(state, best, parents, ids, texts, is_end)
        finished = _update_finished(state, best, texts, is_end, length_penalty)
        now = state["i"] + 1
        worst = finished["final"].min(1, keepdims=True)
        worst = jnp.where(finished["is_done"], worst, MIN_SCORE)
        best_open = beams["scores"][:, :1] / now.astype(jnp.float32) ** length_penalty
        can_improve = state["can_improve"] & (best_open > worst).any(1)
        state = beams | finished | {"i": now, "can_improve": can_improve}
        return state, cache.reorder(flat)

    def body(carry: tuple[dict, Cache]) -> tuple[dict, Cache]:
        state, cache = carry
        return advance(state, *step(state["ids"], cache))

    batch, every = len(logits), jnp.repeat(jnp.arange(len(logits)), num_beams)
    start = _start(batch, num_beams, num_tokens, pad)
    state, _ = jax.lax.while_loop(
        lambda carry: (carry[0]["i"] < num_tokens) & carry[0]["can_improve"].any(),
        body,
        advance(start, logits[every], cache.pick(every)),
    )
    return state["done"][:, 0], state["lengths"][:, 0]


def _start(batch: int, num_beams: int, num_tokens: int, pad: int) -> dict:
    """The state before the first token: empty, unfinished texts."""
    blank = jnp.full((batch, num_beams, num_tokens), pad, jnp.int32)
    unlikely = jnp.full((batch, num_beams), MIN_SCORE)
    return {
        "i": jnp.int32(0),
        "texts": blank,
        # All beams are equal at first, so only the first beam is continued.
        "scores": unlikely.at[:, 0].set(0.0),
        "done": blank,
        "final": unlikely,
        "is_done": jnp.zeros((batch, num_beams), bool),
        "lengths": jnp.zeros((batch, num_beams), jnp.int32),
        "can_improve": jnp.ones(batch, bool),
    }


def _rank(
    state: dict, adjust: Callable, logits: Float[Array, "K V"], num_candidates: int
) -> tuple[Float[Array, "B C"], Int[Array, "B C"], Int[Array, "B C"]]:
    """The best candidates [B, C]: log probability, beam and next id of each."""
    vocab = logits.shape[-1]
    batch, num_beams = state["scores"].shape
    tokens = state["texts"].reshape(batch * num_beams, -1)
    scores = adjust(jax.nn.log_softmax(logits, axis=-1), tokens, state["i"])
    scores = scores.reshape(batch, num_beams, vocab) + state["scores"][..., None]
    best, index = jax.lax.top_k(scores.reshape(batch, -1), num_candidates)
    return best, index // vocab, (index % vocab).astype(jnp.int32)


def _select_beams(
    state: dict,
    best: Float[Array, "B C"],
    parents: Int[Array, "B C"],
    ids: Int[Array, "B C"],
    texts: Int[Array, "B C L"],
    is_end: Bool[Array, "B C"],
) -> tuple[dict, Int[Array, "K"]]:
    """The K beams of the next step, and the rows [B K] of the cache they continue."""
    batch, num_beams = state["scores"].shape
    rows = jnp.arange(batch)[:, None]
    scores, chosen = jax.lax.top_k(best + is_end * MIN_SCORE, num_beams)
    flat = (rows * num_beams + parents[rows, chosen]).reshape(-1)
    ids, texts = ids[rows, chosen].reshape(-1), texts[rows, chosen]
    return {"scores": scores, "texts": texts, "ids": ids}, flat


def _update_finished(
    state: dict,
    best: Float[Array, "B C"],
    texts: Int[Array, "B C L"],
    is_end: Bool[Array, "B C"],
    length_penalty: float,
) -> dict:
    """The K best finished texts, including the first K candidates that end here."""
    num_beams, length = state["final"].shape[1], state["i"] + 1
    is_new = is_end & (jnp.arange(best.shape[1]) < num_beams)
    final = best / length.astype(jnp.float32) ** length_penalty
    final += ~is_new * MIN_SCORE + ~state["can_improve"][:, None] * MIN_SCORE
    new = {
        "final": final,
        "done": texts,
        "is_done": is_new,
        "lengths": jnp.full(final.shape, length),
    }
    merged = {name: jnp.concatenate([state[name], new[name]], axis=1) for name in new}
    _, winners = jax.lax.top_k(merged["final"], num_beams)
    rows = jnp.arange(len(winners))[:, None]
    return {name: x[rows, winners] for name, x in merged.items()}

"""Answers that a network writes: their loss where they are given, else the answers."""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxpt.generation.sampling import SampleSpec, generate
from jaxpt.nn.adaptation.prompts import make_room
from jaxpt.nn.networks.abilities import WritesText
from jaxpt.tasks.model import TaskModel, shift_right
from jaxpt.tasks.writing import Writing


def answer_loss(model: TaskModel, params: Any, batch: dict, writing: Writing, rngs):
    """The cross-entropy of the answers' tokens: (sum, weight)."""
    if writing.has_decoder:
        targets = batch["answer"]
        is_asked = targets >= 0
        ids = jnp.where(is_asked, targets, writing.pad)
        batch = batch | {
            "dec_inputs": shift_right(ids, writing.start),
            "dec_segment_ids": is_asked.astype(jnp.int32),
        }
    else:
        targets = batch["targets"]
        batch = batch | {"is_prefix": batch["is_prefix"] > 0}
        is_asked = targets >= 0
    states = model.states(params, batch, rngs)
    weights = is_asked * batch["row_weights"][:, None]
    found = jnp.where(is_asked, targets, 0), weights.astype(jnp.float32)
    network: Any = model.network

    def score():
        own = {"params": params["network"]}
        return network.apply(own, states, *found, method="score").loss

    return model.adapt(params["extra"], score)


def write_answers(
    model: TaskModel,
    params: Any,
    batch: dict,
    writing: Writing,
    num_tokens: int,
    longest: int,
    sampling: SampleSpec,
) -> dict[str, Array]:
    """The answers to what a batch reads: "tokens" [B, L], and "counts" [B] of them.

    Args:
      num_tokens: the most of an answer.
      longest: the most that a row of the batch reads. It may exceed the model's
        `max_len` where positions are relative, as it may in training.
    """
    network = cast(WritesText, model.network)
    decoder = network.make_decoder(writing.start if writing.has_decoder else None)
    batch = make_room(batch, model.adaptation.num_prompts)
    prompts, lengths = align_right(batch["inputs"], batch["segment_ids"])
    # Only padding is cut.
    prompts = prompts[:, max(0, prompts.shape[1] - longest) :]
    decoder = dataclasses.replace(
        decoder, max_len=max(decoder.max_len, longest + num_tokens)
    )

    def write():
        return generate(
            decoder,
            params["network"],
            prompts,
            lengths,
            num_tokens,
            jax.random.key(0),  # nothing is drawn
            sampling,
            stop=writing.ends,
            banned=writing.banned,
            pad=writing.pad,
            first=writing.first if writing.has_decoder else None,
            last=writing.last if writing.has_decoder else None,
        )

    tokens, counts = model.adapt(params["extra"], write)
    return {"tokens": tokens, "counts": counts}


def align_right(
    ids: Int[Array, "B T"], segment_ids: Int[Array, "B T"]
) -> tuple[Int[Array, "B T"], Int[Array, "B"]]:
    """Rows padded on the right as rows padded on the left, and their lengths.

    >>> ids, own = jnp.array([[5, 6, 0]]), jnp.array([[1, 1, 0]])
    >>> align_right(ids, own)[0].tolist()
    [[0, 5, 6]]
    """
    lengths = jnp.sum(segment_ids > 0, axis=1)
    size = ids.shape[1]
    places = (jnp.arange(size) - (size - lengths)[:, None]) % size
    return jnp.take_along_axis(ids, places, axis=1), lengths

"""How a network writes an answer: its rows in training, and what generation is told.

    two stacks     encoder  before A after         decoder  start [first] answer end
    one stack      before A between answer end     A is read freely by a prefix LM

The loss is read at the answer and its end (Raffel et al. 2020; Radford et al. 2019).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxpt.errors import UserError
from jaxpt.eval.generation import SampleSpec, generate
from jaxpt.nn.networks.network import Network
from jaxpt.tasks.model import TaskModel, shift_right
from jaxpt.tasks.task import Row

IGNORED = -1  # the target where nothing is predicted


@dataclasses.dataclass(frozen=True)
class Writing:
    """What stands around what is read and what is written.

    Attributes:
      has_decoder: the answer is a decoder's; else it follows in the same row.
      sees_all: what is read sees all of itself, in one stack.
      before, after: the ids around what is read.
      end: the id that closes an answer in training; `ends` are those that stop one.
      start: a decoder's first input.
      first, last: a decoder's forced first output, and its last.
      banned: ids that no answer holds.
      max_len: places that the model has.
    """

    has_decoder: bool
    sees_all: bool
    before: tuple[int, ...]
    after: tuple[int, ...]
    end: int
    ends: tuple[int, ...]
    max_len: int
    start: int = 0
    first: int | None = None
    last: int | None = None
    banned: tuple[int, ...] = ()
    pad: int = 0

    def room(self, max_len: int, max_target: int) -> int:
        """The most tokens of a text that is read.

        Raises:
          UserError: answers of `max_target` tokens leave none.
        """
        if self.has_decoder and max_target > self.max_len:
            raise UserError(
                f"task.max_target={max_target}: must be at most the model's "
                f"{self.max_len}"
            )
        taken = len(self.before) + len(self.after)
        room = max_len - taken - (0 if self.has_decoder else max_target)
        if room < 1:
            raise UserError(
                f"task.max_len={max_len}: must be above {max_len - room}, the special "
                f"tokens and, in one stack, task.max_target={max_target}"
            )
        return room

    def read_row(self, ids: Int[np.ndarray, "n"], room: int) -> Row:
        """What is read alone: "tokens", cut to the room at its end."""
        parts = self.before, ids[:room], self.after
        tokens = np.concatenate(parts).astype(np.int32)
        return {"tokens": tokens, "is_prefix": np.full_like(tokens, self.sees_all)}

    def train_row(
        self, ids: Int[np.ndarray, "n"], target: Int[np.ndarray, "m"], room: int
    ) -> Row:
        """What is read with the answer that is learned.

        With a decoder "answer" is [m + 1] or so; else "targets" are as long as
        "tokens", and -1 where nothing is predicted.
        """
        row, first = self.read_row(ids, room), self.first
        opening = [] if first is None or not self.has_decoder else [first]
        answer = np.concatenate([opening, target, [self.end]]).astype(np.int32)
        if self.has_decoder:
            return row | {"answer": answer}
        num = len(row["tokens"])
        unseen = np.full(len(answer) - 1, False)
        ignored = np.full(num - 1, IGNORED)
        return {
            "tokens": np.concatenate([row["tokens"], answer[:-1]]),
            "is_prefix": np.concatenate([row["is_prefix"], unseen]).astype(np.int32),
            "targets": np.concatenate([ignored, answer]).astype(np.int32),
        }


def pad_answers(rows: list[Row], size: int) -> list[Row]:
    """Rows whose "answer" are all [size], -1 at padding."""
    padded = []
    for row in rows:
        answer = np.full(size, IGNORED, np.int32)
        answer[: len(row["answer"])] = row["answer"]
        padded.append(row | {"answer": answer})
    return padded


def answer_loss(model: TaskModel, params: Any, batch: dict, writing: Writing, rngs):
    """The cross-entropy of the answers' tokens: (sum, weight)."""
    if writing.has_decoder:
        targets = batch["answer"]
        is_asked = targets >= 0
        ids = jnp.where(is_asked, targets, writing.pad)
        batch = batch | {
            "dec_inputs": shift_right(ids, writing.start),
            # A row that only fills a batch has an answer, too.
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
    sampling: SampleSpec,
) -> dict[str, Array]:
    """The answers to what a batch reads: "tokens" [B, L], and "counts" [B] of them."""
    network: Network = model.network
    decoder = network.make_decoder(writing.start if writing.has_decoder else None)
    prompts, lengths = align_right(batch["inputs"], batch["segment_ids"])
    most = decoder.max_len - (0 if writing.has_decoder else num_tokens)
    # No text is longer than that; what a batch is padded to may be.
    prompts = prompts[:, max(0, prompts.shape[1] - most) :]

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

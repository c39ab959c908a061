"""A network with the head of a task: what both give of a batch."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxpt.nn.adaptation.adapt import adapted
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.prompts import make_room
from jaxpt.nn.networks.network import Network
from jaxpt.nn.task_heads import FORMS
from jaxpt.ops import losses
from jaxpt.tasks.writing import Writing


@dataclasses.dataclass(frozen=True)
class TaskModel:
    """What a task asks: a network, a head on it, and how the two are joined.

    Attributes:
      network: unrolled (`jaxpt.nn.scan`), the part that tasks are asked of.
      head: `TextHead` or `TokenHead`; None where the vocabulary is asked.
      form: the family's, of `FORMS`.
      start_id: a decoder's first input, where a head reads a decoder.
      adaptation: what is added to the network.
      kept: where it is a list, gets the states that `outputs` has read, for another
        loss on them.
      writing: how the network writes an answer; None where it writes none.
      spec: the task's settings.
    """

    network: Network
    head: Any
    form: str
    start_id: int = 0
    adaptation: AdaptSpec = AdaptSpec()
    kept: list | None = None
    writing: Writing | None = None
    spec: Any = None

    def adapt(self, extra: Any, call: Callable[[], Any]) -> Any:
        """The call's value, with what is added to the network around it."""
        with adapted(self.adaptation, extra):
            return call()

    def inputs(self, batch: dict) -> dict:
        """The batch as the network reads it: with a decoder's own, where one reads.

        A prompt has room before each text.
        """
        if FORMS[self.form].reads_decoder and "dec_inputs" not in batch:
            shifted = shift_right(batch["inputs"], self.start_id)
            batch = batch | {
                "dec_inputs": shifted,
                "dec_segment_ids": batch["segment_ids"],
            }
        return make_room(batch, self.adaptation.num_prompts)

    def states(self, params: dict, batch: dict, rngs: Any) -> Array:
        """Hidden states [B, T, W], or those of all layers where the head mixes them."""
        read = self.network.task_states
        if FORMS[self.form].mixes_layers:
            read = self.network.task_layers
        inputs = self.inputs(batch)
        rngs = None if self.adaptation.is_frozen else fold(rngs, 0)
        states = self.adapt(
            params["extra"], lambda: read(params["network"], inputs, rngs=rngs)
        )
        # A decoder's states are of its own tokens: a prompt is the encoder's.
        is_own = "dec_inputs" in inputs
        return states if is_own else states[..., self.adaptation.num_prompts :, :]

    def head_outputs(self, params: dict, batch: dict, states: Array, rngs: Any):
        """What the head makes of states, without a gradient's way of its own."""
        if self.head is None:
            raise ValueError("this task has no head")
        return self.head.apply(
            {"params": params["head"]},
            states,
            batch["segment_ids"],
            deterministic=rngs is None,
            rngs=fold(rngs, 1),
        )

    def outputs(self, params: dict, batch: dict, rngs: Any):
        """The head's outputs: [B, C] of texts, [B, T, C] of tokens.

        Where inputs are [B, K, T], several texts to an example, those are rows of
        their own to the network, and the outputs are [B, K, C].
        """
        shape = batch["inputs"].shape
        flat = self.flatten(batch)
        states = self.states(params, flat, rngs)
        if self.kept is not None:
            self.kept.append(states)
        found = self.head_outputs(params, flat, states, rngs)
        return (
            found.reshape(*shape[:-1], *found.shape[1:]) if len(shape) == 3 else found
        )

    def flatten(self, batch: dict) -> dict:
        """The batch with every text as a row, where an example is several."""
        shape = batch["inputs"].shape
        if len(shape) == 2:
            return batch
        return {
            name: x.reshape(-1, x.shape[-1]) if x.shape == shape else x
            for name, x in batch.items()
        }


def fold(rngs: Any, number: int) -> Any:
    """Keys of its own for one of two modules."""
    if rngs is None:
        return None
    return {name: jax.random.fold_in(key, number) for name, key in rngs.items()}


def shift_right(ids: Int[Array, "B T"], start_id: int) -> Int[Array, "B T"]:
    """A start token, then the ids without their last.

    >>> shift_right(jnp.array([[5, 6, 7]]), 2).tolist()
    [[2, 5, 6]]
    """
    start = jnp.full_like(ids[:, :1], start_id)
    return jnp.concatenate([start, ids[:, :-1]], axis=1)


def class_loss(
    logits: Array, targets: Int[Array, "*B"], weights: Array
) -> losses.SumWeight:
    """Cross-entropy of classes; targets below 0 do not count."""
    is_asked = targets >= 0
    counted = weights * is_asked
    return losses.cross_entropy(logits, jnp.where(is_asked, targets, 0), counted)

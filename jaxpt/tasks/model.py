"""A network with the head of a task, or as a generator of answers."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxpt.evaluation.sampling import generate
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.nn.adaptation.adapt import adapted
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.prompts import make_room
from jaxpt.nn.networks.abilities import WritesText
from jaxpt.nn.networks.network import Network
from jaxpt.nn.task_heads import FORMS
from jaxpt.ops import losses
from jaxpt.tasks.writing import Writing


@dataclasses.dataclass(frozen=True)
class TaskModel:
    """A network, a head on it, and how the two are connected.

    Attributes:
      network: unrolled (`jaxpt.nn.scan`), the part that is fine-tuned.
      head: `TextHead` or `TokenHead`; None if the network generates the answer.
      form: of the head, a key of `FORMS`.
      start_id: a decoder's first input, if the head reads a decoder.
      adaptation: parameters that are added to the network, such as LoRA's.
      collected: a list to which `outputs` appends the hidden states, for a further
        loss on them; or None.
      writing: how the network generates an answer; None if it cannot.
      spec: the task's settings.
    """

    network: Network
    head: Any
    form: str
    start_id: int = 0
    adaptation: AdaptSpec = AdaptSpec()
    collected: list | None = None
    writing: Writing | None = None
    spec: Any = None

    def adapt(self, extra: Any, call: Callable[[], Any]) -> Any:
        """The value of a call of the network with its added parameters."""
        with adapted(self.adaptation, extra):
            return call()

    def inputs(self, batch: dict) -> dict:
        """The network's inputs, with a decoder's own, and room for a prompt."""
        if FORMS[self.form].reads_decoder and "dec_inputs" not in batch:
            shifted = shift_right(batch["inputs"], self.start_id)
            batch = batch | {
                "dec_inputs": shifted,
                "dec_segment_ids": batch["segment_ids"],
            }
        return make_room(batch, self.adaptation.num_prompts)

    def states(self, params: dict, batch: dict, rngs: dict | None) -> Array:
        """Hidden states [B, T, W], or those of all layers if the head mixes them."""
        read = self.network.task_states
        if FORMS[self.form].mixes_layers:
            read = self.network.task_layers
        inputs = self.inputs(batch)
        rngs = None if self.adaptation.is_frozen else fold(rngs, 0)
        states = self.adapt(
            params["extra"], lambda: read(params["network"], inputs, rngs=rngs)
        )
        # A prompt is in the encoder: a decoder's states do not include it.
        has_decoder = "dec_inputs" in inputs
        return states if has_decoder else states[..., self.adaptation.num_prompts :, :]

    def head_outputs(
        self, params: dict, batch: dict, states: Array, rngs: dict | None
    ) -> Array:
        """The head's outputs for hidden states."""
        if self.head is None:
            raise ValueError("this task has no head")
        return self.head.apply(
            {"params": params["head"]},
            states,
            batch["segment_ids"],
            deterministic=rngs is None,
            rngs=fold(rngs, 1),
        )

    def outputs(self, params: dict, batch: dict, rngs: dict | None) -> Array:
        """The head's outputs: [B, C] of texts, [B, T, C] of tokens.

        If inputs are [B, K, T], several texts for each example, the network reads each
        text as a row, and the outputs are [B, K, C].
        """
        shape = batch["inputs"].shape
        flat = self.flatten(batch)
        states = self.states(params, flat, rngs)
        if self.collected is not None:
            self.collected.append(states)
        outputs = self.head_outputs(params, flat, states, rngs)
        if len(shape) == 3:
            return outputs.reshape(*shape[:-1], *outputs.shape[1:])
        return outputs

    def flatten(self, batch: dict) -> dict:
        """The batch with every text as a row, if an example is several texts."""
        shape = batch["inputs"].shape
        if len(shape) == 2:
            return batch
        return {
            name: x.reshape(-1, x.shape[-1]) if x.shape == shape else x
            for name, x in batch.items()
        }


def apply_head(model: TaskModel, params: dict, batch: dict, rngs: dict | None) -> Array:
    """`Task.outputs` of a task whose outputs are those of the head."""
    return model.outputs(params, batch, rngs)


def fold(rngs: dict | None, number: int) -> dict | None:
    """Separate random keys for one of two modules."""
    if rngs is None:
        return None
    return {name: jax.random.fold_in(key, number) for name, key in rngs.items()}


def shift_right(ids: Int[Array, "B T"], start_id: int) -> Int[Array, "B T"]:
    """The inputs of a decoder: a start token, then the ids without the last one.

    >>> shift_right(jnp.array([[5, 6, 7]]), 2).tolist()
    [[2, 5, 6]]
    """
    start = jnp.full_like(ids[:, :1], start_id)
    return jnp.concatenate([start, ids[:, :-1]], axis=1)


def class_loss(
    logits: Array, targets: Int[Array, "*B"], weights: Array
) -> losses.SumWeight:
    """Cross-entropy of classes; targets below 0 are ignored."""
    is_counted = targets >= 0
    targets = jnp.where(is_counted, targets, 0)
    return losses.cross_entropy(logits, targets, weights * is_counted)


def answer_loss(
    model: TaskModel, params: dict, batch: dict, writing: Writing, rngs: dict | None
) -> losses.SumWeight:
    """The cross-entropy of the answers' tokens: (sum, weight)."""
    start = writing.form.start
    if start is not None:  # a decoder writes the answer
        targets = batch["answer"]
        is_target = targets >= 0
        ids = jnp.where(is_target, targets, writing.pad)
        batch = batch | {
            "dec_inputs": shift_right(ids, start),
            "dec_segment_ids": is_target.astype(jnp.int32),
        }
    else:
        targets = batch["targets"]
        batch = batch | {"is_prefix": batch["is_prefix"] > 0}
        is_target = targets >= 0
    states = model.states(params, batch, rngs)
    weights = (is_target * batch["row_weights"][:, None]).astype(jnp.float32)
    targets = jnp.where(is_target, targets, 0)
    network: Any = model.network

    def score() -> losses.SumWeight:
        variables = {"params": params["network"]}
        return network.apply(variables, states, targets, weights, method="score").loss

    return model.adapt(params["extra"], score)


def write_answers(
    model: TaskModel,
    params: dict,
    batch: dict,
    writing: Writing,
    num_tokens: int,
    longest: int,
    sampling: SampleSpec,
) -> dict[str, Array]:
    """Generates the answers of a batch: "tokens" [B, L], and their "counts" [B].

    Args:
      num_tokens: the maximum length of an answer.
      longest: the maximum length of an input. It may exceed the model's `max_len` if
        positions are relative, as in training.
    """
    network = cast(WritesText, model.network)
    decoder = network.make_decoder(writing.form.start if writing.has_decoder else None)
    batch = make_room(batch, model.adaptation.num_prompts)
    prompts, lengths = align_right(batch["inputs"], batch["segment_ids"])
    # This removes only padding.
    prompts = prompts[:, max(0, prompts.shape[1] - longest) :]
    decoder = dataclasses.replace(
        decoder, max_len=max(decoder.max_len, longest + num_tokens)
    )

    def write() -> tuple[Array, Array]:
        return generate(
            decoder,
            params["network"],
            prompts,
            lengths,
            num_tokens,
            jax.random.key(0),  # unused: the search is deterministic
            sampling,
            stop=writing.form.ends,
            banned=writing.banned,
            pad=writing.pad,
            first=writing.form.first if writing.has_decoder else None,
            last=writing.form.last if writing.has_decoder else None,
        )

    tokens, counts = model.adapt(params["extra"], write)
    return {"tokens": tokens, "counts": counts}


def align_right(
    ids: Int[Array, "B T"], segment_ids: Int[Array, "B T"]
) -> tuple[Int[Array, "B T"], Int[Array, "B"]]:
    """Moves padding from the right to the left; the rows and their lengths.

    >>> ids, own = jnp.array([[5, 6, 0]]), jnp.array([[1, 1, 0]])
    >>> align_right(ids, own)[0].tolist()
    [[0, 5, 6]]
    """
    lengths = jnp.sum(segment_ids > 0, axis=1)
    size = ids.shape[1]
    places = (jnp.arange(size) - (size - lengths)[:, None]) % size
    return jnp.take_along_axis(ids, places, axis=1), lengths

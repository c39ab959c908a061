"""Causal language modelling: predict every next token from those before it.

Radford et al. 2018; GPT-2. Row `a b c d` gives inputs `a b c`, targets `b c d`.

    loss = mean over t of -log p(x_t | x_1 ... x_t-1)

Control: none; it is the control of the objectives that add to it.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_scored,
    get_segments,
    target_loss,
)
from jaxpt.objectives.spec import ObjectiveSpec, Term
from jaxpt.ops import masks as attention_masks
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.one_stack import CausalLM


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """A row of R tokens gives R - 1 predictions."""

    SECTION: ClassVar[str] = "clm"
    READS: ClassVar[frozenset[str]] = ObjectiveSpec.READS | {"answers"}
    NETWORKS: ClassVar[tuple[Any, ...]] = ("one_stack.CausalLM",)
    MIN_LENGTH: ClassVar[int] = 2

    @property
    def lengths(self) -> dict[str, int]:
        """The last token is only a target."""
        return {"decoder": self.row_length - 1}

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("next token", is_likelihood=True)}


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 8]], [[8, 9]])
    """
    tokens, segments = rows["tokens"], get_segments(rows)
    is_next = (segments[:, 1:] == segments[:, :-1]) & (get_scored(rows)[:, 1:] > 0)
    batch: Batch = {
        "index": rows["index"],
        "inputs": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "weights": {"loss": is_next.astype(jnp.float32)},
    }
    if "segment_ids" in rows:
        batch["segment_ids"] = segments[:, :-1]
    return batch


def masks(batch: Batch) -> Masks:
    """Each position attends to itself and its past, within its document."""
    return {"self": attention_masks.causal(batch.get("segment_ids"))}


def loss(
    params: Any, model: "CausalLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next token at every position."""
    return target_loss(params, model, batch, masks, rngs)


def train_step(
    state: TrainState,
    rows: Rows,
    rngs: Keys,
    *,
    model: "CausalLM",
    vocab: Vocab,
    spec: Spec,
    update: Update,
) -> tuple[TrainState, Sums]:
    """Shift by one, read causally, predict every next token."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)

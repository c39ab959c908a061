"""Causal language modelling: predict every next token from what came before.

Radford et al. 2018; GPT-2. Row `a b c d` gives inputs `a b c`, targets `b c d`.

    loss = mean over t of -log p(x_t | x_1 ... x_t-1)
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.objectives.objective import ObjectiveSpec, get_segments, target_loss
from jaxpt.ops import masks as attention_masks
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """A row of R tokens gives R - 1 predictions."""

    SECTION: ClassVar[str] = "clm"
    NETWORKS: ClassVar = (CausalLM,)
    MIN_LENGTH: ClassVar[int] = 2
    EXTRA_LENGTH: ClassVar[int] = 1  # the last token is a target alone

    @property
    def lengths(self):
        return {"decoder": self.row_length - 1}


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Shifts by one; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 8]], [[8, 9]])
    """
    tokens, segments = rows["tokens"], get_segments(rows)
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    batch = {
        "index": rows["index"],
        "inputs": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "weights": {"loss": is_next.astype(jnp.float32)},
    }
    if "segment_ids" not in rows:
        return batch
    return batch | {"segment_ids": segments[:, :-1]}


def masks(batch: dict) -> dict:
    """Each position sees itself and its past, within its document."""
    return {"self": attention_masks.causal(batch.get("segment_ids"))}


def loss(params, model: CausalLM, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy of the next token at every position."""
    return target_loss(params, model, batch, masks, rngs)


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Shift by one, read causally, predict every next token."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)

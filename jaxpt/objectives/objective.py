"""The contract of an objective: a module with Spec, corrupt, masks, loss, train_step.

    rows -> corrupt -> batch -> masks -> loss -> Update -> the state one step later

`Objective` states the five names as a type, with which the type checker compares every
module of this folder. `spec.ObjectiveSpec` is the base of every Spec. The functions
below are the parts that several objectives share.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update, weigh_rows
from jaxpt.objectives.spec import ObjectiveSpec
from jaxpt.ops import losses
from jaxpt.ops.metrics import add
from jaxpt.rng import row_keys, split_step
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network

# Loss terms or metrics: name -> (sum, weight).
Sums = dict[str, tuple[Array, Array]]
# Attention masks: "self", and with a decoder "dec_self" and "cross".
Masks = dict[str, Any]
# Keys of a step by purpose: "corrupt", "dropout", "sample".
Keys = dict[str, Array]


class Objective(Protocol):
    """All that an objective is: a module, or any object, with these five names."""

    @property
    def Spec(self) -> type[ObjectiveSpec]:
        """The settings, which are the config's section of the objective's name."""

    def corrupt(self, rng: Array, rows: Rows, vocab: Vocab, spec: Any) -> Batch:
        """The batch of a step: static shapes, `batch["weights"]` for each loss term."""

    def masks(self, batch: Batch) -> Masks:
        """The attention masks: "self", and with a decoder "dec_self" and "cross"."""

    def loss(
        self, params: Any, model: Any, batch: Batch, masks: Masks, rngs: Keys
    ) -> tuple[Sums, Sums]:
        """The loss terms and further metrics; "dropout" in `rngs` enables dropout."""

    def train_step(
        self,
        state: TrainState,
        rows: Rows,
        rngs: Keys,
        *,
        model: Any,
        vocab: Vocab,
        spec: Any,
        update: Update,
    ) -> tuple[TrainState, Sums]:
        """Corrupt, masks, loss, update: the state one step later, and its metrics.

        If `Spec.init_state` is not None, this also returns the next `objective_state`.
        """


def make_train_step(
    corrupt: Callable[..., Batch],
    masks: Callable[[Batch], Masks],
    loss: Callable[..., tuple[Sums, Sums]],
) -> Callable[..., tuple[TrainState, Sums]]:
    """An objective's `train_step`: corrupt, masks, loss, update."""

    def train_step(
        state: TrainState,
        rows: Rows,
        rngs: Keys,
        *,
        model: Any,
        vocab: Vocab,
        spec: Any,
        update: Update,
    ) -> tuple[TrainState, Sums]:
        batch = corrupt(rngs["corrupt"], rows, vocab, spec)

        def loss_fn(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
            return loss(params, model, batch, masks(batch), rngs)

        coefficients = spec.coefficients
        if "progress" in rows:  # the same in every row
            coefficients = spec.coefficients_at(rows["progress"][0])
        return update(state, batch, loss_fn, rngs, coefficients)

    return train_step


def eval_step(
    objective: Objective,
    params: Any,
    rows: Rows,
    rng: Array,
    *,
    model: "Network",
    vocab: Vocab,
    spec: ObjectiveSpec,
) -> Sums:
    """The loss terms and metrics of held-out rows, without dropout."""
    rngs, sums = split_step(rng), dict[str, tuple[Array, Array]]()
    for each in spec.evaluated:
        batch = objective.corrupt(rngs["corrupt"], rows, vocab, each)
        batch = weigh_rows(batch, rows)
        sample = {"sample": rngs["sample"]}
        terms, metrics = objective.loss(
            params, model, batch, objective.masks(batch), sample
        )
        found = terms | metrics
        sums |= found | add({k: sums[k] for k in sums.keys() & found.keys()}, found)
    return sums


def target_loss(
    params: Any, model: Any, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of `batch["targets"]`, one for each position of the last stack."""
    targets, weights = batch["targets"], batch["weights"]["loss"]

    def predict(model: Any) -> tuple:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        return model.score_term("loss", states, targets, weights)

    scores, weights, overflow = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    hits = losses.rank_hits(scores.ranks, weights)
    return {"loss": scores.loss}, {"accuracy": hits} | overflow


def map_rows(
    corrupt_row: Callable[..., Any], rng: Array, rows: Rows, *more: Array | None
) -> Batch:
    """The batch of rows that are corrupted one by one, each with its own key.

    Args:
      corrupt_row: (key, tokens [R], segment ids [R] of `get_scored`, ...) -> the row's
        part of the batch.
      more: further arrays [B, ...], of which `corrupt_row` gets its row, or None.
    """
    keys, segments = row_keys(rng, rows["index"]), get_scored(rows)
    batch: Batch = jax.vmap(corrupt_row)(keys, rows["tokens"], segments, *more)
    return batch | keep_keys(rows)


def get_segments(rows: Rows) -> Array:
    """The segment ids [B, R] of rows; all 1 if a row is one text."""
    return rows.get("segment_ids", jnp.ones_like(rows["tokens"]))


def get_scored(rows: Rows) -> Array:
    """The segment ids [B, R] of tokens that may be hidden and predicted, 0 elsewhere.

    Those are all tokens of the text, or only its answers if the rows mark them. What is
    not scored is still read.
    """
    segments = get_segments(rows)
    if "answers" not in rows:
        return segments
    return jnp.where(rows["answers"] > 0, segments, 0)


def keep_keys(rows: Rows) -> Batch:
    """The keys of rows that a batch keeps: "index", and "segment_ids" if present."""
    if "segment_ids" in rows:
        return {"index": rows["index"], "segment_ids": rows["segment_ids"]}
    return {"index": rows["index"]}

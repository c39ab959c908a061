"""Distillation of a causal model: a small one learns what a large one says comes next.

Hinton et al. 2015; huggingface/transformers-research-projects,
`distillation/distiller.py`, whose code defaults these are: 0.5 KL + 0.5 CLM, the KL at
temperature 2 and times 4, no cosine. Both networks read `a b c`; at each place the
student meets the next token and the teacher's distribution of it.

    loss = 0.5 KL(p_t || p_s) at temperature 2, times 4 - 0.5 log p_s(the next token)
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.nn.networks.student_teacher import CausalStudent
from jaxpt.objectives import clm
from jaxpt.objectives.distillation import Teaching
from jaxpt.ops import losses
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Spec(Teaching, clm.Spec):
    """Who teaches (see `distillation.Teaching`), and the weights of the losses.

    Attributes:
      kl_weight, clm_weight: of the two losses.
    """

    SECTION: ClassVar[str] = "causal_distillation"
    NETWORKS: ClassVar = (CausalStudent,)
    TEACHER: ClassVar[str] = "causal"
    TEACHER_OBJECTIVE: ClassVar[str] = "clm"

    _: dataclasses.KW_ONLY
    kl_weight: float = 0.5
    clm_weight: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        self.check("clm_weight", self.clm_weight >= 0, "at least 0")

    @property
    def coefficients(self):
        return {"kl_loss": self.kl_weight, "clm_loss": self.clm_weight}


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Shifts by one, as `clm` does; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 8]], [[8, 9]])
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["loss"]
    return batch | {"weights": {"kl_loss": weights, "clm_loss": weights}}


def masks(batch: dict) -> dict:
    """Each position sees itself and its past, within its document, in both networks."""
    return clm.masks(batch)


def loss(params, model: CausalStudent, batch: dict, masks: dict, rngs: dict):
    """KL from the teacher and cross-entropy, both at every position."""
    weights = batch["weights"]["clm_loss"]

    def predict(model):
        states = model.student.batch_states(
            batch, masks, deterministic="dropout" not in rngs
        )
        taught = model.teacher_outputs(batch, masks)
        return model.distillation_loss(states, taught, batch["targets"])

    found = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {
        "kl_loss": (jnp.sum(found.divergences * weights), jnp.sum(weights)),
        "clm_loss": (jnp.sum(found.nll * weights), jnp.sum(weights)),
    }
    return terms, {"accuracy": losses.rank_hits(found.ranks, weights)}


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Shift by one, read with both networks, learn from text and teacher."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)

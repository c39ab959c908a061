"""Distillation of a causal model: a small one learns a large one's next-token scores.

Hinton et al. 2015; huggingface/transformers-research-projects,
`distillation/distiller.py`, whose code defaults these are: 0.5 KL + 0.5 CLM, the KL at
temperature 2 and times 4, no cosine. Both networks read `a b c`; at each position the
student learns from the next token and from the teacher's distribution of it.

    loss = 0.5 KL(p_t || p_s) at temperature 2, times 4 - 0.5 log p_s(the next token)

Control: `clm`, the student without a teacher.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.objectives import clm
from jaxpt.objectives.distillation import Teaching
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Needs, Teacher, Term
from jaxpt.ops import losses
from jaxpt.ops.chunked_loss import DistillationScores
from jaxpt.setting_types import NonNegativeFloat, PositiveFloat
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.student_teacher import CausalStudent


@dataclasses.dataclass(frozen=True)
class Spec(Teaching, clm.Spec):
    """The teacher (see `distillation.Teaching`), and the weights of the losses.

    Attributes:
      kl_weight, clm_weight: of the two losses.
    """

    SECTION: ClassVar[str] = "causal_distillation"
    NETWORKS: ClassVar = ("student_teacher.CausalStudent",)

    _: dataclasses.KW_ONLY
    kl_weight: PositiveFloat = 0.5
    clm_weight: NonNegativeFloat = 0.5

    @property
    def terms(self) -> dict[str, Term]:
        return {
            "kl_loss": Term("distilled", self.kl_weight, targets=""),
            "clm_loss": Term("next token", self.clm_weight, is_likelihood=True),
        }

    def controls(self) -> dict[str, dict[str, Any]]:
        return {"clm": {"objective": "clm"}}

    @property
    def needs(self) -> Needs:
        teacher = Teacher("causal", "clm", self.teacher, self.student_layers)
        return dataclasses.replace(super().needs, teacher=teacher)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 8]], [[8, 9]])
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["loss"]
    return batch | {"weights": {"kl_loss": weights, "clm_loss": weights}}


masks = clm.masks


def loss(
    params: Any, model: "CausalStudent", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """KL from the teacher and cross-entropy, both at every position."""
    weights = batch["weights"]["clm_loss"]

    def predict(model: "CausalStudent") -> DistillationScores:
        states = model.student.batch_states(
            batch, masks, deterministic="dropout" not in rngs
        )
        teacher_states = model.teacher_outputs(batch, masks)
        return model.distillation_loss(states, teacher_states, batch["targets"])

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {
        "kl_loss": (jnp.sum(scores.divergences * weights), jnp.sum(weights)),
        "clm_loss": (jnp.sum(scores.nll * weights), jnp.sum(weights)),
    }
    return terms, {"accuracy": losses.rank_hits(scores.ranks, weights)}


train_step = make_train_step(corrupt, masks, loss)

"""Distillation: a small masked model learns a large one's distribution of every token.

DistilBERT, Sanh et al. 2019; huggingface/transformers-research-projects,
`distillation/distiller.py`. Both read rows masked as for BERT; the loss is
5 KL + 2 MLM + 1 cosine:

    teacher  the [MASK] sat on     -> p_t, h_t   no gradient
    student  the [MASK] sat on     -> p_s, h_s
    KL(p_t || p_s) at temperature 2, times 4; -log p_s(cat); 1 - cos(h_s, h_t)

    loss = 5 KL(p_t || p_s) - 2 mean over masked i of log p_s(x_i) + 1 - cos(h_s, h_t)

Departures: positions are uniform with an exact count in each row (theirs by
count^-0.7, over a whole batch), random words are ordinary tokens.

Control: `mlm`, the student without a teacher.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.nn.model_differences import COMPUTING, LAYOUT, find_differences
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import mlm
from jaxpt.objectives.masking import MASKED
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_scored,
    make_train_step,
)
from jaxpt.objectives.spec import (
    Needs,
    ObjectiveSpec,
    Predictions,
    Teacher,
    Term,
    model_of,
)
from jaxpt.ops import edits, losses
from jaxpt.ops.chunked_loss import DistillationScores
from jaxpt.setting_types import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    list_types,
)
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network
    from jaxpt.nn.networks.student_teacher import MaskedStudent


@dataclasses.dataclass(frozen=True)
class WithTeacher(ObjectiveSpec):
    """Another run that takes part in training, if the objective `needs` it.

    Attributes:
      teacher: folder of the teacher's run: its newest parameters, or their average.
      teacher_model: the teacher's `model` section, written by the run itself, so that
        it resumes without that folder; {} is the student's model.
    """

    _: dataclasses.KW_ONLY
    teacher: str = ""
    teacher_model: ModelSpec | dict | None = model_of("teacher")

    def __post_init__(self) -> None:
        if isinstance(self.teacher_model, dict):  # from a config
            is_good = {*self.teacher_model} <= {*list_types(ModelSpec)}
            self.check("teacher_model", is_good, "the model section of a run")
            teacher = ModelSpec(**self.teacher_model) if self.teacher_model else None
            object.__setattr__(self, "teacher_model", teacher)
        super().__post_init__()

    @property
    def lengths(self) -> dict[str, int]:
        lengths = super().lengths
        if self.needs.teacher is None:
            return lengths
        (length,) = lengths.values()
        return {"student": length, "teacher": length}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        """Both networks, or the student alone without a teacher."""
        if self.needs.teacher is None:
            return super().make_network(model_spec, vocab, **fields)
        kind = self.check_network(model_spec, vocab)
        student = model_spec.direct(kind.READS_AHEAD)
        teacher = self.teacher_spec(model_spec).direct(kind.READS_AHEAD)
        check_teacher(self, student, teacher)
        return kind(student, teacher, **fields)  # type: ignore[call-arg]

    def teacher_spec(self, model_spec: ModelSpec) -> ModelSpec:
        """The teacher's sizes, computed as the student's model is."""
        stored = self.teacher_model
        teacher = stored if isinstance(stored, ModelSpec) else model_spec
        how = {name: getattr(model_spec, name) for name in COMPUTING}
        size = teacher.vocab_size or model_spec.vocab_size
        return dataclasses.replace(teacher, vocab_size=size, **how)


@dataclasses.dataclass(frozen=True)
class Teaching(WithTeacher):
    """A teacher of distributions (see `WithTeacher`), and the student's first layers.

    Attributes:
      student_layers: the teacher's layers that the student's start from (DistilBERT's
        are 0 2 4 7 9 11 of 12), with all other parameters that both have; () starts
        from random initialization.
      freeze_positions: the student's position embeddings are not trained, as in
        DistilBERT's own run (`freeze_pos_embs`).
      temperature: of both distributions in the KL, which is multiplied by its square.
      kl_weight: of the KL.
    """

    LOSS_FREE: ClassVar = frozenset({"student_layers", "freeze_positions"})

    _: dataclasses.KW_ONLY
    student_layers: tuple[NonNegativeInt, ...] = ()
    freeze_positions: bool = False
    temperature: PositiveFloat = 2.0
    kl_weight: PositiveFloat = 5.0

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        fields |= {
            "temperature": self.temperature,
            "freezes_positions": self.freeze_positions,
        }
        network: Any = super().make_network(model_spec, vocab, **fields)
        check_layers(self, network.student_spec, network.teacher_spec)
        return network


@dataclasses.dataclass(frozen=True)
class Spec(Teaching, mlm.Spec):
    """Teacher and masking (see `Teaching`, `mlm.Spec`), and the weights of the losses.

    Attributes:
      kl_weight, mlm_weight, cosine_weight: DistilBERT's 5, 2, 1; without cosine (0) the
        student may have another width.
      restrict_kl: compute the KL only at masked positions. The source's default is all
        tokens but padding (its `restrict_ce_to_mask` is off).
    """

    SECTION: ClassVar[str] = "distillation"
    NETWORKS: ClassVar = ("student_teacher.MaskedStudent",)

    _: dataclasses.KW_ONLY
    mlm_weight: NonNegativeFloat = 2.0
    cosine_weight: NonNegativeFloat = 1.0
    restrict_kl: bool = False

    @property
    def predictions(self) -> Predictions:
        """Every position meets the vocabulary, unless the KL is restricted."""
        return Predictions(self.num_masked if self.restrict_kl else self.row_length)

    @property
    def terms(self) -> dict[str, Term]:
        terms = {
            "kl_loss": Term("distilled", self.kl_weight, targets=""),
            "mlm_loss": dataclasses.replace(MASKED, coefficient=self.mlm_weight),
        }
        if self.cosine_weight:
            state = Term("distilled state", self.cosine_weight, targets="")
            terms["cosine_loss"] = state
        return terms

    @property
    def needs(self) -> Needs:
        teacher = Teacher("masked", "mlm", self.teacher, self.student_layers)
        return dataclasses.replace(super().needs, teacher=teacher)

    def controls(self) -> dict[str, dict[str, Any]]:
        return {"mlm": {"objective": "mlm"}}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        teacher = self.teacher_spec(model_spec)
        if self.cosine_weight and model_spec.d_model != teacher.d_model:
            raise ConfigError(
                f"model.d_model={model_spec.d_model}: must be the teacher's "
                f"{teacher.d_model}, unless distillation.cosine_weight is 0"
            )
        fields |= {
            "is_restricted": self.restrict_kl,
            "has_cosine": self.cosine_weight > 0,
        }
        return super().make_network(model_spec, vocab, **fields)


def check_teacher(spec: WithTeacher, model_spec: ModelSpec, teacher: ModelSpec) -> None:
    """Raises UserError if a teacher cannot read the student's rows."""
    name, length = spec.SECTION, spec.lengths["teacher"]
    if model_spec.vocab_size != teacher.vocab_size:
        raise ConfigError(
            f"{name}.teacher={spec.teacher}: scores {teacher.vocab_size} tokens, the "
            f"student {model_spec.vocab_size}; they must have the same vocabulary"
        )
    if teacher.positions in ("learned", "sinusoidal") and length > teacher.max_len:
        raise ConfigError(
            f"{name}.teacher={spec.teacher}: reads {teacher.max_len} tokens at once; "
            f"must read the {length} of a row"
        )


def check_layers(spec: Teaching, model_spec: ModelSpec, teacher: ModelSpec) -> None:
    """Raises UserError if a student cannot start from layers of its teacher."""
    name, layers = spec.SECTION, spec.student_layers
    if not layers:
        return
    # `begin` compares the shapes of parameters.
    for key, value in find_differences(model_spec, teacher, free=LAYOUT):
        raise ConfigError(
            f"model.{key}={getattr(model_spec, key)}: must be the teacher's {value} "
            f"if the student starts from its layers ({name}.student_layers)"
        )
    if len(layers) != model_spec.num_layers:
        raise ConfigError(
            f"{name}.student_layers={layers}: must be model.num_layers="
            f"{model_spec.num_layers} of the teacher's layers"
        )
    if not all(type(i) is int and 0 <= i < teacher.num_layers for i in layers):
        raise ConfigError(
            f"{name}.student_layers={layers}: must be layers of the teacher's, from 0 "
            f"to {teacher.num_layers - 1}"
        )


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Masks tokens as `mlm` does; the KL and the cosine are computed at real tokens.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> spec = Spec(row_length=3, mask_rate=0.9, replace_mask=1.0, replace_random=0.0)
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=10, mask=4), spec)
    >>> batch["inputs"].tolist(), sorted(batch["targets"][0].tolist())
    ([[4, 4, 4]], [7, 8, 9])
    """
    batch = mlm.corrupt(rng, rows, vocab, spec)
    weights, zeros = batch["weights"]["loss"], jnp.zeros(rows["tokens"].shape)
    positions = batch["masked_positions"]
    noise_mask = jax.vmap(edits.put)(zeros, positions, weights, weights)
    real = (get_scored(rows) > 0).astype(jnp.float32)
    terms = {"kl_loss": noise_mask if spec.restrict_kl else real, "mlm_loss": weights}
    cosine = {"cosine_loss": real} if spec.cosine_weight else {}
    return batch | {"weights": terms | cosine}


masks = mlm.masks


def loss(
    params: Any, model: "MaskedStudent", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """KL from the teacher, cross-entropy at the P masked positions, cosine of states.

    Unless the KL is restricted to these, every token meets both vocabularies.
    """
    positions, targets = batch["masked_positions"], batch["targets"]
    weights = batch["weights"]
    masked, soft = weights["mlm_loss"], weights["kl_loss"]

    def predict(model: "MaskedStudent") -> tuple[DistillationScores, Sums]:
        states = model.student.batch_states(
            batch, masks, deterministic="dropout" not in rngs
        )
        teacher_states, cosine = model.teacher_outputs(batch, masks), {}
        if model.has_cosine:
            distance = losses.cosine_distance(
                states, teacher_states, weights["cosine_loss"]
            )
            cosine = {"cosine_loss": distance}
        if model.is_restricted:
            states, teacher_states = (
                edits.gather(x, positions) for x in (states, teacher_states)
            )
            return model.distillation_loss(states, teacher_states, targets), cosine
        whole = jax.vmap(edits.put)(batch["inputs"], positions, targets, masked)
        return model.distillation_loss(states, teacher_states, whole), cosine

    scores, cosine = model.apply({"params": params}, rngs=rngs, method=predict)
    nll, ranks = scores.nll, scores.ranks
    if model.is_restricted:
        soft = masked
    else:
        nll, ranks = (jnp.take_along_axis(x, positions, axis=1) for x in (nll, ranks))
    terms = {
        "kl_loss": (jnp.sum(scores.divergences * soft), jnp.sum(soft)),
        "mlm_loss": (jnp.sum(nll * masked), jnp.sum(masked)),
    }
    return terms | cosine, mlm.fill_metrics(ranks, masked)


train_step = make_train_step(corrupt, masks, loss)

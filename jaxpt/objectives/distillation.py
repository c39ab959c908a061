"""Distillation: a small masked model learns what a large one says of every token.

DistilBERT, Sanh et al. 2019; huggingface/transformers-research-projects,
`distillation/distiller.py`. What each reads is BERT's masking; the loss is
5 KL + 2 MLM + 1 cosine:

    teacher  the [MASK] sat on     -> p_t, h_t   no gradient
    student  the [MASK] sat on     -> p_s, h_s
    KL(p_t || p_s) at temperature 2, times 4; -log p_s(cat); 1 - cos(h_s, h_t)

Departures: positions are drawn evenly and an exact count in each row (theirs by
count^-0.7, over a whole batch), random words from the ordinary tokens.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.nn.model_spec import COMPUTING, LAYOUT, ModelSpec, find_differences
from jaxpt.nn.networks.student_teacher import MaskedStudent
from jaxpt.objectives import mlm
from jaxpt.objectives.objective import ObjectiveSpec, get_segments
from jaxpt.ops import edits, losses
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Teaching(ObjectiveSpec):
    """Who teaches, and how the student begins.

    Attributes:
      teacher: folder of the run that teaches: its newest parameters, or their mean.
      teacher_model: the teacher's `model` section, written here by the run itself, so
        that it resumes without that folder; {} without a teacher, as the student's.
      student_layers: which of the teacher's layers the student's begin as (DistilBERT's
        are 0 2 4 7 9 11 of 12), with all else that both have; () draws it afresh.
      freeze_positions: the student's table of positions stays as it begins, as in
        DistilBERT's own run (`--freeze_pos_embs`).
      temperature: of both distributions in the KL, which is times its square.
      kl_weight: of the KL.
    """

    LOSS_FREE: ClassVar = frozenset({"student_layers", "freeze_positions"})

    _: dataclasses.KW_ONLY
    teacher: str = ""
    teacher_model: ModelSpec | dict = dataclasses.field(default_factory=dict)
    student_layers: tuple[int, ...] = ()
    freeze_positions: bool = False
    temperature: float = 2.0
    kl_weight: float = 5.0

    def __post_init__(self):
        if isinstance(self.teacher_model, dict):  # as a config has it
            made = ModelSpec(**self.teacher_model) if self.teacher_model else None
            object.__setattr__(self, "teacher_model", made)
        super().__post_init__()
        self.check("temperature", self.temperature > 0, "above 0")
        self.check("kl_weight", self.kl_weight > 0, "above 0")

    @property
    def lengths(self):
        length = self.row_length - self.EXTRA_LENGTH
        return {"student": length, "teacher": length}

    def make_network(self, model_spec: ModelSpec, vocab: Vocab):
        """Both networks.

        Raises:
          UserError: also where this student cannot learn from the teacher.
        """
        kind = self.check_network(model_spec, vocab)
        student = model_spec.direct(kind.READS_AHEAD)
        theirs = self.teacher_spec(model_spec).direct(kind.READS_AHEAD)
        check_teacher(self.SECTION, student, theirs, self, self.lengths["teacher"])
        frozen = {"freezes_positions": self.freeze_positions}
        fields = self.network_fields(vocab) | frozen
        parts = student, theirs, self.temperature
        return kind(*parts, **fields)  # type: ignore[call-arg]

    def teacher_spec(self, model_spec: ModelSpec) -> ModelSpec:
        """The teacher's sizes; how it is computed, the student's model says."""
        given = self.teacher_model
        theirs = given if isinstance(given, ModelSpec) else model_spec
        how = {name: getattr(model_spec, name) for name in COMPUTING}
        size = theirs.vocab_size or model_spec.vocab_size
        return dataclasses.replace(theirs, vocab_size=size, **how)


def get_teaching(spec: ObjectiveSpec) -> Teaching:
    """The spec of an objective that has a teacher, as what says who that is."""
    if not isinstance(spec, Teaching):
        raise TypeError(f"{spec.SECTION} has no teacher")
    return spec


@dataclasses.dataclass(frozen=True)
class Spec(Teaching, mlm.Spec):
    """Teacher and masking (see `Teaching`, `mlm.Spec`), and the weights of the losses.

    Attributes:
      kl_weight, mlm_weight, cosine_weight: DistilBERT's 5, 2, 1; without cosine (0) the
        student may have another width.
      restrict_kl: read the KL at the masked positions alone. The source's default is
        all tokens but padding (its `restrict_ce_to_mask` is off).
    """

    SECTION: ClassVar[str] = "distillation"
    NETWORKS: ClassVar = (MaskedStudent,)
    TEACHER: ClassVar[str] = "masked"
    TEACHER_OBJECTIVE: ClassVar[str] = "mlm"

    _: dataclasses.KW_ONLY
    mlm_weight: float = 2.0
    cosine_weight: float = 1.0
    restrict_kl: bool = False

    def __post_init__(self):
        super().__post_init__()
        self.check("mlm_weight", self.mlm_weight >= 0, "at least 0")
        self.check("cosine_weight", self.cosine_weight >= 0, "at least 0")

    @property
    def num_predictions(self) -> int:
        """Every position meets the vocabulary, unless the KL is restricted."""
        return self.num_masked if self.restrict_kl else self.row_length

    @property
    def coefficients(self):
        cosine = {"cosine_loss": self.cosine_weight} if self.cosine_weight else {}
        return {"kl_loss": self.kl_weight, "mlm_loss": self.mlm_weight} | cosine

    def network_fields(self, vocab):
        return {
            "is_restricted": self.restrict_kl,
            "has_cosine": self.cosine_weight > 0,
        }

    def check_network(self, model_spec, vocab):
        kind = super().check_network(model_spec, vocab)
        theirs = self.teacher_spec(model_spec)
        if self.cosine_weight and model_spec.d_model != theirs.d_model:
            raise UserError(
                f"model.d_model={model_spec.d_model}: must be the teacher's "
                f"{theirs.d_model}, unless distillation.cosine_weight is 0"
            )
        return kind


def check_teacher(
    name: str, model_spec: ModelSpec, theirs: ModelSpec, spec, length: int
) -> None:
    """Raises UserError where a teacher and a student, or its layers, do not agree.

    Args:
      name: of the config's section.
      length: positions both read.
    """
    if model_spec.vocab_size != theirs.vocab_size:
        raise UserError(
            f"{name}.teacher={spec.teacher}: scores {theirs.vocab_size} tokens, the "
            f"student {model_spec.vocab_size}; they must have the same vocabulary"
        )
    if theirs.positions in ("learned", "sinusoidal") and length > theirs.max_len:
        raise UserError(
            f"{name}.teacher={spec.teacher}: reads {theirs.max_len} tokens at once; "
            f"must read the {length} of a row"
        )
    layers = spec.student_layers
    if not layers:
        return
    # `begin` compares which parameters there are.
    for key, value in find_differences(model_spec, theirs, free=LAYOUT):
        raise UserError(
            f"model.{key}={getattr(model_spec, key)}: must be the teacher's {value} "
            f"where the student begins as its layers ({name}.student_layers)"
        )
    if len(layers) != model_spec.num_layers:
        raise UserError(
            f"{name}.student_layers={layers}: must be model.num_layers="
            f"{model_spec.num_layers} of the teacher's layers"
        )
    if not all(type(i) is int and 0 <= i < theirs.num_layers for i in layers):
        raise UserError(
            f"{name}.student_layers={layers}: must be layers of the teacher's, from 0 "
            f"to {theirs.num_layers - 1}"
        )


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Masks tokens as `mlm` does; the KL and the cosine are read where there is text.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> spec = Spec(row_length=3, mask_rate=0.9, replace_mask=1.0, replace_random=0.0)
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=10, mask=4), spec)
    >>> batch["inputs"].tolist(), sorted(batch["targets"][0].tolist())
    ([[4, 4, 4]], [7, 8, 9])
    """
    batch = mlm.corrupt(rng, rows, vocab, spec)
    weights, nothing = batch["weights"]["loss"], jnp.zeros(rows["tokens"].shape)
    positions = batch["masked_positions"]
    noise_mask = jax.vmap(edits.put)(nothing, positions, weights, weights)
    real = (get_segments(rows) > 0).astype(jnp.float32)
    terms = {"kl_loss": noise_mask if spec.restrict_kl else real, "mlm_loss": weights}
    cosine = {"cosine_loss": real} if spec.cosine_weight else {}
    return batch | {"weights": terms | cosine}


def masks(batch: dict) -> dict:
    """Every position sees its whole document, in both networks."""
    return mlm.masks(batch)


def loss(params, model: MaskedStudent, batch: dict, masks: dict, rngs: dict):
    """KL from the teacher, cross-entropy at the P masked positions, cosine of states.

    Where the KL is not read there alone, every token meets both vocabularies.
    """
    positions, targets, weights = (
        batch[key] for key in ("masked_positions", "targets", "weights")
    )
    masked, soft = weights["mlm_loss"], weights["kl_loss"]

    def predict(model):
        states = model.student.batch_states(
            batch, masks, deterministic="dropout" not in rngs
        )
        taught, cosine = model.teacher_outputs(batch, masks), {}
        if model.has_cosine:
            apart = losses.cosine_distance(states, taught, weights["cosine_loss"])
            cosine = {"cosine_loss": apart}
        if model.is_restricted:
            read = [edits.gather(x, positions) for x in (states, taught)]
            return model.distillation_loss(*read, targets), cosine
        whole = jax.vmap(edits.put)(batch["inputs"], positions, targets, masked)
        return model.distillation_loss(states, taught, whole), cosine

    found, cosine = model.apply({"params": params}, rngs=rngs, method=predict)
    nll, ranks = found.nll, found.ranks
    if model.is_restricted:
        soft = masked
    else:
        nll, ranks = (jnp.take_along_axis(x, positions, axis=1) for x in (nll, ranks))
    terms = {
        "kl_loss": (jnp.sum(found.divergences * soft), jnp.sum(soft)),
        "mlm_loss": (jnp.sum(nll * masked), jnp.sum(masked)),
    }
    return terms | cosine, mlm.fill_metrics(ranks, masked)


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Mask tokens, read them with both networks, learn from the teacher."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)

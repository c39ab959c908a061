"""Distillation of a causal model: a small one learns what a large one says comes next.

Hinton et al. 2015; huggingface/transformers-research-projects,
`distillation/distiller.py`, whose code defaults these are: 0.5 KL + 0.5 CLM, the KL at
temperature 2 and times 4, no cosine. Both networks read `a b c`; at each place the
student meets the next token and the teacher's distribution of it.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.learn.frozen import keep
from jaxpt.nn import decoding, flops, scan
from jaxpt.nn.distiller import Distiller
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives import distillation
from jaxpt.ops import losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("causal",)
# Whether a token may see what follows it.
READS_AHEAD = False
# What the teacher must be: a run has a network for this.
TEACHER = "causal"


@dataclasses.dataclass(frozen=True)
class Spec:
    """Who teaches, and what each of the two losses counts for.

    Attributes:
      teacher, teacher_model, student_layers, freeze_positions, temperature: as of
        `distillation.Spec`; the teacher is a causal run.
      kl_weight, clm_weight: of the two losses.
    """

    row_length: int
    teacher: str = ""
    teacher_model: ModelSpec | dict = dataclasses.field(default_factory=dict)
    student_layers: tuple[int, ...] = ()
    freeze_positions: bool = False
    temperature: float = 2.0
    kl_weight: float = 0.5
    clm_weight: float = 0.5

    def __post_init__(self):
        if isinstance(self.teacher_model, dict):  # as a config has it
            made = ModelSpec(**self.teacher_model) if self.teacher_model else None
            object.__setattr__(self, "teacher_model", made)
        if self.row_length < 2:
            raise UserError(
                f"data.row_length={self.row_length}: causal_distillation needs at "
                f"least 2"
            )
        for name, is_good, allowed in (
            ("temperature", self.temperature > 0, "above 0"),
            ("kl_weight", self.kl_weight > 0, "above 0"),
            ("clm_weight", self.clm_weight >= 0, "at least 0"),
        ):
            if not is_good:
                raise UserError(
                    f"causal_distillation.{name}={getattr(self, name)}: must be "
                    f"{allowed}"
                )


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len + 1, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"student": spec.row_length - 1, "teacher": spec.row_length - 1}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row: three passes of the student, one of the teacher.

    The convention is that of `jaxpt.nn.flops`.
    """
    length = spec.row_length - 1

    def forward(network: ModelSpec) -> float:
        total = flops.project_flops(network, length)
        total += flops.stack_flops(network, network.num_layers, length)
        return total + flops.head_flops(network, length)

    theirs = distillation.teacher_spec(model_spec, spec)
    return flops.TRAIN_FACTOR * forward(model_spec) + forward(theirs)


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Distiller:
    """The two networks.

    Raises:
      UserError: the model has a second stack, or the teacher's sizes are not such that
        this student can learn from it.
    """
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"causal_distillation, whose networks have one stack each "
            f"(model.num_layers)"
        )
    model_spec = model_spec.direct(READS_AHEAD)
    # One that a config does not tell the directions of was read so before it could.
    theirs = distillation.teacher_spec(model_spec, spec).direct(READS_AHEAD)
    length = model_lengths(spec)["teacher"]
    distillation.check_teacher("causal_distillation", model_spec, theirs, spec, length)
    return Distiller(model_spec, theirs, spec.temperature)


def init_params(rng, model: Distiller, spec: Spec):
    """Fresh parameters of both networks; `begin` puts the teacher's in their place."""
    ids = jnp.zeros((1, spec.row_length - 1), jnp.int32)
    return scan.init_params(model, rng, ids, attention_masks.causal())


# What a run begins with, and what it never changes.
begin, frozen = distillation.begin, distillation.frozen


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Shifts by one; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 8]], [[8, 9]])
    """
    tokens = rows["tokens"]
    batch = {"index": rows["index"], "inputs": tokens[:, :-1], "targets": tokens[:, 1:]}
    if "segment_ids" not in rows:
        return batch | {"loss_weights": jnp.ones(batch["targets"].shape, jnp.float32)}
    segments = rows["segment_ids"]
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    weights = is_next.astype(jnp.float32)
    return batch | {"loss_weights": weights, "segment_ids": segments[:, :-1]}


def masks(batch: dict) -> dict:
    """Each position sees itself and its past, within its document, in both networks."""
    return {"self": attention_masks.causal(batch.get("segment_ids"))}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    return {"kl_loss": spec.kl_weight, "clm_loss": spec.clm_weight}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    total = batch["loss_weights"].sum()
    return {"kl_loss": total, "clm_loss": total}


def loss(params, model: Distiller, batch: dict, masks: dict, rngs: dict):
    """KL from the teacher and cross-entropy, both at every position."""
    deterministic = "dropout" not in rngs
    seen = batch["inputs"], masks["self"], segment_positions(batch.get("segment_ids"))
    read = batch["loss_weights"]

    def predict(model):
        states = model.encode(*seen, deterministic=deterministic)
        return model.teach(states, model.lecture(*seen), batch["targets"])

    found = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {
        "kl_loss": (jnp.sum(found.divergences * read), jnp.sum(read)),
        "clm_loss": (jnp.sum(found.nll * read), jnp.sum(read)),
    }
    return terms, terms | {"accuracy": losses.rank_hits(found.ranks, read)}


def make_train_step(
    model, vocab: Vocab, spec: Spec, optimizer, num_microbatches=1, axis=None
):
    """step(state, rows, rng) -> state, {name: (sum, weight)}; `axis` names pmap's."""

    def train_step(state, rows, rng):
        rng_corrupt, rng_dropout = jax.random.split(rng)
        batch = corrupt(rng_corrupt, rows, vocab, spec)
        totals = update.add_devices(weights(batch), axis)
        fixed = jax.lax.stop_gradient(state.params)

        def loss_fn(student, micro, rngs):
            params = keep(fixed, fixed | {"student": student}, frozen(spec))
            terms, metrics = loss(params, model, micro, masks(micro), rngs)
            return update.weigh(terms, totals, coefficients(spec)), metrics

        rngs = {"dropout": rng_dropout}
        grads, metrics = update.accumulate(
            loss_fn, state.params["student"], batch, rngs, num_microbatches, axis
        )
        grads, metrics = update.add_devices((grads, metrics), axis)
        grads = {
            "student": grads,
            "teacher": jax.tree.map(jnp.zeros_like, state.params["teacher"]),
        }
        state = update.apply_gradients(state, grads, optimizer, frozen(spec))
        return state, metrics | update.gradient_norm(grads)

    return train_step


def make_eval_step(model, vocab: Vocab, spec: Spec):
    """step(params, rows, rng) -> {name: (sum, weight)}, without dropout."""

    def eval_step(params, rows, rng):
        batch = update.weigh_rows(corrupt(rng, rows, vocab, spec), rows)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: Distiller, tokens):
    """Frozen hidden states [B, T, D] of the student on plain text [B, T]."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.causal(),
        deterministic=True,
        method="encode",
    )


def next_logits(params, model: Distiller, tokens):
    """The student's scores [B, T, V] of the token that follows each place."""

    def predict(model):
        mask = attention_masks.causal()
        return model.logits(model.encode(tokens, mask, deterministic=True))

    return model.apply({"params": params}, method=predict)


def make_decoder(model: Distiller, vocab: Vocab) -> decoding.Decoder:
    """What goes on from a prompt, token by token: the student."""
    student = Transformer(model.student_spec)
    made = decoding.make_decoder(student)
    return dataclasses.replace(
        made, prepare=lambda params: made.prepare(params["student"])
    )


def token_nll(params, model: Distiller, tokens):
    """The student's -log p in nats [B, R - 1] of rows [B, R] after their first."""

    def predict(model):
        seen = attention_masks.causal()
        hidden = model.encode(tokens[:, :-1], seen, deterministic=True)
        return model.student.nll(hidden, tokens[:, 1:])

    return model.apply({"params": params}, method=predict)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters).

    The student alone: the teacher is another run's.
    """
    return {"causal": (model_spec, params["student"])}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks: they lack the teacher."""
    return {"student": parts["causal"]}

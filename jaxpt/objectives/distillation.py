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

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.learn.frozen import keep
from jaxpt.nn import distiller, flops, scan
from jaxpt.nn.distiller import Distiller
from jaxpt.nn.model_spec import COMPUTING, LAYOUT, ModelSpec, find_differences
from jaxpt.ops import edits, losses, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("masked",)
# What the teacher must be: a run has a network for this.
TEACHER = "masked"


@dataclasses.dataclass(frozen=True)
class Spec:
    """Who teaches, what is hidden, and what each of the three losses counts for.

    Attributes:
      teacher: folder of the run that teaches: its newest parameters, or their mean.
      teacher_model: the teacher's `model` section, written here by the run itself, so
        that it goes on without that folder; {} without a teacher, as the student's.
      student_layers: which of the teacher's layers the student's begin as (DistilBERT's
        are 0 2 4 7 9 11 of 12), with all else that both have; () draws it afresh.
      freeze_positions: the student's table of places stays as it begins, as in
        DistilBERT's own run (`--freeze_pos_embs`).
      temperature: of both distributions in the KL, which is times its square.
      kl_weight, mlm_weight, cosine_weight: DistilBERT's 5, 2, 1; without cosine (0) the
        student may have another width.
      restrict_kl: read the KL at the hidden positions alone. The source's default is
        all tokens but padding (its `restrict_ce_to_mask` is off).
      mask_rate, replace_mask, replace_random: what is hidden, as for `mlm`.
    """

    row_length: int
    teacher: str = ""
    teacher_model: ModelSpec | dict = dataclasses.field(default_factory=dict)
    student_layers: tuple[int, ...] = ()
    freeze_positions: bool = False
    temperature: float = 2.0
    kl_weight: float = 5.0
    mlm_weight: float = 2.0
    cosine_weight: float = 1.0
    restrict_kl: bool = False
    mask_rate: float = 0.15
    replace_mask: float = 0.8
    replace_random: float = 0.1

    def __post_init__(self):
        if isinstance(self.teacher_model, dict):  # as a config has it
            made = ModelSpec(**self.teacher_model) if self.teacher_model else None
            object.__setattr__(self, "teacher_model", made)
        shares = self.replace_mask + self.replace_random
        for name, is_good, allowed in (
            ("temperature", self.temperature > 0, "above 0"),
            ("kl_weight", self.kl_weight > 0, "above 0"),
            ("mlm_weight", self.mlm_weight >= 0, "at least 0"),
            ("cosine_weight", self.cosine_weight >= 0, "at least 0"),
            ("mask_rate", 0 < self.mask_rate < 1, "between 0 and 1, both excluded"),
            ("replace_mask", self.replace_mask >= 0, "at least 0"),
            ("replace_random", self.replace_random >= 0, "at least 0"),
            ("replace_mask", shares <= 1 + 1e-9, "at most 1 with replace_random"),
        ):
            if not is_good:
                raise UserError(
                    f"distillation.{name}={getattr(self, name)}: must be {allowed}"
                )

    @property
    def num_slots(self) -> int:
        """P: predictions in a full row."""
        return int(noise.count_table(self.row_length, self.mask_rate)[-1])


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"student": spec.row_length, "teacher": spec.row_length}


def teacher_spec(model_spec: ModelSpec, spec: Spec) -> ModelSpec:
    """The teacher's sizes; how it is computed, the student's model says."""
    theirs = spec.teacher_model or model_spec
    how = {name: getattr(model_spec, name) for name in COMPUTING}
    size = theirs.vocab_size or model_spec.vocab_size
    return dataclasses.replace(theirs, vocab_size=size, **how)


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row: three passes of the student, one of the teacher.

    The convention is that of `jaxpt.nn.flops`.
    """
    length = spec.row_length
    num_read = spec.num_slots if spec.restrict_kl else length

    def forward(network: ModelSpec) -> float:
        total = flops.project_flops(network, length)
        total += flops.stack_flops(network, network.num_layers, length)
        return total + flops.head_flops(network, num_read)

    student, teacher = forward(model_spec), forward(teacher_spec(model_spec, spec))
    return flops.TRAIN_FACTOR * student + teacher


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Distiller:
    """The two networks.

    Raises:
      UserError: the vocabulary has no [MASK], the model has a second stack, or the
        teacher's sizes are not such that this student can learn from it.
    """
    vocab.require("mask")
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"distillation, whose networks have one stack each (model.num_layers)"
        )
    theirs = teacher_spec(model_spec, spec)
    check_teacher("distillation", model_spec, theirs, spec, spec.row_length)
    if spec.cosine_weight and model_spec.d_model != theirs.d_model:
        raise UserError(
            f"model.d_model={model_spec.d_model}: must be the teacher's "
            f"{theirs.d_model}, unless distillation.cosine_weight is 0"
        )
    return Distiller(
        model_spec,
        theirs,
        spec.temperature,
        is_restricted=spec.restrict_kl,
        has_cosine=spec.cosine_weight > 0,
    )


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
    # Which parameters there are, `begin` looks at.
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


def init_params(rng, model: Distiller, spec: Spec):
    """Fresh parameters of both networks; `begin` puts the teacher's in their place."""
    ids = jnp.zeros((1, spec.row_length), jnp.int32)
    return scan.init_params(model, rng, ids, attention_masks.full())


# What a run begins with: the teacher, and its layers in the student.
begin = distiller.begin


def frozen(spec: Spec) -> tuple[str, ...]:
    """Paths of the parameters that no step changes."""
    return "teacher", *(["student/embed/positions"] * spec.freeze_positions)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Hides an exact count of each row's tokens behind BERT's 80/10/10.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> spec = Spec(row_length=3, mask_rate=0.9, replace_mask=1.0, replace_random=0.0)
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=10, mask=4), spec)
    >>> batch["inputs"].tolist(), sorted(batch["targets"][0].tolist())
    ([[4, 4, 4]], [7, 8, 9])
    """
    special, ordinary = jnp.asarray(vocab.is_special), jnp.asarray(vocab.ordinary_ids)
    counts = jnp.asarray(noise.count_table(spec.row_length, spec.mask_rate))

    def corrupt_row(rng, tokens, real):
        rng_choose, rng_replace = jax.random.split(rng)
        eligible, count = real & ~special[tokens], counts[real.sum()]
        positions, weights = noise.sample_positions(
            rng_choose, eligible, count, spec.num_slots
        )
        targets = tokens[positions]
        shares = spec.replace_mask, spec.replace_random
        shown = edits.replace_tokens(
            rng_replace, targets, vocab.mask, ordinary, *shares
        )
        hidden = edits.put(
            jnp.zeros(tokens.shape), positions, jnp.ones(weights.shape), weights
        )
        real = real.astype(jnp.float32)
        return {
            "inputs": edits.put(tokens, positions, shown, weights),
            "targets": targets,
            "positions": positions,
            "loss_weights": weights,
            "real": real,
            "soft_weights": hidden if spec.restrict_kl else real,
        }

    tokens = rows["tokens"]
    segments = rows.get("segment_ids", jnp.ones_like(tokens))
    keys = row_keys(rng, rows["index"])
    batch = jax.vmap(corrupt_row)(keys, tokens, segments > 0)
    kept = {name: rows[name] for name in ("index", "segment_ids") if name in rows}
    return batch | kept


def masks(batch: dict) -> dict:
    """Everything sees everything, within its document, in both networks."""
    return {"self": attention_masks.segments(batch.get("segment_ids"))}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    terms = {"kl_loss": spec.kl_weight, "mlm_loss": spec.mlm_weight}
    return terms | ({"cosine_loss": spec.cosine_weight} if spec.cosine_weight else {})


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {
        "kl_loss": batch["soft_weights"].sum(),
        "mlm_loss": batch["loss_weights"].sum(),
        "cosine_loss": batch["real"].sum(),
    }


def loss(params, model: Distiller, batch: dict, masks: dict, rngs: dict):
    """KL from the teacher, cross-entropy at the P hidden positions, cosine of states.

    Where the KL is not read there alone, every token meets both vocabularies.
    """
    deterministic = "dropout" not in rngs
    seen = batch["inputs"], masks["self"], segment_positions(batch.get("segment_ids"))
    positions, hidden = batch["positions"], batch["loss_weights"]
    soft, targets = batch["soft_weights"], batch["targets"]

    def predict(model):
        states = model.encode(*seen, deterministic=deterministic)
        taught = model.lecture(*seen)
        apart = losses.cosine_distance(states, taught, batch["real"])
        if model.is_restricted:
            read = [edits.gather(x, positions) for x in (states, taught)]
            return model.teach(*read, targets), apart
        whole = jax.vmap(edits.put)(batch["inputs"], positions, targets, hidden)
        return model.teach(states, taught, whole), apart

    found, apart = model.apply({"params": params}, rngs=rngs, method=predict)
    nll, ranks = found.nll, found.ranks
    if model.is_restricted:
        soft = hidden
    else:
        nll, ranks = (jnp.take_along_axis(x, positions, axis=1) for x in (nll, ranks))
    terms = {
        "kl_loss": (jnp.sum(found.divergences * soft), jnp.sum(soft)),
        "mlm_loss": (jnp.sum(nll * hidden), jnp.sum(hidden)),
    }
    if model.has_cosine:
        terms["cosine_loss"] = apart
    hits = losses.rank_hits(ranks, hidden)
    return terms, terms | {
        "accuracy": hits,
        "fill_top1": hits,
        "fill_top5": losses.rank_hits(ranks, hidden, k=5),
    }


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
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )


def fill_logits(params, model: Distiller, tokens):
    """The student's scores [B, T, V] of every token for text with [MASK]s in it."""

    def predict(model):
        mask = attention_masks.full()
        return model.logits(model.encode(tokens, mask, deterministic=True))

    return model.apply({"params": params}, method=predict)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters).

    The student alone: the teacher is another run's.
    """
    return {"masked": (model_spec, params["student"])}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks: they lack the teacher."""
    return {"student": parts["masked"]}

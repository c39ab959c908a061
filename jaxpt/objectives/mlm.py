"""Masked language modelling: hide some tokens, predict them from both sides.

Devlin et al. 2019; constants and counting as in google-research/bert,
`create_pretraining_data.py`. Departures: positions are drawn anew at every step, unless
asked otherwise (RoBERTa's dynamic masking), and random words come from the ordinary
tokens, never the special ones (fairseq's choice; BERT draws from the whole vocabulary).
"""

import dataclasses
import typing

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives.masking import Masking, choose, map_rows
from jaxpt.objectives.masking import check_rate as check_rate
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids", "progress"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("masked",)


@dataclasses.dataclass(frozen=True)
class Spec(Masking):
    """How much to hide in what pieces (see `Masking`), and what stands there instead.

    Attributes:
      replace_mask: of what is hidden, the share shown as [MASK]; replace_random: as a
        random token; the rest are shown as they are. Each token is drawn by itself,
        also in a word or a span (BERT's; fairseq draws once for a word).
    """

    SECTION: typing.ClassVar[str] = "mlm"

    replace_mask: float = 0.8
    replace_random: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        check_shares(self.SECTION, self.replace_mask, self.replace_random)


def check_shares(section: str, mask: float, random: float) -> None:
    """Raises UserError unless both are shares of one whole."""
    if not (min(mask, random) >= 0 and mask + random <= 1 + 1e-9):
        raise UserError(
            f"{section}.replace_mask={mask}, {section}.replace_random={random}: both "
            f"must be at least 0, and their sum at most 1"
        )


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"encoder": spec.row_length}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    length = spec.row_length
    forward = flops.project_flops(model_spec, length)
    forward += flops.stack_flops(model_spec, model_spec.num_layers, length)
    forward += flops.head_flops(model_spec, spec.num_slots)
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Transformer:
    """One stack.

    Raises:
      UserError: the vocabulary has no [MASK], or the spec needs words and it tells of
        none, or the model has a second stack.
    """
    spec.check_vocab(vocab)
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"mlm, which has one stack (model.num_layers)"
        )
    return Transformer(model_spec)


def init_params(rng, model: Transformer, spec: Spec):
    """Fresh parameters."""
    ids = jnp.zeros((1, spec.row_length), jnp.int32)
    mask = {"self": attention_masks.full()}
    return scan.init_params(model, rng, ids, mask, deterministic=True)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Hides an exact count of each row's tokens behind BERT's 80/10/10.

    >>> vocab = Vocab(size=6, mask=0, word_starts=(True,) * 5 + (False,))
    >>> spec = Spec(row_length=4, mask_rate=0.5, masking="words", replace_mask=1.0,
    ...             replace_random=0.0)
    >>> rows = {"tokens": jnp.array([[3, 4, 5, 5]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(0), rows, vocab, spec)
    >>> batch["inputs"].tolist(), batch["loss_weights"].tolist()  # 3 for 2 are too many
    ([[0, 4, 5, 5]], [[1.0, 0.0]])
    """
    ordinary = jnp.asarray(vocab.ordinary_ids)

    def corrupt_row(rng, tokens, segments, progress):
        rng_choose, rng_replace = jax.random.split(rng)
        positions, weights = choose(rng_choose, tokens, segments, vocab, spec, progress)
        targets = tokens[positions]
        shown = edits.replace_tokens(
            rng_replace,
            targets,
            vocab.mask,
            ordinary,
            spec.replace_mask,
            spec.replace_random,
        )
        return {
            "inputs": edits.put(tokens, positions, shown, weights),
            "targets": targets,
            "positions": positions,
            "loss_weights": weights,
        }

    return map_rows(corrupt_row, rng, rows, spec)


def masks(batch: dict) -> dict:
    """Everything sees everything, within its document."""
    return {"self": attention_masks.segments(batch.get("segment_ids"))}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    return {"loss": 1.0}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {"loss": batch["loss_weights"].sum()}


def loss(params, model: Transformer, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at the P hidden positions; only they meet the vocabulary."""
    deterministic = "dropout" not in rngs
    places = segment_positions(batch.get("segment_ids"))
    targets, loss_weights = batch["targets"], batch["loss_weights"]

    def predict(model):
        hidden = model.encode(
            batch["inputs"], masks["self"], places, deterministic=deterministic
        )
        hidden = edits.gather(hidden, batch["positions"])
        return model.score(hidden, targets, loss_weights)

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"loss": scores.loss}
    hits = losses.rank_hits(scores.ranks, loss_weights)
    return terms, terms | {
        "accuracy": hits,
        "fill_top1": hits,
        "fill_top5": losses.rank_hits(scores.ranks, loss_weights, k=5),
    }


def make_train_step(
    model, vocab: Vocab, spec: Spec, optimizer, num_microbatches=1, axis=None
):
    """step(state, rows, rng) -> state, {name: (sum, weight)}; `axis` names pmap's."""

    def train_step(state, rows, rng):
        rng_corrupt, rng_dropout = jax.random.split(rng)
        batch = corrupt(rng_corrupt, rows, vocab, spec)
        totals = update.add_devices(weights(batch), axis)

        def loss_fn(params, micro, rngs):
            terms, metrics = loss(params, model, micro, masks(micro), rngs)
            return update.weigh(terms, totals, coefficients(spec)), metrics

        rngs = {"dropout": rng_dropout}
        grads, metrics = update.accumulate(
            loss_fn, state.params, batch, rngs, num_microbatches, axis
        )
        grads, metrics = update.add_devices((grads, metrics), axis)
        state = update.apply_gradients(state, grads, optimizer)
        return state, metrics | update.gradient_norm(grads)

    return train_step


def make_eval_step(model, vocab: Vocab, spec: Spec):
    """step(params, rows, rng) -> {name: (sum, weight)}, without dropout."""

    def eval_step(params, rows, rng):
        batch = update.weigh_rows(corrupt(rng, rows, vocab, spec), rows)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: Transformer, tokens):
    """Frozen hidden states [B, T, D] of plain text [B, T]."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )


def fill_logits(params, model: Transformer, tokens):
    """Scores [B, T, V] of every token at every position of text with [MASK]s in it."""
    mask = {"self": attention_masks.full()}
    return model.apply({"params": params}, tokens, mask, deterministic=True)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters)."""
    return {"masked": (model_spec, params)}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks."""
    return parts["masked"]

"""Causal and masked rows in one batch, on the same parameters and the same head.

Charpentier and Samuel 2024 (GPT-BERT). A causal row `a b c d` reads a b c and predicts
b c d. A masked row reads it with some tokens hidden, sees all of it, and predicts each
hidden token at the place before, where the causal head predicts it too.

The kind is drawn for each row: masked with probability `mlm_share`, but causal for the
first `clm_first` of training. GPT-BERT shares out whole devices instead. There as here
each kind's loss is a mean of its own, and counts for its share.

    loss = (1 - mlm_share) mean over causal rows' t of -log p(x_t | x_1 ... x_t-1)
           + mlm_share mean over masked i of -log p(x_i | row)
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.nn.networks.one_stack import CausalMaskedLM
from jaxpt.objectives.mlm import check_fractions
from jaxpt.objectives.objective import Needs, ObjectiveSpec, get_segments
from jaxpt.ops import edits, losses, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.metrics import add
from jaxpt.ops.packing import exactly, mix
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """How many rows are masked, and when; how much of one is hidden, and behind what.

    Attributes:
      mlm_share: of rows that are masked rows; what is evaluated has it, too.
      clm_first: share of the training steps, from the first on, in which every row is
        causal. Above 0, either kind's loss counts in full.
      mask_rate: of a masked row's tokens that have one before them, an exact count.
      replace_mask: of those, the share shown as [MASK].
      replace_random: of those, the share shown as a random token; the rest are shown as
        they are.
    """

    SECTION: ClassVar[str] = "clm_mlm"
    READS: ClassVar = ObjectiveSpec.READS | {"progress"}
    NETWORKS: ClassVar = (CausalMaskedLM,)
    MIN_LENGTH: ClassVar[int] = 2
    EXTRA_LENGTH: ClassVar[int] = 1

    mlm_share: float = 0.5
    clm_first: float = 0.0
    mask_rate: float = 0.15
    replace_mask: float = 0.8
    replace_random: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        self.check_rate("mask_rate")
        self.check("mlm_share", 0 < self.mlm_share <= 1, "above 0, at most 1")
        self.check("clm_first", 0 <= self.clm_first < 1, "at least 0, below 1")
        check_fractions(self)

    @property
    def lengths(self):
        return {"decoder": self.row_length - 1}

    @property
    def num_masked(self) -> int:
        """P: predictions in a full masked row."""
        return int(noise.count_table(self.row_length - 1, self.mask_rate)[-1])

    @property
    def num_predictions(self) -> int:
        """Every position of a causal row, and the P of a masked one.

        Which of them a row is is drawn, so it has room for both.
        """
        return self.row_length - 1 + self.num_masked

    @property
    def prediction_laws(self):
        """All of a row of one kind, none of the other's, as the share has it.

        With `clm_first` the share changes, and nothing is packed.
        """
        if self.clm_first:
            return {}
        none, share = exactly(0), self.mlm_share
        causal, masked = exactly(self.row_length - 1), exactly(self.num_masked)
        return {
            "clm_loss": mix([(1 - share, causal), (share, none)]),
            "mlm_loss": mix([(share, masked), (1 - share, none)]),
        }

    @property
    def coefficients(self):
        """Each kind's fraction of the rows.

        With `clm_first` it is 1, so that each phase has its whole loss.
        """
        if self.clm_first:
            return {"clm_loss": 1.0, "mlm_loss": 1.0}
        return {"clm_loss": 1 - self.mlm_share, "mlm_loss": self.mlm_share}

    @property
    def needs(self):
        return Needs(specials=("mask",))

    def describe_mask(self):
        return (
            f"Trained under two masks: a fraction of {self.mlm_share:g} of the rows, "
            "with [MASK] in them, saw all of the text and had each masked token "
            "predicted at the position before it; the others saw their past. To fill "
            "a [MASK] all must be seen."
        )


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Shifts by one, as clm does; in masked rows masks an exact count of tokens.

    A row of two tokens, of which only the second can be predicted:

    >>> rows = {"tokens": jnp.array([[7, 8]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(9, mask=4), Spec(2, mlm_share=1))
    >>> [batch[key].tolist() for key in ("inputs", "targets", "masked_positions")]
    [[[7]], [[8]], [[0]]]
    >>> [batch["weights"][term].tolist() for term in ("clm_loss", "mlm_loss")]
    [[[0.0]], [[1.0]]]
    """
    ordinary = jnp.asarray(vocab.ordinary_ids)
    is_special = jnp.asarray(vocab.is_special)
    table = jnp.asarray(noise.count_table(spec.row_length - 1, spec.mask_rate))
    tokens = rows["tokens"]
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    segments = get_segments(rows)
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    progress = rows.get("progress", jnp.ones(len(tokens)))  # lacks where none is made

    def corrupt_row(rng, inputs, targets, is_next, progress):
        rng_kind, rng_choose, rng_replace = jax.random.split(rng, 3)
        is_masked = jax.random.uniform(rng_kind) < spec.mlm_share
        is_masked &= progress >= spec.clm_first
        # Masked tokens are predicted one position before their own.
        positions, weights = noise.sample_positions(
            rng_choose,
            is_next & ~is_special[targets],
            table[is_next.sum()],
            spec.num_masked,
        )
        shown = edits.replace_tokens(
            rng_replace,
            targets[positions],
            vocab.mask,
            ordinary,
            spec.replace_mask,
            spec.replace_random,
        )
        # The last token is no input: what is put behind the row is dropped.
        noised = edits.put(inputs, positions + 1, shown, weights)
        return {
            "inputs": jnp.where(is_masked, noised, inputs),
            "is_prefix": jnp.broadcast_to(is_masked, inputs.shape),
            "masked_positions": positions,
            "weights": {
                "clm_loss": (is_next & ~is_masked).astype(jnp.float32),
                "mlm_loss": weights * is_masked,
            },
        }

    keys = row_keys(rng, rows["index"])
    batch = jax.vmap(corrupt_row)(keys, inputs, targets, is_next, progress)
    batch |= {"index": rows["index"], "targets": targets}
    if "segment_ids" not in rows:
        return batch
    return batch | {"segment_ids": segments[:, :-1]}


def masks(batch: dict) -> dict:
    """In a document all is seen if its row is masked, else the past; nothing beyond."""
    segments = batch.get("segment_ids")
    return {"self": attention_masks.prefix_keys(batch["is_prefix"], segments)}


def loss(params, model: CausalMaskedLM, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy of causal rows everywhere, of masked ones where they are masked."""
    targets, positions = batch["targets"], batch["masked_positions"]
    masked = jnp.take_along_axis(targets, positions, axis=1)
    of_causal, of_masked = (batch["weights"][k] for k in ("clm_loss", "mlm_loss"))

    def predict(model):
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        causal = model.score_term("clm_loss", states, targets, of_causal)
        states = edits.gather(states, positions)
        return causal, model.score_term("mlm_loss", states, masked, of_masked)

    found = model.apply({"params": params}, rngs=rngs, method=predict)
    (causal, of_causal, overflow), (filled, of_masked, more) = found
    terms = {"clm_loss": causal.loss, "mlm_loss": filled.loss}
    return terms, {
        "accuracy": losses.rank_hits(causal.ranks, of_causal),
        "fill_top1": losses.rank_hits(filled.ranks, of_masked),
        "fill_top5": losses.rank_hits(filled.ranks, of_masked, k=5),
    } | (add(overflow, more) if overflow else {})


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Read some rows causally and some masked, predict from the same head."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)

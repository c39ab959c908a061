"""Masked language modelling: mask some tokens, predict them from both sides.

Devlin et al. 2019; constants and counting as in google-research/bert,
`create_pretraining_data.py`. Departures: positions are drawn again at every step,
unless `static_masks` is set (RoBERTa's dynamic masking), and random words are ordinary
tokens, never special ones (fairseq's choice; BERT draws from the whole vocabulary).

    loss = mean over masked i of -log p(x_i | the corrupted row)

Controls: all hidden tokens as [MASK] (`replace_mask=1`, `replace_random=0`), and other
rates.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update
from jaxpt.objectives.masking import MASKED, Masking, choose, map_masked_rows
from jaxpt.objectives.objective import Keys, Masks, Sums
from jaxpt.objectives.spec import ObjectiveSpec, Term
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.setting_types import Fraction
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.one_stack import MaskedLM


@dataclasses.dataclass(frozen=True)
class Spec(Masking):
    """How much to mask in what units (see `Masking`), and what replaces it.

    Attributes:
      replace_mask: of the masked tokens, the fraction replaced by [MASK]. Each token is
        drawn separately, also in a word or a span (BERT's; fairseq draws once for a
        word).
      replace_random: of the masked tokens, the fraction replaced by a random token; the
        rest stay as they are.
    """

    SECTION: ClassVar[str] = "mlm"
    NETWORKS: ClassVar = ("one_stack.MaskedLM",)

    replace_mask: Fraction = 0.8
    replace_random: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions(self, self.replace_mask, self.replace_random)

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": MASKED}

    def controls(self) -> dict[str, dict[str, Any]]:
        all_masks = {"replace_mask": 1.0, "replace_random": 0.0}
        mixed = {"replace_mask": 0.8, "replace_random": 0.1}
        if self.replace_mask < 1:
            return {"all-masks": {self.SECTION: all_masks}}
        return {"80-10-10": {self.SECTION: mixed}}


def check_fractions(spec: ObjectiveSpec, mask: float, random: float) -> None:
    """Raises UserError unless a spec's two `replace_` are fractions of one whole."""
    if mask + random > 1 + 1e-9:
        name = spec.SECTION
        raise ConfigError(
            f"{name}.replace_mask={mask}, {name}.replace_random={random}: their sum "
            f"must be at most 1"
        )


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Masks an exact count of each row's tokens, replaced as BERT's 80/10/10.

    >>> vocab = Vocab(size=6, mask=0, word_starts=(True,) * 5 + (False,))
    >>> spec = Spec(row_length=4, mask_rate=0.5, masking="words", replace_mask=1.0,
    ...             replace_random=0.0)
    >>> rows = {"tokens": jnp.array([[3, 4, 5, 5]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(0), rows, vocab, spec)
    >>> batch["inputs"].tolist()  # 3 tokens of one word are too many for 2
    [[0, 4, 5, 5]]
    >>> batch["weights"]["loss"].tolist()
    [[1.0, 0.0]]
    """

    def corrupt_row(
        rng: Array,
        tokens: Array,
        segments: Array,
        progress: Array | None,
    ) -> Batch:
        rng_choose, rng_replace = jax.random.split(rng)
        positions, weights = choose(rng_choose, tokens, segments, vocab, spec, progress)
        return hide(rng_replace, tokens, positions, weights, vocab, spec)

    return map_masked_rows(corrupt_row, rng, rows, spec)


def hide(
    rng: Array,
    tokens: Array,
    positions: Array,
    weights: Array,
    vocab: Vocab,
    spec: Spec,
) -> Batch:
    """One row's part of the batch: its tokens [R] at positions [P] are replaced."""
    ordinary, mask_id = jnp.asarray(vocab.ordinary_ids), vocab.require("mask")
    fractions = spec.replace_mask, spec.replace_random
    targets = tokens[positions]
    replaced = edits.replace_tokens(rng, targets, mask_id, ordinary, *fractions)
    return {
        "inputs": edits.put(tokens, positions, replaced, weights),
        "targets": targets,
        "masked_positions": positions,
        "weights": {"loss": weights},
    }


def masks(batch: Batch) -> Masks:
    """Every position attends to its whole document."""
    return {"self": attention_masks.segments(batch.get("segment_ids"))}


def loss(
    params: Any, model: "MaskedLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy at the P masked positions, which alone meet the vocabulary."""
    scores = predict_masked(params, model, batch, masks, rngs)
    return {"loss": scores.loss}, fill_metrics(scores.ranks, batch["weights"]["loss"])


def predict_masked(
    params: Any, model: "MaskedLM", batch: Batch, masks: Masks, rngs: Keys
) -> losses.Scores:
    """Loss and ranks of the tokens at the P masked positions."""
    targets, weights = batch["targets"], batch["weights"]["loss"]

    def predict(model: "MaskedLM") -> losses.Scores:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        states = edits.gather(states, batch["masked_positions"])
        return model.score(states, targets, weights)

    scores: losses.Scores = model.apply({"params": params}, rngs=rngs, method=predict)
    return scores


def fill_metrics(ranks: Array, weights: Array) -> Sums:
    """How often a masked token is the most likely answer, or among the top five."""
    return {
        "masked_accuracy": losses.rank_hits(ranks, weights),
        "masked_top5_accuracy": losses.rank_hits(ranks, weights, k=5),
    }


def train_step(
    state: TrainState,
    rows: Rows,
    rngs: Keys,
    *,
    model: "MaskedLM",
    vocab: Vocab,
    spec: Spec,
    update: Update,
) -> tuple[TrainState, Sums]:
    """Mask some tokens, read from both sides, predict the masked ones."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)

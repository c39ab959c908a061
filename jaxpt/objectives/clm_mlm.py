"""Causal and masked rows in one batch, on the same parameters and the same head.

Charpentier and Samuel 2024 (GPT-BERT). In a causal row `a b c d` the network reads
a b c and predicts b c d. In a masked row some tokens are hidden, every position attends
to all, and each hidden token is predicted at the position before it, where the causal
head predicts it too.

The kind is drawn for each row: masked with probability m. GPT-BERT assigns whole
devices instead. In both, each kind's loss is a separate mean with the weight of its
share.

    loss = (1 - m) mean over causal rows' t of -log p(x_t | x_1 ... x_t-1)
           + m mean over masked i of -log p(x_i | row)

m is `mlm_share`, or changes during training by `mlm_schedule`:

    ((0.25, 0),) and mlm_share=1           CLM, then MLM (arXiv 2507.00994)
    ((1/6, 0), (5/6, 1)) and mlm_share=0   4 epochs of CLM, 16 of MLM, 4 of CLM (AntLM)

Departure from both: masked rows read their loss at the position before in every phase,
so no phase unlearns the shift. Relative positions have buckets for both directions from
the first step (`CausalMaskedLM.READS_AHEAD`).

Controls: with `mlm_share=0` it is `clm`, with 1 `mlm` read at the position before. Of a
schedule: the reverse order, and a constant mixture with the same numbers of rows.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.objectives.masking import MASKED
from jaxpt.objectives.mlm import check_fractions
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_scored,
    get_segments,
    make_train_step,
)
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Predictions, Term
from jaxpt.ops import edits, losses, noise, shares
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.metrics import add
from jaxpt.ops.packing import exactly, mix
from jaxpt.rng import row_keys
from jaxpt.setting_types import Fraction, InnerFraction, Rule, is_schedule
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.one_stack import CausalMaskedLM


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """How many rows are masked, and when; how many of their tokens, and by what.

    Attributes:
      mlm_share: fraction of masked rows, in evaluation too, and the weight of their
        loss; that of causal rows has the rest.
      mlm_schedule: pairs (until, share): until this fraction of the training, `share`
        replaces `mlm_share`, as in ((0.25, 0.0),) for causal rows first. After the last
        pair, and always in evaluation, `mlm_share` applies.
      mask_rate: of a masked row's tokens after its first, an exact count.
      replace_mask: of those, the fraction replaced by [MASK].
      replace_random: of those, the fraction replaced by a random token; the rest stay
        as they are.
    """

    SECTION: ClassVar[str] = "clm_mlm"
    READS: ClassVar = ObjectiveSpec.READS | {"progress", "answers"}
    NETWORKS: ClassVar = ("one_stack.CausalMaskedLM",)
    MIN_LENGTH: ClassVar[int] = 2

    mlm_share: Fraction = 0.5
    mlm_schedule: Annotated[
        tuple[tuple[Fraction, Fraction], ...],
        Rule(
            is_schedule,
            "pairs (until, share) such as ((0.25, 0.0),): until above 0, increasing, "
            "at most 1; share from 0 to 1",
        ),
    ] = ()
    mask_rate: InnerFraction = 0.15
    replace_mask: Fraction = 0.8
    replace_random: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions(self, self.replace_mask, self.replace_random)

    @property
    def phases(self) -> shares.Phases:
        """Pairs (until, shares) of causal and masked rows, of the whole training."""
        pairs = [(until, (1 - share, share)) for until, share in self.mlm_schedule]
        return shares.add_last(tuple(pairs), (1 - self.mlm_share, self.mlm_share))

    @property
    def mean_share(self) -> float:
        """The fraction of masked rows in the whole training.

        >>> Spec(4, mlm_share=1.0, mlm_schedule=((0.25, 0.0),)).mean_share
        0.75
        """
        return shares.find_means(self.phases)[1]

    def shares_at(self, progress: Any) -> tuple[Any, Any]:
        """The shares of causal and masked rows after this fraction of the training.

        >>> spec = Spec(4, mlm_share=0.0, mlm_schedule=((1 / 6, 0.0), (5 / 6, 1.0)))
        >>> [spec.shares_at(p)[1] for p in (0, 0.1, 1 / 6, 0.5, 5 / 6, 0.99)]
        [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
        """
        causal, masked = shares.find_shares(self.phases, progress)
        return causal, masked

    @property
    def lengths(self) -> dict[str, int]:
        return {"decoder": self.row_length - 1}

    @property
    def num_masked(self) -> int:
        """P: predictions in a full masked row."""
        return int(noise.count_table(self.row_length - 1, self.mask_rate)[-1])

    @property
    def predictions(self) -> Predictions:
        """Every position of a causal row, the P of a masked one, none of the other.

        The kind of a row is drawn, so it has room for both; each kind for its largest
        share, if the share changes. If all rows are causal at any time, nothing is
        packed.
        """
        most = self.row_length - 1 + self.num_masked
        masked_shares = [self.mlm_share, *(share for _, (_, share) in self.phases)]
        low, high = min(masked_shares), max(masked_shares)
        if low == 0:
            return Predictions(most)
        none, masked = exactly(0), exactly(self.num_masked)
        causal = exactly(self.row_length - 1)
        laws = {
            "clm_loss": mix([(1 - low, causal), (low, none)]),
            "mlm_loss": mix([(high, masked), (1 - high, none)]),
        }
        return Predictions(most, laws)

    @property
    def terms(self) -> dict[str, Term]:
        """Each kind has the weight of its share of the rows."""
        share = self.mlm_share
        filled = dataclasses.replace(MASKED, coefficient=share, is_in_place=False)
        return {
            "clm_loss": Term("next token", 1 - share, is_likelihood=True),
            "mlm_loss": filled,
        }

    def coefficients_at(self, progress: Any) -> dict[str, Any]:
        if not self.mlm_schedule:
            return self.coefficients
        causal, masked = self.shares_at(progress)
        return {"clm_loss": causal, "mlm_loss": masked}

    @property
    def needs(self) -> Needs:
        return Needs(specials=("mask",))

    def controls(self) -> dict[str, dict[str, Any]]:
        controls: dict[str, dict[str, Any]] = {
            "clm": {"objective": "clm"},
            "mlm": {"objective": "mlm"},
        }
        if self.mlm_schedule:
            constant = {"mlm_schedule": (), "mlm_share": self.mean_share}
            controls["constant"] = {self.SECTION: constant}
        return controls

    def text_form(self, vocab: Vocab) -> TextForm:
        return note_masks(super().text_form(vocab), self.mean_share)


def note_masks(form: TextForm, share: float) -> TextForm:
    """The form of a network that is trained with this fraction of masked rows."""
    note = (
        f"Trained with two masks: in a fraction of {share:g} of the rows, "
        "with [MASK] in them, every token attended to all and each masked token "
        "was predicted at the position before it; in the others tokens attended "
        "to their past. To fill a [MASK], let all positions attend to all."
    )
    return dataclasses.replace(form, mask_note=note)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
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
    is_next = (segments[:, 1:] == segments[:, :-1]) & (get_scored(rows)[:, 1:] > 0)
    masked_share = jnp.full(len(tokens), spec.mlm_share)
    if spec.mlm_schedule and "progress" in rows:  # absent in evaluation
        _, masked_share = spec.shares_at(rows["progress"])
    mask_id = vocab.require("mask")

    def corrupt_row(
        rng: Array,
        inputs: Array,
        targets: Array,
        is_next: Array,
        share: Array,
    ) -> Batch:
        rng_kind, rng_choose, rng_replace = jax.random.split(rng, 3)
        is_masked = jax.random.uniform(rng_kind) < share
        # Masked tokens are predicted one position before their own.
        positions, weights = noise.sample_positions(
            rng_choose,
            is_next & ~is_special[targets],
            table[is_next.sum()],
            spec.num_masked,
        )
        replaced = edits.replace_tokens(
            rng_replace,
            targets[positions],
            mask_id,
            ordinary,
            spec.replace_mask,
            spec.replace_random,
        )
        # The last token is not an input: a position after the row is dropped.
        noised = edits.put(inputs, positions + 1, replaced, weights)
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
    batch: Batch = jax.vmap(corrupt_row)(keys, inputs, targets, is_next, masked_share)
    batch |= {"index": rows["index"], "targets": targets}
    if "segment_ids" in rows:
        batch["segment_ids"] = segments[:, :-1]
    return batch


def masks(batch: Batch) -> Masks:
    """Each position attends to its document in a masked row, else to its past."""
    segments = batch.get("segment_ids")
    return {"self": attention_masks.prefix_keys(batch["is_prefix"], segments)}


def loss(
    params: Any, model: "CausalMaskedLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy at every position of causal rows, at P positions of masked ones."""
    targets, positions = batch["targets"], batch["masked_positions"]
    masked = jnp.take_along_axis(targets, positions, axis=1)
    of_causal, of_masked = (batch["weights"][k] for k in ("clm_loss", "mlm_loss"))

    def predict(model: "CausalMaskedLM") -> tuple[tuple, tuple]:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        causal = model.score_term("clm_loss", states, targets, of_causal)
        states = edits.gather(states, positions)
        return causal, model.score_term("mlm_loss", states, masked, of_masked)

    parts = model.apply({"params": params}, rngs=rngs, method=predict)
    (causal, of_causal, overflow), (filled, of_masked, more) = parts
    terms = {"clm_loss": causal.loss, "mlm_loss": filled.loss}
    return terms, {
        "accuracy": losses.rank_hits(causal.ranks, of_causal),
        "masked_accuracy": losses.rank_hits(filled.ranks, of_masked),
        "masked_top5_accuracy": losses.rank_hits(filled.ranks, of_masked, k=5),
    } | (add(overflow, more) if overflow else {})


train_step = make_train_step(corrupt, masks, loss)

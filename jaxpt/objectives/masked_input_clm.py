"""Causal language modelling with masked-input regularization (MIR).

arXiv 2606.06888, "Data-Constrained Language Model Pretraining". The network reads each
row twice, causally: as it is, and with a random fraction r of its inputs replaced by
[MASK]. In both passes every next token is predicted, whether the inputs hide it or not.

    text     7 8 9 5 6
    inputs   7 8 9 5         predicts   8 9 5 6
    masked   7 M 9 M         predicts   8 9 5 6

    loss = mean over t of -log p(x_t | x_1 ... x_t-1)
           + 0.4 mean over t of -log p(x_t | masked x_1 ... x_t-1)

r is uniform from 0 to `max_rate`, drawn for each row at every step. The first loss is
`clm`'s, with the same perplexity; likelihoods and generation read clean text. A second
pass doubles the FLOPs of a step. At equal FLOPs the control is `clm` for twice the
epochs; other controls are `clm` with dropout, and with a large weight decay, on which
the paper adds this term (0.8; learning rate 1e-3, 16 epochs).

`passes="masked"` leaves the first pass out, at the FLOPs of `clm`. With a constant
share of masked inputs, `hide_rate=0.15`, this is MEAP (arXiv 2502.07490, scitix/MEAP,
`pretrained/meap_1b_0.15_20b.py`):

    inputs   7 M 9 5         predicts   8 9 5 6

    loss = mean over t of -log p(x_t | masked x_1 ... x_t-1)

Of T inputs max(1, floor(T r)) are masked, never the last one. Without the first pass,
evaluation reads clean text, so that `loss` is `clm`'s. Controls: both passes, random
tokens instead of [MASK] (`hide_by="random"`), and `clm`, also with dropout.

Departures: MIR's repository never masks the first 8 inputs of a row. Here all may be
masked by default (`clean_inputs=8` is the repository's). With rates up to `max_rate`
each token is masked independently. MEAP masks the same positions in all rows of a step,
from 51 patterns; here each row draws its own. Special tokens are never masked; with
`hide_rate`, the first token of a packed document neither.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxpt.dims import Batch, Rows
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.objectives import clm
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_scored,
    get_segments,
    make_train_step,
)
from jaxpt.objectives.spec import Needs, Predictions, Term
from jaxpt.ops import losses, noise
from jaxpt.ops.segments import segment_positions
from jaxpt.rng import row_keys
from jaxpt.setting_types import (
    BelowOne,
    NonNegativeInt,
    OneOf,
    PositiveFloat,
    PositiveFraction,
)
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm


class TwicePassedLM(CausalLM):
    """A causal model that may read each training row in several passes."""

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """The sum over passes, which predict the same number of tokens."""
        per_pass = num_predictions / len(lengths)
        return sum(
            super(TwicePassedLM, self).count_flops({name: length}, per_pass)
            for name, length in lengths.items()
        )


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """The passes, how many inputs are masked, and the weight of the second loss.

    Attributes:
      passes: "both", or "masked", in training the second alone.
      hide_rate: the share of the inputs of each row that is masked, in exact numbers;
        0: a rate drawn for each row, by `max_rate`.
      hide_by: "mask", or "random", a random ordinary token instead.
      max_rate: a row's mask rate is uniform from 0 to it.
      masked_weight: of the loss of the masked pass, next to the clean one.
      clean_inputs: the first inputs of each text that are never masked; of packed rows,
        of each of their documents. The paper's repository has 8.
    """

    SECTION: ClassVar[str] = "masked_input_clm"
    NETWORKS: ClassVar = (TwicePassedLM,)
    READS: ClassVar = clm.Spec.READS | {"progress"}

    passes: Annotated[str, OneOf("both", "masked")] = "both"
    hide_rate: BelowOne = 0.0
    hide_by: Annotated[str, OneOf("mask", "random")] = "mask"
    max_rate: PositiveFraction = 0.5
    masked_weight: PositiveFloat = 0.4
    clean_inputs: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.row_length - 2
        allowed = f"at most {most}, one less than the inputs of a row"
        self.check("clean_inputs", self.clean_inputs <= most, allowed)

    @property
    def has_clean_pass(self) -> bool:
        """Whether training reads the clean inputs too."""
        return self.passes == "both"

    @property
    def lengths(self) -> dict[str, int]:
        """Of each pass."""
        names = ("clean", "masked") if self.has_clean_pass else ("masked",)
        return dict.fromkeys(names, self.row_length - 1)

    @property
    def predictions(self) -> Predictions:
        """Every position of each pass."""
        return Predictions(sum(self.lengths.values()))

    @property
    def terms(self) -> dict[str, Term]:
        if not self.has_clean_pass:
            return super().terms
        masked = Term("next token of masked input", self.masked_weight)
        return super().terms | {"masked_loss": masked}

    @property
    def needs(self) -> Needs:
        return Needs(specials=("mask",) * (self.hide_by == "mask"))

    def controls(self) -> dict[str, dict[str, Any]]:
        other = "masked" if self.has_clean_pass else "both"
        return {
            "clm": {"objective": "clm"},
            "clm-dropout": {"objective": "clm", "model": {"dropout": 0.1}},
            other: {self.SECTION: {"passes": other}},
            "random": {self.SECTION: {"hide_by": "random"}},
        }

    def text_form(self, vocab: Vocab) -> TextForm:
        """As for clm, without [MASK]: the network is used on clean text."""
        return TextForm()


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as clm does; in a second copy of the inputs masks some tokens.

    >>> rows = {"tokens": jnp.array([[7, 8, 9, 5, 6]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(13), rows, Vocab(size=10, mask=4), Spec(5))
    >>> [batch[key].tolist() for key in ("original", "inputs", "targets")]
    [[[7, 8, 9, 5]], [[7, 4, 9, 4]], [[8, 9, 5, 6]]]
    >>> batch["weights"]["masked_loss"].tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    batch, is_training = clm.corrupt(rng, rows, vocab, spec), "progress" in rows
    weights = batch["weights"]["loss"]
    if spec.has_clean_pass:
        batch["original"] = batch["inputs"]
        batch["weights"] = {"loss": weights, "masked_loss": weights}
    elif not is_training:
        return batch
    is_special, inputs = jnp.asarray(vocab.is_special), batch["inputs"]
    positions = segment_positions(get_segments(rows))[:, :-1]
    eligible = ~is_special[inputs] & (positions >= spec.clean_inputs)
    eligible &= get_scored(rows)[:, :-1] > 0
    if spec.hide_rate and "segment_ids" in rows:
        eligible &= positions > 0

    def draw(rng: Array, eligible: Array, weights: Array) -> tuple[Array, Array]:
        rng_rate, rng_mask = jax.random.split(rng)
        if spec.hide_rate:
            noise_mask = hide_exactly(rng_mask, eligible, weights, spec.hide_rate)
        else:
            rate = spec.max_rate * jax.random.uniform(rng_rate)
            draws = jax.random.uniform(rng_mask, eligible.shape)
            noise_mask = (draws < rate) & eligible
        if spec.hide_by == "mask":
            return noise_mask, jnp.full(eligible.shape, vocab.require("mask"))
        rng_random, ordinary = jax.random.fold_in(rng, 2), vocab.ordinary_ids
        return noise_mask, jax.random.choice(rng_random, ordinary, eligible.shape)

    keys = row_keys(rng, rows["index"])
    noise_mask, hidden = jax.vmap(draw)(keys, eligible, weights)
    return batch | {"inputs": jnp.where(noise_mask, hidden, inputs)}


def hide_exactly(
    rng: Array, eligible: Bool[Array, "T"], weights: Float[Array, "T"], rate: float
) -> Bool[Array, "T"]:
    """Masks max(1, floor(n * rate)) of the n inputs that predict, as MEAP does.

    Args:
      eligible: whether an input may be masked; if fewer are, all of them.
      weights: above 0 where an input predicts. The last one before an input that does
        not, which is the last of a document, is never masked.

    >>> rng, ones = jax.random.key(0), jnp.ones(20)
    >>> int(hide_exactly(rng, ones > 0, ones, 0.15).sum())
    3
    """
    is_before_last = jnp.pad(weights, (0, 1))[1:] > 0
    eligible = eligible & (weights > 0) & is_before_last
    table = noise.floor_table(len(weights), rate)
    count = jnp.asarray(table)[jnp.count_nonzero(weights)]
    places, is_used = noise.sample_positions(rng, eligible, count, int(table[-1]))
    return jnp.zeros(eligible.shape, bool).at[places].max(is_used > 0)


masks = clm.masks


def loss(
    params: Any, model: TwicePassedLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of every next token, from the inputs of each pass."""
    passes: dict[str, Batch] = {"loss": batch}
    if "original" in batch:
        clean: Batch = batch | {"inputs": batch["original"]}
        passes = {"loss": clean, "masked_loss": batch}

    def predict(model: TwicePassedLM) -> dict[str, tuple]:
        parts = {}
        for term, inputs in passes.items():
            states = model.batch_states(
                inputs, masks, deterministic="dropout" not in rngs
            )
            weights = batch["weights"][term]
            parts[term] = model.score_term(term, states, batch["targets"], weights)
        return parts

    parts = model.apply({"params": params}, rngs=rngs, method=predict)
    scores, weights, more = parts["loss"]
    hits = losses.rank_hits(scores.ranks, weights)
    terms = {term: scores.loss for term, (scores, _, _) in parts.items()}
    return terms, {"accuracy": hits} | more


train_step = make_train_step(corrupt, masks, loss)

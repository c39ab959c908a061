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

Departures: the paper's repository never masks the first 8 inputs of a row. Here all may
be masked by default (`clean_inputs=8` is the repository's). Each token is masked
independently; special tokens never are.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.nn.text_form import TextForm
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
from jaxpt.ops import losses
from jaxpt.ops.segments import segment_positions
from jaxpt.rng import row_keys
from jaxpt.setting_types import NonNegativeInt, PositiveFloat, PositiveFraction
from jaxpt.text.tokens.vocab import Vocab


class TwicePassedLM(CausalLM):
    """A causal model that reads each training row in several passes."""

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """The sum over passes, which predict the same number of tokens."""
        per_pass = num_predictions / len(lengths)
        return sum(
            super(TwicePassedLM, self).count_flops({name: length}, per_pass)
            for name, length in lengths.items()
        )


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """How many inputs are masked, and the weight of the second loss.

    Attributes:
      max_rate: a row's mask rate is uniform from 0 to it.
      masked_weight: of the loss of the masked pass.
      clean_inputs: the first inputs of each text that are never masked; of packed rows,
        of each of their documents. The paper's repository has 8.
    """

    SECTION: ClassVar[str] = "masked_input_clm"
    NETWORKS: ClassVar = (TwicePassedLM,)

    max_rate: PositiveFraction = 0.5
    masked_weight: PositiveFloat = 0.4
    clean_inputs: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.row_length - 2
        allowed = f"at most {most}, one less than the inputs of a row"
        self.check("clean_inputs", self.clean_inputs <= most, allowed)

    @property
    def lengths(self) -> dict[str, int]:
        """Of the two passes."""
        return {"clean": self.row_length - 1, "masked": self.row_length - 1}

    @property
    def predictions(self) -> Predictions:
        """Every position of both passes."""
        return Predictions(sum(self.lengths.values()))

    @property
    def terms(self) -> dict[str, Term]:
        masked = Term("next token of masked input", self.masked_weight)
        return super().terms | {"masked_loss": masked}

    @property
    def needs(self) -> Needs:
        return Needs(specials=("mask",))

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
    is_special, mask_id = jnp.asarray(vocab.is_special), vocab.require("mask")
    batch = clm.corrupt(rng, rows, vocab, spec)
    inputs, weights = batch["inputs"], batch["weights"]["loss"]

    def draw(rng: Array) -> Array:
        rng_rate, rng_mask = jax.random.split(rng)
        rate = spec.max_rate * jax.random.uniform(rng_rate)
        return jax.random.uniform(rng_mask, inputs.shape[1:]) < rate

    noise_mask = jax.vmap(draw)(row_keys(rng, rows["index"])) & ~is_special[inputs]
    noise_mask &= get_scored(rows)[:, :-1] > 0
    noise_mask &= segment_positions(get_segments(rows))[:, :-1] >= spec.clean_inputs
    return batch | {
        "inputs": jnp.where(noise_mask, mask_id, inputs),
        "original": inputs,
        "weights": {"loss": weights, "masked_loss": weights},
    }


masks = clm.masks


def loss(
    params: Any, model: TwicePassedLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of every next token, from clean and from masked inputs."""
    clean: Batch = batch | {"inputs": batch["original"]}

    def predict(model: TwicePassedLM) -> dict[str, tuple]:
        parts = {}
        for term, inputs in {"loss": clean, "masked_loss": batch}.items():
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

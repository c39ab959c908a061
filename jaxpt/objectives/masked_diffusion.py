"""Masked diffusion: mask a random fraction of each row, predict all that is masked.

LLaDA (Nie et al. 2025), `get_log_likelihood.py` and its guidelines; MDLM (Sahoo et al.
2024). A row's mask rate t is uniform in (0, 1]. Each token is masked independently with
probability t, always by [MASK], and the loss of a masked token has weight 1 / t. Its
expectation is an upper bound of -log p of the row:

    t = 0.5    the [MASK] sat on [MASK] mat    loss = (-log p(cat) - log p(the)) / t

Departures: a batch's rates are spread evenly by the golden ratio (MDLM's are i / B
apart), special tokens are never masked, and the loss is a mean over the other tokens.

Masked tokens get the slots (`jaxpt.ops.packing`) of rows with independent rates. Evenly
spread rates need fewer. A microbatch takes every n-th row; their rates are close to
each other if n is a Fibonacci number: 13 microbatches leave up to 0.01 % of the
predictions without a slot, 21 up to 0.4 %, 55 up to 4 %. The run warns.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.one_stack import (
    MaskedLM,
)
from jaxpt.objectives import mlm
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step, map_rows
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Predictions, Term
from jaxpt.ops.packing import uniform_rate
from jaxpt.setting_types import InnerFraction, PositiveInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network

GOLDEN = (5**0.5 - 1) / 2


class DiffusionLM(MaskedLM):
    """A masked model that bounds a text's likelihood, and writes by unmasking."""

    SCORING = (*MaskedLM.SCORING, "bound")

    mask_id: int = 0
    bound_samples: int = 8
    block_size: int = 0

    def nll_bound(
        self, params: Any, tokens: Array, is_text: Array, rngs: Array
    ) -> Array:
        def read(inputs: Array) -> Array:
            def predict(model: MaskedLM) -> Array:
                attn_mask = mlm.masks({})["self"]
                return model.nll(
                    model.encode(inputs, attn_mask, deterministic=True), tokens
                )

            return self.apply({"params": params}, method=predict)

        return bound_nll(read, tokens, is_text, rngs, self.mask_id, self.bound_samples)


def bound_nll(
    read: Callable[[Array], Array],
    tokens: Array,
    is_text: Array,
    rngs: Array,
    mask_id: int,
    num_samples: int,
) -> Array:
    """LLaDA's equation 6: l of n tokens are masked, l in 1..n, weight n / l.

    Args:
      read: (tokens [B, T] with masks) -> -log p [B, T] of each token without them.
      tokens, is_text, rngs: as in `BoundsLikelihood.nll_bound`.
    """
    num_text = is_text.sum(1, keepdims=True)
    starts = jax.vmap(jax.random.uniform)(rngs)[:, None]

    def bound(sample: Array) -> Array:
        keys = jax.vmap(jax.random.fold_in, (0, None))(rngs, sample + 1)
        draw = lambda key: jax.random.uniform(key, tokens.shape[1:])  # noqa: E731
        draws = jax.vmap(draw)(keys)
        rank = jnp.argsort(jnp.argsort(jnp.where(is_text, draws, 2.0), 1), 1)
        share = (starts + sample) / num_samples
        num_masked = jnp.minimum(1 + jnp.floor(num_text * share), num_text)
        is_masked = is_text & (rank < num_masked)
        nll = read(jnp.where(is_masked, mask_id, tokens))
        return is_masked * nll * num_text / jnp.maximum(num_masked, 1)

    return jax.lax.map(bound, jnp.arange(num_samples)).mean(0)


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """The smallest mask rate, and the precision of the likelihood bound.

    Attributes:
      min_rate: rates are uniform from it to 1 (LLaDA's), so that 1 / t is finite.
      bound_samples: corruptions of each held-out row over which the bound is averaged.
    """

    SECTION: ClassVar[str] = "masked_diffusion"
    READS: ClassVar[frozenset[str]] = ObjectiveSpec.READS | {"answers"}
    NETWORKS: ClassVar = (DiffusionLM,)

    min_rate: InnerFraction = 1e-3
    bound_samples: PositiveInt = 8

    @property
    def needs(self) -> Needs:
        return Needs(specials=("mask",))

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("masked token", selects="inverse_rates")}

    @property
    def predictions(self) -> Predictions:
        """As in rows with independent rates; a batch's sum varies less."""
        law = uniform_rate(self.row_length, self.min_rate)
        return Predictions(self.row_length, {"loss": law})

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        fields |= {"mask_id": vocab.mask, "bound_samples": self.bound_samples}
        return super().make_network(model_spec, vocab, **fields)


def spread_evenly(rng: Array, index: Array) -> Array:
    """A uniform number in [0, 1) for each row; those of a batch are evenly spread."""
    return (jax.random.uniform(rng) + index * GOLDEN) % 1


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Masks each ordinary token with the probability of its row.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> spec = Spec(row_length=3, min_rate=0.999)
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=10, mask=4), spec)
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[4, 4, 4]], [[7, 8, 9]])
    """
    rng_rate, rng_mask = jax.random.split(rng)
    is_special, mask_id = jnp.asarray(vocab.is_special), vocab.require("mask")
    spread = spread_evenly(rng_rate, rows["index"])
    rates = spec.min_rate + (1 - spec.min_rate) * spread

    def corrupt_row(rng: Array, tokens: Array, segments: Array, rate: Array) -> Batch:
        is_text = (segments > 0) & ~is_special[tokens]
        noise_mask = is_text & (jax.random.uniform(rng, tokens.shape) < rate)
        return {
            "inputs": jnp.where(noise_mask, mask_id, tokens),
            "targets": tokens,
            "inverse_rates": noise_mask / rate,
            "weights": {"loss": is_text.astype(jnp.float32)},
        }

    return map_rows(corrupt_row, rng_mask, rows, rates)


masks = mlm.masks


def loss(
    params: Any, model: DiffusionLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of masked tokens over their row's rate, a mean over all tokens."""
    weights = batch["weights"]["loss"]
    counted = weights * batch["inverse_rates"]

    def predict(model: DiffusionLM) -> tuple:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        return model.score_term("loss", states, batch["targets"], counted)

    scores, scored_weights, overflow = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    fills = mlm.fill_metrics(scores.ranks, jnp.sign(scored_weights))
    return {"loss": (scores.loss[0], weights.sum())}, fills | overflow


train_step = make_train_step(corrupt, masks, loss)

"""Dual-objective language modelling: causal rows and rows of masked diffusion.

Samuel and Charpentier 2025 (arXiv 2512.14549); ltgoslo/dual-language-models. One
network and one head, as in `clm_mlm`: a diffusion row is read in both directions, and
each masked token is predicted at the position before it. Its mask rate t is drawn for
each row, masked tokens are always [MASK], and their losses have weight 1 / t.

    text                the cat    sat on     mat
    causal row          the cat    sat on           predicts   cat  sat  on   mat
    diffusion row       the [MASK] sat [MASK]       predicts   cat       on   mat

    loss = (1 - s) mean over causal rows' i of -log p(x_i | x_1 ... x_i-1)
           + s mean over diffusion rows' i of [i is masked] / t * -log p(x_i | row)

s is `diffusion_share`, the fraction of diffusion rows. The second mean is over all
tokens of these rows, masked or not, and its expectation bounds -log p of a row given
its first token. In the paper the best s is 1/64 for up to 16 epochs of the same text,
1/4 for 32 and 7/8 for 128.

Departures. The paper's code assigns whole devices to a kind and gives causal tokens the
weight 2, which is not in its formula; here each kind's loss is a separate mean, with
the weight of its share. Its code masks an exact count of tokens; here each is masked
independently, as in `masked_diffusion`, and special tokens never are. The last token,
which is no input, always counts there; here it is drawn like the others. Its z-loss
of 1e-4 is `model.z_loss`, 0 by default.

One draw for each row, evenly spread over the batch (`masked_diffusion.spread_evenly`),
determines its kind and its rate, so that a batch has nearly s of its rows masked, at
evenly spread rates. A batch of fewer than 3 / s rows may have none, so that the kind
has less weight in the run. The predictions of both kinds share the slots
(`jaxpt.ops.packing`) of independent rows; the note in `masked_diffusion` about
microbatches applies. A step costs about the same as one of `clm`.

Controls: `clm`, whose rows are the causal ones; `diffusion_share=1`, which is
`masked_diffusion` read at the position before (with `masked_diffusion.shift` the last
token is an input, too); `clm_mlm`, with a fixed mask rate.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.nn.networks.diffusion import bound_nll
from jaxpt.nn.networks.one_stack import CausalMaskedLM
from jaxpt.objectives import clm, clm_mlm, masked_diffusion, mlm
from jaxpt.objectives.masked_diffusion import spread_evenly
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Predictions, Term
from jaxpt.ops import losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.packing import exactly, mix, pack, uniform_rate
from jaxpt.rng import row_keys
from jaxpt.setting_types import PositiveFraction
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

BOTH = "clm_loss+diffusion_loss"  # which are packed together


class DualLM(CausalMaskedLM):
    """A causal and masked model that writes in any order and bounds a likelihood."""

    mask_id: int = 0
    bound_samples: int = 8
    block_size: int = 0

    def nll_bound(
        self, params: Any, tokens: Array, is_text: Array, rngs: Array
    ) -> Array:
        """[B, T - 1]: at the first position nothing predicts, so its token is given."""

        def read(inputs: Array) -> Array:
            def predict(model: CausalMaskedLM) -> Array:
                full = attention_masks.full()
                states = model.encode(inputs[:, :-1], full, deterministic=True)
                return model.nll(states, tokens[:, 1:])

            nll = self.apply({"params": params}, method=predict)
            return jnp.pad(nll, ((0, 0), (1, 0)))

        is_text = is_text & (jnp.arange(tokens.shape[1]) > 0)
        samples = self.mask_id, self.bound_samples
        return bound_nll(read, tokens, is_text, rngs, *samples)[:, 1:]

    def score_predictions(
        self, states: Array, targets: Array, weights: Array
    ) -> tuple[Array, Array, Array, Sums]:
        """-log p and rank of predictions, their weights, and overflow.

        If they are packed, only positions with a weight, which may be negative, meet
        the vocabulary, and all have the shape of the slots.
        """
        law = dict(self.packed).get(BOTH)
        if law is None:
            return *self.token_scores(states, targets), weights, {}
        slots = pack(states, targets, weights, law)
        scores = self.token_scores(slots.states, slots.targets)
        return *scores, slots.weights, {"overflow": slots.overflow}


@dataclasses.dataclass(frozen=True)
class Spec(masked_diffusion.BoundSpec):
    """The diffusion rows; their rates and the bound as in `masked_diffusion`.

    Attributes:
      diffusion_share: fraction of diffusion rows, in evaluation too, and the weight of
        their loss.
    """

    SECTION: ClassVar[str] = "dual"
    NETWORKS: ClassVar = (DualLM,)
    MIN_LENGTH: ClassVar[int] = 2

    diffusion_share: PositiveFraction = 0.5

    @property
    def lengths(self) -> dict[str, int]:
        return {"decoder": self.row_length - 1}

    @property
    def terms(self) -> dict[str, Term]:
        """Each kind has the weight of its share of the rows."""
        share = self.diffusion_share
        return {
            "clm_loss": Term("next token", 1 - share, is_likelihood=True),
            "diffusion_loss": Term("masked token", share, selects="inverse_rates"),
        }

    @property
    def predictions(self) -> Predictions:
        """Every position of a causal row, the masked tokens of a diffusion row."""
        num, share = self.row_length - 1, self.diffusion_share
        masked = uniform_rate(num, self.min_rate)
        law = mix([(1 - share, exactly(num)), (share, masked)])
        return Predictions(num, {BOTH: law})

    def controls(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"objective": name} for name in ("clm", "masked_diffusion", "clm_mlm")
        }

    def text_form(self, vocab: Vocab) -> TextForm:
        return clm_mlm.note_masks(super().text_form(vocab), self.diffusion_share)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as clm does; in diffusion rows masks tokens at the row's rate.

    A row of which the third token is masked, and predicted at the second position:

    >>> rows = {"tokens": jnp.array([[10, 11, 12, 13, 14]]), "index": jnp.array([0])}
    >>> vocab, spec = Vocab(size=15, mask=4), Spec(5, diffusion_share=1.0)
    >>> batch = corrupt(jax.random.key(52), rows, vocab, spec)
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[10, 11, 4, 13]], [[11, 12, 13, 14]])
    >>> (batch["inverse_rates"] > 0).tolist()
    [[False, True, False, False]]
    >>> batch["weights"]["diffusion_loss"].tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    rng_rate, rng_mask = jax.random.split(rng)
    is_special, mask_id = jnp.asarray(vocab.is_special), vocab.require("mask")
    batch = clm.corrupt(rng, rows, vocab, clm.Spec(spec.row_length))
    inputs, targets = batch["inputs"], batch["targets"]
    is_next = batch["weights"]["loss"] > 0
    # Below the share a row is masked, at a rate that is again uniform.
    spread = spread_evenly(rng_rate, rows["index"])[:, None] / spec.diffusion_share
    is_masked = spread < 1
    rates = spec.min_rate + (1 - spec.min_rate) * spread
    keys = row_keys(rng_mask, rows["index"])
    draws = jax.vmap(lambda key: jax.random.uniform(key, inputs.shape[1:]))(keys)
    is_text = is_next & ~is_special[targets] & is_masked
    noise_mask = is_text & (draws < rates)
    # Masked tokens are predicted one position before; the last is not an input.
    is_hidden = jnp.pad(noise_mask[:, :-1], ((0, 0), (1, 0)))
    return batch | {
        "inputs": jnp.where(is_hidden, mask_id, inputs),
        "is_prefix": jnp.broadcast_to(is_masked, inputs.shape),
        "inverse_rates": noise_mask / rates,
        "weights": {
            "clm_loss": (is_next & ~is_masked).astype(jnp.float32),
            "diffusion_loss": is_text.astype(jnp.float32),
        },
    }


masks = clm_mlm.masks


def loss(
    params: Any, model: DualLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of next tokens in causal rows, of masked ones over their rate."""
    weights = batch["weights"]
    masked_weights = weights["diffusion_loss"] * batch["inverse_rates"]

    def predict(model: DualLM) -> tuple:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        # A row is of one kind: above 0 causal, below 0 masked.
        signed = weights["clm_loss"] - masked_weights
        return model.score_predictions(states, batch["targets"], signed)

    nll, ranks, signed, overflow = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    causal, masked = jnp.maximum(signed, 0), jnp.maximum(-signed, 0)
    terms = {
        "clm_loss": (jnp.sum(nll * causal), jnp.sum(causal)),
        "diffusion_loss": (jnp.sum(nll * masked), weights["diffusion_loss"].sum()),
    }
    fills = mlm.fill_metrics(ranks, jnp.sign(masked))
    return terms, {"accuracy": losses.rank_hits(ranks, causal)} | fills | overflow


train_step = make_train_step(corrupt, masks, loss)

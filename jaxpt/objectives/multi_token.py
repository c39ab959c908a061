"""Multi-token prediction without extra heads: the next tokens, by the same logits.

KellerJordan/modded-nanogpt, `train_gpt.py`. The logits z_t that predict the next token
also predict the tokens at larger offsets k, with weights w_k that fade to 0 during the
run, the farthest offset first. With p the fraction of the run that is done:

                       input   7  8  9
                  offset 1     8  9  10    weight 1
                  offset 2     9  10 .     .5,  from p = 1/3 on .5 (2 - 3p), to p = 2/3
                  offset 3     10 .  .     .25 (1 - 3p), to p = 1/3

    loss = mean over t of sum over k of w_k(p) l(z_t, x_t+k),  l(z, v) = lse(z) - z[v]

The mean is over the predictions of offset 1 and is not divided by the sum of weights,
in which the schedule would cancel. The two terms have this one divisor: `clm_loss` is
that of `clm`, `offset_loss` is the sum over offsets from 2 on. In evaluation the run is
at its end, so that `offset_loss` is 0 and the network is a causal language model. An
offset never reaches into the next packed document of a row.

FLOPs are those of `clm`: the logits and their softmax are computed once for all
offsets. Control: `offset_weights=(0,)` gives the parameters of `clm` bit by bit. With
`fade_end=0` the weights are constant. At three widths `clm` is better in bits per byte
at equal FLOPs, by .018 to .042, with ten seeds: docs/results/multi-token.md.

Gloeckle et al. 2024 and DeepSeek-V3 predict larger offsets by extra layers instead.

Departure: the loss is a mean over tokens, in the source a sum.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxpt.dims import Batch, Rows
from jaxpt.objectives import clm
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Term
from jaxpt.ops import losses
from jaxpt.setting_types import Fraction, Length, NonNegativeFloat
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.one_stack import CausalLM


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """The weights of larger offsets, and when they end.

    Attributes:
      offset_weights: at the first step, of the tokens 2, 3, ... positions ahead.
      fade_end: fraction of the training steps at which the last of them reaches 0. They
        fade linearly one after the other, the farthest first, each in an equal part
        of these steps; 0 keeps them constant, in evaluation too.
    """

    SECTION: ClassVar[str] = "multi_token"
    READS: ClassVar = clm.Spec.READS | {"progress"}

    offset_weights: Annotated[tuple[NonNegativeFloat, ...], Length(1)] = (0.5, 0.25)
    fade_end: Fraction = 2 / 3

    @property
    def terms(self) -> dict[str, Term]:
        """Both have coefficient 1: `offset_weights` are the factors."""
        return {
            "clm_loss": Term("next token", is_likelihood=True),
            "offset_loss": Term("tokens further ahead"),
        }

    def controls(self) -> dict[str, dict[str, Any]]:
        controls: dict[str, dict[str, Any]] = {"clm": {"objective": "clm"}}
        if self.fade_end:
            controls["constant"] = {self.SECTION: {"fade_end": 0.0}}
        return controls


def find_weights(spec: Spec, progress: Float[Array, "B"]) -> Float[Array, "B K"]:
    """The weights of the offsets 2, 3, ... at a fraction of the run.

    >>> find_weights(Spec(4), jnp.array([0, 1 / 6, 1 / 2, 1])).round(3).tolist()
    [[0.5, 0.25], [0.5, 0.125], [0.25, 0.0], [0.0, 0.0]]
    """
    weights = jnp.array(spec.offset_weights, jnp.float32)
    if not spec.fade_end:
        return jnp.broadcast_to(weights, (len(progress), len(weights)))
    num = len(weights)
    ends = np.arange(num, 0, -1)  # in parts of `fade_end`
    parts = progress[:, None] * (num / spec.fade_end)
    return weights * jnp.clip(ends - parts, 0, 1)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> rows["progress"] = jnp.array([0.5])
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["targets"].tolist(), batch["offset_weights"].tolist()
    ([[8, 9]], [[0.25, 0.0]])
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["loss"]
    progress = rows.get("progress", jnp.ones(len(weights)))  # absent in evaluation
    return batch | {
        "offset_weights": find_weights(spec, progress),
        "weights": {"clm_loss": weights, "offset_loss": weights},
    }


masks = clm.masks


def shift_targets(
    targets: Array, weights: Array, num: int
) -> tuple[Array, Float[Array, "B T K"]]:
    """The targets [B, T, K] of the offsets 1 ... K = num, and their weights.

    Each document of a row is contiguous, so the token at offset k is in the document if
    all before it are: where the weights of k positions in a row are above 0. Of the
    documents 7 8 9 and 5 6 3:

    >>> row = jnp.array([[8, 9, 5, 6, 3]]), jnp.array([[1, 1, 0, 1, 1.0]])
    >>> targets, weights = shift_targets(*row, 2)
    >>> targets[..., 1].tolist(), weights[..., 1].tolist()
    ([[9, 5, 6, 3, 0]], [[1.0, 0.0, 0.0, 1.0, 0.0]])
    """

    def shift(x: Array, by: int) -> Array:
        return jnp.pad(x, ((0, 0), (0, by)))[:, by:]

    is_valid = [weights]
    for k in range(1, num):
        is_valid.append(is_valid[-1] * (shift(weights, k) > 0))
    shifted = [shift(targets, k) for k in range(num)]
    return jnp.stack(shifted, axis=-1), jnp.stack(is_valid, axis=-1)


def loss(
    params: Any, model: "CausalLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next token, and the weighted sum of those after it.

    The gradient of both passes through `clm_loss`: the terms have the same divisor and
    coefficient, and so the logits' gradient is computed once.
    """
    weights, later = batch["weights"]["clm_loss"], batch["offset_weights"]
    factors = jnp.pad(later, ((0, 0), (1, 0)), constant_values=1)[:, None]
    targets, is_valid = shift_targets(batch["targets"], weights, factors.shape[-1])
    weights_BTK = is_valid * factors
    nll_BTK, zero, ranks = read_targets(
        params, model, batch, masks, rngs, targets, weights_BTK
    )
    num = jnp.sum(weights)
    terms = {
        "clm_loss": (jnp.sum(nll_BTK[..., 0]) + zero, num),
        "offset_loss": (jnp.sum(nll_BTK[..., 1:]), num),
    }
    return terms, {"accuracy": losses.rank_hits(ranks, weights)}


def read_targets(
    params: Any,
    model: "CausalLM",
    batch: Batch,
    masks: Masks,
    rngs: Keys,
    targets: Int[Array, "B T K"],
    weights: Float[Array, "B T K"],
) -> tuple[Float[Array, "B T K"], Float[Array, ""], Int[Array, "B T"]]:
    """The weighted -log p of K targets a position, which have no gradient.

    Also a zero whose gradient is that of their sum, and the ranks of the first ones.
    """

    def predict(model: "CausalLM") -> losses.Scores:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        return model.score(states, targets, weights)

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    total, _ = scores.loss
    return scores.nll * weights, total - jax.lax.stop_gradient(total), scores.ranks


train_step = make_train_step(corrupt, masks, loss)

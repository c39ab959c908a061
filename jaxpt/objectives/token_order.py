"""Token order prediction: causal language modelling, and the order of later tokens.

Zuhri, Fuadi and Aji 2025 (arXiv 2508.19228). A second head ranks the vocabulary by how
soon each token occurs next. A token whose next occurrence is d positions ahead has the
score -d, one that does not occur again in the document has none; the target of the
head is the softmax of the scores. For the row 7 8 7 9 8:

    position  token  distance of       target
    0         7      8: 1, 7: 2, 9: 3  .67, .24, .09
    2         7      9: 1, 8: 2        .73, .27

    loss = mean over t of -log p(x_t+1 | x_1 ... x_t)
           + w mean over t of -sum over v of target_t(v) log softmax(U h_t)_v

U is the second head. Sampling, scores and exports do not use it, and neither
`model.logit_softcap` nor `model.z_loss` applies to it. `loss` is `clm`'s. U costs 6 D V
FLOPs a token. Controls: `clm` at equal FLOPs, and `multi_token` with constant weights.

The next token has the score -1. A token d positions ahead has less than e^(1-d) of the
target, so tokens more than NUM_OFFSETS ahead are omitted, which changes nothing in
float32.

Departure: the scores of the paper are W - d with W the length of the row, whose softmax
is the same.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxpt.dims import Batch, Rows
from jaxpt.nn import flops, scan
from jaxpt.nn.layers import Dense
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.objectives import clm
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Predictions, Term
from jaxpt.ops import chunked_loss, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.setting_types import PositiveFloat
from jaxpt.text.tokens.vocab import Vocab

NUM_OFFSETS = 18  # e^-17 is less than half of float32's epsilon


class TokenOrderLM(CausalLM):
    """A causal model with a second head, which only training uses."""

    RULES = ((r"order/kernel", ("fsdp", "tensor")), *TRANSFORMER_RULES)

    def setup(self) -> None:
        super().setup()
        self.order = Dense(self.spec.vocab_size, self.spec, use_bias=False)

    def score_order(
        self,
        states: Float[Array, "B T D"],
        targets: Int[Array, "B T K"],
        weights: Float[Array, "B T K"],
    ) -> losses.Scores:
        """The scores of weighted targets by the second head."""
        x = states.astype(self.spec.compute_dtype)
        kernel, bias = self.order.read(x.shape[-1])
        chunk = self.spec.loss_chunk
        return chunked_loss.score(x, kernel, bias, targets, weights, chunk)

    def score_both(
        self, batch: Batch, masks: Masks, order: tuple, *, deterministic: bool
    ) -> tuple[losses.Scores, losses.Scores]:
        """The scores of the next tokens, and of their order."""
        states = self.batch_states(batch, masks, deterministic=deterministic)
        scores = self.score(states, batch["targets"], batch["weights"]["loss"])
        return scores, self.score_order(states, *order)

    def init_params(self, rng: Array) -> Any:
        one = jnp.zeros((1, 1), jnp.int32)
        batch = {"inputs": one, "targets": one, "weights": {"loss": jnp.zeros((1, 1))}}
        order = one[..., None], jnp.zeros((1, 1, 1))
        call = {"deterministic": True, "method": "score_both"}
        attn_masks = {"self": attention_masks.causal()}
        return scan.init_params(self, rng, batch, attn_masks, order, **call)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """With the second head, which makes half of the predictions."""
        num = num_predictions / 2
        order = 2 * self.spec.d_model * self.spec.vocab_size * num
        return super().count_flops(lengths, num) + flops.TRAIN_FACTOR * order

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the second head."""
        base = {name: part for name, part in params.items() if name != "order"}
        return {"causal": (self.spec, base)}


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """The weight of the second loss.

    Attributes:
      order_weight: of the loss of the second head.
    """

    SECTION: ClassVar[str] = "token_order"
    NETWORKS: ClassVar = (TokenOrderLM,)

    order_weight: PositiveFloat = 1.0

    @property
    def predictions(self) -> Predictions:
        """Every position, by both heads."""
        return Predictions(2 * (self.row_length - 1))

    @property
    def terms(self) -> dict[str, Term]:
        order = Term("order of the next tokens", self.order_weight)
        return super().terms | {"order_loss": order}

    def controls(self) -> dict[str, dict[str, Any]]:
        constant = {"objective": "multi_token", "multi_token": {"fade_end": 0.0}}
        return {"clm": {"objective": "clm"}, "multi_token-constant": constant}


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 8]], [[8, 9]])
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["loss"]
    return batch | {"weights": {"loss": weights, "order_loss": weights}}


masks = clm.masks


def order_targets(
    targets: Int[Array, "B T"], is_next: Bool[Array, "B T"]
) -> tuple[Int[Array, "B T K"], Float[Array, "B T K"]]:
    """The tokens at the offsets 1 ... K, and their shares of the target of a position.

    Args:
      targets: the next token of each position.
      is_next: whether it is in the position's document.

    Of the row 7 8 7 9 8:

    >>> targets = jnp.array([[8, 7, 9, 8]])
    >>> tokens, shares = order_targets(targets, targets > 0)
    >>> tokens[0, 0, :3].tolist(), [round(x, 4) for x in shares[0, 0].tolist()]
    ([8, 7, 9], [0.6652, 0.2447, 0.09, 0.0])
    >>> [round(x, 4) for x in shares[0, 2].tolist()]
    [0.7311, 0.2689, 0.0, 0.0]
    """
    length = targets.shape[1]
    num = min(NUM_OFFSETS, length)
    places = jnp.arange(length)
    # A token is the first of its id after t if the one before it is not after t.
    is_same = targets[:, :, None] == targets[:, None, :]
    before = jnp.where(is_same & (places < places[:, None]), places, -1).max(-1)

    def shift(x: Array, by: int, fill: int) -> Array:
        return jnp.pad(x, ((0, 0), (0, by)), constant_values=fill)[:, by:]

    tokens = jnp.stack([shift(targets, k, 0) for k in range(num)], axis=-1)
    last = jnp.stack([shift(before, k, length) for k in range(num)], axis=-1)
    is_first = last < places[:, None]
    goes_on = jnp.stack([shift(is_next, k, 0) for k in range(num)], axis=-1)
    is_counted = is_first & (jnp.cumprod(goes_on, axis=-1) > 0)
    sizes = jnp.where(is_counted, np.exp(-np.arange(num, dtype=np.float32)), 0)
    return tokens, sizes / jnp.maximum(sizes.sum(-1, keepdims=True), 1e-9)


def loss(
    params: Any, model: TokenOrderLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next token, and of the order of those after it."""
    weights = batch["weights"]
    tokens, shares = order_targets(batch["targets"], weights["loss"] > 0)
    order = tokens, shares * weights["order_loss"][..., None]

    def predict(model: TokenOrderLM) -> tuple[losses.Scores, losses.Scores]:
        is_fixed = "dropout" not in rngs
        return model.score_both(batch, masks, order, deterministic=is_fixed)

    scores, orders = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {
        "loss": scores.loss,
        "order_loss": (orders.loss[0], weights["order_loss"].sum()),
    }
    return terms, {"accuracy": losses.rank_hits(scores.ranks, weights["loss"])}


train_step = make_train_step(corrupt, masks, loss)

"""Future summaries: causal language modelling, and the bag of later tokens.

arXiv 2510.14751, "future summary prediction". A second head U says of each token of the
vocabulary whether it is among the tokens 2 to h positions ahead. For the row 7 8 9 8 5
and h = 3:

    position  token  next  bag
    0         7      8     9, 8
    1         8      9     8, 5

    loss = mean over t of -log p(x_t+1 | x_1 ... x_t)
           + w mean over t of 1/V sum over v of BCE(sigma(z_v), v in bag),  z = U h_t

Each token counts once. Only positions with h more tokens in their document count. The
second head is in training alone: `valid_loss` is `clm`'s. U costs 6 D V FLOPs a token.
Special tokens are in no bag.

The second term is sum over v of softplus(z_v), minus z_v of the bag. Without the factor
1/V (`average="none"`) it is V ln 2 at first, thousands of times the first term.

The paper reports that a bag finds paths in star graphs where predictions of single
later tokens do not. With a large h the bag approaches the frequencies of tokens, which
a bias alone predicts. Controls: `bag="other_row"`, the bag of the batch's next row,
which has the same frequencies but other tokens; the next token in the same loss
(`first_offset=1`, `horizon=1`); `token_order`; `clm`.

Departures: no weights of tokens by tf-idf, which the paper finds of no use in most
cases, and no regression of a second model's state. The factor 1/V is a third party's.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

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
from jaxpt.setting_types import OneOf, PositiveFloat, PositiveInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network


class FutureSummaryLM(CausalLM):
    """A causal model whose second head says which tokens come later.

    Attributes:
      is_mean: the loss of the second head is a mean over the vocabulary, not a sum.
    """

    RULES = ((r"summary/kernel", ("fsdp", "tensor")), *TRANSFORMER_RULES)

    is_mean: bool = True

    def setup(self) -> None:
        super().setup()
        self.summary = Dense(self.spec.vocab_size, self.spec, use_bias=False)

    def summary_losses(
        self, states: Float[Array, "B T D"], bag: tuple, weights: Float[Array, "B T"]
    ) -> Float[Array, "B T"]:
        """The weighted binary cross-entropies of positions.

        Args:
          bag: the tokens [B, T, K] of each position, and 1 where one counts, else 0.
        """
        x = states.astype(self.spec.compute_dtype)
        kernel, _ = self.summary.read(x.shape[-1])
        if self.is_mean:
            weights /= kernel.shape[1]
        tokens, is_counted = bag
        chunk = self.spec.loss_chunk
        return chunked_loss.bag_losses(x, kernel, tokens, is_counted, weights, chunk)

    def call_heads(self, batch: Batch, masks: dict) -> tuple[Array, Array]:
        """The logits of both heads."""
        states = self.batch_states(batch, masks, deterministic=True)
        return self.logits(states), self.summary(states)

    def init_params(self, rng: Array) -> Any:
        batch = {"inputs": jnp.zeros((1, 1), jnp.int32)}
        attn_masks = {"self": attention_masks.causal()}
        return scan.init_params(self, rng, batch, attn_masks, method="call_heads")

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """With the second head, which makes half of the predictions."""
        num = num_predictions / 2
        summary = 2 * self.spec.d_model * self.spec.vocab_size * num
        return super().count_flops(lengths, num) + flops.TRAIN_FACTOR * summary

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the second head."""
        base = {name: part for name, part in params.items() if name != "summary"}
        return {"causal": (self.spec, base)}


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """The bag, and the weight of the second loss in training.

    Attributes:
      horizon: the last tokens of the bag are this number of positions ahead.
      first_offset: the first ones are.
      summary_weight: of the loss of the second head.
      average: "vocabulary", a mean over all tokens of the vocabulary, or "none", a sum.
      bag: "future", or "other_row", as a control the next row's of the batch.
    """

    SECTION: ClassVar[str] = "future_summary"
    READS: ClassVar = clm.Spec.READS | {"progress"}
    NETWORKS: ClassVar = (FutureSummaryLM,)

    horizon: PositiveInt = 12
    first_offset: PositiveInt = 2
    summary_weight: PositiveFloat = 1.0
    average: Annotated[str, OneOf("vocabulary", "none")] = "vocabulary"
    bag: Annotated[str, OneOf("future", "other_row")] = "future"

    def __post_init__(self) -> None:
        super().__post_init__()
        first, most = self.first_offset, self.row_length - 1
        is_good = first <= self.horizon <= most
        allowed = f"from future_summary.first_offset={first} to {most}, within a row"
        self.check("horizon", is_good, allowed)

    @property
    def predictions(self) -> Predictions:
        """Every position, by both heads."""
        return Predictions(2 * (self.row_length - 1))

    @property
    def terms(self) -> dict[str, Term]:
        """The second one is only measured in evaluation, not in the loss."""
        summary = Term("tokens further ahead", 0.0, targets="")
        return super().terms | {"summary_loss": summary}

    def coefficients_at(self, progress: Any) -> dict[str, Any]:
        return {"loss": 1.0, "summary_loss": self.summary_weight}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        fields |= {"is_mean": self.average == "vocabulary"}
        return super().make_network(model_spec, vocab, **fields)

    def controls(self) -> dict[str, dict[str, Any]]:
        next_token = {"first_offset": 1, "horizon": 1}
        return {
            "clm": {"objective": "clm"},
            "other-row": {self.SECTION: {"bag": "other_row"}},
            "next-token": {self.SECTION: next_token},
            "token_order": {"objective": "token_order"},
        }


def find_bags(
    targets: Int[Array, "B T"], weights: Float[Array, "B T"], first: int, last: int
) -> tuple[Int[Array, "B T K"], Float[Array, "B T K"], Float[Array, "B T"]]:
    """The tokens at the offsets first ... last of each position, and their weights.

    Args:
      targets: the next token of each position.
      weights: above 0 if that token is in the position's document.

    Returns:
      The tokens; 1 at the first one of each id, else 0; and 1 at the positions whose
      document has all of them, else 0.

    >>> row = jnp.array([[8, 9, 8, 5]])
    >>> tokens, is_first, is_whole = find_bags(row, jnp.ones((1, 4)), 2, 3)
    >>> tokens[0, :2].tolist(), is_whole.tolist()
    ([[9, 8], [8, 5]], [[1.0, 1.0, 0.0, 0.0]])
    """
    length = targets.shape[1]
    places = jnp.arange(length)
    is_same = targets[:, :, None] == targets[:, None, :]
    before = jnp.where(is_same & (places < places[:, None]), places, -1).max(-1)

    def shift(x: Array, by: int, fill: int) -> Array:
        return jnp.pad(x, ((0, 0), (0, by)), constant_values=fill)[:, by:]

    offsets = range(first - 1, last)  # of targets, which are one ahead
    tokens = jnp.stack([shift(targets, k, 0) for k in offsets], axis=-1)
    previous = jnp.stack([shift(before, k, length) for k in offsets], axis=-1)
    is_first = previous < (places + first - 1)[:, None]
    is_whole = weights > 0
    for k in range(1, last):
        is_whole &= shift(weights, k, 0) > 0
    return tokens, is_first.astype(jnp.float32), is_whole.astype(jnp.float32)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does, and collects bags; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9, 8, 5]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, Vocab(size=10), Spec(row_length=5, horizon=3))
    >>> batch["bag_tokens"][0, 0].tolist(), batch["weights"]["summary_loss"].tolist()
    ([9, 8], [[1.0, 1.0, 0.0, 0.0]])
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["loss"]
    offsets = spec.first_offset, spec.horizon
    tokens, is_counted, is_whole = find_bags(batch["targets"], weights, *offsets)
    is_counted *= ~jnp.asarray(vocab.is_special)[tokens]
    if spec.bag == "other_row":
        tokens, is_counted, others = (
            jnp.roll(x, -1, axis=0) for x in (tokens, is_counted, is_whole)
        )
        is_whole *= others
    return batch | {
        "bag_tokens": tokens,
        "bag_weights": is_counted,
        "weights": {"loss": weights, "summary_loss": is_whole},
    }


masks = clm.masks


def loss(
    params: Any, model: FutureSummaryLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next token, and binary ones of all tokens by their bag."""
    weights = batch["weights"]
    bag = batch["bag_tokens"], batch["bag_weights"]

    def predict(model: FutureSummaryLM) -> tuple[losses.Scores, Array]:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        scores = model.score(states, batch["targets"], weights["loss"])
        return scores, model.summary_losses(states, bag, weights["summary_loss"])

    scores, summaries = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {
        "loss": scores.loss,
        "summary_loss": (summaries.sum(), weights["summary_loss"].sum()),
    }
    return terms, {"accuracy": losses.rank_hits(scores.ranks, weights["loss"])}


train_step = make_train_step(corrupt, masks, loss)

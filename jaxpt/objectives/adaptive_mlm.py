"""Masked language modelling that hides most often what the model predicts worst.

The submission "babylm25" to the BabyLM challenge, `train_mask.py`. Every token id v has
a weight w(v), at first the mask rate r. Since the last update, right(v) of its
hidden(v) occurrences were predicted. At every update, V ids in all:

    accuracy(v) = (right(v) + 1/2) / (hidden(v) + 1)       1/2 if it was never hidden
    w(v)       <- max(.005, .2 w(v) + .8 r (1 - accuracy(v)))
    w          <- w, rescaled to a mean of r;  right, hidden <- 0

    id      right  hidden  accuracy   w at r = .4
    0           9       9       .95   .1574    easy: rarely hidden
    1           0       9       .05   .6295    hard
    2           4       9       .45   .4197
    3           0       0       .5    .3934    not seen

    P(token i of a row is hidden) = min(1, c w(x_i)),  sum over the row = r L

    loss = mean over masked i of -log p(x_i | the corrupted row)

r decreases linearly from .4 to .15 during the run; L is the number of a row's tokens.
The loss is that of `mlm`. w, right and hidden are the run's `objective_state`: sums
over microbatches and devices, stored in checkpoints. Evaluation does not use them: it
masks as `mlm` does at the final rate, so that losses are comparable.

Control: `mlm` with `mask_rate=0.4` and `mask_rate_end=0.15`, whose parameters
`update_every=0` gives bit by bit. Both cost the same FLOPs. On the quickstart (480
steps, hence two updates, of characters; two seeds) the loss on held-out text is 1.388
+- .006, that of `mlm` 1.373 +- .017, which is not a significant difference:

    jaxpt compare --config quickstart --config.compare.seeds="(0,1)" \\
        --config.compare.objectives=mlm,adaptive_mlm \\
        --config.mlm.mask_rate=0.4 --config.mlm.mask_rate_end=0.15 \\
        --config.compare.num_evals=2 --workdir runs/adaptive

Departures. A row hides an exact number of tokens, that of `mlm`, by Pareto sampling; in
the source each token is drawn independently, so that the number varies, and where
r L w / sum(w) is above 1, too few are hidden: here c is larger for the row's other
tokens. Special tokens are never hidden, in the source only padding is not. Random words
are ordinary tokens, as in `mlm`. The first update is after `update_every` steps, in the
source one step later.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.dims import Batch, Rows
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update
from jaxpt.objectives import mlm
from jaxpt.objectives.masking import count_hidden
from jaxpt.objectives.objective import Keys, Sums, map_rows
from jaxpt.ops import noise
from jaxpt.setting_types import BelowOne, InnerFraction, NonNegativeInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.one_stack import MaskedLM

# The share of the weights that an update keeps, and their least value.
KEPT, FLOOR = 0.2, 0.005
# The metric of `train_step` that counts by token id; it is not logged.
BY_ID = "right_by_id"


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    """The rates, what replaces hidden tokens (see `mlm`), and the steps of an update.

    Attributes:
      masking: "tokens", whose weights are those of their ids.
      static_masks: 0, since masks change.
      update_every: steps from one update of the weights to the next; 0 never updates
        them, which is `mlm`.
    """

    SECTION: ClassVar[str] = "adaptive_mlm"

    mask_rate: InnerFraction = 0.4
    _: dataclasses.KW_ONLY
    mask_rate_end: BelowOne = 0.15
    update_every: NonNegativeInt = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("masking", self.masking == "tokens", "tokens")
        self.check("static_masks", self.static_masks == 0, "0")

    def init_state(self, vocab: Vocab, params: Any) -> "TokenState":
        weights = jnp.full(vocab.size, self.mask_rate, jnp.float32)
        # Two arrays, which are donated separately.
        zeros = [jnp.zeros(vocab.size, jnp.int32) for _ in range(2)]
        return TokenState(weights, *zeros)

    def controls(self) -> dict[str, dict[str, Any]]:
        rates = {"mask_rate": self.mask_rate, "mask_rate_end": self.mask_rate_end}
        return {"mlm-schedule": {"objective": "mlm", "mlm": rates}}


class TokenState(NamedTuple):
    """What a run keeps of each token id.

    Attributes:
      weights: how readily it is hidden, relative to other ids.
      num_right, num_hidden: since the last update, how often it was predicted, and
        hidden.
    """

    weights: Float[Array, "V"]
    num_right: Int[Array, "V"]
    num_hidden: Int[Array, "V"]


def update_weights(state: TokenState, rate: Array | float) -> TokenState:
    """The state after an update, at this mask rate.

    >>> right, hidden = jnp.array([9, 0, 4, 0]), jnp.array([9, 9, 9, 0])
    >>> state = update_weights(TokenState(jnp.full(4, 0.4), right, hidden), 0.4)
    >>> [round(float(weight), 4) for weight in state.weights]
    [0.1574, 0.6295, 0.4197, 0.3934]
    """
    accuracy = (state.num_right + 0.5) / (state.num_hidden + 1)
    weights = KEPT * state.weights + (1 - KEPT) * rate * (1 - accuracy)
    weights = jnp.maximum(weights, FLOOR)
    zeros = jnp.zeros_like(state.num_right)
    return TokenState(weights * (rate / weights.mean()), zeros, zeros)


def count_batch(
    state: TokenState, counts: tuple[Array, Array], is_due: Array, rate: Array | float
) -> TokenState:
    """The state after a batch.

    Args:
      counts: by id, how often it was predicted and hidden in the whole batch.
      is_due: whether the weights are updated.
    """
    right, hidden = (x.astype(jnp.int32) for x in counts)
    counted = TokenState(
        state.weights, state.num_right + right, state.num_hidden + hidden
    )
    updated = update_weights(counted, rate)
    return jax.tree.map(lambda a, b: jnp.where(is_due, a, b), updated, counted)


# Without weights: evaluation, and what the first step draws.
corrupt = mlm.corrupt


def corrupt_weighted(
    rng: Array, rows: Rows, vocab: Vocab, spec: Spec, weights: Float[Array, "V"]
) -> Batch:
    """Hides the same number of each row's tokens as `mlm`, by their ids' weights.

    Id 5 has a large weight, and 2 of the 4 tokens are hidden:

    >>> vocab, weights = Vocab(size=6, mask=0), jnp.array([1, 1, 1, 1, 1, 1e6])
    >>> spec = Spec(4, 0.5, replace_mask=1.0, replace_random=0.0, mask_rate_end=0.0)
    >>> rows = {"tokens": jnp.array([[5, 3, 5, 4]]), "index": jnp.array([0])}
    >>> corrupt_weighted(jax.random.key(0), rows, vocab, spec, weights)["inputs"]
    Array([[0, 3, 0, 4]], dtype=int32)
    """

    def corrupt_row(
        rng: Array, tokens: Array, segments: Array, progress: Array | None
    ) -> Batch:
        rng_choose, rng_replace = jax.random.split(rng)
        is_real, is_special = segments > 0, jnp.asarray(vocab.is_special)[tokens]
        row_weights = jnp.where(is_real & ~is_special, weights[tokens], 0.0)
        count = count_hidden(is_real, spec, progress)
        choice = noise.sample_weighted_positions(
            rng_choose, row_weights, count, spec.num_masked
        )
        return mlm.hide(rng_replace, tokens, *choice, vocab, spec)

    return map_rows(corrupt_row, rng, rows, rows.get("progress"))


masks = mlm.masks
loss = mlm.loss


def count_by_id(ranks: Array, batch: Batch, size: int) -> tuple[Array, Array]:
    """By token id, how often it was predicted and hidden, float32 [V] each."""
    targets, weights = batch["targets"], batch["weights"]["loss"]
    zeros = jnp.zeros(size)
    is_right = weights * (ranks == 1)
    return zeros.at[targets].add(is_right), zeros.at[targets].add(weights)


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
    """Hide tokens by their weights, predict them, count by id what was predicted."""
    weights = state.objective_state.weights
    batch = corrupt_weighted(rngs["corrupt"], rows, vocab, spec, weights)

    def loss_fn(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        scores = mlm.predict_masked(params, model, batch, masks(batch), rngs)
        metrics = mlm.fill_metrics(scores.ranks, batch["weights"]["loss"])
        counts = count_by_id(scores.ranks, batch, vocab.size)
        return {"loss": scores.loss}, metrics | {BY_ID: counts}

    state, metrics = update(state, batch, loss_fn, rngs, spec.coefficients)
    counts = metrics.pop(BY_ID)
    if not spec.update_every:
        return state, metrics
    progress = rows["progress"][0] if "progress" in rows else 1.0
    counted = count_batch(
        state.objective_state,
        counts,
        state.step % spec.update_every == 0,
        spec.rate_at(progress),
    )
    return dataclasses.replace(state, objective_state=counted), metrics

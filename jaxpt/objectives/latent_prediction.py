"""Latent prediction: causal language modelling, and the mean of later hidden states.

JEPA-LM, babylm-objectives `src/objectives/latent.py`. A second encoder h', a moving
average (EMA) of the network, reads the same clean row. A predictor P maps the state at
a position to the direction of the mean of h' over the next K positions:

    tokens     x_1 ... x_t        -> h_t -> P(h_t)
    same row   x_1 ... x_t+K      -> y_t = mean of h'_t+1 ... h'_t+K     no gradient

    loss = mean over t of -log p(x_t+1 | h_t)
           + w mean over t of 1 - cos(P(h_t), y_t)
           + w v mean over d of max(0, 1 - sqrt(Var_d + 1e-4))
           + w c 1/D sum over d != e of Cov_de^2
    h' <- m h' + (1 - m) h, all parameters, after each step

Var and Cov are those of P(h_t), unbiased. Only positions count whose next K states are
inputs of the same document. P is a linear layer of width 2 D, a norm, GELU and a linear
layer. P and h' are in training alone: `valid_loss` is `clm`'s, and evaluation measures
the other terms with the network's own states as h'. h' is the run's `objective_state`:
sharded as the parameters, stored in checkpoints, not exported.

Cost per token: a second forward pass without the head; 24 D^2 FLOPs for P, 6 D min(T,
D) for Cov, and 2 D^2 for the rank.

Targets may collapse. Metrics: `target_std`, and `target_rank` in training, every 100
steps: exp of the entropy of s / sum(s), over D, where s are the singular values of the
centred targets of the batch. A run ends if `target_rank` is below `min_rank`.

Controls: `target="frozen"`, where h' stays the run's own initial parameters (does any
smooth function of the future help?); `target="shuffle"`, the targets of the batch's
next row (are the last two terms all?); `clm`. `latent_weight=0` is `clm`, bit by bit.

Third parties report no gain: 14 runs of 17M parameters, +.0000 to +.0009 bits per byte
with w = .001 (deviation between seeds .0022), at least +.005 with .005, +.018 with .2.

Departures: Var, Cov and the centre of targets are those of each row, weighed by its
positions, so that microbatches and devices do not change them; the source's are those
of a batch. There Var is that of unit vectors, whose deviations are at most about
1 / sqrt(D), so that its term cannot reach 0; here of P(h_t) itself. There shuffled
targets are also frozen, and the shuffle is random; here it is a shift by one row (with
pmap, of a device's rows). The norm, the biases and the initial values of P are those of
the model.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxpt.dims import Batch, Rows
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update
from jaxpt.nn import flops, scan
from jaxpt.nn.layers import Dense, Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.objectives import clm
from jaxpt.objectives.objective import Keys, Masks, Sums
from jaxpt.objectives.spec import Term
from jaxpt.ops import kernels, losses, spread
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.edits import shift_left
from jaxpt.setting_types import (
    BelowOne,
    Fraction,
    NonNegativeFloat,
    OneOf,
    PositiveInt,
)
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network

WIDTHS = 2  # of P's hidden layer, in widths of the model
RANK_EVERY = 100  # steps from one rank to the next, as it takes D^3 operations
LABELS = {
    "latent_loss": "the mean of later states",
    "variance_loss": "variance of the predictions",
    "covariance_loss": "covariance of the predictions",
}
# The metric of `train_step` from which it computes the rank; it is not logged.
SCATTER = "target_scatter"
NOT_ENCODER = ("head", "predictor")


class Predictor(nn.Module):
    """P: a linear layer, a norm, GELU, a linear layer."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, h: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        spec = self.spec
        x = Dense(WIDTHS * spec.d_model, spec, name="first")(h)
        x = jax.nn.gelu(Norm(spec, name="norm")(x))
        return Dense(spec.d_model, spec, name="last")(x).astype(jnp.float32)


class LatentPredictionLM(CausalLM):
    """A causal model with a predictor of later states, which only training uses.

    Attributes:
      horizon: K, the number of states in a target.
      is_predicting: whether there are any targets.
      has_covariance: whether the covariance of the predictions is in the loss.
    """

    RULES = (
        (r"predictor/first/kernel", ("fsdp", "tensor")),
        (r"predictor/first/bias", ("tensor",)),
        (r"predictor/last/kernel", ("tensor", "fsdp")),
        (r"predictor/last/bias", (None,)),
        *TRANSFORMER_RULES,
    )

    horizon: int = 1
    is_predicting: bool = True
    has_covariance: bool = True

    def setup(self) -> None:
        super().setup()
        self.predictor = Predictor(self.spec)

    def call_all(self, batch: Batch, masks: dict) -> tuple[Array, Array]:
        """The logits, and the predicted states."""
        states = self.batch_states(batch, masks, deterministic=True)
        return self.logits(states), self.predictor(states)

    def init_params(self, rng: Array) -> Any:
        batch = {"inputs": jnp.zeros((1, 1), jnp.int32)}
        attn_masks = {"self": attention_masks.causal()}
        return scan.init_params(self, rng, batch, attn_masks, method="call_all")

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """With the predictor, and the second encoder's pass, which has no gradient."""
        total = super().count_flops(lengths, num_predictions)
        if not self.is_predicting:
            return total
        (length,) = lengths.values()
        d_model = self.spec.d_model
        trained: float = 4 * WIDTHS * length * d_model**2
        if self.has_covariance:
            trained += 2 * length * d_model * min(length, d_model)
        encoder = flops.transformer_flops(self.spec, lengths, 0)
        scatter = 2 * length * d_model**2
        return total + flops.TRAIN_FACTOR * trained + encoder + scatter

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the predictor."""
        base = {name: part for name, part in params.items() if name != "predictor"}
        return {"causal": (self.spec, base)}


class LatentState(NamedTuple):
    """What a run keeps of its targets.

    Attributes:
      encoder: the parameters of h', without a head.
      rank: the last `target_rank`.
    """

    encoder: Any
    rank: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """The targets, and the weights of the terms in training.

    Attributes:
      horizon: K, the states ahead whose mean is the target.
      latent_weight: w, of all other terms than the first; 0 is `clm`.
      variance_weight: v; 0 leaves it out.
      covariance_weight: c; 0 leaves it out.
      decay: m, of the moving average.
      target: "ema"; or as controls "frozen", the initial parameters, or "shuffle", the
        targets of the batch's next row.
      min_rank: the `target_rank` below which a run ends; 0 never ends it.
    """

    SECTION: ClassVar[str] = "latent_prediction"
    READS: ClassVar = clm.Spec.READS | {"progress"}
    NETWORKS: ClassVar = (LatentPredictionLM,)

    horizon: PositiveInt = 16
    latent_weight: NonNegativeFloat = 0.5
    variance_weight: NonNegativeFloat = 1.0
    covariance_weight: NonNegativeFloat = 0.04
    decay: Fraction = 0.996
    target: Annotated[str, OneOf("ema", "frozen", "shuffle")] = "ema"
    min_rank: BelowOne = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.row_length - 2
        allowed = f"at most {most}, the states of a row after its first"
        self.check("horizon", self.horizon <= most, allowed)

    @property
    def weights(self) -> dict[str, float]:
        """Those of the auxiliary terms that there are."""
        factors = 1.0, self.variance_weight, self.covariance_weight
        both = zip(LABELS, factors, strict=True)
        weights = {name: self.latent_weight * factor for name, factor in both}
        return {name: weight for name, weight in weights.items() if weight}

    @property
    def terms(self) -> dict[str, Term]:
        """The others are only measured in evaluation, not in the loss."""
        others = {name: Term(LABELS[name], 0.0, targets="") for name in self.weights}
        return super().terms | others

    def coefficients_at(self, progress: Any) -> dict[str, Any]:
        return {"loss": 1.0} | self.weights

    @property
    def floors(self) -> dict[str, str]:
        return {"target_rank": "min_rank"}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        fields |= {
            "horizon": self.horizon,
            "is_predicting": bool(self.weights),
            "has_covariance": "covariance_loss" in self.weights,
        }
        return super().make_network(model_spec, vocab, **fields)

    def init_state(self, vocab: Vocab, params: Any) -> LatentState | None:
        """The encoder starts as a copy, because it is donated separately."""
        if not self.weights:
            return None
        encoder = jax.tree.map(jnp.copy, pick_encoder(params))
        return LatentState(encoder, jnp.ones((), jnp.float32))

    def controls(self) -> dict[str, dict[str, Any]]:
        targets = {"frozen", "shuffle"} - {self.target}
        others = {t: {self.SECTION: {"target": t}} for t in sorted(targets)}
        return {"clm": {"objective": "clm"}} | others


def pick_encoder(params: Any) -> Any:
    """The parameters that compute hidden states."""
    return {name: part for name, part in params.items() if name not in NOT_ENCODER}


def average(old: Any, new: Any, decay: float) -> Any:
    """The moving average one step later.

    >>> x = 0.0
    >>> [round(x := average(x, 1.0, 0.9), 6) for _ in range(3)]
    [0.1, 0.19, 0.271]
    """
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, old, new)


def find_whole(is_next: Float[Array, "B T"], horizon: int) -> Float[Array, "B T"]:
    """1 where the next K inputs are in a position's document, else 0.

    Args:
      is_next: above 0 where the next token of a position is in its document.

    Of the inputs 7 8 9 and 5 6 of two documents, the second of which has one more:

    >>> find_whole(jnp.array([[1, 1, 0, 1, 1.0]]), 1).tolist()
    [[1.0, 1.0, 0.0, 1.0, 0.0]]
    >>> find_whole(jnp.array([[1, 1, 0, 1, 1.0]]), 2).tolist()
    [[1.0, 0.0, 0.0, 0.0, 0.0]]
    """
    is_whole = shift_left(jnp.ones_like(is_next, bool), horizon)  # within the row
    for k in range(horizon):
        is_whole &= shift_left(is_next, k) > 0
    return is_whole.astype(jnp.float32)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9, 5]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=4, horizon=2))
    >>> batch["weights"]["latent_loss"].tolist()
    [[1.0, 0.0, 0.0]]
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["loss"]
    is_whole = find_whole(weights, spec.horizon)
    if spec.target == "shuffle" and "progress" in rows:  # not in evaluation
        keys = {"inputs", "segment_ids"} & batch.keys()
        batch["other_rows"] = {key: jnp.roll(batch[key], -1, axis=0) for key in keys}  # type: ignore[literal-required]
        is_whole *= jnp.roll(is_whole, -1, axis=0)
    several = is_whole * (is_whole.sum(-1, keepdims=True) > 1)
    places = {"latent_loss": is_whole}
    others = {name: places.get(name, several) for name in spec.weights}
    return batch | {"weights": {"loss": weights} | others}


masks = clm.masks


def average_ahead(states: Float[Array, "B T D"], horizon: int) -> Array:
    """The mean of the next K states of each position, float32.

    >>> average_ahead(jnp.array([[[1.0], [2.0], [4.0]]]), 2)[0, :, 0].tolist()
    [3.0, 2.0, 0.0]
    """
    states = states.astype(jnp.float32)
    ahead = [shift_left(states, k) for k in range(1, horizon + 1)]
    return sum(ahead[1:], ahead[0]) / horizon


def compute_terms(
    params: Any,
    encoder: Any | None,
    model: LatentPredictionLM,
    batch: Batch,
    masks: Masks,
    rngs: Keys,
) -> tuple[Sums, Sums, Array | None]:
    """The terms, the metrics, and the targets, if there are any.

    Args:
      encoder: the parameters of h'; None takes the states of the network itself.
    """
    weights = batch["weights"]

    def predict(model: LatentPredictionLM) -> tuple[losses.Scores, Array, Any]:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        scores = model.score(states, batch["targets"], weights["loss"])
        return scores, states, model.predictor(states) if len(weights) > 1 else None

    scores, states, predicted = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    terms = {"loss": scores.loss}
    metrics = {"accuracy": losses.rank_hits(scores.ranks, weights["loss"])}
    if predicted is None:
        return terms, metrics, None
    if encoder is not None:
        other: Batch = batch | batch.get("other_rows", {})  # type: ignore[assignment]
        call = {"deterministic": True, "method": "batch_states"}
        own_masks = clm.masks(other) if "other_rows" in batch else masks
        states = model.apply({"params": encoder}, other, own_masks, **call)
    targets = jax.lax.stop_gradient(average_ahead(states, model.horizon))
    whole = weights["latent_loss"]
    terms["latent_loss"] = losses.cosine_distance(predicted, targets, whole)

    def add(name: str, penalize: Callable[..., Array]) -> None:
        num = weights[name].sum(-1)
        penalties = penalize(*spread.centre(predicted, weights[name]))
        terms[name] = jnp.sum(penalties * num), jnp.sum(num)

    if "variance_loss" in weights:
        add("variance_loss", spread.variance_penalties)
    if "covariance_loss" in weights:
        dtype = model.spec.compute_dtype
        add("covariance_loss", partial(spread.covariance_penalties, dtype=dtype))
    deviations = jnp.sqrt(spread.variances(*spread.centre(targets, whole))).mean(-1)
    num = whole.sum(-1) * ((whole > 0).sum(-1) > 1)
    metrics["target_std"] = jnp.sum(deviations * num), jnp.sum(num)
    return terms, metrics, targets


def loss(
    params: Any, model: LatentPredictionLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next token; the other terms with the network's own states.

    `train_step` takes those of the moving average.
    """
    terms, metrics, _ = compute_terms(params, None, model, batch, masks, rngs)
    return terms, metrics


def train_step(
    state: TrainState,
    rows: Rows,
    rngs: Keys,
    *,
    model: LatentPredictionLM,
    vocab: Vocab,
    spec: Spec,
    update: Update,
) -> tuple[TrainState, Sums]:
    """Predict tokens and the encoder's states, then update the encoder."""
    kept: LatentState | None = state.objective_state
    encoder = kept.encoder if kept else None
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        terms, metrics, targets = compute_terms(
            params, encoder, model, batch, masks(batch), rngs
        )
        if targets is None:
            return terms, metrics
        centred, count = spread.centre(targets, batch["weights"]["latent_loss"])
        low = centred.astype(model.spec.compute_dtype)
        scatter = kernels.product("btd,bte->de", low, low)
        return terms, metrics | {SCATTER: (scatter, count.sum())}

    coefficients = spec.coefficients
    if "progress" in rows:  # the same in every row
        coefficients = spec.coefficients_at(rows["progress"][0])
    is_due = state.step % RANK_EVERY == 0
    state, metrics = update(state, batch, loss_fn, rngs, coefficients)
    if kept is None:
        return state, metrics
    scatter, count = metrics.pop(SCATTER)
    rank = jax.lax.cond(
        is_due & (count > 0),
        lambda: spread.effective_rank(scatter) / model.spec.d_model,
        lambda: kept.rank,
    )
    if spec.target != "frozen":
        encoder = average(encoder, pick_encoder(state.params), spec.decay)
    state = dataclasses.replace(state, objective_state=LatentState(encoder, rank))
    return state, metrics | {"target_rank": (rank, jnp.ones(()))}

"""Next-latent prediction: causal language modelling, and the next hidden state.

NextLat (arXiv 2511.05963). A small network f, with the next token, predicts the state
h_t+1 that the last layer will have, and from it the one after, up to d ahead:

    state     h_t  -> h^_t+1 = h_t + f([h_t; e(x_t+1)])  -> h^_t+2 = ...
    compared         h_t+1                                  h_t+2

    loss = mean over t of -log p(x_t+1 | h_t)
           + a  mean of SmoothL1(h^_t+i, sg h_t+i), over i <= d, t and the width
           + b  mean of KL(p(. | sg h_t+i) || p(. | h^_t+i)), over i <= d and t

sg stops the gradient, and the head p is fixed in the third term, which trains f and,
through h_t, the layers; the first term alone trains the head. Terms end with their
document. f is not in evaluation and exports: `valid_loss` is `clm`'s. Each i costs 6
((D + E) H + H^2 + H D) FLOPs a token for f of width H, and 6 D V for the third term.

The paper reports paths in star graphs as well as with two directions (99.8 % against
18.6 % for `clm`), and no better perplexity of text (10.83 against 10.52 at 1.3B). The
second term rises when the learning rate decays. Controls: one of the two terms alone;
`stop_gradient=False`; `multi_token_heads` with d extra heads; `clm`.

Departures: h is the state after the last norm, the norm and the biases in f are those
of the model, and the last layer of f is 0 at first. Means are over all pairs of t and
i, which have fewer t for larger i.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.dims import Batch, Rows
from jaxpt.nn import flops, scan
from jaxpt.nn.layers import Dense, Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.objectives import clm
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Term
from jaxpt.ops import chunked_loss, kernels, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.edits import shift_left
from jaxpt.setting_types import NonNegativeFloat, NonNegativeInt, PositiveInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network

WIDTHS = 3  # of f, in widths of the model


class LatentStep(nn.Module):
    """h + f([h; e(x)]): the next state by a state and the next token's embedding.

    f is a norm, three linear layers and GELU; the last layer is 0 at first.
    """

    spec: ModelSpec
    width: int

    @nn.compact
    def __call__(
        self, h: Float[Array, "B T D"], embedded: Float[Array, "B T E"]
    ) -> Float[Array, "B T D"]:
        spec = self.spec
        x = jnp.concatenate([h, embedded.astype(h.dtype)], axis=-1)
        x = Norm(spec, name="norm")(x)
        for name in ("first", "second"):
            x = jax.nn.gelu(Dense(self.width, spec, name=name)(x))
        shape = self.width, spec.d_model
        kernel = self.param("last", nn.initializers.zeros, shape)
        return h + kernels.dense(x.astype(h.dtype), kernel, None)


class NextLatentLM(CausalLM):
    """A causal model with a step from state to state, which only training uses.

    Attributes:
      step_width: of the step's layers.
      horizon: the number of steps.
      has_divergence: whether the predictions by the states are compared, too.
      stops_gradient: whether the states that are predicted get no gradient.
    """

    RULES = (
        (r"latent/(first|second)/kernel", ("fsdp", "tensor")),
        (r"latent/(first|second)/bias", ("tensor",)),
        (r"latent/last", ("tensor", "fsdp")),
        *TRANSFORMER_RULES,
    )

    step_width: int = 1
    horizon: int = 1
    has_divergence: bool = True
    stops_gradient: bool = True

    def setup(self) -> None:
        super().setup()
        self.latent = LatentStep(self.spec, self.step_width)

    def roll_out(
        self, states: Float[Array, "B T D"], targets: Int[Array, "B T"]
    ) -> Float[Array, "B T K D"]:
        """The predicted states 1 ... K positions ahead of each one.

        Args:
          targets: the next token of each position, which the step reads.
        """
        steps, x = [], states
        for k in range(self.horizon):
            embedded = self.embed.look_up(shift_left(targets, k))
            x = self.latent(x, embedded)
            steps.append(x)
        return jnp.stack(steps, axis=2)

    def divergences(
        self, predicted: Float[Array, "B T K D"], states: Float[Array, "B T K D"]
    ) -> Float[Array, "B T K"]:
        """KL(p(. | state) || p(. | predicted state)); `states` have no gradient."""
        student, teacher = (
            self.head.read(self._scale(x), self.embed.tokens)
            for x in (predicted, states)
        )
        none = jnp.zeros(states.shape[:-1], jnp.int32)
        chunk, options = self.spec.loss_chunk, self.spec.logit_options
        scores = chunked_loss.distillation_loss(
            student, teacher, none, 1.0, chunk, (options, options)
        )
        return scores.divergences

    def call_all(self, batch: Batch, masks: dict) -> tuple[Array, Array]:
        """The logits, and the predicted states."""
        states = self.batch_states(batch, masks, deterministic=True)
        return self.logits(states), self.roll_out(states, batch["targets"])

    def init_params(self, rng: Array) -> Any:
        batch = dict.fromkeys(("inputs", "targets"), jnp.zeros((1, 1), jnp.int32))
        attn_masks = {"self": attention_masks.causal()}
        return scan.init_params(self, rng, batch, attn_masks, method="call_all")

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """With the steps and, of each, the head twice, frozen.

        The head's products are two ahead and one back, to the predicted states.
        """
        spec, width = self.spec, self.step_width
        (length,) = lengths.values()
        sizes = (spec.d_model + spec.embedding_dim, width, width, spec.d_model)
        pairs = zip(sizes, sizes[1:], strict=False)
        step: float = 2 * length * sum(a * b for a, b in pairs)
        if self.has_divergence:
            step += flops.head_flops(spec, length)
        total = super().count_flops(lengths, num_predictions)
        return total + flops.TRAIN_FACTOR * self.horizon * step

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """Without the step."""
        base = {name: part for name, part in params.items() if name != "latent"}
        return {"causal": (self.spec, base)}


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """The horizon, the weights of both terms in training, and the width of f.

    Attributes:
      horizon: d, the states ahead that are predicted (the paper: 1 or 2 for text).
      latent_weight: a, of the distance of the states; 0 leaves it out.
      divergence_weight: b, of the divergence of their predictions; 0 leaves it out.
      step_width: H, of f; 0 is three times the width of the model.
      stop_gradient: whether the states that are predicted get no gradient; without it
        the network may make all of them equal.
    """

    SECTION: ClassVar[str] = "next_latent"
    READS: ClassVar = clm.Spec.READS | {"progress"}
    NETWORKS: ClassVar = (NextLatentLM,)

    horizon: PositiveInt = 1
    latent_weight: NonNegativeFloat = 1.0
    divergence_weight: NonNegativeFloat = 1.0
    step_width: NonNegativeInt = 0
    stop_gradient: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.row_length - 2
        allowed = f"at most {most}, the states of a row after its first"
        self.check("horizon", self.horizon <= most, allowed)
        is_good = self.latent_weight + self.divergence_weight > 0
        allowed = "above 0 with next_latent.divergence_weight=0"
        self.check("latent_weight", is_good, allowed)

    @property
    def weights(self) -> dict[str, float]:
        """Those of the auxiliary terms that there are."""
        both = {
            "latent_loss": self.latent_weight,
            "divergence_loss": self.divergence_weight,
        }
        return {name: weight for name, weight in both.items() if weight}

    @property
    def terms(self) -> dict[str, Term]:
        """The others are only measured in evaluation, not in the loss."""
        labels = {"latent_loss": "next states", "divergence_loss": "their predictions"}
        others = {name: Term(labels[name], 0.0, targets="") for name in self.weights}
        return super().terms | others

    def coefficients_at(self, progress: Any) -> dict[str, Any]:
        return {"loss": 1.0} | self.weights

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        fields |= {
            "step_width": self.step_width or WIDTHS * model_spec.d_model,
            "horizon": self.horizon,
            "has_divergence": self.divergence_weight > 0,
            "stops_gradient": self.stop_gradient,
        }
        return super().make_network(model_spec, vocab, **fields)

    def controls(self) -> dict[str, dict[str, Any]]:
        heads = {"variant": "sequential", "num_extra": self.horizon}
        controls: dict[str, dict[str, Any]] = {
            "clm": {"objective": "clm"},
            f"multi_token_heads-{self.horizon}": {
                "objective": "multi_token_heads",
                "multi_token_heads": heads,
            },
        }
        if self.latent_weight and self.divergence_weight:
            controls["latent-only"] = {self.SECTION: {"divergence_weight": 0.0}}
            controls["divergence-only"] = {self.SECTION: {"latent_weight": 0.0}}
        if self.stop_gradient:
            controls["no-stop"] = {self.SECTION: {"stop_gradient": False}}
        return controls


def find_pairs(
    is_next: Float[Array, "B T"], horizon: int
) -> tuple[Float[Array, "B T K"], Float[Array, "B T K"]]:
    """1 where position t + i is in the document of t, and has a next token in it.

    Args:
      is_next: above 0 where the next token of a position is in its document.

    Of the inputs 7 8 9 and 5 6 of two documents, the second of which has one more:

    >>> states, predictions = find_pairs(jnp.array([[1, 1, 0, 1, 1.0]]), 2)
    >>> states[0].T.tolist()
    [[1.0, 1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]
    >>> predictions[0].T.tolist()
    [[1.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    is_next = is_next > 0
    is_input = jnp.ones_like(is_next)
    inside, both = is_next, []
    for k in range(1, horizon + 1):
        is_there = inside & shift_left(is_input, k)
        inside &= shift_left(is_next, k)
        both.append((is_there, inside))
    states, predictions = (jnp.stack(x, -1) for x in zip(*both, strict=True))
    return states.astype(jnp.float32), predictions.astype(jnp.float32)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["weights"]["latent_loss"].tolist()
    [[1.0, 0.0]]
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["loss"]
    states, predictions = find_pairs(weights, spec.horizon)
    pairs = {"latent_loss": states, "divergence_loss": predictions}
    means = {name: pairs[name].mean(-1) for name in spec.weights}
    return batch | {
        "state_pairs": states,
        "prediction_pairs": predictions,
        "weights": {"loss": weights} | means,
    }


masks = clm.masks


def smooth_l1(x: Float[Array, "*B D"], y: Float[Array, "*B D"]) -> Float[Array, "*B"]:
    """The mean over the width of d^2 / 2 if |d| < 1, else |d| - 1/2.

    >>> float(smooth_l1(jnp.array([0.5, 3.0]), jnp.array([0.0, 1.0])))
    0.8125
    """
    size = jnp.abs(x.astype(jnp.float32) - y.astype(jnp.float32))
    return jnp.where(size < 1, size**2 / 2, size - 0.5).mean(-1)


def loss(
    params: Any, model: NextLatentLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next token, and the distances of predicted states."""
    weights = batch["weights"]

    def predict(model: NextLatentLM) -> tuple[losses.Scores, Array, Array]:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        scores = model.score(states, batch["targets"], weights["loss"])
        return scores, states, model.roll_out(states, batch["targets"])

    scores, states, predicted = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    if model.stops_gradient:
        states = jax.lax.stop_gradient(states)
    steps = range(1, model.horizon + 1)
    ahead = jnp.stack([shift_left(states, k) for k in steps], axis=2)
    terms = {"loss": scores.loss}

    def add(name: str, values: Array, pairs: Array) -> None:
        shares = pairs / jnp.maximum(pairs.sum(-1, keepdims=True), 1)
        total = jnp.sum(values * shares * weights[name][..., None])
        terms[name] = total, weights[name].sum()

    if "latent_loss" in weights:
        add("latent_loss", smooth_l1(predicted, ahead), batch["state_pairs"])
    if "divergence_loss" in weights:
        frozen = {"params": jax.lax.stop_gradient(params)}
        divergences = model.apply(frozen, predicted, ahead, method="divergences")
        add("divergence_loss", divergences, batch["prediction_pairs"])
    return terms, {"accuracy": losses.rank_hits(scores.ranks, weights["loss"])}


train_step = make_train_step(corrupt, masks, loss)

"""Selective training: causal language modelling of the most learnable tokens.

RHO-1 (Lin et al. 2024, arXiv 2404.07965). A frozen reference model reads the same rows.
The excess loss of a token is its loss minus the reference's. Only the share k of the
tokens with the largest excess is trained on:

    loss       l_i   2.0   0.5   3.0   1.0   0.2
    reference  r_i   1.5   0.6   2.9   0.2   0.15
    excess     e_i   0.5  -0.1   0.1   0.8   0.05
    k = 0.6            x           x     x            mean of l_i: 2.0 (of all: 1.34)

    loss = mean of l_i over the K = ceil(k N) of N tokens with the largest l_i - r_i

The choice has no gradient. Tokens are ranked over all rows of a microbatch, on all
devices; equal ones by position. The sum of the selected losses is multiplied by N / K
and divided by all N, so that microbatches weigh by their tokens.

Evaluation is `clm`'s, of all tokens, without the reference. The training loss depends
on the choice, and is not comparable between shares or with `clm`'s: `all_loss` in the
log of a run is the mean over all tokens. Each step reads all tokens in both networks,
whatever the share: it costs that of `clm` and a forward pass of the reference. The
training of the reference is a cost of its teacher.

The paper reports gains for models that are trained further on narrow text, with k = 0.6
(1B) and 0.7 (7B); 0.5 was worse than no selection. The reference was tuned on clean
text, or on the same text. Here it is by default a `clm` run on the text of the run. A
third party found that a small model is worse for a selection by l_i alone.

Controls: `select="random"`, the same number of random tokens; `select="reference"`, the
tokens with the smallest r_i, which is the excess without l_i and leaves out the rare
ones; `select="loss"`, the tokens with the largest l_i, noise included; `clm`, which is
k = 1.

Departure: tokens are ranked in a microbatch, not in the batch of an optimizer step.
"""

import dataclasses
import fractions
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.dims import Batch, Rows
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import clm
from jaxpt.objectives.distillation import WithTeacher
from jaxpt.objectives.objective import Keys, Masks, Sums
from jaxpt.objectives.spec import Needs, Teacher
from jaxpt.ops import losses
from jaxpt.ops.losses import SumWeight
from jaxpt.rng import row_keys
from jaxpt.setting_types import OneOf, PositiveFraction
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network

WITH_REFERENCE = ("excess", "reference")
MAX_DENOMINATOR = 10_000  # of the share, whose products then fit in int32


@dataclasses.dataclass(frozen=True)
class Spec(WithTeacher, clm.Spec):
    """The share of tokens, how they are selected, and the reference, its `teacher`.

    Attributes:
      share: k, of the tokens that are trained on; 1 is `clm`.
      select: by "excess" loss, or as a control by "reference" loss, by "loss" or at
        "random". The last two need no reference.
    """

    SECTION: ClassVar[str] = "selective_clm"
    NETWORKS: ClassVar = ("student_teacher.CausalStudent", "one_stack.CausalLM")
    LOSS_FREE: ClassVar = frozenset({"share", "select"})  # evaluation is of all tokens

    _: dataclasses.KW_ONLY
    share: PositiveFraction = 0.6
    select: Annotated[str, OneOf("excess", "reference", "loss", "random")] = "excess"

    @property
    def needs(self) -> Needs:
        if self.select not in WITH_REFERENCE or self.share == 1:
            return Needs()
        return Needs(teacher=Teacher("causal", "clm", self.teacher))

    def check_network(self, model_spec: ModelSpec, vocab: Vocab) -> "type[Network]":
        super().check_network(model_spec, vocab)
        return self.networks()[self.needs.teacher is None]

    @property
    def lone_setting(self) -> str:
        """Only its own train step selects tokens."""
        return "share" if self.share < 1 else ""

    def controls(self) -> dict[str, dict[str, Any]]:
        controls: dict[str, dict[str, Any]] = {"clm": {"objective": "clm"}}
        if self.select == "excess" and self.share < 1:
            for name in ("random", "reference", "loss"):
                controls[name] = {self.SECTION: {"select": name}}
        return controls


def count_selected(num: Int[Array, ""], share: float) -> Int[Array, ""]:
    """ceil(share * num), exactly.

    >>> count_selected(jnp.array(5), 0.6), count_selected(jnp.array(100), 0.55)
    (Array(3, dtype=int32), Array(55, dtype=int32))
    """
    exact = fractions.Fraction(share).limit_denominator(MAX_DENOMINATOR)
    part, whole = max(exact.numerator, 1), exact.denominator
    rest = (num % whole * part + whole - 1) // whole
    return jnp.int32(num // whole * part + rest)


def select_tokens(
    scores: Float[Array, "B T"],
    is_counted: Bool[Array, "B T"],
    share: float,
    axis: str | None = None,
) -> tuple[Bool[Array, "B T"], Float[Array, ""]]:
    """The share of the counted tokens with the highest scores, and N / K.

    Args:
      axis: pmap's, if any: the tokens of all its devices are ranked together.

    >>> scores = jnp.array([[0.5, -0.1, 0.1], [0.8, 0.05, 9.0]])
    >>> is_counted = jnp.array([[True, True, True], [True, True, False]])
    >>> is_selected, factor = select_tokens(scores, is_counted, 0.6)
    >>> is_selected.tolist(), round(float(factor), 4)
    ([[True, False, True], [True, False, False]], 1.6667)
    """
    own: Array | int = 0
    shape = scores.shape
    # A loss that is not a number is selected, so that the run sees it.
    scores = jnp.where(jnp.isnan(scores), jnp.inf, scores)
    if axis is not None:
        scores, is_counted = jax.lax.all_gather((scores, is_counted), axis)
        own = jax.lax.axis_index(axis)
    order = jnp.lexsort((-scores.ravel(), ~is_counted.ravel()))
    num = is_counted.sum()
    num_selected = count_selected(num, share)
    is_first = jnp.arange(order.size) < num_selected
    is_selected = jnp.zeros(order.size, bool).at[order].set(is_first)
    factor = num / jnp.maximum(num_selected, 1)
    return is_selected.reshape(-1, *shape)[own], factor


def select_loss(
    nll: Float[Array, "B T"],
    scores: Float[Array, "B T"],
    weights: Float[Array, "B T"],
    share: float,
    axis: str | None = None,
) -> SumWeight:
    """The loss of the tokens with the highest scores, for the weight of all.

    >>> nll, reference = jnp.array([[2, 0.5, 3, 1, 0.2], [1.5, 0.6, 2.9, 0.2, 0.15]])
    >>> scores, ones = nll - reference, jnp.ones((1, 5))
    >>> total, weight = select_loss(nll[None], scores[None], ones, 0.6)
    >>> round(float(total / weight), 4)
    2.0
    """
    is_selected, factor = select_tokens(scores, weights > 0, share, axis)
    total = jnp.sum(jnp.where(is_selected, nll * weights, 0)) * factor
    return total, jnp.sum(weights)


corrupt, masks = clm.corrupt, clm.masks


def loss(
    params: Any, model: Any, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """As `clm`'s, of all tokens; only `train_step` selects among them."""
    network, own_params = model.task_part(params)
    return clm.loss(own_params, network, batch, masks, rngs)


def score_tokens(
    nll: Float[Array, "B T"],
    params: Any,
    model: Any,
    batch: Batch,
    masks: Masks,
    rng: Array,
    select: str,
) -> Float[Array, "B T"]:
    """The scores by which tokens are selected, without gradient."""
    if select == "random":
        draw = lambda key: jax.random.uniform(key, nll.shape[1:])  # noqa: E731
        return jax.vmap(draw)(row_keys(rng, batch["index"]))
    scores = jax.lax.stop_gradient(nll) * (select != "reference")
    if select not in WITH_REFERENCE:
        return scores

    def read(model: Any) -> Array:
        states = model.teacher_outputs(batch, masks)
        result: Array = model.teacher.nll(states, batch["targets"])
        return result

    return scores - model.apply({"params": params}, method=read)


def train_step(
    state: TrainState,
    rows: Rows,
    rngs: Keys,
    *,
    model: Any,
    vocab: Vocab,
    spec: Spec,
    update: Update,
) -> tuple[TrainState, Sums]:
    """Predict every next token, compare with the reference, train on a share."""
    batch, rng = corrupt(rngs["corrupt"], rows, vocab, spec), rngs["corrupt"]

    def selected(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        attn_masks, weights = masks(batch), batch["weights"]["loss"]
        network, own_params = model.task_part(params)

        def predict(network: Any) -> tuple[Array, Array]:
            states = network.batch_states(batch, attn_masks, deterministic=False)
            result: tuple[Array, Array] = network.token_scores(states, batch["targets"])
            return result

        nll, ranks = network.apply(
            {"params": own_params}, rngs={"dropout": rngs["dropout"]}, method=predict
        )
        scores = score_tokens(nll, params, model, batch, attn_masks, rng, spec.select)
        terms = {"loss": select_loss(nll, scores, weights, spec.share, update.axis)}
        metrics = {
            "accuracy": losses.rank_hits(ranks, weights),
            "all_loss": (jnp.sum(nll * weights), jnp.sum(weights)),
        }
        return terms, metrics

    def whole(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        return loss(params, model, batch, masks(batch), rngs)

    loss_fn = selected if spec.share < 1 else whole
    return update(state, batch, loss_fn, rngs, spec.coefficients)

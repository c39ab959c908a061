"""Multi-token prediction: the next token, and by extra layers those after it.

Head k predicts the token k positions after t. Head 1 is that of `clm`, and the only one
that samples, scores and is exported. There are D extra heads, k = 2 ... D + 1. All
share the embeddings E and the vocabulary head.

"parallel" (Gloeckle et al. 2024, arXiv 2404.19737): every head is one Transformer layer
on the same state. Head 1 is the model's last layer, the others are further layers with
the same input. D is 3, and all losses have weight 1.

"sequential" (DeepSeek-V3, arXiv 2412.19437): head k is one layer on the state of head
k - 1 and on one more token, so that it has read all tokens before its target:

    h_k = layer_k(W_k [norm(h_k-1); norm(E(x_t+k-1))])    predicts x_t+k

D is 1. The weight w is .3, and .1 for the last third (4.8 of 14.8 trillion tokens).

    loss = mean over t of -log p_1(x_t+1)
           + w / D sum over k of mean over t of -log p_k(x_t+k)

A head neither predicts nor reads a token of the next packed document of a row.

Each extra head costs a layer and another computation of the vocabulary head, which is
most of the FLOPs of a small model. In Gloeckle et al. the model has D fewer layers than
its control, and the same number of parameters: set `model.num_layers`, which is never
changed silently. Controls: `clm` with D more layers (equal depth), and at equal FLOPs,
which allow more steps. With weight 0 the model's gradients are those of `clm`.
`multi_token` has no extra parameters.

At equal FLOPs the extra layers cost steps, and `clm` is better at three widths with ten
seeds: docs/results/multi-token.md. In equal steps on the quickstart (460, two seeds),
bits per byte are 2.099 +- .003 with sequential heads for 1.6 times the FLOPs of `clm`
and 2.134 with parallel ones for 2.6 times, against 2.102 +- .004, without a significant
difference.

Departures: each head's loss is the mean over its own targets (DeepSeek-V3 divides by
the length of the row, MaxText pools the sums of all heads). Norms are those of the
model, not always RMSNorm. Parallel heads have separate last norms. h_1 is read after
the model's last norm. E(x) is what the first layer reads, with its position if that is
added.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import MAX_LAYERS, ModelSpec
from jaxpt.objectives import clm
from jaxpt.objectives.multi_token import shift_targets
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Predictions, Term
from jaxpt.ops import losses
from jaxpt.setting_types import (
    Fraction,
    Limits,
    NonNegativeFloat,
    OneOf,
    Rule,
    is_schedule,
)
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.multi_token import MultiTokenLM
    from jaxpt.nn.networks.network import Network

# By variant, as published: D, and pairs (until, w) or None for w = D.
VARIANTS: dict[str, tuple[int, tuple[tuple[float, float], ...] | None]] = {
    "parallel": (3, None),
    "sequential": (1, ((10 / 14.8, 0.3), (1.0, 0.1))),
}


@dataclasses.dataclass(frozen=True)
class Spec(clm.Spec):
    """The extra heads, and the weight of their losses.

    Attributes:
      variant: "parallel": all heads start from the same state; "sequential": each from
        that of the previous head and one more token.
      num_extra: D, heads in addition to that of the next token; 0 as published: 3 in
        parallel, 1 if sequential.
      weight_schedule: pairs (until, w): until this fraction of the training, the
        mean of the extra losses has weight w. The last pair ends at 1 and is that of
        evaluation. () as published: ((1.0, D),) in parallel, which is weight 1 for
        each head; ((0.676, 0.3), (1.0, 0.1)) if sequential.
    """

    SECTION: ClassVar[str] = "multi_token_heads"
    READS: ClassVar = clm.Spec.READS | {"progress"}
    NETWORKS: ClassVar = ("multi_token.MultiTokenLM",)

    variant: Annotated[str, OneOf(*VARIANTS)] = "sequential"
    num_extra: Annotated[int, Limits(least=0, most=MAX_LAYERS)] = 0
    weight_schedule: Annotated[
        tuple[tuple[Fraction, NonNegativeFloat], ...],
        Rule(
            lambda pairs: is_schedule(pairs) and (not pairs or pairs[-1][0] == 1),
            "pairs (until, weight) such as ((0.7, 0.3), (1.0, 0.1)): until increasing "
            "to 1, weights of at least 0",
        ),
    ] = ()

    @property
    def offsets(self) -> range:
        """k of the extra heads.

        >>> Spec(4).offsets, Spec(4, variant="parallel").offsets
        (range(2, 3), range(2, 5))
        """
        num, _ = VARIANTS[self.variant]
        return range(2, 2 + (self.num_extra or num))

    def weight_at(self, progress: Any) -> Any:
        """w / D after this fraction of the training.

        >>> spec = Spec(4, num_extra=2)
        >>> [round(float(spec.weight_at(p)), 3) for p in (0, 0.67, 0.68, 1)]
        [0.15, 0.15, 0.05, 0.05]
        >>> Spec(4, variant="parallel").weight_at(0.5)
        1.0
        """
        _, published = VARIANTS[self.variant]
        num = len(self.offsets)
        phases = self.weight_schedule or published or ((1.0, num),)
        weight = phases[-1][1]
        for until, earlier in reversed(phases[:-1]):
            is_earlier = progress < until
            weight = earlier * is_earlier + weight * (1 - is_earlier)
        return weight / num

    @property
    def predictions(self) -> Predictions:
        """Every position, by each head."""
        return Predictions((1 + len(self.offsets)) * (self.row_length - 1))

    @property
    def terms(self) -> dict[str, Term]:
        """The weight of the extra losses is that at the end of the training."""
        weight = self.weight_at(1)
        terms = {"clm_loss": Term("next token", is_likelihood=True)}
        for k in self.offsets:
            terms[name_term(k)] = Term(f"token {k} ahead", weight, targets="")
        return terms

    def coefficients_at(self, progress: Any) -> dict[str, Any]:
        weight = self.weight_at(progress)
        return dict.fromkeys(self.terms, weight) | {"clm_loss": 1.0}

    def controls(self) -> dict[str, dict[str, Any]]:
        return {
            "clm": {"objective": "clm"},
            "multi_token": {"objective": "multi_token"},
        }

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        is_sequential = self.variant == "sequential"
        fields |= {"num_extra": len(self.offsets), "is_sequential": is_sequential}
        return super().make_network(model_spec, vocab, **fields)


def name_term(offset: int) -> str:
    """The name of an extra head's loss."""
    return f"offset_{offset}_loss"


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does; nothing is drawn.

    The documents 7 8 9 and 5 6 3; the second token ahead is in that of 7 and 5:

    >>> import jax.numpy as jnp
    >>> rows = {"tokens": jnp.array([[7, 8, 9, 5, 6, 3]]), "index": jnp.array([0])}
    >>> rows["segment_ids"] = jnp.array([[1, 1, 1, 2, 2, 2]])
    >>> batch = corrupt(None, rows, None, Spec(row_length=6))
    >>> batch["targets"].tolist(), batch["weights"]["offset_2_loss"].tolist()
    ([[8, 9, 5, 6, 3]], [[1.0, 0.0, 0.0, 1.0, 0.0]])
    """
    batch = clm.corrupt(rng, rows, vocab, spec)
    offsets, weights = spec.offsets, batch["weights"]["loss"]
    _, weights_BTK = shift_targets(batch["targets"], weights, offsets[-1])
    extra = {name_term(k): weights_BTK[..., k - 1] for k in offsets}
    return batch | {"weights": {"clm_loss": weights} | extra}


masks = clm.masks


def loss(
    params: Any, model: "MultiTokenLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the token at each offset, by its head."""
    weights = batch["weights"]
    of_next = weights["clm_loss"]
    targets, _ = shift_targets(batch["targets"], of_next, 1 + model.num_extra)

    def predict(model: "MultiTokenLM") -> tuple[tuple, Sums]:
        is_fixed = "dropout" not in rngs
        states, *ahead = model.all_states(batch, masks, deterministic=is_fixed)
        main = model.score_term("clm_loss", states, targets[..., 0], of_next)
        terms = {}
        for k, states in enumerate(ahead, 2):
            name = name_term(k)
            scores = model.score(states, targets[..., k - 1], weights[name])
            terms[name] = scores.loss
        return main, terms

    (scores, of_next, more), terms = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    hits = losses.rank_hits(scores.ranks, of_next)
    return {"clm_loss": scores.loss} | terms, {"accuracy": hits} | more


train_step = make_train_step(corrupt, masks, loss)

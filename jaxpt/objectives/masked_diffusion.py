"""Masked diffusion: mask a random fraction of each row, predict all that is masked.

LLaDA (Nie et al. 2025), `get_log_likelihood.py` and its guidelines; MDLM (Sahoo et al.
2024). A row's mask rate t is uniform in (0, 1]. Each token is masked independently with
probability t, always by [MASK], and the loss of a masked token has weight 1 / t. Its
expectation is an upper bound of -log p of the row:

    t = 0.5    the [MASK] sat on [MASK] mat    loss = (-log p(cat) - log p(the)) / t

    loss = mean over tokens i of [i is masked] / t * -log p(x_i | the masked row)

Settings weigh the masked tokens of training in other ways. Evaluation is always by the
bound above, so that `valid_loss` is comparable:

    average     inverse_rate  sum of l / t over all tokens, a bound (default)
                mean          mean of l over all masked tokens of a batch
                row_mean      mean over rows of the mean of l over their masked tokens
    rates       uniform       t; weight 1 / t
                cosine        t = 1 - a, a = cos(pi (1 - s) / 2), s uniform (mean .36);
                              weight |da/ds| / t, the same bound
                bimodal       60 % N(.12, .02), 40 % N(m, .08), m from .4 to .68 during
                              the run; weight (ds by the normal's density)^.1 / t
    frequency_power           rare tokens of a row are masked with a larger probability,
                              weight=row: the row's weight; token: (dp/dt) / p

`mean` is what MLM-U's code trains (Kitouni et al. 2024, facebookresearch/
maze_navigation_MLMU), whose paper has 1 / t. The rates and the hiding by frequency are
DespoinaKK/babylm-diffusion's, `masking/`, in which a row's weight is the published one:
a token's probability p is not its row's t, so with `row` a token's total weight over
all t is not 1, and the most frequent token of a row is almost never learned. With
`token` it is exactly 1. Of a token of rank f in its row (0 the most frequent, 1 the
rarest; to the power `frequency_power` times a number that rises from 0 to 1 in ten
equal parts of the run), with m the mean of f in the row:

    p = f t / m  if t < m,  else 1 - (1 - f) (1 - t) / (1 - m),  t in mean

Departures: a batch's rates are spread evenly by the golden ratio (MDLM's are i / B
apart), special tokens are never masked, and the loss is a mean over the other tokens.
Both parts of `bimodal` have their share of each batch, in the source they are drawn;
the rise of the power is by tenths of the run, in the source by ten epochs. The source's
network also reads the row's rate.

Two settings turn a causal model into a diffusion model (DiffuLLaMA, Gong et al. 2024;
HKUNLP/DiffuLLaMA), whose parameters `train.init_from` or `jaxpt import` provides:

    shift         a masked token is predicted at the position before it, where the
                  causal model predicts it; the first token of a text is given
    mask_anneal   until this fraction p of the run, a token attends to its past and to
                  each later token with probability r = min(1, progress / p)

    loss with shift = mean over i > 1 of [i is masked] / t * -log p(x_i | row, at i - 1)

The later tokens are drawn at each step, once for all rows, layers and heads. At
step 0, r is 0, and a text without masks gives the causal model's next-token
probabilities. Evaluation always attends to the whole text. Departures: the source's r
is (step + 1) / 10,000 of 160,000 steps (p = 1 / 16); its loss is divided by the number
of masked tokens, here by that of all tokens that can be masked.

Masked tokens get the slots (`jaxpt.ops.packing`) of rows with independent rates. Evenly
spread rates need fewer. A microbatch takes every n-th row; their rates are close to
each other if n is a Fibonacci number: 13 microbatches leave up to 0.01 % of the
predictions without a slot, 21 up to 0.4 %, 55 up to 4 %. The run warns.

Controls: `mlm`, with one rate; of other averages, rates and weights, the default ones.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import mlm
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_segments,
    make_train_step,
    map_rows,
)
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Predictions, Term
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.packing import PredictionCounts, at_rates, uniform_rate
from jaxpt.ops.segments import segment_positions
from jaxpt.setting_types import (
    Fraction,
    InnerFraction,
    NonNegativeFloat,
    OneOf,
    PositiveInt,
)
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.diffusion import DiffusionLM
    from jaxpt.nn.networks.network import Network

GOLDEN = (5**0.5 - 1) / 2
LEFT_SHARE = 0.6  # of the lower rates of rates=bimodal
ANNEAL_KEY = 2  # folded into a step's key for the mask of mask_anneal


@dataclasses.dataclass(frozen=True)
class BoundSpec(ObjectiveSpec):
    """The smallest mask rate, and the precision of the likelihood bound.

    Attributes:
      min_rate: uniform rates are from it to 1 (LLaDA's), so that 1 / t is finite.
      bound_samples: corruptions of each held-out row over which the bound is averaged.
    """

    READS: ClassVar[frozenset[str]] = ObjectiveSpec.READS | {"answers"}

    min_rate: InnerFraction = 1e-3
    bound_samples: PositiveInt = 8

    @property
    def needs(self) -> Needs:
        return Needs(specials=("mask",))

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("masked token", selects="inverse_rates")}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        fields |= {"mask_id": vocab.mask, "bound_samples": self.bound_samples}
        return super().make_network(model_spec, vocab, **fields)


@dataclasses.dataclass(frozen=True)
class Spec(BoundSpec):
    """The mask rates, and the weights of masked tokens in training.

    Attributes:
      average: "inverse_rate", over all tokens, a masked one divided by its rate;
        "mean", over all masked tokens; or "row_mean", of the means of rows.
      rates: their law, "uniform", "cosine" or "bimodal".
      frequency_power: at the end of the run, of the ranks by which rare tokens are
        masked more often (babylm-diffusion: 0.02); 0: all tokens equally.
      weight: with frequency_power, of a masked token: "row", by its row's rate, or
        "token", by its own probability.
      shift: predict a token at the position before it, as a causal model does, from
        which the run can then start (train.init_from).
      mask_anneal: until this fraction of the training, the attention mask changes from
        causal to full (DiffuLLaMA: 1/16); 0: full from the start.
    """

    SECTION: ClassVar[str] = "masked_diffusion"
    NETWORKS: ClassVar[tuple[Any, ...]] = (
        "diffusion.DiffusionLM",
        "diffusion.ShiftedDiffusionLM",
    )
    READS: ClassVar = BoundSpec.READS | {"progress"}

    average: Annotated[str, OneOf("inverse_rate", "mean", "row_mean")] = "inverse_rate"
    rates: Annotated[str, OneOf("uniform", "cosine", "bimodal")] = "uniform"
    frequency_power: NonNegativeFloat = 0.0
    weight: Annotated[str, OneOf("row", "token")] = "row"
    shift: bool = False
    mask_anneal: Fraction = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        is_used = self.frequency_power > 0 and self.average == "inverse_rate"
        allowed = "row without frequency_power above 0 and average=inverse_rate"
        self.check("weight", self.weight == "row" or is_used, allowed)

    @property
    def lone_setting(self) -> str:
        names = (name for name in ("shift", "mask_anneal") if getattr(self, name))
        return next(names, "")

    @property
    def bound(self) -> "Spec":
        """The settings of evaluation."""
        sizes = self.row_length, self.min_rate, self.bound_samples
        return Spec(*sizes, shift=self.shift)

    @property
    def needs(self) -> Needs:
        return Needs(specials=("mask",), counts=self.frequency_power > 0)

    @property
    def predictions(self) -> Predictions:
        """As in rows with independent rates; a batch's sum varies less.

        The law of bimodal rates is that of the end of the run, with the most masks.
        """
        law: PredictionCounts
        most = max(1, self.row_length - self.shift)
        if self.rates == "uniform":
            law = uniform_rate(most, self.min_rate)
        else:
            spread = (np.arange(1000) + 0.5) / 1000
            with jax.ensure_compile_time_eval():
                rates, _ = find_rates(self, jnp.asarray(spread), 1.0)
            law = at_rates(most, np.asarray(rates, np.float64))
        return Predictions(self.row_length, {"loss": law})

    def controls(self) -> dict[str, dict[str, Any]]:
        own = {
            "average": "inverse_rate",
            "rates": "uniform",
            "frequency_power": 0.0,
            "weight": "row",
        }
        changed = [name for name in own if getattr(self, name) != own[name]]
        controls: dict[str, dict[str, Any]] = {}
        if changed:
            controls["plain"] = {self.SECTION: own}
        if self.frequency_power:
            controls["adaptive_mlm"] = {"objective": "adaptive_mlm"}
            if {*changed} - {"frequency_power", "weight"}:
                even = {"frequency_power": 0.0, "weight": "row"}
                controls["even"] = {self.SECTION: even}
        if self.mask_anneal:
            controls["at_once"] = {self.SECTION: {"mask_anneal": 0.0}}
        if self.shift:
            controls["unshifted"] = {self.SECTION: {"shift": False}}
        return controls or {"mlm": {"objective": "mlm"}}

    def check_network(self, model_spec: ModelSpec, vocab: Vocab) -> "type[Network]":
        super().check_network(model_spec, vocab)
        return self.networks()[self.shift]

    def text_form(self, vocab: Vocab) -> TextForm:
        form = super().text_form(vocab)
        if not self.shift:
            return form
        note = (
            "Trained by masked diffusion: every token attended to all, and each [MASK] "
            "was predicted at the position before it. To fill a [MASK], let all "
            "positions attend to all."
        )
        return dataclasses.replace(form, mask_note=note)

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        fields |= {"packs_evaluation": self.rates == "uniform"}
        return super().make_network(model_spec, vocab, **fields)


def spread_evenly(rng: Array, index: Array) -> Array:
    """A uniform number in [0, 1) for each row; those of a batch are evenly spread."""
    return (jax.random.uniform(rng) + index * GOLDEN) % 1


def find_rates(
    spec: Spec, spread: Float[Array, "*B"], progress: Float[Array, "*B"] | float
) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """The mask rates, and the numbers by which the loss of a masked token is divided.

    Args:
      spread: uniform in [0, 1).
      progress: the fraction of the training that is done.

    >>> spread = jnp.array([0.25, 0.5, 0.75])
    >>> rates, divisors = find_rates(Spec(4, rates="cosine"), spread, 0.0)
    >>> [round(float(rate), 4) for rate in rates]
    [0.6173, 0.2929, 0.0761]
    >>> [round(float(1 / divisor), 4) for divisor in divisors]
    [2.3509, 3.7922, 7.8969]
    """
    if spec.rates == "uniform":
        rates = spec.min_rate + (1 - spec.min_rate) * spread
        return rates, rates
    if spec.rates == "cosine":
        angle = jnp.pi * (1 - spread) / 2
        rates = 2 * jnp.sin(angle / 2) ** 2  # 1 - cos(angle), also near 0
        return rates, (rates + 1e-8) / (jnp.pi / 2 * jnp.sin(angle) + 1e-30)
    is_left = spread < LEFT_SHARE
    right = (spread - LEFT_SHARE) / (1 - LEFT_SHARE)
    place = jnp.where(is_left, spread / LEFT_SHARE, right)
    z = jax.scipy.special.ndtri(jnp.clip(place, 1e-6, 1 - 1e-6))
    mean = jnp.where(is_left, 0.12, 0.4 + 0.45 * (1 - jnp.exp(-jnp.float32(progress))))
    std = jnp.where(is_left, 0.02, 0.08)
    rates = jnp.clip(mean - std * z, 1e-6, 1 - 1e-6)
    slopes = std * jnp.sqrt(2 * jnp.pi) * jnp.exp(z**2 / 2)
    return rates, (rates + 1e-8) / slopes**0.1


def rank_tokens(vocab: Vocab) -> Float[np.ndarray, "V"]:
    """The rank of each ordinary token by its frequency: the rarest 1, others less.

    >>> print(rank_tokens(Vocab(size=4, mask=0, counts=(0, 7, 2, 9))).round(2))
    [0.   0.67 1.   0.33]
    """
    ordinary, ranks = vocab.ordinary_ids, np.zeros(vocab.size, np.float32)
    order = np.argsort(-np.asarray(vocab.counts)[ordinary], kind="stable")
    ranks[ordinary[order]] = (np.arange(len(order)) + 1) / len(order)
    return ranks


def hide_by_rank(
    ranks: Float[Array, "R"],
    is_text: Bool[Array, "R"],
    rate: Float[Array, ""],
    power: Float[Array, ""] | float,
) -> tuple[Float[Array, "R"], Float[Array, "R"]]:
    """The mask probability p of each token, and p / (dp / d rate).

    >>> ranks, is_text = jnp.array([0.1, 0.4, 0.7, 1.0]), jnp.ones(4, bool)
    >>> p, _ = hide_by_rank(ranks, is_text, 0.4, 0.02)
    >>> [round(float(x), 4) for x in p]
    [0.0, 0.527, 0.5343, 0.5387]
    """
    low = jnp.min(jnp.where(is_text, ranks, jnp.inf))
    high = jnp.max(jnp.where(is_text, ranks, -jnp.inf))
    is_even = high <= low  # of one kind of token, and of none
    scaled = jnp.where(is_even, 1.0, (ranks - low) / jnp.where(is_even, 1, high - low))
    f = jnp.where(is_text, jnp.maximum(scaled, 0) ** power, 0)
    mean = f.sum() / jnp.maximum(is_text.sum(), 1)
    rest = jnp.maximum(1 - mean, 1e-8)
    is_low = rate <= mean
    above = jnp.maximum(1 - (1 - f) * (1 - rate) / rest, 0)
    p = jnp.where(is_low, f * rate / jnp.maximum(mean, 1e-8), above)
    # The rarest token is certain to be masked at high rates, and never learned there.
    slopes = jnp.maximum((1 - f) / rest, 1e-8)
    return p, jnp.where(is_low, rate, above / slopes)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Masks each ordinary token with the probability of its row.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> spec = Spec(row_length=3, min_rate=0.999)
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=10, mask=4), spec)
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[4, 4, 4]], [[7, 8, 9]])
    """
    if "progress" not in rows:  # evaluation
        spec = spec.bound
    rng_rate, rng_mask = jax.random.split(rng)
    is_special, mask_id = jnp.asarray(vocab.is_special), vocab.require("mask")
    spread = spread_evenly(rng_rate, rows["index"])
    progress = rows.get("progress", jnp.zeros(len(spread)))
    rates, divisors = find_rates(spec, spread, progress)
    ranks = jnp.asarray(rank_tokens(vocab)) if spec.frequency_power else None
    # With shift, a text's first token has no position before it.
    can_hide = segment_positions(get_segments(rows)) >= int(spec.shift)

    def corrupt_row(
        rng: Array,
        tokens: Array,
        segments: Array,
        rate: Array,
        by: Array,
        done: Array,
        can_hide: Array,
    ) -> Batch:
        is_text, p = (segments > 0) & ~is_special[tokens] & can_hide, rate
        if ranks is not None:
            power = spec.frequency_power * jnp.clip(jnp.floor(10 * done) / 9, 0, 1)
            p, own = hide_by_rank(ranks[tokens], is_text, rate, power)
            by = by * own / rate if spec.weight == "token" else by
        noise_mask = is_text & (jax.random.uniform(rng, tokens.shape) < p)
        masked, weights = (
            noise_mask / jnp.maximum(by, 1e-9),
            is_text.astype(jnp.float32),
        )
        if spec.average != "inverse_rate":
            masked = weights = noise_mask.astype(jnp.float32)
        if spec.average == "row_mean":
            weights = weights / jnp.maximum(weights.sum(), 1)
        return {
            "inputs": jnp.where(noise_mask, mask_id, tokens),
            "targets": tokens,
            "inverse_rates": masked,
            "weights": {"loss": weights},
        }

    more = rates, divisors, progress, can_hide
    batch = map_rows(corrupt_row, rng_mask, rows, *more)
    if spec.shift:
        batch |= _shift(batch)
    if spec.mask_anneal:
        seed = jax.random.bits(jax.random.fold_in(rng, ANNEAL_KEY))
        batch |= {
            "mask_seeds": jnp.broadcast_to(seed, progress.shape),
            "later_shares": jnp.minimum(progress / spec.mask_anneal, 1),
        }
    return batch


def _shift(batch: Batch) -> Batch:
    """The targets of a batch and their weights at the positions before them."""

    def move(x: Array) -> Array:
        return jnp.pad(x[:, 1:], ((0, 0), (0, 1)))

    return {
        "targets": move(batch["targets"]),
        "inverse_rates": move(batch["inverse_rates"]),
        "weights": jax.tree.map(move, batch["weights"]),
    }


def masks(batch: Batch) -> Masks:
    """Each position attends to its document, with mask_anneal to a part of the later.

    >>> inputs, share = jnp.array([[7, 8, 9]]), jnp.array([0.0])
    >>> annealed = {"mask_seeds": jnp.array([1]), "later_shares": share}
    >>> mask = masks({"inputs": inputs} | annealed)["self"]
    >>> mask[0, 0].astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    full = mlm.masks(batch)
    if "later_shares" not in batch:
        return full
    length = batch["inputs"].shape[1]
    key = jax.random.key(batch["mask_seeds"][0])  # the same in every row
    is_seen = jax.random.bernoulli(key, batch["later_shares"][0], (length, length))
    is_seen |= jnp.tri(length, dtype=bool)
    return {"self": attention_masks.materialise(full["self"], length, length) & is_seen}


def loss(
    params: Any, model: "DiffusionLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of masked tokens over their row's rate, a mean over all tokens.

    Or what `Spec.average` says, by the weights of the batch.
    """
    weights = batch["weights"]["loss"]
    counted = weights * batch["inverse_rates"]

    def predict(model: "DiffusionLM") -> tuple:
        is_fixed = "dropout" not in rngs
        states = model.batch_states(batch, masks, deterministic=is_fixed)
        if is_fixed and not model.packs_evaluation:
            return model.score(states, batch["targets"], counted), counted, {}
        return model.score_term("loss", states, batch["targets"], counted)

    scores, scored_weights, overflow = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    fills = mlm.fill_metrics(scores.ranks, jnp.sign(scored_weights))
    return {"loss": (scores.loss[0], weights.sum())}, fills | overflow


train_step = make_train_step(corrupt, masks, loss)

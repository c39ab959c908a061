"""Hybrid diffusion: noise that masks tokens or replaces them; predict all tokens.

GIDD (von Rütte et al. 2025; dvruette/gidd-easydel, `schedule.py` and `loss.py`). Each
row has a noise level, and each of its tokens x becomes z: with probability s it stays,
else it is noise, [MASK] or a random token. The network predicts x' at every position,
and cannot know from z which tokens are noise:

    s = .5     the dog sat on [MASK] mat
               w (KL(q(.|x) || q(.|x')) + IS)  at each of the six

    loss = mean over tokens of w (KL(q(.|x) || q(.|x')) + IS)

    q(.|x) = s x + (1 - s) pi    pi = a u + (1 - a) m    s = sigmoid(level)
    IS = r - log r - 1           r = q(z|x) / q(z|x')
    w = (pi(z) - pi'(z)) / (pi(z) + exp(level) [z = x])

    noise     mask      a = 0: masks alone; w / p (KL + IS) is l / t of masked_diffusion
              hybrid    a = sigmoid(noise_scale level + noise_shift) (default)
              uniform   a = 1: random tokens u alone

The mean of w / p (KL + IS) over levels, with p = s (1 - s) their density, is an upper
bound of -log p of the row, and exactly -log x'(x) if x' does not depend on z. It is
least if x' is the probability of x given all *other* tokens, whatever z is: the network
must learn to ignore the token that it reads at a position.

    weight    reweighted  training minimises w (KL + IS), at most 1,000 a token (the
                          source's loss, which counts both ends of the levels less)
              bound       training minimises the bound itself, at most 1e6 a token

Evaluation is always by the bound, so that `valid_loss` is comparable with that of
`masked_diffusion`. Levels are from -9 to 9, with s evenly distributed, one a row and
evenly spread over a batch; in evaluation little noise is drawn more often and counts
less, which has the same mean (`token_noise.find_levels`). The range must be wide: over
a shorter one the same integral is less than -log p. From -9 to 9 it is .1 % less, and
more for x'(x) below e^-9 / N, of N ordinary ids.

KL needs the whole distribution at every position, also where z = x: all positions meet
the vocabulary, with `noise="mask"` too, so that the kinds of noise cost the same.

Departures: random tokens are ordinary ones, in the source any id, [MASK] included, for
which its bound has no term. Special tokens are neither noise nor changed. The loss is a
mean over the other tokens. Rows have one level, in the source optionally a token.
`model.z_loss` does not apply.

In text that is read, a [MASK] is noise that the network knows (mask, hybrid). With
uniform noise it has never seen one, and reads a random token in its place.

Controls: `noise="mask"`; `masked_diffusion`, which computes the vocabulary for masked
tokens alone; without the bound, `mlm` with random tokens in place of [MASK]s, and
`electra` with `variant="replace_mlm"`, whose random tokens are a generator's.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.diffusion import DiffusionLM
from jaxpt.objectives import mlm
from jaxpt.objectives.masked_diffusion import spread_evenly
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step, map_rows
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Term
from jaxpt.ops import chunked_loss, losses, token_noise
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.token_noise import TokenNoise, find_levels, inverse_density
from jaxpt.setting_types import Limits, OneOf, PositiveFraction, PositiveInt
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network

# The most that a token's loss is, of the bound and of the source's loss.
BOUND_LIMIT, LIMIT = 1e6, 1e3
STRIDE = 7919  # between the random tokens that are read in place of [MASK]s


class HybridDiffusionLM(DiffusionLM):
    """A masked model that denoises: each position predicts its token, never [MASK]."""

    noise: TokenNoise = TokenNoise()

    def encode(self, ids: Array, *args: Any, **kwargs: Any) -> Array:
        """Of a model of uniform noise, with random tokens in place of [MASK]s."""
        if self.noise.kind == "uniform":
            words = jnp.asarray(self.noise.ordinary_ids)
            places = (STRIDE * jnp.arange(1, ids.shape[1] + 1)) % len(words)
            ids = jnp.where(ids == self.mask_id, words[places], ids)
        return super().encode(ids, *args, **kwargs)

    def logits(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        return self.noise.bar(super().logits(hidden))

    def token_scores(
        self, hidden: Float[Array, "B *T D"], targets: Int[Array, "B *T"]
    ) -> tuple[Float[Array, "B *T"], Int[Array, "B *T"]]:
        def read(logits: Array, targets: Array) -> tuple[Array, Array]:
            read = losses.nll_and_ranks(self.noise.bar(logits), targets)
            return read.nll, read.ranks

        return self._map_logits(read, hidden, targets)

    def nll(
        self, hidden: Float[Array, "B *T D"], targets: Int[Array, "B *T"]
    ) -> Float[Array, "B *T"]:
        return jax.lax.stop_gradient(self.token_scores(hidden, targets)[0])

    def noise_losses(
        self, hidden: Float[Array, "B T D"], batch: Batch
    ) -> tuple[Float[Array, "B T"], Int[Array, "B T"]]:
        """KL + IS of each token, and its rank (`token_noise.find_losses`)."""
        tokens, noised = batch["targets"], batch["inputs"]
        levels = jnp.broadcast_to(batch["noise_levels"][:, None], tokens.shape)
        find = functools.partial(token_noise.find_losses, noise=self.noise)
        return self._map_logits(find, hidden, tokens, noised, levels)

    def _map_logits(self, function: Any, hidden: Array, *rows: Array) -> Any:
        how = self.spec.loss_chunk, self.spec.logit_options
        return chunked_loss.map_logits(function, self.read(hidden), rows, *how)

    def nll_bound(
        self,
        params: Any,
        tokens: Int[Array, "B T"],
        is_text: Bool[Array, "B T"],
        rngs: Array,
    ) -> Float[Array, "B T"]:
        starts, num = jax.vmap(jax.random.uniform)(rngs), self.bound_samples

        def bound(sample: Array) -> Array:
            keys = jax.vmap(jax.random.fold_in, (0, None))(rngs, sample + 1)
            levels, factors = find_levels((starts + sample) / num, is_training=False)
            noised = jax.vmap(self.noise.draw)(keys, tokens, is_text, levels)
            batch: Batch = {"inputs": noised, "targets": tokens, "noise_levels": levels}

            def read(model: HybridDiffusionLM) -> Array:
                full = attention_masks.full()
                states = model.encode(noised, full, deterministic=True)
                return model.noise_losses(states, batch)[0]

            values = self.apply({"params": params}, method=read)
            weights = weigh_by_bound(self.noise, noised, tokens, levels[:, None])
            weights = weights * factors[:, None]
            return is_text * jnp.clip(weights * values, 0, BOUND_LIMIT)

        return jax.lax.map(bound, jnp.arange(num)).mean(0)


def weigh_by_bound(
    noise: TokenNoise,
    noised: Int[Array, "*B"],
    tokens: Int[Array, "*B"],
    levels: Float[Array, "*B"],
) -> Float[Array, "*B"]:
    """w / p, with which KL + IS is the bound."""
    return noise.weigh(noised, tokens, levels) * inverse_density(levels)


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """The noise, and the loss of training.

    Attributes:
      noise: "mask", "hybrid" or "uniform".
      noise_shift: of hybrid noise, -1000 for nearly no random tokens, 1000 for nearly
        no masks.
      noise_scale: of hybrid noise, how fast random tokens become masks as the noise
        increases.
      weight: "reweighted", the source's loss, or "bound".
      bound_samples: noised copies of each held-out row over which the bound is
        averaged.
    """

    SECTION: ClassVar[str] = "hybrid_diffusion"
    NETWORKS: ClassVar = (HybridDiffusionLM,)
    READS: ClassVar = ObjectiveSpec.READS | {"answers", "progress"}

    noise: Annotated[str, OneOf(*token_noise.KINDS)] = "hybrid"
    noise_shift: Annotated[float, Limits(least=-1000, most=1000)] = 0.0
    noise_scale: PositiveFraction = 1.0
    weight: Annotated[str, OneOf("reweighted", "bound")] = "reweighted"
    bound_samples: PositiveInt = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        is_hybrid, allowed = self.noise == "hybrid", "without noise=hybrid"
        self.check_all(
            [
                ("noise_shift", is_hybrid or self.noise_shift == 0, f"0 {allowed}"),
                ("noise_scale", is_hybrid or self.noise_scale == 1, f"1 {allowed}"),
            ]
        )

    @property
    def needs(self) -> Needs:
        return Needs(specials=("mask",))

    @property
    def terms(self) -> dict[str, Term]:
        return {"loss": Term("token", selects="inverse_rates")}

    def controls(self) -> dict[str, dict[str, Any]]:
        mask = {"noise": "mask", "noise_shift": 0.0, "noise_scale": 1.0}
        random = {"replace_mask": 0.0, "replace_random": 1.0}
        controls: dict[str, dict[str, Any]] = {
            "masked_diffusion": {"objective": "masked_diffusion"},
            "mask": {self.SECTION: mask},
            "random_mlm": {"objective": "mlm", "mlm": random},
            "replace_mlm": {
                "objective": "electra",
                "electra": {"variant": "replace_mlm"},
            },
        }
        if self.noise == "mask":
            del controls["mask"]
        return controls

    def find_noise(self, vocab: Vocab) -> TokenNoise:
        """The noise over a vocabulary."""
        ids = tuple(np.flatnonzero(vocab.is_special).tolist())
        how = self.noise, self.noise_scale, self.noise_shift
        return TokenNoise(*how, vocab.require("mask"), ids, vocab.size)

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        self.check_network(model_spec, vocab)
        fields |= {"noise": self.find_noise(vocab), "mask_id": vocab.require("mask")}
        fields |= {"bound_samples": self.bound_samples}
        return super().make_network(model_spec, vocab, **fields)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Adds noise to the ordinary tokens, of one level a row.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> spec = Spec(row_length=3)
    >>> batch = corrupt(jax.random.key(4), rows, Vocab(size=10, mask=4), spec)
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 4, 9]], [[7, 8, 9]])
    """
    is_training = "progress" in rows
    by_bound = not is_training or spec.weight == "bound"
    rng_level, rng_noise = jax.random.split(rng)
    noise, is_special = spec.find_noise(vocab), jnp.asarray(vocab.is_special)
    spread = spread_evenly(rng_level, rows["index"])
    levels, factors = find_levels(spread, is_training)

    def corrupt_row(
        rng: Array, tokens: Array, segments: Array, level: Array, factor: Array
    ) -> dict[str, Any]:
        is_text = (segments > 0) & ~is_special[tokens]
        noised = noise.draw(rng, tokens, is_text, level)
        weigh = functools.partial(weigh_by_bound, noise) if by_bound else noise.weigh
        return {
            "inputs": noised,
            "targets": tokens,
            "inverse_rates": is_text * factor * weigh(noised, tokens, level),
            "noise_levels": level,
            "loss_limits": jnp.float32(BOUND_LIMIT if by_bound else LIMIT),
            "weights": {"loss": is_text.astype(jnp.float32)},
        }

    return map_rows(corrupt_row, rng_noise, rows, levels, factors)


masks = mlm.masks


def loss(
    params: Any, model: HybridDiffusionLM, batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """The weighted KL + IS of every token, a mean over all tokens that can change.

    Accuracies are those of the changed ones.
    """
    weights, limits = batch["weights"]["loss"], batch["loss_limits"][:, None]

    def predict(model: HybridDiffusionLM) -> tuple[Array, Array]:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        return model.noise_losses(states, batch)

    values, ranks = model.apply({"params": params}, rngs=rngs, method=predict)
    values = jnp.clip(batch["inverse_rates"] * values, 0, limits)
    is_changed = batch["inputs"] != batch["targets"]
    fills = mlm.fill_metrics(ranks, weights * is_changed)
    return {"loss": (jnp.sum(weights * values), weights.sum())}, fills


train_step = make_train_step(corrupt, masks, loss)

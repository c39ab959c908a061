"""Noise of diffusion over tokens: [MASK]s, random tokens or both, and its bound.

A token x becomes z ~ q(.|x) = s x + (1 - s) pi, where s = sigmoid(level) is the share
of signal and pi = a u + (1 - a) m, with u uniform over the ordinary ids and m [MASK].
Of a prediction x', a distribution, the integrand of the bound is w / p (KL + IS):

    KL = KL(q(.|x) || q(.|x'))      IS = r - log r - 1,  r = q(z|x) / q(z|x')
    w = (pi(z) - pi'(z)) / (pi(z) + exp(level) [z = x])     p = s (1 - s)

In units of s, the noise of one ordinary id is k = (1 - s) a / (s N), of N ids.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxpt.ops import edits, losses

KINDS = ("mask", "hybrid", "uniform")
MAX_LEVEL = 9.0  # levels are from -9 to 9
NEVER = -1e30  # the logit of [MASK], and not infinite, so that p log p is 0
FAR = -1000.0  # the logarithm of a share that is 0
MAX_CHANGE = 30.0  # of log r, whose exponential is finite


@dataclasses.dataclass(frozen=True)
class TokenNoise:
    """The noise at each level, hashable.

    Attributes:
      kind: "mask" (a = 0), "uniform" (a = 1) or "hybrid".
      scale, shift: of hybrid noise, a = sigmoid(scale level + shift).
      mask_id: the id of [MASK], which is never predicted.
      special_ids: all ids that are not noise, sorted.
      num_ids: all ids.
    """

    kind: str = "mask"
    scale: float = 1.0
    shift: float = 0.0
    mask_id: int = 0
    special_ids: tuple[int, ...] = (0,)
    num_ids: int = 2

    @property
    def ordinary_ids(self) -> Int[np.ndarray, "N"]:
        """The ids that are noise."""
        return np.setdiff1d(np.arange(self.num_ids), self.special_ids)

    def find_shares(
        self, levels: Float[Array, "*B"]
    ) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
        """log a and log (1 - a)."""
        if self.kind == "hybrid":
            x = self.scale * levels + self.shift
            return jax.nn.log_sigmoid(x), jax.nn.log_sigmoid(-x)
        shares = jnp.zeros_like(levels), jnp.full_like(levels, FAR)
        return shares if self.kind == "uniform" else shares[::-1]

    def find_log_k(self, levels: Float[Array, "*B"]) -> Float[Array, "*B"]:
        """log k, of the noise of one ordinary id."""
        log_a, _ = self.find_shares(levels)
        return log_a - levels - np.log(self.num_ids - len(self.special_ids))

    def draw(
        self,
        rng: Array,
        tokens: Int[Array, "R"],
        can_change: Bool[Array, "R"],
        level: Float[Array, ""],
    ) -> Int[Array, "R"]:
        """Tokens with noise, each independently of the others."""
        a, rest = (jnp.exp(share) for share in self.find_shares(level))
        amount, words = jax.nn.sigmoid(-level), jnp.asarray(self.ordinary_ids)
        shares = amount * rest, amount * a
        noised = edits.replace_tokens(rng, tokens, self.mask_id, words, *shares)
        return jnp.where(can_change, noised, tokens)

    def weigh(
        self,
        noised: Int[Array, "*B"],
        tokens: Int[Array, "*B"],
        levels: Float[Array, "*B"],
    ) -> Float[Array, "*B"]:
        """The weight w of each token, at least 0."""
        a, rest = (jnp.exp(share) for share in self.find_shares(levels))
        scale = self.scale if self.kind == "hybrid" else 0.0
        other = 1 - scale * rest
        same = other * jax.nn.sigmoid(self.find_log_k(levels))
        weights = jnp.where(noised == tokens, same, other)
        return jnp.where(noised == self.mask_id, 1 + scale * a, weights)

    def bar(self, logits: Float[Array, "*B V"]) -> Float[Array, "*B V"]:
        """The logits, with which [MASK] is never predicted."""
        is_mask = jnp.arange(logits.shape[-1]) == self.mask_id
        return jnp.where(is_mask, NEVER, logits.astype(jnp.float32))


def find_levels(
    spread: Float[Array, "*B"], is_training: bool = True
) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """Levels, and the factors of their losses, by which the mean is the bound.

    In training the shares of noise t are uniform. In evaluation they have the density
    t^-1/2 / 2 and the factors 2 t^1/2: a token that changes at little noise, which is
    rare and costs up to e^9, is less rare and costs less. With random tokens the
    variance is about a fifth.

    Args:
      spread: uniform in [0, 1); 0 is nearly no noise.

    >>> levels, factors = find_levels(jnp.array([0.0, 0.5]), is_training=False)
    >>> print(levels.round(1), factors)
    [9.  1.1] [0. 1.]
    """
    least, power = 1 / (1 + np.exp(MAX_LEVEL)), 1 if is_training else 2
    t = least + (1 - 2 * least) * spread**power
    return jnp.log1p(-t) - jnp.log(t), power * spread ** (power - 1)


def inverse_density(levels: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """1 / p = 1 / (s (1 - s)) of each level."""
    return 2 + 2 * jnp.cosh(levels)


def find_losses(
    logits: Float[Array, "*B V"],
    tokens: Int[Array, "*B"],
    noised: Int[Array, "*B"],
    levels: Float[Array, "*B"],
    noise: TokenNoise,
) -> tuple[Float[Array, "*B"], Int[Array, "*B"]]:
    """KL + IS of each token in nats, and `losses.target_ranks`.

    All differences are computed by log1p and expm1: at both ends of the levels, KL and
    IS are small differences of large numbers.

    Of 3 ids and [MASK], with x = 0 and x' = .5 .3 .2 at level 0, for a mask:

    >>> noise = TokenNoise("hybrid", mask_id=3, special_ids=(3,), num_ids=4)
    >>> logits, x = jnp.log(jnp.array([[0.5, 0.3, 0.2, 1.0]])), jnp.array([0])
    >>> value, _ = find_losses(logits, x, jnp.array([3]), jnp.zeros(1), noise)
    >>> round(float(value[0]), 5)
    0.17494
    """
    logits = noise.bar(logits)
    log_p, log_k = jax.nn.log_softmax(logits), noise.find_log_k(levels)
    k = jnp.exp(log_k)
    gains = jax.nn.softplus(log_p - log_k[..., None])  # log (1 + p / k)

    def pick(values: Array, ids: Array) -> Array:
        return jnp.take_along_axis(values, ids[..., None], axis=-1)[..., 0]

    is_noise = np.zeros(noise.num_ids, bool)
    is_noise[noise.ordinary_ids] = True
    is_other = is_noise & (np.arange(noise.num_ids) != tokens[..., None])
    others = jnp.where(is_other, gains, 0).sum(-1)
    own = pick(log_p, tokens)
    rest = jnp.log(jnp.maximum(-jnp.expm1(own), 1e-30))  # log (1 - p)
    log_r = jax.nn.softplus(rest - jnp.logaddexp(own, log_k))  # (1 + k) / (p + k)
    divergence = jax.nn.sigmoid(levels) * ((1 + k) * log_r - k * others)
    change = jnp.where(noised == tokens, log_r, -pick(gains, noised))
    change = jnp.minimum(change, MAX_CHANGE)
    surprise = jnp.expm1(change) - change
    surprise = jnp.where(noised == noise.mask_id, 0, surprise)
    return divergence + surprise, losses.target_ranks(logits, tokens)

"""Losses and accuracies as (sum, weight), to be divided once over the whole batch.

All are computed in float32 for logits of any dtype.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from jaxpt.ops.edits import sample_gumbel

SumWeight = tuple[Float[Array, ""], Float[Array, ""]]
# How to sample from logits: a key for each row, and the temperature.
Sampling = tuple[Key[Array, "B"], Float[Array, ""] | float]


class LogitOptions(NamedTuple):
    """Limits and regularization of the logits of a vocabulary.

    Attributes:
      softcap: they are limited by `soft_cap`; 0: they are not.
      z_loss: this times (log sum exp(logits))^2 is added to the loss of each target, by
        its gradient alone: the reported loss stays -log p (PaLM, Chowdhery et al. 2022:
        1e-4).
    """

    softcap: float = 0.0
    z_loss: float = 0.0


PLAIN = LogitOptions()


def soft_cap(logits: Float[Array, "*B V"], cap: float) -> Float[Array, "*B V"]:
    """cap tanh(logits / cap), between -cap and cap (Gemma 2); cap 0 changes nothing.

    >>> round(float(soft_cap(jnp.array([10.0]), 15.0)[0]), 3)
    8.742
    """
    return cap * jnp.tanh(logits.astype(jnp.float32) / cap) if cap else logits


class Scores(NamedTuple):
    """Loss, ranks and samples of logits over a vocabulary.

    Attributes:
      loss: `cross_entropy`; of several targets a position, the sum over all of them.
      ranks: `target_ranks`, of the first target.
      samples: a sample of the distribution at each position; None without `sampling`.
      nll: -log p of each of several targets, without gradient; None for one target.
    """

    loss: SumWeight
    ranks: Int[Array, "*B"]
    samples: Int[Array, "*B"] | None = None
    nll: Float[Array, "*B K"] | None = None


def score(
    logits: Float[Array, "B *T V"],
    targets: Int[Array, "B *T"] | Int[Array, "B *T K"],
    weights: Float[Array, "B *T"] | Float[Array, "B *T K"],
    sampling: Sampling | None = None,
    z_loss: float = 0.0,
) -> Scores:
    """Loss, ranks and, with `sampling`, samples, which have no gradient.

    With K weighted targets a position, the loss is the sum over positions and targets
    j of w_j (lse - z[v_j]); a target that occurs twice counts twice. Uniform logits of
    4 tokens, and a second target of weight 1/2:

    >>> targets, weights = jnp.array([[1, 2]]), jnp.array([[1.0, 0.5]])
    >>> scores = score(jnp.zeros((1, 4)), targets, weights)
    >>> [round(float(x), 4) for x in scores.loss]  # 1.5 ln 4
    [2.0794, 1.5]
    """
    samples = None
    if sampling is not None:
        keys, temperature = sampling
        sample = jax.vmap(sample_gumbel, (0, 0, None))
        samples = sample(keys, jax.lax.stop_gradient(logits), temperature)
    if targets.ndim == logits.ndim:
        total, read = _sum_targets(logits, targets, weights, z_loss)
        loss = total, jnp.sum(weights)
        return Scores(loss, read.ranks, samples, read.nll)
    read = nll_and_ranks(logits, targets, z_loss)
    loss = jnp.sum(read.nll * weights), jnp.sum(weights)
    return Scores(loss, read.ranks, samples)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _sum_targets(
    logits: Float[Array, "*B V"],
    targets: Int[Array, "*B K"],
    weights: Float[Array, "*B K"],
    z_loss: float,
) -> tuple[Float[Array, ""], "LogitReading"]:
    """The weighted sum of -log p, and what it is made of, without gradient."""
    read = read_logits(logits, targets)
    return jnp.sum(read.nll * weights), read


def _sum_targets_forward(
    logits: Array, targets: Array, weights: Array, z_loss: float
) -> tuple:
    read = read_logits(logits, targets)
    return (jnp.sum(read.nll * weights), read), (logits, targets, weights, read)


def _sum_targets_backward(z_loss: float, saved: tuple, grads: tuple) -> tuple:
    logits, targets, weights, read = saved
    slopes = weighted_slopes(logits, targets, weights, read.log_total, z_loss)
    return (slopes * grads[0]).astype(logits.dtype), None, read.nll * grads[0]


_sum_targets.defvjp(_sum_targets_forward, _sum_targets_backward)


def token_nll(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"]
) -> Float[Array, "*B"]:
    """-log p(target) in nats at each position."""
    return nll_and_ranks(logits, targets)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def nll_and_ranks(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"], z_loss: float = 0.0
) -> "LogitReading":
    """-log p(target), with a gradient that saves the logits; without one the rest.

    Args:
      z_loss: of `LogitOptions`, which is in the gradient.
    """
    return read_logits(logits, targets)


def _nll_forward(
    logits: Array, targets: Array, z_loss: float
) -> tuple["LogitReading", tuple]:
    read = read_logits(logits, targets)
    return read, (logits, targets, read.log_total)


def _nll_backward(
    z_loss: float, saved: tuple, grads: "LogitReading"
) -> tuple[Array, None]:
    logits, targets, log_total = saved
    slopes = nll_slopes(logits, targets, log_total, z_loss)
    return (slopes * grads.nll[..., None]).astype(logits.dtype), None


nll_and_ranks.defvjp(_nll_forward, _nll_backward)


class LogitReading(NamedTuple):
    """-log p(target), `target_ranks` of the first target and log sum exp(logits)."""

    nll: Float[Array, "*B"] | Float[Array, "*B K"]
    ranks: Int[Array, "*B"]
    log_total: Float[Array, "*B"]


def read_logits(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"] | Int[Array, "*B K"]
) -> LogitReading:
    """The quantities that the losses of one or K targets need, without gradient.

    A GPU reads the logits once, a TPU reads them once more after the product; elsewhere
    several simple reductions are faster.
    """
    logits = logits.astype(jnp.float32)
    is_one = targets.ndim < logits.ndim
    targets = targets[..., None] if is_one else targets
    picked = jnp.take_along_axis(logits, targets, axis=-1)
    first = picked[..., :1]
    if jax.default_backend() == "gpu":
        log_total, ranks = read_once(logits, first)
    elif jax.default_backend() == "tpu":
        log_total, ranks = read_twice(logits, first)
    else:
        log_total = jax.nn.logsumexp(logits, axis=-1)
        ranks = jnp.sum(logits >= first, axis=-1)
    nll = log_total[..., None] - picked
    return LogitReading(nll[..., 0] if is_one else nll, ranks, log_total)


def read_once(
    logits: Float[Array, "*B V"], picked: Float[Array, "*B 1"]
) -> tuple[Float[Array, "*B"], Int[Array, "*B"]]:
    """log sum exp(logits), and the number of logits that are >= the picked one.

    One reduction, whose sums are relative to the running maximum and are rescaled when
    it rises (Milakov & Gimelshein 2018).
    """

    def shift(total: Array, old: Array, new: Array) -> Array:
        # Where both are infinite, their difference is NaN.
        return total * jnp.where(old == new, 1, jnp.exp(old - new))

    def join(a: tuple, b: tuple) -> tuple[Array, Array, Array]:
        top = jnp.maximum(a[0], b[0])
        return top, shift(a[1], a[0], top) + shift(b[1], b[0], top), a[2] + b[2]

    start = jnp.float32(-jnp.inf), jnp.float32(0), jnp.int32(0)
    each = logits, jnp.ones_like(logits), (logits >= picked).astype(jnp.int32)
    top, total, ranks = jax.lax.reduce(each, start, join, (logits.ndim - 1,))
    return top + jnp.log(total), ranks


def read_twice(
    logits: Float[Array, "*B V"], picked: Float[Array, "*B 1"]
) -> tuple[Float[Array, "*B"], Int[Array, "*B"]]:
    """`read_once` in two steps: the maximum, which TPUs fuse with the product; sums."""

    def join(a: tuple, b: tuple) -> tuple[Array, Array]:
        return a[0] + b[0], a[1] + b[1]

    top = logits.max(-1, keepdims=True)
    # If both are infinite, their difference is NaN.
    shifted = jnp.where(logits == top, 0, logits - top)
    each = jnp.exp(shifted), (logits >= picked).astype(jnp.float32)
    start = jnp.float32(0), jnp.float32(0)
    total, ranks = jax.lax.reduce(each, start, join, (logits.ndim - 1,))
    return top[..., 0] + jnp.log(total), ranks.astype(jnp.int32)


def nll_slopes(
    logits: Float[Array, "*B V"],
    targets: Int[Array, "*B"],
    log_total: Float[Array, "*B"],
    z_loss: float = 0.0,
) -> Float[Array, "*B V"]:
    """The gradient of each -log p(target) by its logits: p minus the one-hot target.

    That of z_loss log_total^2 is 2 z_loss log_total p.
    """
    is_target = jnp.arange(logits.shape[-1]) == targets[..., None]
    return _find_p(logits, log_total, z_loss) - is_target


def _find_p(logits: Array, log_total: Array, z_loss: float) -> Array:
    """The softmax, times 1 + 2 z_loss log_total."""
    p = jnp.exp(logits.astype(jnp.float32) - log_total[..., None])
    return p * (1 + 2 * z_loss * log_total[..., None]) if z_loss else p


def weighted_slopes(
    logits: Float[Array, "*B V"],
    targets: Int[Array, "*B"] | Int[Array, "*B K"],
    weights: Float[Array, "*B"] | Float[Array, "*B K"],
    log_total: Float[Array, "*B"],
    z_loss: float = 0.0,
) -> Float[Array, "*B V"]:
    """The gradient by the logits of the weighted -log p of one or K targets.

    With K, (sum of w) p - sum over j of w_j onehot(v_j): softmax p is computed once.
    """
    if targets.ndim < logits.ndim:
        slopes = nll_slopes(logits, targets, log_total, z_loss)
        return slopes * weights[..., None]
    p = _find_p(logits, log_total, z_loss)
    slopes = p * weights.sum(-1, keepdims=True)
    add = jnp.vectorize(lambda p, v, w: p.at[v].add(-w), signature="(v),(k),(k)->(v)")
    return add(slopes, targets, weights)


def cross_entropy(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"], weights: Float[Array, "*B"]
) -> SumWeight:
    """Weighted sum of -log p(target) in nats, and the sum of weights.

    >>> total, weight = cross_entropy(jnp.zeros((1, 4)), jnp.array([2]), jnp.ones(1))
    >>> round(float(total / weight), 4)  # ln 4
    1.3863
    """
    losses = token_nll(logits, targets)
    return jnp.sum(losses * weights), jnp.sum(weights)


def binary_cross_entropy(
    logits: Float[Array, "*B"], labels: Float[Array, "*B"], weights: Float[Array, "*B"]
) -> SumWeight:
    """Weighted sum of -log p(label) under sigmoid(logits), and the sum of weights.

    >>> total, _ = binary_cross_entropy(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
    >>> round(float(total), 4)  # ln 2
    0.6931
    """
    logits = logits.astype(jnp.float32)
    losses = jax.nn.softplus(logits) - labels * logits
    return jnp.sum(losses * weights), jnp.sum(weights)


def copy_losses(
    nll: Float[Array, "*B"],
    copy_logits: Float[Array, "*B"],
    is_input: Bool[Array, "*B"],
) -> Float[Array, "*B"]:
    """-log p(target) of a mixture: copy the input token, or sample a softmax.

    ELECTRA's all-tokens MLM (Clark et al. 2020, section 3.4): p is 1 - D times the
    softmax, plus D where the target is the input token; D = sigmoid(copy_logits).

    Args:
      nll: -log of the softmax at the target.
      is_input: whether the target is the input token.

    >>> nll, is_input = jnp.log(jnp.array([4.0, 4.0])), jnp.array([True, False])
    >>> losses = copy_losses(nll, jnp.zeros(2), is_input)
    >>> jnp.exp(-losses).round(4).tolist()  # 1/2 + 1/2 1/4, and 1/2 1/4
    [0.625, 0.125]
    """
    generated = -jax.nn.softplus(copy_logits) - nll
    copied = -jax.nn.softplus(-copy_logits)
    return -jnp.where(is_input, jnp.logaddexp(copied, generated), generated)


def divergences(
    logits: Float[Array, "*B V"],
    teacher_logits: Float[Array, "*B V"],
    temperature: float = 1.0,
) -> Float[Array, "*B"]:
    """T^2 KL(softmax(teacher_logits / T) || softmax(logits / T)) in nats, by position.

    Hinton et al. 2015: the factor T^2 cancels the gradient's factor 1 / T^2. The
    teacher gets no gradient.

    >>> divergences(jnp.zeros((1, 2)), jnp.log(jnp.array([[3.0, 1.0]]))).round(4)
    Array([0.1308], dtype=float32)
    """
    wide = logits.astype(jnp.float32) / temperature
    teacher = jax.lax.stop_gradient(teacher_logits).astype(jnp.float32) / temperature
    log_p, log_q = jax.nn.log_softmax(teacher), jax.nn.log_softmax(wide)
    return temperature**2 * jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def cosine_distance(
    x: Float[Array, "*B D"], y: Float[Array, "*B D"], weights: Float[Array, "*B"]
) -> SumWeight:
    """Weighted sum of 1 - cos(x, y), and the sum of weights.

    1e-12 is added to both squared norms, as in PyTorch's `CosineEmbeddingLoss`.

    >>> x = jnp.array([[3.0, 4.0], [0.0, 2.0]])
    >>> total, _ = cosine_distance(x, jnp.array([[6.0, 8.0], [0.0, -1.0]]), jnp.ones(2))
    >>> round(float(total), 4)
    2.0
    """
    x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    squares = [jnp.sum(jnp.square(v), axis=-1) + 1e-12 for v in (x, y)]
    cosine = jnp.sum(x * y, axis=-1) * jax.lax.rsqrt(squares[0] * squares[1])
    return jnp.sum((1 - cosine) * weights), jnp.sum(weights)


def target_ranks(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"]
) -> Int[Array, "*B"]:
    """The number of tokens whose score is at least that of the target, itself included.

    The rank of a target whose logit is NaN is 0, because all comparisons are False.

    >>> target_ranks(jnp.array([[0.0, 2.0, 1.0, 1.0]] * 2), jnp.array([1, 2])).tolist()
    [1, 3]
    """
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)
    return jnp.sum(logits >= picked, axis=-1)


def rank_hits(
    ranks: Int[Array, "*B"], weights: Float[Array, "*B"], k: int = 1
) -> SumWeight:
    """How often the target is among the k highest scores; a tie counts as a miss.

    With ties as misses, constant logits are never correct.

    >>> [float(rank_hits(jnp.array([2]), jnp.ones(1), k)[0]) for k in (1, 2)]
    [0.0, 1.0]
    """
    is_hit = (ranks >= 1) & (ranks <= k)
    return jnp.sum(is_hit * weights), jnp.sum(weights)

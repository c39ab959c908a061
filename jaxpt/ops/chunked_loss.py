"""Cross-entropy over a vocabulary; of a large one, the logits exist a chunk at a time.

The logits of M rows are M x V float32 numbers, for 8k rows and 128k tokens 4 GiB, and
autodiff keeps several such arrays. Here a loop takes some rows, and while their logits
are there takes their losses and, in training, their gradients too (Liger's fused linear
cross-entropy, Hsu et al. 2024): nothing is computed twice, and what is kept is as large
as hidden states and weights are. Factors of products are in the dtype of the hidden
states; they sum in float32, and everything else is float32.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.ops import kernels, losses
from jaxpt.ops.edits import sample_gumbel
from jaxpt.ops.losses import Draw, Scores

# The most logits at once where the setting leaves it open: on CPU 16 MiB of them, which
# stay near the caches; elsewhere 1 GiB, for few and large products. But at least those
# of so many rows, for a chunk reads and writes all of the weights' gradient.
CPU_LIMIT, LIMIT = 2**22, 2**28
MIN_ROWS = 256


def score(
    x: Float[Array, "B *T E"],
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    targets: Int[Array, "B *T"],
    weights: Float[Array, "B *T"],
    chunk_rows: int = 0,
    draw: Draw | None = None,
) -> Scores:
    """`losses.score` of the logits x W + b.

    Args:
      chunk_rows: the most of the B * T rows whose logits exist at once; 0 leaves it to
        the device.
      draw: with it, a chunk is of whole b's and at least of one, for a b's places share
        a key; the samples are those of all logits at once.
    """
    num_chunks = _count_chunks(targets, kernel, chunk_rows, by_key=draw is not None)
    if num_chunks == 1:
        logits = kernels.dense(x, kernel, bias, jnp.float32)
        return losses.score(logits, targets, weights, draw)
    rows = (x, targets, weights) if draw else _flatten(x, targets, weights)
    found = _score(kernel, bias, *rows, draw, num_chunks)
    return found._replace(ranks=found.ranks.reshape(targets.shape))


def nll(
    x: Float[Array, "*B E"],
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    targets: Int[Array, "*B"],
    chunk_rows: int = 0,
) -> Float[Array, "*B"]:
    """-log p of each target under the logits x W + b; no gradient passes."""
    x, kernel, bias = jax.lax.stop_gradient((x, kernel, bias))
    num_chunks = _count_chunks(targets, kernel, chunk_rows)
    if num_chunks == 1:
        logits = kernels.dense(x, kernel, bias, jnp.float32)
        return losses.token_losses(logits, targets)
    rows = _flatten(x, targets, jnp.zeros(targets.shape))
    args: list[Any] = [kernel, bias, *rows, None, num_chunks, False]
    found, _ = _scan(*args)
    return found[0].reshape(targets.shape)


def token_scores(
    x: Float[Array, "*B E"],
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    targets: Int[Array, "*B"],
    chunk_rows: int = 0,
) -> tuple[Float[Array, "*B"], Int[Array, "*B"]]:
    """-log p of each target under the logits x W + b, and `losses.target_ranks`.

    For losses that are no sum of these: gradients pass, for which the logits of each
    chunk, where there are several, are taken once more.
    """

    def read(piece):
        x, targets = piece
        logits = kernels.dense(x, kernel, bias, jnp.float32)
        ranks = losses.target_ranks(logits, targets)
        return losses.token_losses(logits, targets), ranks

    num_chunks = _count_chunks(targets, kernel, chunk_rows)
    if num_chunks == 1:
        return read((x, targets))
    flat = x.reshape(-1, x.shape[-1]), targets.ravel()
    pieces = jax.tree.map(lambda a: _cut(a, num_chunks), flat)
    found = jax.lax.map(jax.checkpoint(read), pieces)
    nll, ranks = (_join(a, targets.size).reshape(targets.shape) for a in found)
    return nll, ranks


# What logits x W + b are made of.
Parts = tuple[Float[Array, "B *T E"], Float[Array, "E V"], Float[Array, "V"] | None]


class Taught(NamedTuple):
    """What a student's scores of a vocabulary are to targets, and to a teacher's.

    Attributes:
      nll: -log p of each target.
      divergences: `losses.divergences` from the teacher.
      ranks: `losses.target_ranks`.
    """

    nll: Float[Array, "B *T"]
    divergences: Float[Array, "B *T"]
    ranks: Int[Array, "B *T"]


def teach(
    student: Parts,
    teacher: Parts,
    targets: Int[Array, "B *T"],
    temperature: float,
    chunk_rows: int = 0,
) -> Taught:
    """Both networks' logits, met at the same places; no gradient passes to the teacher.

    In chunks, those of a chunk are computed again for its gradient: what the two losses
    count for, which it needs, is known only then.

    Args:
      student, teacher: x, W and b of each, with x of the same places.
      chunk_rows: as of `score`.
    """
    teacher = jax.lax.stop_gradient(teacher)
    (x, *head), (taught, *teaching) = student, teacher

    def meet(x, taught, targets):
        logits = kernels.dense(x, head[0], head[1], jnp.float32)
        wanted = kernels.dense(taught, teaching[0], teaching[1], jnp.float32)
        nll = losses.token_losses(logits, targets)
        apart = losses.divergences(logits, wanted, temperature)
        return Taught(nll, apart, losses.target_ranks(logits, targets))

    num_chunks = _count_chunks(targets, head[0], chunk_rows)
    if num_chunks == 1:
        return meet(x, taught, targets)
    rows = [a.reshape(-1, *a.shape[targets.ndim :]) for a in (x, taught, targets)]
    pieces = [_cut(a, num_chunks) for a in rows]
    found = jax.lax.map(jax.checkpoint(lambda piece: meet(*piece)), pieces)
    return jax.tree.map(lambda a: _join(a, targets.size).reshape(targets.shape), found)


def count_chunks(
    num_rows: int, row_logits: int, limit: int, num_devices: int = 1
) -> int:
    """In how many chunks rows of `row_logits` logits each are taken; 1 is all at once.

    Up to twice as many as needed, if the rows then fill all chunks alike, and each
    chunk's rows may be shared out evenly among the devices.

    Args:
      limit: the most logits at once, unless a single row has more.

    >>> count_chunks(1000, row_logits=50_000, limit=300 * 50_000)
    4
    """
    needed = -(-num_rows // max(limit // row_logits, 1))
    if needed <= 1:
        return 1
    even = (n for n in range(needed, 2 * needed) if num_rows % (n * num_devices) == 0)
    return next(even, needed)


def _count_chunks(targets, kernel, chunk_rows: int, by_key: bool = False) -> int:
    num_rows, row_logits = targets.size, kernel.shape[1]
    limit = CPU_LIMIT if jax.default_backend() == "cpu" else LIMIT
    limit = (chunk_rows or max(limit // row_logits, MIN_ROWS)) * row_logits
    if by_key:
        num_rows, row_logits = len(targets), math.prod(targets.shape[1:]) * row_logits
    return count_chunks(num_rows, row_logits, limit, kernels.count_devices())


def _flatten(x, targets, weights):
    return x.reshape(-1, x.shape[-1]), targets.ravel(), weights.ravel()


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _score(kernel, bias, x, targets, weights, draw, num_chunks):
    args = kernel, bias, x, targets, weights, draw, num_chunks
    return _sum_up(_scan(*args, with_gradients=False)[0], weights)


def _score_forward(kernel, bias, x, targets, weights, draw, num_chunks):
    args = kernel, bias, x, targets, weights, draw, num_chunks
    found, grads = _scan(*args, with_gradients=True)
    return _sum_up(found, weights), (grads, found[0])


def _score_backward(num_chunks, saved, cotangents):
    grads, nll = saved
    grad_loss, grad_weight = cotangents.loss
    grads = jax.tree.map(lambda g: (g * grad_loss).astype(g.dtype), grads)
    return *grads, None, nll * grad_loss + grad_weight, None


_score.defvjp(_score_forward, _score_backward)


def _sum_up(found, weights) -> Scores:
    nll, ranks, samples = found
    return Scores((jnp.sum(nll * weights), jnp.sum(weights)), ranks, samples)


def _scan(kernel, bias, x, targets, weights, draw, num_chunks, with_gradients):
    """(nll, ranks, samples) of all rows [M, ...], and the gradients of their loss.

    These are of the weighted sum of nll, for kernel, bias and x; or None.
    """
    low = kernel.astype(x.dtype)  # once, not in every chunk
    keys, temperature = draw or (None, None)
    # Rows that only fill up the chunks count for nothing.
    counted = _fill_up(weights, num_chunks).at[len(weights) :].set(0)

    def step(sums, piece):
        x, targets, weights, keys = piece
        flat = x.reshape(-1, x.shape[-1])
        logits = _product("ME,EV->MV", flat, low).reshape(*targets.shape, -1)
        if bias is not None:
            logits += bias
        samples = keys
        if keys is not None:
            samples = jax.vmap(sample_gumbel, (0, 0, None))(keys, logits, temperature)
        nll = losses.token_losses(logits, targets)
        found = nll, losses.target_ranks(logits, targets), samples
        if not with_gradients:
            return sums, (found, None)
        is_target = jnp.arange(kernel.shape[1]) == targets[..., None]
        slopes = (jax.nn.softmax(logits, axis=-1) - is_target) * weights[..., None]
        slopes = slopes.reshape(len(flat), -1)
        low_slopes = slopes.astype(x.dtype)
        grad_x = _product("MV,EV->ME", low_slopes, low).astype(x.dtype)
        grad_kernel = _product("ME,MV->EV", flat, low_slopes)
        grads = grad_kernel, None if bias is None else slopes.sum(0)
        return jax.tree.map(jnp.add, sums, grads), (found, grad_x.reshape(x.shape))

    pieces = jax.tree.map(lambda a: _cut(a, num_chunks), (x, targets, counted, keys))
    sums = None
    if with_gradients:
        sums = jax.tree.map(lambda a: jnp.zeros(a.shape), (kernel, bias))
    sums, out = jax.lax.scan(step, sums, pieces)
    found, grad_x = jax.tree.map(lambda a: _join(a, len(targets)), out)
    return found, (*sums, grad_x) if with_gradients else None


def _product(equation: str, a: Array, b: Array) -> Array:
    return jnp.einsum(equation, a, b, preferred_element_type=jnp.float32)


def _fill_up(a: Array, num_chunks: int) -> Array:
    """The rows, and the first of them again where chunks would not be equally long."""
    extra = -len(a) % num_chunks
    return jnp.concatenate([a, a[:extra]]) if extra else a


def _cut(a: Array, num_chunks: int) -> Array:
    """[M, ...] -> [chunks, rows, ...].

    A chunk has every n-th row, so that rows sharded over devices stay where they are.
    """
    a = _fill_up(a, num_chunks)
    return a.reshape(-1, num_chunks, *a.shape[1:]).swapaxes(0, 1)


def _join(a: Array, num_rows: int) -> Array:
    """What `_cut` took apart, without the rows that filled it up."""
    return a.swapaxes(0, 1).reshape(-1, *a.shape[2:])[:num_rows]

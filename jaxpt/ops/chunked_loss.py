"""Cross-entropy over a large vocabulary, with the logits computed in chunks of rows.

The logits of M rows are M x V float32 numbers (4 GiB for 8k rows and 128k tokens), and
autodiff keeps several such arrays. Here a loop computes the logits of some rows, their
losses and, in training, their gradients together (Liger's fused linear cross-entropy,
Hsu et al. 2024): nothing is computed twice, and the arrays that are kept have the sizes
of the hidden states and the weights. Products take factors in the dtype of the hidden
states and sum in float32; everything else is float32.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from jaxpt.ops import kernels, layout, losses
from jaxpt.ops.edits import sample_gumbel
from jaxpt.ops.losses import PLAIN, LogitOptions, Sampling, Scores, soft_cap

# The default number of logits in memory at once: 16 MiB on CPU, to fit the caches;
# elsewhere 1 GiB, for few and large products. A chunk has at least MIN_ROWS rows
# because each chunk reads and writes the whole gradient of the weights.
CPU_LIMIT, LIMIT = 2**22, 2**28
MIN_ROWS = 256


def score(
    x: Float[Array, "B *T E"],
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    targets: Int[Array, "B *T"] | Int[Array, "B *T K"],
    weights: Float[Array, "B *T"] | Float[Array, "B *T K"],
    chunk_rows: int = 0,
    sampling: Sampling | None = None,
    options: LogitOptions = PLAIN,
) -> Scores:
    """`losses.score` of the logits x W + b, for one or K targets a position.

    Args:
      chunk_rows: the maximum number of the B * T rows whose logits are in memory at
        once; 0 chooses it by device.
      sampling: with it, a chunk consists of whole rows of the batch, because the
        positions of a row share a key; the samples equal those without chunks.
    """
    by_key = sampling is not None
    num_chunks = _count_chunks(x[..., 0], kernel, chunk_rows, by_key)
    if num_chunks == 1:
        logits = find_logits((x, kernel, bias), options)
        return losses.score(logits, targets, weights, sampling, options.z_loss)
    return _score(kernel, bias, x, targets, weights, sampling, num_chunks, options)


def nll(
    x: Float[Array, "*B E"],
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    targets: Int[Array, "*B"],
    chunk_rows: int = 0,
    options: LogitOptions = PLAIN,
) -> Float[Array, "*B"]:
    """-log p of each target under the logits x W + b, without gradient."""
    x, kernel, bias = jax.lax.stop_gradient((x, kernel, bias))
    num_chunks = _count_chunks(targets, kernel, chunk_rows)
    if num_chunks == 1:
        return losses.token_nll(find_logits((x, kernel, bias), options), targets)
    weights = jnp.zeros(targets.shape)
    rows = x, targets, weights, None
    by_row, _ = _scan(kernel, bias, *rows, num_chunks, options, with_gradients=False)
    return by_row.nll


def token_scores(
    x: Float[Array, "*B E"],
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    targets: Int[Array, "*B"],
    chunk_rows: int = 0,
    options: LogitOptions = PLAIN,
) -> tuple[Float[Array, "*B"], Int[Array, "*B"]]:
    """-log p of each target under the logits x W + b, and `losses.target_ranks`.

    For losses that are not a weighted sum of these. Differentiable: with several
    chunks, the logits of each are recomputed for the gradient.
    """

    def read(logits: Array, targets: Array) -> tuple[Array, Array]:
        read = losses.nll_and_ranks(logits, targets, options.z_loss)
        return read.nll, read.ranks

    return map_logits(read, (x, kernel, bias), (targets,), chunk_rows, options)


# The x, W and b of logits x W + b.
HeadInputs = tuple[
    Float[Array, "B *T E"], Float[Array, "E V"], Float[Array, "V"] | None
]


def find_logits(head: HeadInputs, options: LogitOptions) -> Float[Array, "B *T V"]:
    """The float32 logits, limited by `soft_cap`."""
    return soft_cap(kernels.dense(*head, jnp.float32), options.softcap)


class DistillationScores(NamedTuple):
    """A student's logits compared with targets and with a teacher's logits.

    Attributes:
      nll: -log p of each target.
      divergences: `losses.divergences` from the teacher.
      ranks: `losses.target_ranks`.
    """

    nll: Float[Array, "B *T"]
    divergences: Float[Array, "B *T"]
    ranks: Int[Array, "B *T"]


def distillation_loss(
    student: HeadInputs,
    teacher: HeadInputs,
    targets: Int[Array, "B *T"],
    temperature: float,
    chunk_rows: int = 0,
    options: tuple[LogitOptions, LogitOptions] = (PLAIN, PLAIN),
) -> DistillationScores:
    """Compares the logits of student and teacher; the teacher gets no gradient.

    With several chunks, the logits of each are recomputed for its gradient, because the
    weights of the two losses are only known then.

    Args:
      student, teacher: x, W and b of each, with x at the same positions.
      chunk_rows: as in `score`.
      options: those of student and teacher.
    """
    teacher = jax.lax.stop_gradient(teacher)
    x, kernel, bias = student
    teacher_x, teacher_kernel, teacher_bias = teacher

    def compare(whole: tuple, rows: tuple) -> DistillationScores:
        head, teacher_head = whole
        x, teacher_x, targets = rows
        logits, teacher_logits = (
            find_logits((x, *head), own)
            for x, head, own in zip(
                (x, teacher_x), (head, teacher_head), options, strict=True
            )
        )
        read = losses.nll_and_ranks(logits, targets, options[0].z_loss)
        divergences = losses.divergences(logits, teacher_logits, temperature)
        return DistillationScores(read.nll, divergences, read.ranks)

    num_chunks = _count_chunks(targets, kernel, chunk_rows)
    whole = (kernel, bias), (teacher_kernel, teacher_bias)
    rows = x, teacher_x, targets
    return _map_chunks(compare, whole, rows, targets.ndim, num_chunks)


def bag_losses(
    x: Float[Array, "B *T E"],
    kernel: Float[Array, "E V"],
    tokens: Int[Array, "B *T K"],
    is_counted: Float[Array, "B *T K"],
    weights: Float[Array, "B *T"],
    chunk_rows: int = 0,
) -> Float[Array, "B *T"]:
    """The weighted binary cross-entropy of bags of tokens, by the logits z = x W.

    sum over v of softplus(z_v), minus z_v of the tokens in the bag.

    Args:
      tokens: the bag of each position.
      is_counted: 0 for tokens that occur twice or are not in the bag.

    Of 10 tokens, two in the bag:

    >>> z = jnp.zeros((1, 10)).at[0, 9].set(2.0).at[0, 8].set(-1.0)
    >>> tokens, ones = jnp.array([[9, 8]]), jnp.ones((1, 2))
    >>> loss = bag_losses(jnp.ones((1, 1)), z, tokens, ones, jnp.ones(1))
    >>> round(float(loss[0]), 5)
    6.98537
    """

    def read(logits: Array, tokens: Array, is_counted: Array, weights: Array) -> Array:
        picked = jnp.take_along_axis(logits, tokens, axis=-1) * is_counted
        return weights * (jax.nn.softplus(logits).sum(-1) - picked.sum(-1))

    rows = tokens, is_counted, weights
    return map_logits(read, (x, kernel, None), rows, chunk_rows)


def map_logits(
    function: Callable[..., Any],
    head: HeadInputs,
    rows: tuple[Array, ...],
    chunk_rows: int = 0,
    options: LogitOptions = PLAIN,
) -> Any:
    """function(logits, *rows), arrays [B, *T], of the logits x W + b in chunks.

    Differentiable: with several chunks, the logits of each are recomputed for the
    gradient.

    Args:
      head: x, W and b.
      rows: arrays [B, *T, ...], the last [B, *T].
    """
    x, kernel, bias = head

    def read(whole: tuple, rows: tuple) -> Any:
        x, *more = rows
        return function(find_logits((x, *whole), options), *more)

    num_chunks = _count_chunks(rows[-1], kernel, chunk_rows)
    whole = kernel, bias
    return _map_chunks(read, whole, (x, *rows), rows[-1].ndim, num_chunks)


def _map_chunks(
    function: Callable[[Any, Any], Any],
    whole: tuple,
    rows: tuple[Array, ...],
    num_axes: int,
    num_chunks: int,
) -> Any:
    """function(whole, rows) in chunks of rows; `rows` are arrays [B, *T, ...].

    The logits of each chunk are recomputed for its gradient.

    Args:
      num_axes: the number of leading axes [B, *T] that are flattened to rows.
    """
    if num_chunks == 1:
        return function(whole, rows)

    def run(whole: tuple, rows: tuple[Array, ...]) -> tuple[Any, tuple]:
        shape = rows[-1].shape
        flat = [a.reshape(-1, *a.shape[num_axes:]) for a in rows]
        pieces = [_cut(a, num_chunks) for a in flat]
        one = jax.checkpoint(lambda piece: function(whole, piece))
        results = jax.lax.map(one, pieces)
        num_rows = len(flat[0])
        return jax.tree.map(lambda a: _join(a, num_rows).reshape(shape), results), ()

    return layout.map_rows(run, whole, rows)[0]


def count_chunks(
    num_rows: int, row_logits: int, limit: int, num_devices: int = 1
) -> int:
    """The number of chunks for rows of `row_logits` logits each; 1 means no chunks.

    It is up to twice the minimum, if this makes all chunks equally long and divides the
    rows of each evenly among the devices.

    Args:
      limit: the maximum number of logits of a chunk, unless a single row has more.

    >>> count_chunks(1000, row_logits=50_000, limit=300 * 50_000)
    4
    """
    needed = -(-num_rows // max(limit // row_logits, 1))
    if needed <= 1:
        return 1
    even = (n for n in range(needed, 2 * needed) if num_rows % (n * num_devices) == 0)
    return next(even, needed)


def _count_chunks(
    places: Shaped[Array, "B *T"],
    kernel: Float[Array, "E V"],
    chunk_rows: int,
    by_key: bool = False,
) -> int:
    """Chunks of the rows of each device, or of all if they do not divide evenly."""
    num_rows, row_logits = places.size, kernel.shape[1]
    limit = CPU_LIMIT if jax.default_backend() == "cpu" else LIMIT
    limit = (chunk_rows or max(limit // row_logits, MIN_ROWS)) * row_logits
    parts = layout.count_parts(places.shape)
    if by_key:
        num_rows, row_logits = len(places), math.prod(places.shape[1:]) * row_logits
        parts = layout.count_parts(places.shape[:1])
    shares = layout.count_shares()
    if len(places) % shares:
        return count_chunks(num_rows, row_logits, limit * shares, shares)
    return count_chunks(num_rows // parts, row_logits, limit)


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def _score(
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    x: Float[Array, "B *T E"],
    targets: Int[Array, "B *T"],
    weights: Float[Array, "B *T"],
    sampling: Sampling | None,
    num_chunks: int,
    options: LogitOptions,
) -> Scores:
    args = kernel, bias, x, targets, weights, sampling, num_chunks, options
    return _sum_up(_scan(*args, with_gradients=False)[0], weights)


def _score_forward(*args: Any) -> tuple[Scores, tuple]:
    scan = functools.partial(_scan, with_gradients=True)
    by_row, grads = scan(*args)
    return _sum_up(by_row, weights=args[4]), (grads, by_row.nll)


def _score_backward(
    num_chunks: int, options: LogitOptions, saved: tuple, cotangents: Scores
) -> tuple:
    grads, nll = saved
    grad_loss, grad_weight = cotangents.loss
    grads = jax.tree.map(lambda g: (g * grad_loss).astype(g.dtype), grads)
    return *grads, None, nll * grad_loss + grad_weight, None


_score.defvjp(_score_forward, _score_backward)


def _sum_up(by_row: "_ByRow", weights: Array) -> Scores:
    nll, ranks, samples = by_row
    loss = jnp.sum(nll * weights), jnp.sum(weights)
    return Scores(loss, ranks, samples, nll if nll.ndim > ranks.ndim else None)


class _ByRow(NamedTuple):
    """What is computed for each row; `samples` is None without sampling."""

    nll: Float[Array, "B *T"] | Float[Array, "B *T K"]
    ranks: Int[Array, "B *T"]
    samples: Int[Array, "B *T"] | None


def _scan(
    kernel: Float[Array, "E V"],
    bias: Float[Array, "V"] | None,
    x: Float[Array, "B *T E"],
    targets: Int[Array, "B *T"],
    weights: Float[Array, "B *T"],
    sampling: Sampling | None,
    num_chunks: int,
    options: LogitOptions,
    with_gradients: bool,
) -> tuple[_ByRow, tuple | None]:
    """The results of all rows, and the gradients of the weighted sum of nll.

    The gradients are those by kernel, bias and x; None without `with_gradients`.
    """
    low = kernel.astype(x.dtype)  # once, not in every chunk
    keys, temperature = None, None
    if sampling:
        keys, temperature = sampling[0], jnp.asarray(sampling[1])
    run = functools.partial(
        _scan_rows,
        num_chunks=num_chunks,
        options=options,
        with_gradients=with_gradients,
    )
    whole, rows = (low, bias, temperature), (x, targets, weights, keys)
    (by_row, grad_x), sums = layout.map_rows(run, whole, rows)
    return by_row, (*sums, grad_x) if with_gradients else None


def _scan_rows(
    whole: tuple,
    rows: tuple,
    num_chunks: int,
    options: LogitOptions,
    with_gradients: bool,
) -> tuple[tuple[_ByRow, Array | None], tuple]:
    """(Results of rows, gradient by x) and (gradients by kernel and bias)."""
    low, bias, temperature = whole
    x, targets, weights, keys = rows
    leading, several = x.shape[:-1], targets.shape[x.ndim - 1 :]  # (K,), or () of one
    if keys is None:  # otherwise the positions of a row share its key
        x = x.reshape(-1, x.shape[-1])
        targets, weights = (a.reshape(-1, *several) for a in (targets, weights))
    # Rows that only pad the last chunk have weight 0.
    counted = _fill_up(weights, num_chunks).at[len(weights) :].set(0)

    def step(sums: tuple, piece: tuple) -> tuple[tuple, tuple]:
        x, targets, weights, keys = piece
        flat = x.reshape(-1, x.shape[-1])
        logits = _product("ME,EV->MV", flat, low).reshape(*x.shape[:-1], -1)
        if bias is not None:
            logits += bias
        logits = soft_cap(logits, options.softcap)
        samples = keys
        if keys is not None:
            samples = jax.vmap(sample_gumbel, (0, 0, None))(keys, logits, temperature)
        read = losses.read_logits(logits, targets)
        by_row = _ByRow(read.nll, read.ranks, samples)
        if not with_gradients:
            return sums, (by_row, None)
        slopes = losses.weighted_slopes(
            logits, targets, weights, read.log_total, options.z_loss
        )
        if options.softcap:  # the slope of tanh
            slopes *= 1 - jnp.square(logits / options.softcap)
        slopes = slopes.reshape(len(flat), -1)
        low_slopes = slopes.astype(x.dtype)
        grad_x = _product("MV,EV->ME", low_slopes, low).astype(x.dtype)
        grad_kernel = kernels.kernel_gradient(flat, low_slopes)
        grads = grad_kernel, None if bias is None else slopes.sum(0)
        return jax.tree.map(jnp.add, sums, grads), (by_row, grad_x.reshape(x.shape))

    pieces = jax.tree.map(lambda a: _cut(a, num_chunks), (x, targets, counted, keys))
    sums: tuple = ()
    if with_gradients:
        sums = jax.tree.map(lambda a: jnp.zeros(a.shape), (low, bias))
    sums, out = jax.lax.scan(step, sums, pieces)
    by_row, grad_x = jax.tree.map(lambda a: _join(a, len(targets)), out)
    by_row = _ByRow(
        by_row.nll.reshape(*leading, *several),
        *jax.tree.map(lambda a: a.reshape(leading), by_row[1:]),
    )
    return (by_row, None if grad_x is None else grad_x.reshape(*leading, -1)), sums


def _product(equation: str, a: Array, b: Array) -> Array:
    return jnp.einsum(equation, a, b, preferred_element_type=jnp.float32)


def _fill_up(a: Array, num_chunks: int) -> Array:
    """Pads the rows with copies of the first ones to make all chunks equally long."""
    extra = -len(a) % num_chunks
    return jnp.concatenate([a, a[:extra]]) if extra else a


def _cut(a: Array, num_chunks: int) -> Array:
    """[M, ...] -> [chunks, rows, ...].

    A chunk takes every n-th row, so that rows sharded over devices do not move.
    """
    a = _fill_up(a, num_chunks)
    return a.reshape(-1, num_chunks, *a.shape[1:]).swapaxes(0, 1)


def _join(a: Array, num_rows: int) -> Array:
    """The inverse of `_cut`, without the padding rows."""
    return a.swapaxes(0, 1).reshape(-1, *a.shape[2:])[:num_rows]

"""From loss terms to a new state: weighing, microbatches, the optimizer's step.

A loss is a sum and a weight. Every microbatch and device divides its sum by the weight
of the *whole* batch, so their gradients simply add up to the big batch's.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from jaxpt.learn.frozen import keep
from jaxpt.learn.state import TrainState
from jaxpt.ops import metrics as sums


def add_devices(tree, axis: str | None):
    """Sums over the devices of a pmap axis; under jit there is nothing to do."""
    return tree if axis is None else jax.lax.psum(tree, axis)


def weigh(terms: dict, totals: dict, coefficients: dict) -> Array:
    """What is differentiated: sum over terms of coefficient * sum / total weight."""
    return sum(
        coefficients[name] * total / jnp.maximum(totals[name], 1e-9)
        for name, (total, _) in terms.items()
    )


def weigh_rows(batch: dict, rows: dict) -> dict:
    """The corrupted batch with its weights times those of its rows, if these have any.

    All that is real-valued in a batch is a weight (`jaxpt.dims.BATCH_KEYS`): a row of
    weight 0 adds to no loss and to no metric.
    """
    if "row_weights" not in rows:
        return batch

    def weigh(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x * rows["row_weights"].reshape(-1, *[1] * (x.ndim - 1))

    return {key: weigh(value) for key, value in batch.items()}


def accumulate(
    loss_fn: Callable,
    params,
    batch: dict,
    rngs: dict,
    num_microbatches: int,
    axis: str | None = None,
):
    """The gradient of `loss_fn` over a batch, one microbatch after the other.

    Args:
      loss_fn: (params, microbatch, rngs) -> (scalar, {name: (sum, weight)}).
      batch: arrays [B, ...], already corrupted; B is a multiple of `num_microbatches`.
      rngs: "dropout" is folded with the microbatch and pmap's device; "sample" is not,
        for it is folded with each row's place, however the batch is cut.
      axis: pmap's, if any.

    Returns:
      gradients as params, and the summed {name: (sum, weight)}.
    """
    grad_fn = jax.grad(loss_fn, has_aux=True)
    if axis is not None:
        dropout = jax.random.fold_in(rngs["dropout"], jax.lax.axis_index(axis))
        rngs = rngs | {"dropout": dropout}
    if num_microbatches == 1:
        return grad_fn(params, batch, rngs)

    # Every n-th row, so that rows sharded over devices stay where they are.
    pieces = jax.tree.map(
        lambda x: x.reshape(-1, num_microbatches, *x.shape[1:]).swapaxes(0, 1), batch
    )

    def step(carry, piece):
        micro, index = piece
        dropout = jax.random.fold_in(rngs["dropout"], index)
        grads, metrics = grad_fn(params, micro, rngs | {"dropout": dropout})
        carry = jax.tree.map(jnp.add, carry[0], grads), sums.add(carry[1], metrics)
        return carry, None

    first = jax.tree.map(lambda x: x[0], pieces)
    shapes = jax.eval_shape(grad_fn, params, first, rngs)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    carry, _ = jax.lax.scan(step, zeros, (pieces, jnp.arange(num_microbatches)))
    return carry


def apply_gradients(
    state: TrainState,
    grads,
    optimizer: optax.GradientTransformation,
    frozen: tuple[str, ...] = (),
) -> TrainState:
    """The state one step later; what is frozen is that of before, bit by bit."""
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = keep(state.params, optax.apply_updates(state.params, updates), frozen)
    return dataclasses.replace(
        state, params=params, opt_state=opt_state, step=state.step + 1
    )


def gradient_norm(grads) -> dict:
    """The global norm before clipping, as a metric of one step."""
    return {"grad_norm": (optax.tree.norm(grads), jnp.ones(()))}


def average_params(
    state: TrainState, decay: float, frozen: tuple[str, ...] = ()
) -> TrainState:
    """The state with the mean of the parameters after every step so far.

    Those of i steps ago weigh decay^i, and the weights sum to 1 from the first step on
    (Adam's bias correction), so that no share of the initial parameters remains.
    """
    if state.ema is None:
        return state

    # 1 - decay^t without the cancellation of float32.
    rest = lambda t: -jnp.expm1(t * math.log(decay))  # noqa: E731
    kept = decay * rest(state.step - 1) / rest(state.step)
    ema = jax.tree.map(
        lambda old, new: kept * old + (1 - kept) * new.astype(jnp.float32),
        state.ema,
        state.params,
    )
    return dataclasses.replace(state, ema=keep(state.ema, ema, frozen))

"""The optimizer update of a training step, over microbatches and devices.

A loss is a sum and a weight. Every microbatch and device divides its sum by the weight
of the *whole* batch, so that the gradients add up to that of the whole batch. The train
step of every objective ends with an `Update`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from jaxpt.dims import Batch, Rows
from jaxpt.learn.frozen import keep, split_trained
from jaxpt.learn.loss_scale import scale_down, scale_up
from jaxpt.learn.skips import SkipRule, keep_if
from jaxpt.learn.state import TrainState
from jaxpt.ops import metrics as sums


def add_devices(tree: PyTree, axis: str | None) -> PyTree:
    """Sums over the devices of a pmap axis; the identity under jit."""
    return tree if axis is None else jax.lax.psum(tree, axis)


def weigh(terms: dict, totals: dict, coefficients: dict) -> Array:
    """The loss: the sum over terms of coefficient * sum / total weight."""
    return sum(
        coefficients[name] * total / jnp.maximum(totals[name], 1e-9)
        for name, (total, _) in terms.items()
    )


def weigh_rows(batch: Batch, rows: Rows) -> Batch:
    """Multiplies the weights of a batch by the weights of its rows, if any.

    A row of weight 0 then contributes to no loss or metric.
    """
    if "row_weights" not in rows:
        return batch
    factors = rows["row_weights"]
    weights = jax.tree.map(
        lambda x: x * factors.reshape(-1, *[1] * (x.ndim - 1)), batch["weights"]
    )
    return batch | {"weights": weights}


def accumulate(
    loss_fn: Callable,
    params: PyTree,
    batch: dict,
    rngs: dict,
    num_microbatches: int,
    axis: str | None = None,
) -> tuple[PyTree, dict]:
    """The gradient of `loss_fn` over a batch, one microbatch after the other.

    Args:
      loss_fn: (params, microbatch, rngs) -> (scalar, {name: (sum, weight)}).
      batch: arrays [B, ...], already corrupted; B is a multiple of `num_microbatches`.
      rngs: "dropout" is folded with the microbatch and pmap's device; "sample" is not,
        because it is folded with the index of each row.
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

    # Every n-th row, so that rows sharded over devices do not move.
    def cut(x: Array) -> Array:
        parts = x.reshape(len(x) // num_microbatches, num_microbatches, *x.shape[1:])
        return parts.swapaxes(0, 1)

    pieces = jax.tree.map(cut, batch)

    def step(carry: tuple, piece: tuple) -> tuple[tuple, None]:
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


@dataclasses.dataclass(frozen=True)
class Update:
    """The update of the parameters, which all objectives share.

    Attributes:
      optimizer: includes clipping and schedules (`jaxpt.learn.optimizer`).
      num_microbatches: the parts of the batch whose gradients are accumulated.
      axis: the axis name of pmap; None under jit.
      frozen: paths of the parameters that are not updated.
      skip_rule: which updates are skipped; None for a state without `skips`.
    """

    optimizer: optax.GradientTransformation
    num_microbatches: int = 1
    axis: str | None = None
    frozen: tuple[str, ...] = ()
    skip_rule: SkipRule | None = None

    def __call__(
        self,
        state: TrainState,
        batch: Batch,
        loss_fn: Callable,
        rngs: dict[str, Array],
        coefficients: dict[str, float],
    ) -> tuple[TrainState, dict[str, Any]]:
        """The state after the step, and the metrics of the whole batch.

        Args:
          batch: corrupted, [B, ...]; B is a multiple of `num_microbatches`.
          loss_fn: (params, microbatch, rngs) -> loss terms and metrics, each
            {name: (sum, weight)}; a term's weight is the sum of batch["weights"][term].
          rngs: the step's keys by purpose (`jaxpt.rng.split_step`).
          coefficients: the factors of the terms' means in the loss.
        """
        sums_of = {name: batch["weights"][name].sum() for name in coefficients}
        totals = add_devices(sums_of, self.axis)
        trained, join = split_trained(state.params, self.frozen)
        scale = None if state.skips is None else state.skips.scale

        def weighed(trained: PyTree, micro: dict, rngs: dict) -> tuple[Array, dict]:
            terms, metrics = loss_fn(join(trained), micro, rngs)
            loss = weigh(terms, totals, coefficients)
            return scale_up(loss, scale), terms | metrics

        rngs = {name: rngs[name] for name in ("dropout", "sample")}
        grads, metrics = accumulate(
            weighed, trained, dict(batch), rngs, self.num_microbatches, self.axis
        )
        grads, metrics = add_devices((grads, metrics), self.axis)
        grads = scale_down(grads, scale)
        if self.frozen:  # the optimizer needs a gradient of every parameter
            _, join_grads = split_trained(
                jax.tree.map(jnp.zeros_like, state.params), self.frozen
            )
            grads = join_grads(grads)
        with jax.named_scope("optimizer"):  # for `jaxpt fit` and profiles
            updates, opt_state = self.optimizer.update(
                grads, state.opt_state, state.params
            )
            params = optax.apply_updates(state.params, updates)
            norm = optax.tree.norm(grads)  # before clipping
        skips = state.skips
        if self.skip_rule is not None and skips is not None:
            terms = {name: metrics[name] for name in coefficients}
            loss = weigh(terms, totals, coefficients)
            skips = self.skip_rule.judge(skips, loss, norm)
            old, new = (state.params, state.opt_state), (params, opt_state)
            params, opt_state = keep_if(skips.is_last, old, new)
        state = dataclasses.replace(
            state,
            params=keep(state.params, params, self.frozen),
            opt_state=opt_state,
            step=state.step + 1,
            skips=skips,
        )
        return state, metrics | {"grad_norm": (norm, jnp.ones(()))}


def average_params(
    state: TrainState, decay: float, frozen: tuple[str, ...] = ()
) -> TrainState:
    """Updates the exponential moving average of the parameters.

    Parameters of i steps ago have a weight proportional to decay^i. The weights sum to
    1 from the first step on (Adam's bias correction), without the initial parameters.
    """
    if state.ema is None:
        return state

    # 1 - decay^t without the cancellation of float32.
    rest = lambda t: -jnp.expm1(t * math.log(decay))  # noqa: E731
    old_weight = decay * rest(state.step - 1) / rest(state.step)
    ema = jax.tree.map(
        lambda old, new: old_weight * old + (1 - old_weight) * new.astype(jnp.float32),
        state.ema,
        state.params,
    )
    return dataclasses.replace(state, ema=keep(state.ema, ema, frozen))
